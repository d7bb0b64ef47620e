"""Reads files of JSON Lines: one object on each line."""

import json
from collections.abc import Callable, Iterator

from official.utils import text_lines
from official.utils.bad_rows import BadRows
from official.utils.paths import AnyPath


def objects(
    path: AnyPath, bad: BadRows | Callable[[str, str], None]
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the line and the object of each line of a JSON Lines file.

    Args:
      path: the file.
      bad: is called with lines that are not UTF-8 or no JSON object.
    """
    damaged: list[int] = []
    number = -1
    for line, text in enumerate(text_lines.lines(path, damaged), 1):
        if not text.strip():
            continue
        number += 1
        if damaged:
            damaged.clear()
            bad("not UTF-8", f"{path}, line {line}: not UTF-8: convert the file")
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad("not JSON", f"{path}, line {line}: not JSON ({error})")
            continue
        if not isinstance(value, dict):
            bad("not a JSON object", f"{path}, line {line}: every line is to be a JSON object")
            continue
        yield number, line, value
