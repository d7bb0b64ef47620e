"""Fuzzed lines go through the tokenizers, the pretraining formats and the served graph.

`find_problem` checks the tokens of a text without our tokenizers. Byte-level BPE: the
bytes of the pieces are those of the text. SentencePiece: what the package `sentencepiece` says.
WordPiece: pieces are spelled with the characters of their slices, by Python's tables.
"""

import dataclasses
import itertools
import json
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the SavedModels)

from benchmarks.torture import lines, parts
from benchmarks.torture.materials import (
    SERVED_LENGTH,
    SIZES,
    SYSTEMS,
    Materials,
    smoke_config,
)
from official import config as configs
from official import tokenizers
from official.data import ShardDataset
from official.tokenizers import ByteBPE, SentencePiece, Tokenizer, byte_vocabulary, pair_packing
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import documents

_LINES = 8000  # of a case
_DOCUMENT = 8  # lines, more or less
_SHOWN = 3  # failures of a kind and case
_TOLERANCE = 1e-4


class Fuzz(parts.Part):
    """A case is some thousand lines, one of the tokenizers and one of the formats."""

    name = "fuzz"
    things = "fuzzed lines"
    promise = "no crash, each drop counted, tokens are slices, graph and Python agree"
    whole, quick = 125, 4

    def __init__(self, seed: int, materials: Materials, load: Any = tokenizers.load):
        super().__init__(seed)
        self._materials, self._load = materials, load
        self._tokenizers: dict[str, tokenizers.Tokenizer] = {}
        self._served: dict[str, Any] = {}
        self._graphs: dict[str, Any] = {}

    def run(self, case: int) -> parts.Outcome:
        """Sends the same lines through all of it."""
        outcome, rng = parts.Outcome(), self.rng(case)
        some = lines.lines(rng, _LINES)
        for kind in SIZES:
            self._tokenize(kind, some, outcome)
        kind = list(SIZES)[case % len(SIZES)]
        self._serve(kind, some, outcome)
        self._answer(kind, some, rng, outcome)
        system = list(SYSTEMS)[case // len(SIZES) % len(SYSTEMS)]
        self._shards(kind, system, some, rng, outcome)
        outcome.done += len(some) - sum(outcome.kinds.values())
        outcome.kinds["held"] = outcome.done - outcome.kinds["failed"]
        return outcome

    def _tokenizer(self, kind: str) -> tokenizers.Tokenizer:
        if kind not in self._tokenizers:
            self._tokenizers[kind] = self._load(self._materials.fuzzed_tokenizer(kind))
        return self._tokenizers[kind]

    def _graph(self, kind: str) -> Any:
        """The tokenizer inside a graph."""
        if kind not in self._graphs:
            spec = [tf.TensorSpec([None], tf.string)]
            graph = tf.function(self._tokenizer(kind).tokenize, input_signature=spec)
            self._graphs[kind] = graph
        return self._graphs[kind]

    def _tokenize(self, kind: str, some: list[bytes], outcome: parts.Outcome) -> None:
        """Ids in and outside a graph, and the slices of all tokens."""
        tokenizer = self._tokenizer(kind)
        texts = [line.decode("utf-8", "replace") for line in some]
        actual = tokenizer.encode(texts)
        ragged = self._graph(kind)(tf.constant(texts))
        result = np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])
        _compare(f"{kind}, graph and Python", texts, result, actual, outcome)
        one = len(texts) // 2
        alone = tokenizer.encode(texts[one : one + 1])
        _compare(f"{kind}, alone", texts[one : one + 1], alone, actual[one : one + 1], outcome)
        tokenizer.tokenize(tf.constant(some))  # what is no UTF-8 goes in as it is
        broken = [line.decode("utf-8", "surrogateescape") for line in some[:100]]
        tokenizer.encode(broken)
        tokenizer.encode_with_offsets(broken)
        problems = []
        for text, ids, (same, starts, ends) in zip(
            texts, actual, tokenizer.encode_with_offsets(texts), strict=True
        ):
            wrong = None if np.array_equal(ids, same) else "other ids with places than without"
            wrong = wrong or find_problem(tokenizer, text, ids, starts, ends)
            if wrong:
                problems.append(f"{kind}: {wrong}: {_shown(text)}")
        _report(problems, outcome)

    def _serve(self, kind: str, some: list[bytes], outcome: parts.Outcome) -> None:
        """What a SavedModel says of texts is what it says of the ids that Python makes of them."""
        tokenizer, model = self._tokenizer(kind), self._model(kind, "vectors")
        texts = [line.decode("utf-8", "replace") for line in some]
        ids = tokenizer.encode(texts)
        packed = pair_packing.pack(
            [tf.ragged.constant(ids, dtype=tf.int32)], tokenizer, SERVED_LENGTH
        )
        wanted = model.signatures["tokens"](
            input_word_ids=packed["token_ids"],
            input_mask=tf.cast(packed["padding_mask"], tf.int32),
            input_type_ids=packed["segment_ids"],
        )
        outputs = model.signatures["serving_default"](text=tf.constant(some))
        mask = outputs["input_mask"].numpy() > 0
        same = np.array_equal(mask, packed["padding_mask"].numpy())
        if not same:
            outcome.fail(f"{kind}: a SavedModel reads texts as other numbers of tokens")
            return
        unlike = np.abs(outputs["sequence_output"] - wanted["sequence_output"]).max(axis=-1) * mask
        rows = np.flatnonzero(unlike.max(axis=1) > _TOLERANCE)
        _report([f"{kind}, served: other ids for {_shown(texts[row])}" for row in rows], outcome)

    def _answer(
        self, kind: str, some: list[bytes], rng: np.random.Generator, outcome: parts.Outcome
    ) -> None:
        """Answers of a SavedModel are the slices of their contexts that it says they are."""
        contexts = [b" ".join(some[i : i + 4]) for i in range(0, len(some) // 4, 4)]
        contexts = [context for context in contexts if len(context) < lines.LONG]
        questions = [some[i] for i in rng.integers(0, len(some), len(contexts))]
        questions = [question[:500] for question in questions]
        outputs = self._model(kind, "answer").signatures["serving_default"](
            question=tf.constant(questions), context=tf.constant(contexts)
        )
        columns = [outputs[name].numpy().tolist() for name in ("answer", "start", "end")]
        problems = []
        for context, answer, start, end in zip(contexts, *columns, strict=True):
            text = context.decode("utf-8", "replace")
            if answer.decode() != text[start:end]:
                problems.append(f"{kind}: {answer!r} at {start}:{end} of {_shown(text)}")
        _report(problems, outcome)

    def _model(self, kind: str, objective: str) -> Any:
        path = str(self._materials.served(kind, objective))
        if path not in self._served:
            self._served[path] = tf.saved_model.load(path)
        return self._served[path]

    def _shards(
        self,
        kind: str,
        system: str,
        some: list[bytes],
        rng: np.random.Generator,
        outcome: parts.Outcome,
    ) -> None:
        """Builds shards of the lines as text or JSON Lines, counts, and reads them as training."""
        where, problems = f"{system} with {kind}", []
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            folder = Path(scratch)
            groups = _grouped(some, rng)
            name, counts = _write(folder, groups, as_json=bool(rng.integers(2)))
            config = configs.load(smoke_config(system))
            settings = Settings.from_config(
                config,
                self._materials.fuzzed_tokenizer(kind),
                phrases=self._materials.phrases() if system == "ernie" else None,
            )
            built = builder.build(
                settings,
                str(folder / name),
                folder / "shards",
                num_shards=1,
                on_bad_utf8="skip",
                on_long_line="skip",
                report=lambda line: None,
            )
            totals = built.totals
            if (actual := totals.skipped.get("lines not UTF-8", 0)) != counts["broken"]:
                problems.append(f"{counts['broken']} broken lines, {actual} counted ({name})")
            kept = totals.documents + totals.skipped.get("empty documents", 0)
            if kept != counts["documents"]:
                problems.append(f"{counts['documents']} documents, {kept} counted ({name})")
            if kind != "byte_bpe":
                tokens = self._tokens(kind, counts["texts"])
                if tokens != totals.tokens:
                    problems.append(f"{tokens} tokens in the text, {totals.tokens} counted")
            problems += _examples(ShardDataset(folder / "shards", config, "train"), config, totals)
        _report([f"{where}: {problem}" for problem in problems], outcome)

    def _tokens(self, kind: str, texts: list[str]) -> int:
        return sum(map(len, self._tokenizer(kind).encode(texts)))


def _compare(what: str, texts: Any, actual: Any, wanted: Any, outcome: parts.Outcome) -> None:
    pairs = zip(texts, actual, wanted, strict=True)
    unlike = [_shown(text) for text, a, b in pairs if not np.array_equal(a, b)]
    _report([f"{what}: other ids for {text}" for text in unlike], outcome)


def _report(problems: list[str], outcome: parts.Outcome) -> None:
    """Counts problems, and tells some of them."""
    for problem in problems[:_SHOWN]:
        outcome.fail(problem)
    if more := len(problems) - _SHOWN:
        outcome.add("failed", max(more, 0))


def _shown(text: str) -> str:
    return f"{text[:60]!a}{'…' if len(text) > 60 else ''}"


def _grouped(some: list[bytes], rng: np.random.Generator) -> list[list[bytes]]:
    """The lines as documents."""
    places = np.flatnonzero(rng.random(len(some)) < 1 / _DOCUMENT)
    splits = [0, *places.tolist(), len(some)]
    return [some[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]


def _write(folder: Path, groups: list[list[bytes]], as_json: bool) -> tuple[str, dict[str, Any]]:
    """Writes documents to a file; says its name, and what of it has to be counted."""
    if as_json:
        texts = ["\n".join(_surrogates(line) for line in group) for group in groups]
        rows = "\n".join(json.dumps({"text": text}) for text in texts)
        (folder / "text.jsonl").write_text(rows + "\n")
        whole = [text for text in texts if _encodes(text)]
        counts = {"broken": len(texts) - len(whole), "documents": len(whole)}
        kept = [line for text in whole for line in text.split("\n")]
        name = "text.jsonl"
    else:
        (folder / "text.txt").write_bytes(b"\n\n".join(map(b"\n".join, groups)) + b"\n")
        file = b"\n\n".join(map(b"\n".join, groups)).removeprefix(b"\xef\xbb\xbf").split(b"\n")
        kept = [line.decode() for line in file if lines.is_utf8(line)]
        blank = [not line.strip() for line in kept]
        begins = sum(not b and (a or i == 0) for i, (a, b) in enumerate(zip([True, *blank], blank)))  # noqa: B905
        counts = {"broken": len(file) - len(kept), "documents": begins}
        name = "text.txt"
    return name, {**counts, "texts": ["".join(documents.cleaned(line)) for line in kept]}


def _surrogates(line: bytes) -> str:
    """A line as a JSON string may have it: what is no UTF-8 becomes a lone surrogate."""
    return line.decode("utf-8", "surrogateescape")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _examples(source: ShardDataset, config: configs.Config, totals: Any) -> list[str]:
    """What is wrong with the examples as training reads them."""
    plain = dataclasses.replace(config, corruption=None, objectives=())
    raw = ShardDataset(source.folder, plain, "train")
    size = config.recipe.batch_size
    problems: list[str] = []
    text = 0
    special = np.array(sorted(set(source.tokenizer.special_ids) - {source.tokenizer.unk_id}))
    for batch, whole in zip(source.dataset(size), raw.dataset(size), strict=True):
        batch = {name: value.numpy() for name, value in batch.items()}
        ids, mask = whole["token_ids"].numpy(), whole["padding_mask"].numpy()
        weights = batch["example_weights"] > 0
        inside = mask & ~np.isin(ids, special)
        text += int(inside[weights].sum())
        if not ((ids >= 0) & (ids < source.tokenizer.vocab_size)).all():
            problems.append("ids out of range")
        if (ids[~mask] != source.tokenizer.pad_id).any():
            problems.append("padding with an id of its own")
        if "masked_positions" in batch:
            sure = inside & (ids != source.tokenizer.unk_id)
            problems += _predictions(batch, ids, inside, sure, weights)
    wanted = totals.tokens - totals.cut_tokens
    one_segment = ("full_sentences", "doc_sentences")
    if config.segments.format in one_segment and text != wanted:
        problems.append(f"{wanted} tokens to read, {text} in the examples")
    return sorted(set(problems))


def _predictions(
    batch: Any, ids: np.ndarray, inside: np.ndarray, sure: np.ndarray, weights: np.ndarray
) -> list[str]:
    """What is wrong with what is asked for.

    Args:
      batch: as training reads it.
      ids: the same without corruption [B, T].
      inside: the tokens that are text [B, T].
      sure: those that can be asked for, whatever the config [B, T].
      weights: the rows that are examples [B].
    """
    problems = []
    positions, real = batch["masked_positions"], batch["masked_weights"] > 0
    rows = np.arange(len(ids))[:, None]
    if (batch["masked_ids"] != ids[rows, positions])[real].any():
        problems.append("a masked id that is not the one in the text")
    if not inside[rows, positions][real].all():
        problems.append("a special token or padding is asked for")
    lacking = weights & sure.any(axis=1) & ~real.any(axis=1)
    if lacking.any():
        problems.append(f"{int(lacking.sum())} rows with tokens and no prediction")
    seen = np.ones(ids.shape, bool)
    np.put_along_axis(seen, np.where(real, positions, positions[:, :1]), False, axis=1)
    if ((batch["token_ids"] != ids) & seen)[weights].any():
        problems.append("a token is changed that is not asked for")
    return problems


_BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\ufeff"


def find_problem(
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
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (points > 0x7F) + (points > 0x7FF).astype(int) + (points > 0xFFFF)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    bounds = np.asarray(places, int).reshape(-1, 2)
    firsts = np.searchsorted(begins, bounds[:, 0], "right") - 1
    lasts = np.searchsorted(begins, bounds[:, 1] - 1, "right")
    actual = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        part = text[first:last]
        if (bare := part.strip(_BLANKS)) and bare != part:
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
        # A blank and a part of the next character: the package says that it is the blank.
        joint = piece.piece.startswith("▁") and piece.piece.strip("▁")
        joint = joint and not text[slice(*place)].strip(_BLANKS)
        allowed = [place, (place[1], place[1] + 1)] if joint else [place]
        if piece.begin < piece.end and (start, end) not in allowed:
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
        neighbors = [places[n] for n in (number - 1, number + 1) if 0 <= n < len(places)]
        shared = any(a < end and start < b for a, b in neighbors)
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
