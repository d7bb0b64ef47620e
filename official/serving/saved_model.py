"""Exports a model folder as a SavedModel that takes raw text."""

import os

import tensorflow as tf

from official.modeling.layers import cache, gradient
from official.modeling.model import Model
from official.saving import model_folder
from official.serving import graph_size, in_place, writers
from official.serving.precision import Weights
from official.serving.sampling import Settings
from official.serving.signatures import table
from official.serving.signatures.inputs import ServingContext
from official.serving.task_head import with_one_head
from official.serving.text_model import TextModel
from official.utils import atomic
from official.utils.errors import UserError


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
    **beams: int | float | str,
) -> tuple[str, int]:
    """Writes a SavedModel: see `official.export`.

    `beams` are `num_beams`, `length_penalty` and `length_rule`, as in
    `official.serving.sampling.Settings`.

    Returns:
      The name of the signature that is `serving_default`, and the maximum length of its input.

    Raises:
      UserError: `model_dir` is not a model folder; its labels have no names; `max_length` or
        a setting of generation is out of range; `inputs` is given for a model without a choice; no
        head has the name `task`, or several tasks are there and `task` is None; this TensorFlow has
        no int8 products; `output` exists.
    """
    parts, kind, inputs = restore(
        model_dir, checkpoint, max_length, inputs, max_new_tokens, task, precision, **beams
    )
    with (
        atomic.folder(output, "saved_model.pb") as temporary,
        gradient.left_out(),
        cache.written_by(in_place.write),
    ):
        server, signatures = table.make(parts, kind, inputs)
        tf.saved_model.save(server, str(temporary), signatures=signatures)
        graph_size.shrink(temporary)
    return inputs, parts.max_length


def restore(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
    groups: bool = True,
    **beams: int | float | str,
) -> tuple[ServingContext, table.Signatures, str]:
    """Restores the model that an export serves; see `export` for the arguments and the errors.

    `groups` is that of `ServingContext`.

    Returns:
      The model, the module of its signatures, and the name of the default signature.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint, precision)
    config = with_one_head(config, model, task)
    kind, head = table.served(config, model)
    about = model_folder.task(model_dir)
    about = about.get("tasks", {}).get(task, about)
    if inputs is not None and inputs not in kind.DEFAULT:
        ((name, takes),) = kind.DEFAULT.items()
        raise UserError(f"--inputs={inputs}: this model has `{name}`, of {takes}: leave it out")
    if inputs is None:
        inputs = (
            "pair" if about.get("pair") and "pair" in kind.DEFAULT else next(iter(kind.DEFAULT))
        )
    if max_length is None:
        max_length = model_folder.max_length(model_dir, config)
    positions = config.encoder.max_positions
    if not 4 <= max_length <= positions:
        raise UserError(
            f"--max_length={max_length}: must be from 4 to {positions}, the positions of this "
            "encoder"
        )
    generation = _generation(model, max_length, max_new_tokens, beams)
    about = {**about, "pair": inputs == "pair"}
    weights = Weights([layer for layer in (model.encoder, head) if layer], precision)
    source = TextModel(config, tokenizer, model, max_length, about)
    return ServingContext(source, weights, head, generation, groups), kind, inputs


def _generation(
    model: Model, max_length: int, max_new_tokens: int | None, beams: dict[str, int | float | str]
) -> Settings:
    """Returns the settings of generation, after the checks that need the model."""
    if max_new_tokens is not None and (reason := writers.why_not(model)):
        raise UserError(f"--max_new_tokens: {reason}")
    writes_targets = writers.objective(model) == "seq2seq_lm"
    if beams.get("num_beams", 1) != 1 and not writes_targets:
        raise UserError(
            f"--num_beams={beams['num_beams']}: beam search needs a model with the objective "
            "seq2seq_lm: leave it out"
        )
    if writes_targets:
        return Settings(64 if max_new_tokens is None else max_new_tokens, **beams)
    count = min(64, max_length // 2) if max_new_tokens is None else max_new_tokens
    if not 1 <= count < max_length:
        raise UserError(
            f"--max_new_tokens={count}: must be from 1 to {max_length - 1}, less than --max_length"
        )
    return Settings(count)
