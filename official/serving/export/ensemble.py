"""Exports models as one SavedModel that answers by their mean: `official.commands.ensemble`.

The members are inside, each with its tokenizer. The answers are those of the predictions that
`official.evaluation.ensemble` writes.
"""

import dataclasses
import os
from collections.abc import Sequence

from official.modeling.objectives import ensembles as means
from official.saving import ensembles
from official.serving.export import saved_model
from official.serving.signatures import table
from official.serving.signatures.inputs import ServingContext
from official.utils import atomic
from official.utils.errors import UserError


def export(
    model_dirs: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    mean: str | None = None,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    task: str | None = None,
    precision: str = "float32",
    max_bytes: int | None = None,
) -> tuple[str, tuple[int, ...]]:
    """Writes a SavedModel of several models.

    Args:
      model_dirs: the model folders.
      output: the folder to write, which must not exist.
      mean: `probabilities` or `logits`; None = `means.default`.
      checkpoint: `best`, `last`, a step or a path.
      max_length: longer texts are cut to this number of tokens; None = each member's own.
      inputs: `single` or `pair`, the inputs of `serving_default`; None = as in training.
      task: the head, of models of several tasks.
      precision: one of `official.serving.PRECISIONS`.
      max_bytes: see `official.export`.

    Returns:
      The name of the signature that is `serving_default`, and the maximum length of its input for
      each member.

    Raises:
      UserError: the models cannot be one ensemble, or see `saved_model.export`.
    """
    atomic.check_new(output)
    saved_model.check_name(output)
    context, kind, default = restore(
        model_dirs, mean, checkpoint, max_length, inputs, task, precision
    )
    saved_model.write(context, kind, default, output, max_bytes)
    return default, tuple(member.max_length for member in context.members)


def restore(
    model_dirs: Sequence[str | os.PathLike],
    mean: str | None = None,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> tuple[ServingContext, table.Signatures, str]:
    """Restores the models that an export serves; see `export` for the arguments and the errors.

    Returns:
      The first member with the others, the module of their signatures, and the name of the default
      signature.
    """
    members = ensembles.members(model_dirs, task)
    options = (checkpoint, max_length, inputs)
    restored = [
        saved_model.restore(each.folder, *options, task=each.head.task or None, precision=precision)
        for each in members
    ]
    (first, kind, default), *_ = restored
    lengths = [context.max_length for context, _, _ in restored]
    if members[0].windowed and len(set(lengths)) > 1:
        raise UserError(
            f"--max_length: the members read windows of {' and '.join(map(str, lengths))} tokens, "
            "and an ensemble needs one length: give it"
        )
    others = tuple(context for context, _, _ in restored[1:])
    mean = mean or means.default(members[0].head)
    return dataclasses.replace(first, others=others, mean=mean), kind, default
