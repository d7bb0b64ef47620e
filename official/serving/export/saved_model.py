"""Exports a model folder as a SavedModel that takes raw text."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from official.conversion.any_folder import open_folder
from official.modeling.layers import kernels
from official.modeling.model import Model
from official.saving.generation_settings import Settings, new_tokens
from official.saving.served_model import check_max_length, with_one_head
from official.serving.compute.precision import Weights
from official.serving.export import graph_size
from official.serving.generation import generator, mask_filler, token_choice
from official.serving.signatures import fill_mask, sparse, table, texts
from official.serving.signatures.inputs import ServingContext, bounded
from official.tasks import KINDS
from official.utils import atomic, paths
from official.utils.errors import UserError, warn
from official.utils.paths import AnyPath

LABELS = "labels.txt"
MAX_BYTES = 1_000_000  # of a text, by default

_TOKENS = "tokens"


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
    max_bytes: int | None = None,
    **search: Any,
) -> tuple[str, int]:
    """Writes a SavedModel: see `official.export`.

    `search` are settings of `official.saving.generation_settings.Settings` but those of sampling.
    The others are those of the model folder, and of `task` if its `generation.json` has this task.

    Returns:
      The name of the signature that is `serving_default`, and the maximum length of its input.

    Raises:
      UserError: `model_dir` is not a model folder; its labels have no names; `max_length` or
        a setting of generation is out of range; `inputs` is given for a model without a choice; no
        head has the name `task`, or several tasks are there and `task` is None; this TensorFlow has
        no int8 products; `output` exists, or has a name that no loader can read.
    """
    check_name(output)
    context, kind, inputs = restore(
        model_dir, checkpoint, max_length, inputs, max_new_tokens, task, precision, **search
    )
    write(context, kind, inputs, output, max_bytes)
    return inputs, context.max_length


def write(
    context: ServingContext,
    kind: table.Signatures,
    default: str,
    output: str | os.PathLike,
    max_bytes: int | None,
) -> None:
    """Writes what `restore` returns, or an ensemble of it, as a SavedModel.

    A request with a text of more than `max_bytes` bytes is refused; 0 = none is, None = those of
    `MAX_BYTES`.
    """
    with (
        atomic.folder(output, "saved_model.pb") as temporary,
        kernels.using(
            gradients=False, write_slots=token_choice.write_slots, missing_bias=_missing_bias
        ),
    ):
        server, signatures = table.make(context, kind, default)
        signatures = bounded(signatures, MAX_BYTES if max_bytes is None else max_bytes)
        tf.saved_model.save(server, str(temporary), signatures=signatures)
        graph_size.shrink(temporary)
        write_labels(context, temporary)


def _missing_bias(size: int, dtype: str) -> tf.Tensor | None:
    """Returns zeros for products in bfloat16, see `kernels.missing_bias`.

    If weights are declared frozen (see docs/serving.md), oneDNN keeps the layout of the kernel for
    products with a bias alone. In float32 it is slower.
    """
    if dtype != "bfloat16":
        return None
    # Unlike a constant of zeros, it is not removed by the optimizer of graphs.
    return tf.raw_ops.PlaceholderWithDefault(input=tf.zeros(size, dtype), shape=(size,))


def restore_for_ids(
    model_dir: str | os.PathLike,
    checkpoint: str,
    max_length: int | None,
    task: str | None,
    form: str,
) -> tuple[ServingContext, dict[str, Any]]:
    """Loads a model folder for a runtime that has no tokenizers.

    The arguments are those of `export`, and `form` is the value of `--format`.

    Returns:
      What is served, and the signatures that take token ids: `tokens`, of an encoder without a head
      `embed_tokens` or those of `sparse`, and of a masked LM `fill_mask_tokens`.

    Raises:
      UserError: as in `export`; the model has no signature `tokens`.
    """
    context, kind, _ = restore(model_dir, checkpoint, max_length, task=task, groups=False)
    warn_of_windows(context, form)
    signatures = kind.signatures(context)
    if _TOKENS not in signatures:
        raise UserError(
            f"--format={form}: not supported for this model, which has no signature `{_TOKENS}`; "
            "remove --format"
        )
    names = (_TOKENS, texts.EMBED_TOKENS, *sparse.TOKENS)
    kept = {name: signatures[name] for name in names if name in signatures}
    if context.filler is not None:
        kept[fill_mask.TOKENS] = fill_mask.signatures(context)[fill_mask.TOKENS]
    return context, kept


def warn_of_windows(context: ServingContext, form: str) -> None:
    """Says that a file that takes ids has the outputs of a window, if the model joins several."""
    if count := context.task.get("windows"):
        warn(
            f"--format={form}: the model reads texts in up to {count} windows of "
            f"{context.max_length} tokens that share {context.task.get('window_overlap')}, and the "
            "file has the outputs of one: cut texts and join the outputs outside, or export a "
            "SavedModel"
        )


def check_name(output: str | os.PathLike) -> None:
    """Refuses a path that TensorFlow's loader, which takes it for a pattern, would not find."""
    path = paths.path(output)
    if not isinstance(path, paths.RemotePath):
        path = path.absolute()
    if found := set("[\\") & set(str(path)):
        raise UserError(
            f"--output: {path}: TensorFlow cannot load a SavedModel from a path with "
            f"{' or '.join(sorted(found))}: name another folder"
        )


