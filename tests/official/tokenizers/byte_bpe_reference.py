"""Byte-level BPE in plain Python, character by character and pair by pair, and texts to try it on.

Characters are told apart by `unicodedata`, whose Unicode version is Python's: what it does not know
is not in the texts.
"""

import functools
import random
import unicodedata

SPACES = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | set(
    map(chr, range(0x2000, 0x200B))
)
ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
BLOCKS = (
    [(0x20, 0x7F)] * 8  # ASCII
    + [(0x00, 0x20), (0x7F, 0xA0), (0x200B, 0x2010), (0x202A, 0x202F), (0xFFF0, 0xFFFE)]  # controls
    + [(0xA0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x500), (0x590, 0x600)]
    + [(0x600, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0x10A0, 0x1100), (0x1E00, 0x2000)]
    + [(0x2000, 0x2070), (0x2070, 0x20D0), (0x2150, 0x2190), (0x3000, 0x3100), (0x4E00, 0x5200)]
    + [(0xAC00, 0xB000), (0xE000, 0xE010), (0xFB00, 0xFB50), (0x10330, 0x10350)]
    + [(0x1D400, 0x1D500), (0x1F300, 0x1F650), (0x1F1E6, 0x1F200), (0x20000, 0x20100)]
)
PHRASES = ["'s", "don't ", " I'LL", "  ", "\n\n", " the", "aaaa", "1234", " …", "!!", "e\u0301"]
PHRASES += ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd"]
PHRASES += ["<mask>", "</s>", "Ġ", " \u00a0", "\r\n", "\u3000中"]


def texts(characters: int, seed: int = 0) -> list[str]:
    """Lines of mixed scripts, emoji and controls, together so many characters or a few more."""
    rng = random.Random(seed)
    assigned = {
        block: [chr(c) for c in range(*block) if unicodedata.category(chr(c)) != "Cn"]
        for block in set(BLOCKS)
    }
    lines, size = [], 0
    while size < characters:
        parts = []
        for _ in range(rng.randrange(40)):
            known = assigned[rng.choice(BLOCKS)]
            parts += rng.choices(known, k=rng.randrange(1, 9))
            parts.append(rng.choice([" ", " ", " ", "", rng.choice(PHRASES)]))
        lines.append("".join(parts))
        size += len(lines[-1])
    return lines


@functools.cache
def kind(character: str) -> str:
    if character in SPACES:
        return "space"
    return {"L": "letter", "N": "digit"}.get(unicodedata.category(character)[0], "other")


def split(text: str) -> list[str]:
    """GPT-2's pattern, without regular expressions."""
    words, i = [], 0
    while i < len(text):
        if ending := next((e for e in ENDINGS if text.startswith(e, i)), None):
            end = i + len(ending)
        else:
            start = i + (text[i] == " " and i + 1 < len(text) and text[i + 1] not in SPACES)
            end = start + 1
            while end < len(text) and kind(text[end]) == kind(text[start]):
                end += 1
            if text[start] in SPACES and end < len(text) and end - i > 1:
                end -= 1  # the last one stays with what follows
        words.append(text[i:end])
        i = end
    return words


class Reference:
    """Ids of texts."""

    def __init__(self, ids, merges):
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        self.names = {byte: chr(byte) for byte in printable}
        self.names |= {byte: chr(256 + n) for n, byte in enumerate(others)}
        self.ids, self.ranks = ids, {pair: rank for rank, pair in enumerate(merges)}
        self.spell = functools.cache(self._spell)

    def encode(self, text: str) -> list[int]:
        return [i for word in split(text) for i in self.spell(word)]

    def _spell(self, word: str) -> list[int]:
        parts = [self.names[byte] for byte in word.encode()]
        while True:
            actual = [
                (self.ranks[pair], place)
                for place, pair in enumerate(zip(parts, parts[1:], strict=False))
                if pair in self.ranks
            ]
            if not actual:
                return [self.ids[part] for part in parts]
            place = min(actual)[1]
            parts[place : place + 2] = ["".join(parts[place : place + 2])]
