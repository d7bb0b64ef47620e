"""Adds words to the vocabulary of a tokenizer; all existing ids stay.

  WordPiece       a line of `vocab.txt`: the lines of `[unusedN]` first, then new ones byte-level
  BPE  merges of the word's old pieces from the left, each with a piece, after all merges
  SentencePiece   a piece with a score that wins over the word's old pieces; of a BPE model one for
                  each part from the left, after all pieces

Sentinels of T5 and added tokens, which follow the vocabulary, become a part of it with the same
ids, and the new pieces follow.

`rows` has the old pieces that spell a word in running text: the row of a new piece in an embedding
table starts as the mean of their rows (Gee et al., 2022, FVT; Yao et al., 2021, AdaLM).
"""

import collections
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from official.tokenizers import byte_bpe, text_words
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe import ByteBPE
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.sentencepiece import SentencePiece
from official.tokenizers.word_starts import BLANK
from official.tokenizers.wordpiece import WordPiece, clean, space_words
from official.utils import progress
from official.utils.errors import UserError

UNUSED = re.compile(r"\[unused\d+\]")
_KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece
_LINES = 10_000  # at a time
# A word that may be chosen from a text: letters with their marks, and digits inside. A run of a
# script without blanks counts as a word: if it is frequent, a piece for it saves pieces too.
_WORD = r"[\pL\pM]{2,}[\pL\pM\pN]*[\pL\pM]"
_MIN_COUNT = 3
_MAX_WORDS = 1_000_000  # the largest number of distinct words that are counted
_MARGIN = 0.1  # by which the score of a word exceeds the score of its old pieces


class Extended(NamedTuple):
    """A tokenizer with more words.

    Attributes:
      tokenizer: the new tokenizer.
      rows: {id of a new piece: ids of the old pieces that spell it}.
      words: the words that are pieces now.
      left_out: {word: why it could not be added}.
    """

    tokenizer: Tokenizer
    rows: Mapping[int, Sequence[int]]
    words: Sequence[str]
    left_out: Mapping[str, str]


_NOT_GROWN = {
    "words.txt": "a vocabulary of whole words",
    "bpe.codes": (
        "with merges and pieces in separate files: take a WordPiece, a SentencePiece or a "
        "byte-level BPE"
    ),
    "tokenizer.json": (
        "of components that are not a WordPiece, a SentencePiece or a byte-level BPE with "
        "GPT-2's words"
    ),
}


def extend(tokenizer: Tokenizer, words: Iterable[str], pieces: int | None = None) -> Extended:
    """Adds words to a tokenizer.

    Args:
      tokenizer: the tokenizer.
      words: the words, the most important first.
      pieces: the largest number of new pieces, including pieces for parts of words; None = any
        number.

    Raises:
      UserError: the kind of the tokenizer does not allow new pieces.
    """
    kinds: dict[type[Tokenizer], Callable[..., tuple[Tokenizer, dict[int, list[int]]]]] = {
        WordPiece: _of_wordpiece,
        ByteBPE: _of_byte_bpe,
        SentencePiece: _of_sentencepiece,
    }
    if type(tokenizer) not in kinds:
        raise UserError(f"words cannot be added to {tokenizer.FILE}, {_NOT_GROWN[tokenizer.FILE]}")
    limit = len(tokenizer.pieces) if pieces is None else pieces
    left_out: dict[str, str] = {}
    forms: dict[str, str] = {}  # {form: word}
    for word, form in zip(words := list(words), _forms(tokenizer, words), strict=True):
        if len(form.split()) != 1:
            left_out[word] = "is empty, or several words, for this tokenizer"
        elif form in forms:
            left_out.setdefault(word, f"is the same as {forms[form]!r}")
        else:
            forms[form] = word
    grown, rows = kinds[type(tokenizer)](tokenizer, list(forms), limit)
    added = []
    for word, ids in zip(forms.values(), grown.encode([*forms]), strict=True):
        known = int(ids[0]) if len(ids) == 1 else grown.unk_id
        if known in rows:
            added.append(word)
        elif known != grown.unk_id:
            left_out[word] = "is one piece already"
        elif pieces is not None and grown.unk_id not in ids:
            left_out[word] = f"does not fit: at most {limit:,} pieces may be new"
        else:
            spelled = " ".join(grown.pieces[i] for i in ids) or "nothing"
            left_out[word] = f"is still split into {spelled} by this tokenizer"
    return Extended(grown, rows, added, left_out)


