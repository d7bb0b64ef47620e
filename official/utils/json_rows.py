"""Reads objects from JSON Lines, or from a list of JSON, by the content of a file."""

import io
import json
from collections.abc import Callable, Iterator

from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows

MAX_LIST_BYTES = 512 << 20  # of a list, which is in memory as a whole
_MARK = b"\xef\xbb\xbf"
_BLANKS = " \t\r\n"


def objects(
    path: AnyPath, bad: BadRows | Callable[[str, str], None]
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the first line and the object of each row.

    A file that begins with `[` and an object is one list, which is read as a whole. Any other has
    an object on each line.

    Args:
      path: the file.
      bad: is called with lines that are not UTF-8 or no JSON object, and with items of a list that
        are none.

    Raises:
      UserError: the file is missing, or is a list that is not JSON or very long.
    """
    with text_lines.opened(path) as stream:
        begin = _begin(stream)
        content = begin.lstrip()
        if content[:1] == b"[" and content[1:].strip()[:1] in (b"", b"{", b"]"):
            rest = stream.read(MAX_LIST_BYTES + 1)
            if len(rest) > MAX_LIST_BYTES:
                raise UserError(
                    f"{path}: a list of JSON of more than {MAX_LIST_BYTES >> 20} MiB, which is "
                    "read as a whole: write JSON Lines, an object on each line"
                )
            yield from _items(path, begin + rest, bad)
            return
    yield from text_lines.objects(path, bad)


def _begin(stream: io.BufferedIOBase) -> bytes:
    """Returns the lines up to the first one that is not blank, without a byte-order mark."""
    begin = stream.readline(text_lines.MAX_LINE_BYTES).removeprefix(_MARK)
    while not begin.strip() and (line := stream.readline(text_lines.MAX_LINE_BYTES)):
        begin += line
    return begin


def _items(
    path: AnyPath, content: bytes, bad: BadRows | Callable[[str, str], None]
) -> Iterator[tuple[int, int, dict]]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error}): convert the file") from None
    decode = json.JSONDecoder().raw_decode
    place = text.index("[") + 1
    line, number = 1 + text.count("\n", 0, place), -1
    while True:
        start = _after_blanks(text, place)
        line += text.count("\n", place, start)
        end = start
        if text.startswith("]", start) and number < 0:
            place = start + 1
            break
        try:
            value, end = decode(text, start)
            after = _after_blanks(text, end)
            if text[after : after + 1] not in (",", "]"):
                raise json.JSONDecodeError("expected , or ]", text, after)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path}, line {line}: not JSON from this item on ({error}): it is read as a list, "
                "because it begins with [; JSON Lines have an object on each line"
            ) from None
        number += 1
        if isinstance(value, dict):
            yield number, line, value
        else:
            bad("not a JSON object", f"{path}, line {line}: every item is to be a JSON object")
        line += text.count("\n", start, after)
        place = after + 1
        if text[after] == "]":
            break
    if rest := text[place:].strip():
        raise UserError(
            f"{path}: text behind the end of the list ({rest!r:.40}): JSON Lines have an object on "
            "each line, and a list is the whole file"
        )


def _after_blanks(text: str, place: int) -> int:
    """Returns the place of the first character from `place` on that is not blank."""
    while text[place : place + 1] in tuple(_BLANKS):
        place += 1
    return place
