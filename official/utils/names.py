"""Names in messages: lists, the one nearest to a typing error, and those that look alike."""

import difflib
import unicodedata
from collections.abc import Iterable
from typing import Any

_CUTOFF = 0.5  # of the similarity of a name and a typing error, which is at most 1


def listed(names: Iterable[str]) -> str:
    """Returns names for a message, quoted and separated by commas."""
    return ", ".join(repr(n) for n in names)


def nearest(name: Any, known: Iterable[str]) -> str:
    """Returns the part of a message that suggests the known name nearest to `name`, or ""."""
    name, known = str(name), list(map(str, known))
    for other in known:
        if other != name and _composed(other) == _composed(name):
            return f" ({ascii(name)} in Unicode, where {ascii(other)} looks alike)"
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_CUTOFF)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def look_alike(names: Iterable[str]) -> str:
    """Returns a line about names that are equal after NFC; "" if there are none.

    An accented letter is one character, or a letter and an accent, by the system that wrote a text.
    """
    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        forms.setdefault(_composed(name), []).append(name)
    shown = ["; ".join(map(ascii, same)) for same in forms.values() if len(same) > 1]
    if not shown:
        return ""
    return (
        f"labels that look alike and are not the same characters: {', '.join(shown)}: if they are "
        "one label, write the files in NFC, Unicode's composed form"
    )


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)
