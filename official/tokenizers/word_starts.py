"""Rules for the pieces that begin a word.

Whole-word masks, n-grams, spans and lexicons need words. SentencePiece marks the pieces after a
blank with "▁". Each release adds other pieces by another rule:

  piece     ▁New  .     com   )     18    's    ий    東京
  blank     x
  xlnet     x     x           x                       x
  albert    x     x           x     x     x     x     x
"""

import bisect

RULES = ("xlnet", "albert", "blank")
BLANK = "▁"
# The punctuation signs of the rules of both releases.
SIGNS = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = SIGNS | frozenset("abcdefghijklmnopqrstuvwxyz")
# First and last characters of Unicode blocks with scripts that have no blanks between words.
_UNSPACED = (
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19FF),  # Tai Le, New Tai Lue, Khmer symbols
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0xA4CF),  # CJK punctuation and ideographs, Hiragana, Katakana, Bopomofo, Yi
    (0xA980, 0xA9FF),  # Javanese, Myanmar
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0xF900, 0xFAFF),  # CJK ideographs
    (0xFF00, 0xFF9F),  # full-width signs, half-width Katakana
    (0x16FE0, 0x18DFF),  # Tangut, Khitan, Nushu
    (0x1B000, 0x1B2FF),  # Hiragana, Katakana, Nushu
    (0x20000, 0x3FFFF),  # CJK ideographs
)


def of_piece(piece: str, rule: str) -> bool:
    """Returns whether a SentencePiece piece begins a word.

    Args:
      piece: its text, with "▁" for a blank.
      rule: 'blank' = the piece begins with the blank mark. 'xlnet' = it begins with the mark or
        with "<", or is a single sign (`_is_start_piece` of XLNet's release), or has a character of
        a script without blanks (not in the release). 'albert' = it begins with the mark or "<", or
        has a character that is neither an ASCII letter nor a sign, or is a single sign
        (`_is_start_piece_sp` of ALBERT's release).
    """
    if piece.startswith(BLANK) or rule == "blank":
        return piece.startswith(BLANK)
    if piece.startswith("<") or piece in SIGNS:
        return True
    if rule == "albert":
        return not all(character.lower() in _PLAIN for character in piece)
    return any(map(unspaced, piece))


def of_bytes(piece: bytes) -> bool:
    """Returns whether a piece of byte-level BPE begins a word after any other piece.

    It does if it begins with white space, or with a character of a script without blanks. The last
    bytes of that character may be in the next piece.
    """
    if piece[:1].isascii():
        return piece[:1].isspace()
    for lacking in range(4):
        try:
            # The first and the last character that begin with these bytes.
            low, high = ((piece + bytes([end] * lacking)).decode()[:1] for end in (0x80, 0xBF))
        except UnicodeDecodeError:
            continue
        return _block(low) == _block(high) is not None or low == high and low.isspace()
    return False


def unspaced(character: str) -> bool:
    """Returns whether a character belongs to a script without blanks between words."""
    return _block(character) is not None


def ends_in_space(piece: bytes) -> bool:
    """Returns whether a piece of byte-level BPE ends with white space."""
    return piece[-1:].isspace() if piece.isascii() else piece.decode(errors="replace")[-1].isspace()


def _block(character: str) -> int | None:
    """Returns the index of a character's block in `_UNSPACED`, or None."""
    code = ord(character)
    number = bisect.bisect(_UNSPACED, (code, 0x110000)) - 1
    return number if number >= 0 and code <= _UNSPACED[number][1] else None
