"""Writes the LoRA adapter of a model folder as a folder of PEFT.

It has the updates, and whole modules for what learns beside them: the pooler and the head. Where
transformers joins matrices that have updates of their own here, such as query and value of a
ModernBERT, the updates are joined too: A is stacked, and B has a block for each, so that the rank
is the sum of the ranks and alpha / rank stays.

Shapes: I input size, O output size of a layer, r rank.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from official.conversion import huggingface, peft
from official.conversion.heads import TaskHead, name_of
from official.conversion.mapping import Row
from official.conversion.system import System
from official.modeling.layers import low_rank
from official.saving import checkpoints
from official.saving.model_folder import ModelFolder
from official.utils import atomic, json_files, paths
from official.utils.errors import UserError

_ADVICE = "--target=hf writes a model with all its weights"
# Keys of config.json that a head may have of its own, or that change no answer.
_FREE = re.compile(r"architectures|id2label|label2id|problem_type|dtype|\w*(drop|_token_id)\w*")
# The same for fields of the encoder; of the pooler, what transformers has is checked apart.
_FREE_FIELDS = re.compile(r"\w*(dropout|pooler|initializer)\w*")

_Pair = tuple[np.ndarray, np.ndarray]


def write(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str,
    base: str | os.PathLike,
) -> Sequence[str]:
    """Writes a folder that `PeftModel.from_pretrained` reads on the model of `base`.

    Args:
      model_dir: a model folder that was trained with `recipe.trainable.lora`.
      output: the folder to write, which must not exist.
      checkpoint: as in `ModelFolder.open`.
      base: the folder of transformers on which the training began.

    Returns:
      Sentences about what was written.

    Raises:
      UserError: the model was trained otherwise, or has a head or a form that PEFT cannot have; or
        `base` is not its base.
    """
    source = ModelFolder.open(model_dir, checkpoint)
    config = huggingface.without_distillation(source.config)
    stored = checkpoints.load(model_dir, checkpoint, optimizer=True)
    factor = stored.state[checkpoints.LORA_FACTOR]
    if not factor:
        raise UserError(
            f"{model_dir} was not trained with recipe.trainable.lora, and has no adapter: {_ADVICE}"
        )
    merged = checkpoints.load(model_dir, checkpoint).variables
    made = huggingface.Described.of(source, merged)
    (described, tensors), system = made.networks[""], made.system
    heads = sorted({name_of(objective) for objective in config.objectives})
    tasks = [head for head in heads if isinstance(system.heads.get(head), TaskHead)]
    if made.kind is not None or len(config.objectives) > 1 or heads != tasks:
        types = ", ".join(objective.type for objective in config.objectives)
        raise UserError(
            f"{model_dir}: objectives: {types}: only an encoder alone, or with one head of a task "
            f"that transformers has, is written as an adapter: {_ADVICE}"
        )
    bare = "" if heads else system.prefix  # which names of the bare class lack
    rows = [
        dataclasses.replace(row, names=tuple(name.removeprefix(bare) for name in row.names))
        for row in system.rows(config.encoder, heads)
    ]
    plain = {path: array for path, array in stored.variables.items() if path in merged}
    of_encoder = system.encoder.keys(config.encoder)
    head_keys = {key: value for key, value in described.items() if key not in of_encoder}
    changed = _changed(plain, config.encoder, head_keys, base)
    pairs = _pairs(rows, stored.variables, system)
    settings, arrays = _joined(pairs, factor)
    prefix = system.prefix if heads else ""
    learned = [name for row in rows if row.path in changed for name in row.names]
    modules = sorted({_module(name, prefix) for name in learned})
    arrays |= {name: array for name, array in tensors.items() if _module(name, prefix) in modules}
    arrays = {peft.PREFIX + name: np.ascontiguousarray(array) for name, array in arrays.items()}
    settings = {
        "peft_type": "LORA",
        "task_type": _task(heads),
        "base_model_name_or_path": os.fspath(base),
        "inference_mode": True,
        "modules_to_save": modules or None,
        **settings,
    }
    with atomic.folder(output, peft.CONFIG) as temporary:
        text = json.dumps(settings, indent=2, sort_keys=True)
        (temporary / peft.CONFIG).write_text(text + "\n", "utf-8")
        safetensors.numpy.save_file(arrays, temporary / peft.FILES[0], metadata={"format": "pt"})
    count = len(described.get("id2label", ()))
    lines = [f"updates of {len(pairs)} modules, and whole: {', '.join(modules) or 'none'}"]
    if count:
        (architecture,) = described["architectures"]
        lines.append(
            f"an adapter has no labels: load its base with {architecture}.from_pretrained({base}, "
            f"num_labels={count})"
        )
    return lines


def _task(heads: Sequence[str]) -> str | None:
    """Returns the task of PEFT with these heads; None = it has none, as for multiple choice."""
    if not heads:
        return next(task for task, names in peft.TASKS.items() if not names)
    return next((task for task, names in peft.TASKS.items() if heads[0] in names), None)


def _module(name: str, prefix: str) -> str:
    """Returns the module that is saved for a tensor: a whole head, or a layer of the encoder."""
    in_encoder = name.startswith(prefix)
    return name.rpartition(".")[0] if in_encoder else name.partition(".")[0]


def _changed(
    arrays: Mapping[str, np.ndarray],
    encoder: Any,
    head_keys: Mapping[str, Any],
    base: str | os.PathLike,
) -> set[str]:
    """Returns the paths of the variables that `base` lacks or has with other values.

    Args:
      arrays: the variables of the model by path, without updates.
      encoder: the config of its encoder.
      head_keys: the keys of its config.json that describe no encoder.
      base: the folder of transformers.

    Raises:
      UserError: the config differs, or another part of the encoder than the pooler.
    """
    read, file = huggingface.read(base), paths.path(base) / huggingface.CONFIG
    theirs, of_base = json_files.read(file), read.config.encoder
    pairs = {
        f"encoder.{field.name}": (getattr(encoder, field.name), getattr(of_base, field.name, None))
        for field in dataclasses.fields(encoder)
        if not _FREE_FIELDS.fullmatch(field.name)
    }
    for key, value in head_keys.items():
        if not _FREE.fullmatch(key):
            pairs[key] = value, theirs.get(key, value)
    for key, (own, other) in pairs.items():
        if own != other:
            raise UserError(
                f"{file}: {key}: {other!r}, but the model has {own!r}: give the folder on which "
                "its training began as --base"
            )
    before = read.variables
    changed = {
        path
        for path, array in arrays.items()
        if path not in before or not np.array_equal(before[path], array)
    }
    for path in sorted(changed):
        if path.startswith("encoder/") and not path.startswith("encoder/pooler/"):
            raise UserError(
                f"{base} has other values of {path}, which has not learned: give the folder on "
                "which its training began as --base"
            )
    return changed


def _pairs(
    rows: Sequence[Row], arrays: Mapping[str, np.ndarray], system: System
) -> dict[str, list[_Pair]]:
    """Returns A [r, I] and B [O, r] of the updates of each matrix of transformers.

    Raises:
      UserError: a matrix is not that of a linear layer there.
    """
    of_kernels, pairs = {row.path: row for row in rows}, dict[str, list[_Pair]]()
    for kernel, first, a, b in low_rank.updates(arrays):
        row = of_kernels[kernel]
        if row.axes is not None:
            raise UserError(
                f"{kernel}: {system.title} of transformers has no linear layer for it, so PEFT "
                f"cannot update it: {_ADVICE}"
            )
        size = arrays[kernel].shape[1] // len(row.names)
        part, count = row.part or (0, 1)
        for number, name in enumerate(row.names):
            # the columns of this tensor that have the update
            start = max(first, number * size)
            end = min(first + b.shape[1], (number + 1) * size)
            if start < end:
                wide = np.zeros((size * count, b.shape[0]), b.dtype)
                place = part * size - number * size
                wide[place + start : place + end] = b[:, start - first : end - first].T
                pairs.setdefault(name.removesuffix(".weight"), []).append((a.T, wide))
    return pairs


def _joined(
    pairs: Mapping[str, Sequence[_Pair]], factor: float
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the keys of the config, and the tensors of the updates."""
    arrays, ranks = {}, {}
    for module, each in pairs.items():
        a = np.concatenate([a for a, _ in each])
        arrays[f"{module}.lora_A.weight"] = a
        arrays[f"{module}.lora_B.weight"] = np.concatenate([b for _, b in each], axis=1)
        ranks[module] = len(a)
    usual = min(ranks.values())
    others = {re.escape(name): rank for name, rank in ranks.items() if rank != usual}
    settings = {
        "r": usual,
        "lora_alpha": _alpha(factor * usual),
        "rank_pattern": others,
        "alpha_pattern": {name: _alpha(factor * rank) for name, rank in others.items()},
        "target_modules": sorted(ranks),
    }
    return settings, arrays


def _alpha(alpha: float) -> float:
    """Returns a whole number as an int, as PEFT has it."""
    return int(alpha) if alpha == int(alpha) else alpha
