"""Reads a lexicon file: one phrase or entity on each line."""

import os

from official.utils import paths
from official.utils.errors import UserError
from tfrecords_tools.text.documents import cleaned


def read(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a lexicon file, without empty and repeated ones.

    Raises:
      UserError: the file is missing, not UTF-8, or has no line.
    """
    try:
        text = paths.path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"lexicon {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"lexicon {path}: not UTF-8 ({error}): convert it") from None
    lines = list(dict.fromkeys(cleaned(text)))
    if not lines:
        raise UserError(
            f"lexicon {path} is empty: give it one phrase or entity a line "
            "(tfrecords_tools.build_phrases finds phrases in text)"
        )
    return lines