def choose(
    tokenizer: Tokenizer,
    lines: Iterator[str],
    pieces: int,
    report: progress.Report | None = None,
) -> list[str]:
    """Chooses words of a text; words that save the most pieces come first.

    Args:
      tokenizer: the tokenizer of the model.
      lines: the text.
      pieces: the number of new pieces; more words are returned, as some cannot be added.
      report: is called with lines of progress.
    """
    counts: collections.Counter[bytes] = collections.Counter()
    counted = progress.Progress(None, report, "read ", "lines")
    while chunk := [line for _, line in zip(range(_LINES), lines, strict=False)]:
        with tf.device("/CPU:0"):
            texts = tokenizer.module().composed(tf.constant(chunk))
            if isinstance(tokenizer, WordPiece) and tokenizer.do_basic_tokenize:
                texts = clean(texts, tokenizer.lower_case, tokenizer.strip_accents)
            found = text_words.split(texts, "basic").texts.values
            found = tf.boolean_mask(found, tf.strings.regex_full_match(found, _WORD))
        counts.update(found.numpy().tolist())
        if len(counts) > 2 * _MAX_WORDS:
            counts = collections.Counter(dict(counts.most_common(_MAX_WORDS)))
        counted(len(chunk))
    frequent = {word.decode(): n for word, n in counts.items() if n >= _MIN_COUNT}
    before = " " if tokenizer.keeps_space else ""
    ids, splits = tokenizer.encode_ragged([before + word for word in frequent])
    del ids
    saved = {
        word: count * (size - 1)
        for (word, count), size in zip(frequent.items(), np.diff(splits), strict=True)
        if size > 1
    }
    return sorted(saved, key=lambda word: (-saved[word], word))[: 4 * pieces]


def includes(new: Tokenizer, old: Tokenizer) -> bool:
    """Whether a tokenizer has the kind, the rules and all pieces of another tokenizer.

    The ids of the pieces may differ, and pieces `[unusedN]` may be missing.
    """
    lacking = {*old.pieces}.difference(new.pieces)
    same = type(new) is type(old) and new.splitting() == old.splitting()
    return same and all(map(UNUSED.fullmatch, lacking))


