"""The words of raw text: runs between blanks, without the punctuation marks at their ends.

Each CJK ideograph is a word. Opening, closing and sentence marks at either end of a run are words
of their own; inside a run they stay, as in U.S, 3.5, don't and http://x.y/z.
"""

import re
import unicodedata

_MARKS = frozenset(".,;:!?…\"'。、，！？：；")
_CATEGORIES = frozenset({"Ps", "Pe", "Pi", "Pf"})
_IDEOGRAPH = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)  # as BERT's tokenizer defines them
_RUN = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")


def words(text: str) -> list[tuple[int, int]]:
    """Returns the first character of each word, and the character after its last one."""
    found = []
    for run in _RUN.finditer(text):
        start, end = run.span()
        first, last = start, end
        while first < last and _is_mark(text[first]):
            first += 1
        while last > first and _is_mark(text[last - 1]):
            last -= 1
        found += [(i, i + 1) for i in range(start, first)]
        found += [(first, last)] if first < last else []
        found += [(i, i + 1) for i in range(last, end)]
    return found


def _is_mark(character: str) -> bool:
    return character in _MARKS or unicodedata.category(character) in _CATEGORIES
