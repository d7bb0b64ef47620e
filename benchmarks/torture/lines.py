"""Lines that no one would write: all planes of Unicode, marks, controls, bytes that are no text."""

import sys
from collections.abc import Callable

import numpy as np

_SCRIPTS = [
    (0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x531, 0x588),
    (0x590, 0x600), (0x600, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0x1100, 0x1200),
    (0x1E00, 0x2000), (0x3040, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAE00), (0xFF00, 0xFFF0),
    (0x1D400, 0x1D500), (0x1F300, 0x1F700), (0x20000, 0x20100), (0xE0100, 0xE01F0),
]  # fmt: skip
_BIDI = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS = "".join(map(chr, [*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0)]))
_BLANKS = " \t\xa0\u1680\u2000\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\x85\x1c"
_MARKS = "".join(map(chr, [*range(0x300, 0x370), *range(0x483, 0x488), *range(0x20D0, 0x20F0)]))
_ODD = [
    "[MASK]", "[CLS]", "<mask>", "<s>", "</s>", "<pad>", "<|endoftext|>", "▁", "##a", "Ġ", "\ue000",
    "İ", "ß", "ǆ", "ﬁ", "½", "Σς", "K", "㍿", "\U0001d15e", "\u0378", "\ufffd", "\uffff",
    "\U0010ffff", "``quoted''", "9,876,54", "don't", "e.g.", "👨‍👩‍👧", "🇩🇪", "한글", "a\u0301b",
    "\u200d", "\ufe0f", "x" * 101, "й" * 60,
]  # fmt: skip
_BROKEN = [
    b"\xff", b"\xfe\xff", b"\xc0\xaf", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\x80",
    b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\x80", b"caf\xe9",
]  # fmt: skip
LONG = 100_000  # characters
_LONG_SHARE = 0.0005
_WORDS = (
    "the of and cat river walks house of bread light New York is a city 1987 don't it's".split()
)


def lines(rng: np.random.Generator, count: int) -> list[bytes]:
    """Lines without line feeds; some are not UTF-8, some are empty, few are very long."""
    kinds = rng.choice(len(_MAKERS), count, p=_SHARES)
    long = rng.random(count) < _LONG_SHARE
    return [_line(rng, _MAKERS[kind], lengthened) for kind, lengthened in zip(kinds, long)]  # noqa: B905


def _line(rng: np.random.Generator, make: Callable, lengthened: bool) -> bytes:
    text = make(rng)
    if lengthened and text:
        text = (text * (LONG // len(text) + 1))[:LONG]
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return data.replace(b"\n", b" ")


def _plain(rng: np.random.Generator) -> str:
    """Ordinary words, the greatest part, so that there are sentences to cut."""
    words = rng.choice(_WORDS, rng.integers(2, 20))
    return " ".join(words) + str(rng.choice([".", "?", "!", " .", '."', ""]))


def _planes(rng: np.random.Generator) -> str:
    points = rng.integers(0, sys.maxunicode + 1, rng.integers(1, 40))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def _script(rng: np.random.Generator) -> str:
    first, last = _SCRIPTS[rng.integers(len(_SCRIPTS))]
    words = [
        "".join(map(chr, rng.integers(first, last, rng.integers(1, 12))))
        for _ in range(rng.integers(1, 8))
    ]
    return str(rng.choice([" ", "", "\u3000"])).join(words)


def _mixed(rng: np.random.Generator) -> str:
    letters = [*"abcdeinorst  AEH.,'-0129", *_BIDI, *_MARKS[:20], *_BLANKS]
    parts = [*rng.choice(letters, rng.integers(0, 60)), *rng.choice(_ODD, rng.integers(0, 4))]
    return "".join(parts[i] for i in rng.permutation(len(parts)))


def _of(characters: str) -> Callable[[np.random.Generator], str]:
    """Characters among letters."""
    both = [*characters, *"ab c"]
    return lambda rng: "".join(rng.choice(both, rng.integers(1, 40)))


def _repeated(rng: np.random.Generator) -> bytes:
    return bytes([int(rng.integers(256))]) * int(rng.integers(1, 300))


def _broken(rng: np.random.Generator) -> bytes:
    parts = [_plain(rng).encode(), _BROKEN[rng.integers(len(_BROKEN))], _mixed(rng).encode()]
    return b"".join(parts[i] for i in rng.permutation(3))


_MAKERS: list[Callable[[np.random.Generator], str | bytes]] = [
    _plain, _planes, _script, _mixed, _of(_CONTROLS), _of(_BIDI), _of(_MARKS), _of(_BLANKS),
    _repeated, _broken, lambda rng: rng.bytes(rng.integers(1, 40)), lambda rng: "",
]  # fmt: skip
_SHARES = [0.4, 0.08, 0.14, 0.12, 0.04, 0.03, 0.04, 0.03, 0.03, 0.04, 0.02, 0.03]


def is_utf8(line: bytes) -> bool:
    """Whether a line is text."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
