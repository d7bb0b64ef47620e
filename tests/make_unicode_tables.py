"""Writes `official/utils/unicode_tables.py` from the properties of Unicode.

python -m tests.make_unicode_tables            # writes the module
python -m tests.make_unicode_tables --check    # the status is 1 if it is out of date

The properties are those of the package `regex`, which names its version of Unicode. Nothing else
here needs this package. What is added to the properties, or taken from them, has its reason here.
"""

import functools
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

MODULE = Path(__file__).parents[1] / "official" / "utils" / "unicode_tables.py"
_WIDTH = 100
_HEAD = '''\
"""Sets of characters by their properties in Unicode; `tests.make_unicode_tables` made it.

They are lists, so that all versions of Python and TensorFlow, which have the tables of several
versions of Unicode, split a text in the same way. Each set is a string of code points and ranges
of them, in hexadecimal digits; `official.utils.character_sets` reads it.
"""

# The version of Unicode.
VERSION = "{version}"
'''


def tables() -> dict[str, tuple[str, set[str]]]:
    """Returns what each set is, and its characters, by its name."""
    ascii_ = set(map(chr, range(128)))
    marks = _having(r"\p{Po}", r"\p{Terminal_Punctuation}", r"\p{Ps}", r"\p{Pe}", r"\p{Pi}",
                    r"\p{Pf}") - ascii_  # fmt: skip
    # Those that a word keeps in ASCII too (@user, #tag, 5%, Q&A), in other widths and scripts.
    marks -= _chars("FF03 FF05 FF06 FF0A FF20 FF3C FE5F FE60 FE61 FE68 FE6A FE6B 66A 609 60A 2030")
    marks -= _chars("2031 5F3")  # U+05F3 makes letters of Hebrew letters, as in צ׳
    # Those that show that a word is shortened are a part of it.
    marks -= _chars("55F 970 9FD A76 AF0")
    digits = _having(r"\p{WB=MidNum}", r"\p{WB=MidNumLet}", r"\p{WB=Numeric}") & marks
    letters = _having(r"\p{WB=MidLetter}", r"\p{WB=MidNumLet}") & marks
    # In full width these are stops and colons of Chinese and Japanese, whose words have no blanks.
    wide = _chars("FE13 FE52 FE55 FF07 FF0E FF1A")
    # Single quotes are apostrophes too, Armenian marks stand inside words, primes after digits.
    kept = _having(r"\p{WB=ALetter}") & marks | _chars("2018 2019 201B 2032 2033 2034 2057")
    stops = _having(r"\p{Sentence_Terminal}") - ascii_
    # With a blank after them, as in European text; and U+104A, which is a comma.
    stops -= _chars("203C 203D 2047 2048 2049 2024 2E2E 104A")
    stops |= _chars("F0D F0E F0F F10 F11 F12")  # Tibetan has no other signs than these
    complex_ = _having(r"\p{Line_Break=SA}")  # scripts whose lines break by a dictionary
    unspaced = _having(r"\p{Ideographic}", r"\p{Han}", r"\p{scx=Hiragana}", r"\p{scx=Katakana}",
                       r"\p{Bopomofo}", r"\p{Yi}")  # fmt: skip
    all_letters = _having(r"\p{L}")
    return {
        "LETTERS": ("letters", all_letters),
        "DIGITS": ("numbers", _having(r"\p{N}")),
        "COMBINING": ("accents, vowel signs and other marks", _having(r"\p{M}")),
        "BLANKS": ("white space and control characters", _having(r"\p{Z}", r"\p{Cc}")),
        "FORMATS": ("format characters", _having(r"\p{Cf}")),
        "UNSPACED": (
            "letters of scripts that have no blanks between words",
            (unspaced | complex_) & all_letters,
        ),
        "POINTS": (
            "vowel signs of Arabic and Hebrew that most texts leave out, and the tatweel",
            _having(r"\p{scx=Arabic}", r"\p{scx=Hebrew}") & _having(r"\p{Mn}") | {"\u0640"},
        ),
        "NO_STOPS": (
            "letters of scripts without stops: Thai and Lao",
            _having(r"\p{Thai}", r"\p{Lao}") & all_letters,
        ),
        "INVISIBLE": (
            "characters without a sign, but the blank U+200B and the tags of flags",
            (_having(r"\p{Cf}") & _having(r"\p{Default_Ignorable_Code_Point}"))
            - set(map(chr, range(0xE0020, 0xE0080)))
            - _chars("200B"),
        ),
        "MARKS": ("marks outside ASCII that are words at the ends of a run", marks),
        "MARKS_AT_ENDS": ("those of them that stay inside of a run", kept),
        "MARKS_IN_NUMBERS": ("those of them that stay between two digits", digits),
        "MARKS_IN_WORDS": ("those of them that stay between two letters", letters - wide),
        "STOPS": ("marks outside ASCII that end a sentence without a blank after them", stops),
        "EXTENDING": (
            "characters that are one sign with the character before them",
            _having(r"\p{GCB=Extend}", r"\p{GCB=SpacingMark}", r"\p{GCB=ZWJ}"),
        ),
    }


def text() -> str:
    """Returns the text of the module."""
    lines = _HEAD.format(version=version())
    for name, (what, characters) in tables().items():
        parts = f"\n# {what[0].upper()}{what[1:]}.\n{name} = "
        lines += parts + '"""\n' + "\n".join(_wrapped(ranges(characters))) + '\n"""\n'
    return lines


def version() -> str:
    """Returns the version of Unicode that the package `regex` has."""
    about = metadata.distribution("regex").read_text("METADATA") or ""
    return re.findall(r"supports Unicode (\d+\.\d+\.\d+)", about)[0]


def ranges(characters: Iterable[str]) -> Iterator[str]:
    """Yields code points, and ranges of code points, in hexadecimal digits."""
    codes = sorted(map(ord, characters))
    first = 0
    for i in range(1, len(codes) + 1):
        if i == len(codes) or codes[i] != codes[i - 1] + 1:
            low, high = codes[first], codes[i - 1]
            yield f"{low:x}" if low == high else f"{low:x}-{high:x}"
            first = i


def _having(*properties: str) -> set[str]:
    """Returns the characters that have one of some properties."""
    import regex

    return set(regex.findall(f"[{''.join(properties)}]", _every_character()))


@functools.cache
def _every_character() -> str:
    """Returns all characters but private ones and planes without any."""
    return "".join(map(chr, [*range(0xE000), *range(0xF900, 0x34000), *range(0xE0000, 0xE0200)]))


def _chars(codes: str) -> set[str]:
    return {chr(int(code, 16)) for code in codes.split()}


def _wrapped(words: Iterable[str]) -> Iterator[str]:
    """Yields lines of words."""
    line = ""
    for word in words:
        if len(line) + 1 + len(word) > _WIDTH:
            yield line
            line = ""
        line += f" {word}" if line else word
    yield line


def main(arguments: list[str]) -> int:
    """Writes or checks the module; returns the status of the process."""
    made = text()
    if "--check" not in arguments:
        MODULE.write_text(made, encoding="utf-8")
        return 0
    if MODULE.read_text(encoding="utf-8") == made:
        return 0
    print(f"{MODULE} is out of date: python -m tests.make_unicode_tables", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
