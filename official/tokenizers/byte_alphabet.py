"""GPT-2's alphabet: a printable character for each byte.

The files of a byte-level BPE are text, so each byte is written as a character (the blank as "Ġ").
"""


def _alphabet() -> dict[int, str]:
    """Returns {byte: character} in the order of GPT-2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable}
    return table | {byte: chr(256 + i) for i, byte in enumerate(others)}


ALPHABET = _alphabet()
_BYTES = {character: byte for byte, character in ALPHABET.items()}


def spelling(piece: str) -> bytes:
    """Returns the bytes that a piece stands for."""
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode()  # an added token with characters outside the alphabet
