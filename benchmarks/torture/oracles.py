"""What tokens of a text have to be, told by something else than our tokenizers.

Byte-level BPE: the bytes of the pieces are those of the text. SentencePiece: what the package
`sentencepiece` says. WordPiece: pieces are spelled with the characters of their slices, by Python's
tables.
"""

import bisect
import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import sentencepiece

from official.tokenizers import ByteBPE, SentencePiece, Tokenizer, byte_vocabulary

_BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\ufeff"


def problem(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], starts: np.ndarray, ends: np.ndarray
) -> str | None:
    """What is wrong with the tokens of a text, which is valid UTF-8; None = nothing is.

    Args:
      tokenizer: that made them.
      text: what was read.
      ids: of the tokens.
      starts: the first character of each.
      ends: behind the last one.
    """
    ids = [int(i) for i in ids]
    if not all(0 <= i < tokenizer.vocab_size for i in ids):
        return "an id out of range"
    if specials := (set(ids) & set(tokenizer.special_ids)) - {tokenizer.unk_id}:
        return f"text gave the special ids {sorted(specials)}"
    if not ((starts >= 0) & (starts < ends) & (ends <= len(text))).all():
        return "a token of no characters, or of more than there are"
    if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
        return "tokens out of order"
    slices = [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    if any(part.strip(_BLANKS) not in (part, "") for part in slices):
        return "white space at the ends of a token"
    if isinstance(tokenizer, ByteBPE):
        return _byte_bpe(tokenizer, text, ids, starts, ends)
    if isinstance(tokenizer, SentencePiece):
        return _sentencepiece(tokenizer, text, ids, starts, ends)
    return _wordpiece(tokenizer, text, ids, starts, ends)


def _byte_bpe(tokenizer: ByteBPE, text: str, ids: list[int], starts: Any, ends: Any) -> str | None:
    """The bytes are those of the text, and each token has the characters of its bytes."""
    spelled = [byte_vocabulary.spelling(tokenizer.pieces[i]) for i in ids]
    if b"".join(spelled) != text.encode():
        return "the bytes of the pieces are not those of the text"
    bounds = list(itertools.accumulate(map(len, spelled), initial=0))
    wanted = _characters(text, list(itertools.pairwise(bounds)))
    for place, start, end in zip(wanted, starts.tolist(), ends.tolist(), strict=True):
        if (start, end) != place:
            return f"a token at {start}:{end} whose bytes are at {place[0]}:{place[1]}"
    return None


def _characters(text: str, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The characters that places in bytes are of, without white space at their ends."""
    begins = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
    actual = []
    for first, last in places:
        first = bisect.bisect_right(begins, first) - 1
        last = bisect.bisect_right(begins, last - 1)
        part = text[first:last]
        if part.strip(_BLANKS):
            last = first + len(part.rstrip(_BLANKS))
            first += len(part) - len(part.lstrip(_BLANKS))
        actual.append((first, last))
    return actual


def _sentencepiece(
    tokenizer: SentencePiece, text: str, ids: list[int], starts: Any, ends: Any
) -> str | None:
    """Ids and places of the package; of two segmentations that score alike either will do."""
    processor = _processor(tokenizer)
    wanted = processor.encode(text, return_type="proto").pieces
    if [piece.id for piece in wanted] != ids:
        scores = [sum(map(processor.get_score, some)) for some in (ids, [p.id for p in wanted])]
        spelled = ["".join(tokenizer.pieces[i] for i in ids), "".join(p.piece for p in wanted)]
        alike = abs(scores[0] - scores[1]) <= 1e-3 * max(1.0, abs(scores[0]))
        known = tokenizer.unk_id not in ids
        return None if alike and (not known or spelled[0] == spelled[1]) else "other ids"
    places = _characters(text, [(piece.begin, piece.end) for piece in wanted])
    for piece, place, start, end in zip(
        wanted, places, starts.tolist(), ends.tolist(), strict=True
    ):
        if piece.begin < piece.end and (start, end) != place:
            return f"a token at {start}:{end} that the package has at {place[0]}:{place[1]}"
    return None


_PROCESSORS: dict[str, sentencepiece.SentencePieceProcessor] = {}


def _processor(tokenizer: SentencePiece) -> sentencepiece.SentencePieceProcessor:
    if tokenizer.fingerprint not in _PROCESSORS:
        model = tokenizer._vocabulary_files()[tokenizer.FILE]
        loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
        _PROCESSORS[tokenizer.fingerprint] = loaded
    return _PROCESSORS[tokenizer.fingerprint]


def _wordpiece(tokenizer: Any, text: str, ids: list[int], starts: Any, ends: Any) -> str | None:
    """Each piece is spelled with its slice, and no character with a sign is left out."""
    places = list(zip(starts.tolist(), ends.tolist(), strict=True))
    for number, (i, (start, end)) in enumerate(zip(ids, places, strict=True)):
        if i == tokenizer.unk_id:
            continue
        piece = tokenizer.pieces[i].removeprefix("##").replace("ς", "σ")
        spelled = _spelled(text[start:end], tokenizer.lower_case)
        neighbours = [places[n] for n in (number - 1, number + 1) if 0 <= n < len(places)]
        shared = any(a < end and start < b for a, b in neighbours)
        new = any(unicodedata.category(c) == "Cn" for c in text[start:end])  # to Python's tables
        if not new and piece != spelled and not (shared and piece in spelled):
            return f"the piece {piece!r} for {text[start:end]!r}"
    covered = np.zeros(len(text), bool)
    for start, end in places:
        covered[start:end] = True
    for place in np.flatnonzero(~covered).tolist():
        if _spelled(text[place], tokenizer.lower_case).strip(_BLANKS):
            return f"the character {text[place]!r} is in no token"
    return None


def _spelled(text: str, lower: bool) -> str:
    """What WordPiece reads of a text."""
    text = unicodedata.normalize("NFD", text.lower()) if lower else text
    dropped = ("Cc", "Cf", "Cn", "Co", "Cs", *(["Mn"] if lower else []))
    kept = (c for c in text if unicodedata.category(c) not in dropped and c != "\ufffd")
    return "".join(kept).replace("ς", "σ")