def write_labels(context: ServingContext, folder: AnyPath) -> None:
    """Writes `labels.txt`: the labels or tags of the head in their order, one on each line.

    A model whose head has none gets no file.
    """
    if context.head is not None and context.head.config.labels:
        lines = (f"{label}\n" for label in context.head.config.labels)
        (folder / LABELS).write_text("".join(lines), "utf-8")


def restore(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
    groups: bool = True,
    **search: Any,
) -> tuple[ServingContext, table.Signatures, str]:
    """Restores the model that an export serves; see `export` for the arguments and the errors.

    `groups` is that of `ServingContext`.

    Returns:
      The model, the module of its signatures, and the name of the default signature.
    """
    folder = open_folder(model_dir, checkpoint)
    tokenizer, model = folder.tokenizer, folder.model(precision, finished=True)
    defaults = folder.generation
    of_generation = task is not None and task in defaults.tasks
    config = with_one_head(folder.config, model, None if of_generation else task)
    kind, head = table.served(config, model)
    about = folder.task
    about = about.get("tasks", {}).get(task, about)
    if inputs is not None and inputs not in kind.DEFAULT:
        ((name, takes),) = kind.DEFAULT.items()
        raise UserError(
            f"--inputs={inputs}: not supported for this model, whose signature `{name}` takes "
            f"{takes}; remove --inputs"
        )
    if inputs is None:
        inputs = (
            "pair" if about.get("pair") and "pair" in kind.DEFAULT else next(iter(kind.DEFAULT))
        )
    embedding = folder.embedding.with_values(max_length=max_length)
    if max_length is None:
        max_length = folder.max_length
    check_max_length(max_length, config.encoder, "--max_length=")
    check_max_length(embedding.max_length or max_length, config.encoder)
    if max_new_tokens is not None:
        search["max_new_tokens"] = max_new_tokens
    given = defaults.values(search, task if of_generation else None)
    generation = _generation(model, max_length, search, given)
    about = {**about, "pair": inputs == "pair"}
    # A projection is stored, too, and the head of sparse vectors.
    learned = head or model.objective(*KINDS["embedding"].objectives)
    # The generator of an ELECTRA would be as large as a third of the encoder: it is not exported.
    encoder, masked_lm = mask_filler.masked_head(model) or (None, None)
    fills = tokenizer.mask_id is not None and encoder is model.encoder
    stored = (model.encoder, learned, masked_lm if fills else None)
    weights = Weights([layer for layer in stored if layer is not None], precision)
    context = ServingContext(
        config, tokenizer, model, max_length, about, embedding=embedding, weights=weights,
        head=head, settings=generation, groups=groups,
        prefix=defaults.of(task).prefix if of_generation else "",
    )  # fmt: skip
    if fills:
        filler = mask_filler.MaskFiller(context, weights)
        context = dataclasses.replace(context, filler=filler)
    return context, kind, inputs


def _generation(
    model: Model, max_length: int, requested: Mapping[str, Any], values: Mapping[str, Any]
) -> Settings:
    """Returns the settings of generation, after the checks that need the model.

    Args:
      model: the model.
      max_length: the maximum length of a text.
      requested: the settings that the user gives.
      values: these and the defaults of the model folder.
    """
    if (reason := generator.why_not(model)) is not None:
        for name, value in requested.items():
            if value != getattr(Settings(), name, None):
                raise UserError(f"--{name}: {reason}")
        return Settings()
    # A request of the signature `sample` has the settings of sampling.
    draws = ("temperature", "top_k", "top_p", "seed")
    values = {name: value for name, value in values.items() if name not in draws}
    if values.get("num_beams", 1) == 1:
        if (copies := requested.get("num_return_sequences", 1)) > 1:
            raise UserError(
                f"--num_return_sequences={copies}: greedy search finds one text; give --num_beams, "
                "or remove --num_return_sequences"
            )
        values.pop("num_return_sequences", None)
    if generator.objective(model) == "causal_lm":
        count = values.setdefault("max_new_tokens", new_tokens(max_length))
        if not 1 <= count < max_length:
            raise UserError(
                f"--max_new_tokens={count}: must be from 1 to {max_length - 1}, less than "
                "--max_length"
            )
    return Settings.of(values)
