"""The words and tags of a tagging task, in a file beside the shards.

The file `words-<split>.jsonl` has one text per line. Predictions are written beside the words, and
are scored against the tags.
"""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from official.shards import manifest, text_records


class TaggedText(NamedTuple):
    """One text.

    Attributes:
      words: the words.
      tags: the tag of each word; None = they are not known.
      text: the text that was split into the words; None = the words were given.
      offsets: the first character of each word in `text`, and the character after its last one.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] = ()


def file_name(split: str) -> str:
    """Returns the file name of a split."""
    return f"words-{split}.jsonl"


def write(folder: str | os.PathLike, split: str, texts: Iterable[TaggedText]) -> dict[str, str]:
    """Writes texts in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    return text_records.write(folder, file_name(split), map(_record, texts))


def _record(text: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"words": text.words}
    if text.tags is not None:
        record["tags"] = text.tags
    if text.text is not None:
        record |= {"text": text.text, "offsets": text.offsets}
    return record


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> list[TaggedText]:
    """Reads the texts of a split; the `row` of an example is the index of its text.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = "a tagging task; make them with build_task_shards --task=tagging"
    return [
        TaggedText(
            tuple(each["words"]),
            tuple(each["tags"]) if "tags" in each else None,
            each.get("text"),
            tuple(map(tuple, each.get("offsets", ()))),
        )
        for each in text_records.read(folder, file_name(split), content, advice)
    ]