def spelled_by(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Returns, for each piece of a new tokenizer, the ids of the old one that spell it.

    A piece of both tokenizers is spelled by itself, and a special token by the special token of the
    same role. A piece that cannot be spelled has the ids of all pieces of text.
    """
    numbers = {piece: i for i, piece in enumerate(old.pieces)}
    roles = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id", "eod_id")
    same = {getattr(new, role): getattr(old, role) for role in reversed(roles)}
    text = np.setdiff1d(np.arange(old.vocab_size), [*old.special_ids, *old.sentinel_ids]).tolist()
    # A blank goes before pieces that begin a word, and not before pieces inside a word.
    begins = new.word_starts
    spellings = [
        f"{' ' * bool(begins[i])}{spelling.decode('utf-8', 'replace').strip()}"
        for i, spelling in enumerate(new.spellings)
    ]
    sources = []
    for i, (piece, ids) in enumerate(zip(new.pieces, old.encode(spellings), strict=True)):
        known = [number for number in ids.tolist() if number != old.unk_id]
        own = same.get(i)
        if own is None and type(old) is type(new):
            own = numbers.get(piece)
        sources.append([own] if own is not None else known or text)
    return sources


def _forms(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Returns the words normalized as in running text, with the blank before them if it counts."""
    if not words:
        return []
    texts = tokenizer.module().composed(tf.constant([word.strip() for word in words]))
    if isinstance(tokenizer, ByteBPE):
        decoded = [f" {text.decode()}" for text in texts.numpy()]
        return [
            form if len(byte_bpe.find(form, tokenizer.pattern)) == 1 else "" for form in decoded
        ]
    texts = tokenizer.module().normalized(texts)
    if isinstance(tokenizer, WordPiece) and tokenizer.do_basic_tokenize:
        texts = tf.strings.strip(space_words(texts, tokenizer.tokenize_chinese_chars))
    return [text.decode().strip() for text in texts.numpy()]


def _old_pieces(tokenizer: Tokenizer, forms: Sequence[str]) -> list[list[int]]:
    """Returns the ids that spell each form."""
    return [ids.tolist() for ids in tokenizer.encode(forms)]


def _of_wordpiece(
    tokenizer: WordPiece, forms: Sequence[str], limit: int
) -> tuple[WordPiece, dict[int, list[int]]]:
    pieces = list(tokenizer.pieces)
    spare = [
        i for i, piece in enumerate(pieces)
        if UNUSED.fullmatch(piece) and i not in tokenizer.added and i not in tokenizer.special_ids
    ]  # fmt: skip
    rows: dict[int, list[int]] = {}
    known = set(pieces)
    for form, ids in zip(forms, _old_pieces(tokenizer, forms), strict=True):
        if form in known or len(rows) == limit:
            continue
        if spare:
            pieces[number := spare.pop(0)] = form
        else:
            number = len(pieces)
            pieces.append(form)
        rows[number] = ids
    grown = WordPiece(
        pieces,
        tokenizer.lower_case,
        tokenizer.strip_accents,
        tokenizer.settings,
        max_input_chars_per_word=tokenizer.max_input_chars_per_word,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        do_basic_tokenize=tokenizer.do_basic_tokenize,
        nfc=tokenizer.nfc,
    )
    return grown, rows


def _of_byte_bpe(
    tokenizer: ByteBPE, forms: Sequence[str], limit: int
) -> tuple[ByteBPE, dict[int, list[int]]]:
    pieces, merges = list(tokenizer.pieces), list(tokenizer.merges)
    numbers = {piece: i for i, piece in enumerate(pieces)}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    rows: dict[int, list[int]] = {}
    for form in forms:
        parts = _joined([ALPHABET[byte] for byte in form.encode()], ranks)
        joined = ["".join(parts[:end]) for end in range(2, len(parts) + 1)]
        if len(rows) + sum(piece not in numbers for piece in joined) > limit:
            continue
        for left, right, piece in zip([parts[0], *joined], parts[1:], joined, strict=False):
            if piece not in numbers:
                numbers[piece] = len(pieces)
                # The ids of the old pieces that spell the result.
                rows[len(pieces)] = [
                    old for part in (left, right)
                    for old in rows.get(numbers[part], [numbers[part]])
                ]  # fmt: skip
                pieces.append(piece)
            if (left, right) not in ranks:
                ranks[left, right] = len(merges)
                merges.append((left, right))
    grown = ByteBPE(
        pieces,
        merges,
        tokenizer.add_prefix_space,
        tokenizer.settings,
        nfc=tokenizer.nfc,
        pattern=tokenizer.pattern,
    )
    return grown, rows


def _joined(parts: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Joins the pairs of one word in the order of the merges."""
    while len(parts) > 1:
        pairs = list(zip(parts[:-1], parts[1:], strict=True))
        best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        i = pairs.index(best)
        parts = [*parts[:i], "".join(best), *parts[i + 2 :]]
    return parts


def _of_sentencepiece(
    tokenizer: SentencePiece, forms: Sequence[str], limit: int
) -> tuple[SentencePiece, dict[int, list[int]]]:
    model = tokenizer.parsed()
    # Pieces after those of the model become a part of it and keep their ids.
    for piece in tokenizer.pieces[len(model.pieces) :]:
        special = piece in {tokenizer.pieces[i] for i in tokenizer.sentinel_ids}
        kind = _KINDS.CONTROL if special else _KINDS.UNUSED
        model.pieces.add(piece=piece, score=0, type=kind)
    add = _unigram_pieces if tokenizer.is_unigram else _bpe_pieces
    rows = add(model, forms, limit)
    model.trainer_spec.vocab_size = len(model.pieces)
    rules = tokenizer.rules
    grown = SentencePiece(
        model.SerializeToString(deterministic=True),
        rules.lower_case,
        tokenizer.settings,
        remove_space=rules.remove_space,
        keep_accents=rules.keep_accents,
        replace_quotes=rules.replace_quotes,
        split_digit_comma=tokenizer.split_digit_comma,
        remove_marks=rules.remove_marks,
        compose=rules.compose,
        blanks=rules.blanks,
        last_blank=tokenizer.module().last_blank,
        prepend_scheme=tokenizer.prepend_scheme,
        strip_left=tokenizer.strip_left,
    )
    return grown, rows


def _processor(
    model: sentencepiece_model_pb2.ModelProto,
) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def _lowest_score(model: sentencepiece_model_pb2.ModelProto) -> float:
    return min((p.score for p in model.pieces if p.type == _KINDS.NORMAL), default=0.0)


def _unigram_pieces(
    model: sentencepiece_model_pb2.ModelProto, forms: Sequence[str], limit: int
) -> dict[int, list[int]]:
    """Adds a piece for each form to a model.

    Returns {id of a new piece: ids of its old pieces}.
    """
    processor = _processor(model)
    lowest = _lowest_score(model)
    known = {piece.piece for piece in model.pieces}
    rows: dict[int, list[int]] = {}
    for form in forms:
        piece = BLANK + form
        if piece in known or len(rows) == limit:
            continue
        ids = processor.encode(form)
        scores = [lowest - 10 if processor.is_unknown(i) else processor.get_score(i) for i in ids]
        rows[len(model.pieces)] = [i for i in ids if not processor.is_unknown(i)] or ids
        model.pieces.add(piece=piece, score=sum(scores) + _MARGIN, type=_KINDS.NORMAL)
    # A shorter new piece inside a word raises the score of another spelling of the word.
    changed = True
    while changed:
        changed, processor = False, _processor(model)
        for number in rows:
            own = model.pieces[number]
            spellings = processor.nbest_encode_as_ids(own.piece.removeprefix(BLANK), 2)
            others = [ids for ids in spellings if ids != [number]]
            score = max((sum(map(processor.get_score, ids)) for ids in others), default=-1e9)
            if own.score < score + _MARGIN / 2:
                own.score, changed = score + _MARGIN, True
    return rows


def _bpe_pieces(
    model: sentencepiece_model_pb2.ModelProto, forms: Sequence[str], limit: int
) -> dict[int, list[int]]:
    """Adds a piece for each prefix of each form to a model.

    Returns {id of a new piece: ids of its old pieces}.
    """
    numbers = {piece.piece: i for i, piece in enumerate(model.pieces)}
    score = _lowest_score(model)
    rows: dict[int, list[int]] = {}
    for form in forms:
        ids = _processor(model).encode(form)
        parts = [model.pieces[i].piece for i in ids]
        joined = ["".join(parts[:end]) for end in range(2, len(parts) + 1)]
        unknown = model.trainer_spec.unk_id in ids
        if unknown or len(rows) + sum(piece not in numbers for piece in joined) > limit:
            continue
        for end, piece in enumerate(joined, 2):
            if piece not in numbers:
                numbers[piece] = len(model.pieces)
                rows[len(model.pieces)] = [old for i in ids[:end] for old in rows.get(i, [i])]
                score -= 1
                model.pieces.add(piece=piece, score=score, type=_KINDS.NORMAL)
    return rows
