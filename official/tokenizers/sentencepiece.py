"""SentencePiece, unigram and BPE: `spiece.model` has the pieces, scores and normalization.

The ids are those of the `sentencepiece` package, except for ties: of segmentations with equal
scores ("666" as "66 6" or "6 66"), another one may be chosen. Text that spells a special token
never becomes the special id.

In Python, `WordIds` caches the ids of the words of earlier texts, where the ids of a text are those
of its words (`sentencepiece_words.parts_at_blanks`). The scores of a word are then summed without
those of the words before it, so a tie may have another result than in a graph.

The releases of ALBERT and XLNet normalize text before the model reads it, and split numbers from
commas afterwards. `AlbertTokenizer` and `XLNetTokenizer` of transformers do the same. The settings
`remove_space`, `keep_accents`, `replace_quotes` and `split_digit_comma` of `tokenizer_config.json`
select the steps. If they are missing, the steps are on if transformers would load one of these two
classes, and off otherwise. The ids are those of the slow tokenizers of transformers, except for
ties, and for

  - text that spells a special token, which becomes the special token there, and here only with
    `special=True`;
  - a capital sigma at the end of a word, which is lower-cased to "ς" here and in the releases, and
    to "σ" there;
  - characters that are newer than Unicode 13, since the libraries have tables of different Unicode
    versions.

Shapes: N texts.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2
from typing_extensions import override

from official.tokenizers import added_tokens, offsets, sentencepiece_words, word_starts
from official.tokenizers.base import Splitter, Tokenizer, sentinels
from official.tokenizers.file_formats import SETTINGS_FILE, capitals, find_specials, switch
from official.tokenizers.offsets import WHITE_SPACE
from official.tokenizers.pair_forms import SEPARATORS
from official.tokenizers.sentencepiece_rules import NO_REPLACEMENTS, DigitCommas, TextRules
from official.tokenizers.word_ids import WordIds, cut_at_blanks, ranges
from official.tokenizers.word_starts import BLANK
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The classes of transformers that normalize text, by the `model_type` of config.json.
NORMALIZING = {"albert": "AlbertTokenizer", "xlnet": "XLNetTokenizer"}
RELEASED = {**NORMALIZING, "t5": "T5Tokenizer"}
_KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece
# The types of pieces that occur in text, and of unused pieces.
_TEXT = (_KINDS.NORMAL, _KINDS.BYTE, _KINDS.UNUSED)
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # a piece of one byte
# A model whose ids differ from those of the tokenizer, which are those of fairseq, and the settings
# of such tokenizers.
FAIRSEQ_FILE = "sentencepiece.bpe.model"
FAIRSEQ = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
    "do_lower_case": False,
    SEPARATORS: 2,
}
# The model of DeBERTa-v2 and v3, which may lack the mask token: transformers appends it.
DEBERTA_FILE = "spm.model"
_DEBERTA_MASK = "[MASK]"
# The settings of T5's releases. The end token serves as [CLS] and [SEP].
T5 = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "</s>",
    "sep_token": "</s>",
    "do_lower_case": False,
    "extra_ids": 100,
}


class SentencePieceSplitter(Splitter):
    """A SentencePiece model as graph operations, with the steps before and after it."""

    def __init__(self, model: bytes):
        super().__init__()
        self.rules = TextRules()
        self._digit_commas: DigitCommas | None = None
        # Whether a blank at the end of a text becomes a separate piece, and the id of this piece.
        self.last_blank, self.blank_id = False, 0
        self._prepend, self._strips = "always", False
        # the same model without a blank before a text
        self._bare: tf_text.SentencepieceTokenizer | None = None
        self._bytes = model
        self._replacements: tf_text.SentencepieceTokenizer | None = None
        self._model = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)

    def pieces(self) -> list[str]:
        """Returns the vocabulary."""
        ids = tf.range(self._model.vocab_size())
        return [piece.decode() for piece in self._model.id_to_string(ids).numpy()]

    def split_digit_commas(self, unk_id: int) -> None:
        """Turns on the splitting of numbers from commas after them."""
        self._digit_commas = DigitCommas(
            self.pieces(),
            lambda texts: self._model.tokenize(tf.constant(texts, tf.string)).to_list(),
            lambda pieces: self._model.string_to_id(tf.constant(pieces)).numpy().tolist(),
            unk_id,
        )

    def set_prefix(self, prepend: str, strips: bool) -> None:
        """Sets which texts get a blank before them, and whether blanks before a text are removed.

        Args:
          prepend: one of `PREPEND`; 'first' = only the beginning of a text gets a blank, and not
            the text after an added token.
          strips: whether texts that get no blank lose the blanks at their beginning.
        """
        self._prepend, self._strips, self._bare = prepend, strips, None
        if prepend != "always":
            model = _parsed(self._bytes)
            model.normalizer_spec.add_dummy_prefix = False
            self._bare = tf_text.SentencepieceTokenizer(
                model.SerializeToString(deterministic=True), out_type=tf.int32, name="bare"
            )

    def _models(self) -> tuple[tf_text.SentencepieceTokenizer, tf_text.SentencepieceTokenizer]:
        """Returns the models that split texts with and without a blank before them."""
        return self._model, self._bare or self._model

    def _is_bare(self, texts: tf.Tensor, first: tf.Tensor | None) -> tf.Tensor | None:
        """Returns whether strings [N] get no blank before them, bool [N]; None = all get one.

        Args:
          texts: strings [N] after `TextRules`.
          first: whether each string is the first part of a text, bool [N]; None = all are.
        """
        if self._prepend == "never":
            bare = tf.ones(tf.shape(texts), tf.bool)
        elif self._prepend == "first" and first is not None:
            bare = ~first
        else:
            return None
        if not self._strips:
            bare &= ~tf.strings.regex_full_match(self._replaced(texts), "(?s) .*")
        return bare

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self._split(texts)

    @override
    def split_parts(self, parts: added_tokens.Parts) -> tf.RaggedTensor:
        return self._split(parts.texts, parts.begins())

    def _split(self, texts: tf.Tensor, first: tf.Tensor | None = None) -> tf.RaggedTensor:
        return self._with_last_blank(self.split_words(texts, first), texts, self.blank_id)

    def split_words(self, texts: tf.Tensor, first: tf.Tensor | None = None) -> tf.RaggedTensor:
        """Returns the ids of texts without the separate pieces of blanks at their ends.

        Args:
          texts: string [N].
          first: whether each string is the first part of a text, bool [N]; None = all are.
        """
        cleaned = self.rules.apply(texts)
        bare = self._is_bare(cleaned, first)
        ids = _chosen(bare, cleaned, *(model.tokenize for model in self._models()))
        return ids if self._digit_commas is None else self._digit_commas.split(ids)

    def split_plain_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `split_words`, faster, for words of `plain_characters`."""
        ids = self._model.tokenize(words)
        commas = self._digit_commas
        return commas.split(ids) if commas is not None and commas.split_some_of(ids) else ids

    def plain_characters(self) -> bytes:
        """Returns the ASCII characters that the rules of texts leave as they are.

        That is so in any text of them without capital letters, if these are lower-cased, and with
        single blanks.
        """
        return self.rules.plain.replace(b"," if self._digit_commas else b"", b"")

    def with_last_blanks(self, ids: tf.RaggedTensor, texts: Sequence[bytes]) -> tf.RaggedTensor:
        """Appends the separate pieces of blanks to the ids of texts that end in a blank.

        Args:
          ids: the ids of `split_words`, int32 [N, None].
          texts: N texts.
        """
        if not self.last_blank:
            return ids
        if not self.rules.strips:  # whether a text ends in a blank depends on its last word alone
            texts = [text[max(text.rfind(b" "), 0) :] for text in texts]
        return self._with_last_blank(ids, tf.constant(texts, tf.string), self.blank_id)

    def _with_last_blank(
        self, rows: tf.RaggedTensor, texts: tf.Tensor, value: tf.Tensor | int
    ) -> tf.RaggedTensor:
        """Appends `value` to the rows of texts that end in a blank, if `last_blank` is set.

        Args:
          rows: int32 [N, None].
          texts: string [N].
          value: int32, one number or [N].
        """
        if not self.last_blank:
            return rows
        ends = tf.strings.regex_full_match(self.normalized(texts), "(?s).* ")
        values = tf.broadcast_to(value, tf.shape(ends))
        last = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(values, ends), tf.cast(ends, tf.int64), validate=False
        )
        return tf.concat([rows, last], 1)

    @override
    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        return self._replaced(self.rules.apply(texts))

    @override
    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        cleaned, attached = self.rules.apply_by_character(characters)
        return cleaned.with_values(self._replaced(cleaned.values)), attached

    def _replaced(self, texts: tf.Tensor) -> tf.Tensor:
        """Applies the model's table of replacements to strings [N]."""
        if self._replacements is None:
            with tf.init_scope():
                model = replacements_alone(self._bytes)
                self._replacements = tf_text.SentencepieceTokenizer(
                    model, out_type=tf.string, name="replacements"
                )
        return offsets.joined(self._replacements.tokenize(texts))

    @override
    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; the model maps the text that it has normalized to its input."""
        return self._split_with_offsets(texts)

    @override
    def split_parts_with_offsets(self, parts: added_tokens.Parts) -> offsets.Tokens:
        return self._split_with_offsets(parts.texts, parts.begins())

    def _split_with_offsets(
        self, texts: tf.Tensor, first: tf.Tensor | None = None
    ) -> offsets.Tokens:
        characters = tf.strings.unicode_split(texts, "UTF-8")
        cleaned, attached = self.rules.apply_by_character(characters)
        given, texts = texts, self.rules.apply(texts)
        ways = (model.tokenize_with_offsets for model in self._models())
        tokens = _chosen(self._is_bare(texts, first), texts, *ways)
        if self._digit_commas is not None:
            tokens = self._digit_commas.split_with_offsets(texts, *tokens)
        ids, starts, ends = tokens
        starts, ends = offsets.characters_of(offsets.origins(cleaned, attached), starts, ends)
        pieces = self._model.id_to_string(ids.values)
        joint = tf.strings.regex_full_match(pieces, f"(?s){BLANK}.*[^{BLANK}].*")
        starts, ends = offsets.trimmed(characters, starts, ends, joint)
        size = tf.cast(characters.row_lengths(), tf.int32)
        added = ((ids, self.blank_id), (starts, size - 1), (ends, size))
        return offsets.Tokens(*(self._with_last_blank(rows, given, value) for rows, value in added))


class SentencePiece(Tokenizer):
    """SentencePiece.

    Attributes:
      rules: the steps before the model's own normalization, which may lower-case as well.
      split_digit_comma: whether a piece with a number and a comma is split.
      prepend_scheme: which texts get a blank before them; see the constructor.
      strip_left: whether texts that get no blank before them lose the blanks at their beginning.
    """

    FILE = "spiece.model"

    def __init__(
        self,
        model: bytes,
        lower_case: bool | None = None,
        settings: dict[str, Any] | None = None,
        source: str = "the model",
        *,
        remove_space: bool = False,
        keep_accents: bool = True,
        replace_quotes: bool = False,
        split_digit_comma: bool = False,
        extra_ids: int = 0,
        remove_marks: bool = False,
        blanks: str = "",
        compose: bool = False,
        last_blank: bool = False,
        prepend_scheme: str = "always",
        strip_left: bool = False,
    ):
        """Makes a tokenizer from a serialized model.

        Args:
          model: the bytes of a model file.
          lower_case: None = lower-case unless a piece of the vocabulary has a capital letter; marks
            in brackets, such as `[unused1]`, are not letters.
          settings: names of special tokens other than `[PAD] …` or `<pad> …`.
          source: the name of the model in messages.
          remove_space: see `sentencepiece_rules.TextRules`.
          keep_accents: see `sentencepiece_rules.TextRules`.
          replace_quotes: see `sentencepiece_rules.TextRules`.
          split_digit_comma: whether a piece with a number and a comma, such as "▁1990,", is split
            into the pieces of the number and the comma.
          extra_ids: the number of sentinels `<extra_id_0>`, `<extra_id_1>`, ... after the pieces
            of the model, the first one last (T5).
          remove_marks: see `sentencepiece_rules.TextRules`.
          blanks: see `sentencepiece_rules.TextRules`.
          compose: see `sentencepiece_rules.TextRules`.
          last_blank: whether a blank at the end of a text becomes a separate piece, as in the files
            of transformers 4.
          prepend_scheme: which texts get a blank before them: 'always' = all; 'first' = only the
            beginning of a text, and not the text after an added token; 'never' = none.
          strip_left: whether texts that get no blank ('first', 'never') lose the blanks at their
            beginning.

        Raises:
          UserError: `model` is not a SentencePiece model, or lacks special tokens.
        """
        settings = settings or {}
        splitter, pieces = _read(model, source)
        self.extra_ids = extra_ids
        base = [*pieces, *sentinels(extra_ids)]
        pieces = added_tokens.appended(base, settings, source)
        specials = find_specials(pieces, settings, source)
        if lower_case is None:
            lower_case = not capitals(base, specials)
        self.rules = splitter.rules = TextRules(
            remove_space, replace_quotes, keep_accents, lower_case, remove_marks, blanks, compose
        )
        splitter.last_blank = last_blank
        if prepend_scheme not in PREPEND:
            raise UserError(
                f"{source}: prepend_scheme: {prepend_scheme!r} is not one of {', '.join(PREPEND)}"
            )
        splitter.set_prefix(prepend_scheme, strip_left)
        self.prepend_scheme, self.strip_left = prepend_scheme, strip_left
        unknown = pieces.index(specials["unk_token"])
        splitter.blank_id = pieces.index(BLANK) if BLANK in pieces else unknown
        self.split_digit_comma = split_digit_comma
        if split_digit_comma:
            splitter.split_digit_commas(pieces.index(specials["unk_token"]))
        self._bytes = model
        if prepend_scheme == "always" and sentencepiece_words.parts_at_blanks(self.parsed()):
            cut = functools.partial(cut_at_blanks, uncut=BLANK.encode())
            self._words = WordIds(self._spell, self.rules.lower_case, cut=cut)
            self._odd = np.ones(256, np.uint8)  # whether a byte is no plain character
            self._odd[list(splitter.plain_characters())] = 0
        controls = [piece.piece for piece in self.parsed().pieces if piece.type not in _TEXT]
        super().__init__(pieces, specials, splitter, settings, len(base), controls)

    def _spell(self, words: bytes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of words, int32, and their row splits, [K + 1]; see `WordIds`."""
        ends = np.cumsum(lengths)
        values = np.frombuffer(words.translate(self._odd.tobytes()), np.uint8)
        odd = np.maximum.reduceat(values, ends - lengths).astype(bool)
        texts = np.empty(len(lengths), object)
        starts = (ends - lengths).tolist()
        texts[:] = [words[a:b] for a, b in zip(starts, ends.tolist(), strict=True)]
        rows = [
            self._splitter.split_plain_words(tf.constant(texts[~odd], tf.string)),
            self._splitter.split_words(tf.constant(texts[odd], tf.string)),
        ]
        sizes = np.empty(len(lengths), np.int64)
        begins = np.empty(len(lengths), np.int64)
        before = 0
        for some, ids in zip((~odd, odd), rows, strict=True):
            splits = ids.row_splits.numpy()
            begins[some], sizes[some] = before + splits[:-1], np.diff(splits)
            before += splits[-1]
        values = np.concatenate([ids.values.numpy() for ids in rows])
        return values[ranges(begins, sizes)], np.cumsum(np.append(0, sizes))

    def _split(self, words: WordIds, texts: Sequence[bytes]) -> tf.RaggedTensor:
        return self._splitter.with_last_blanks(words.split(texts), texts)

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "SentencePiece":
        """Reads a tokenizer from a `spiece.model`, its settings, and a `config.json` beside it.

        Raises:
          UserError: see the constructor; or `config.json` is not JSON.
        """
        if not settings.get("tokenizer_class") and (name := _class_of_model(path)):
            settings = {**settings, "tokenizer_class": name}
            if name == RELEASED["t5"]:
                settings = {**settings, "extra_ids": settings.get("extra_ids", T5["extra_ids"])}
        released = _released(settings)
        name = str(settings.get("tokenizer_class")).removesuffix("Fast")
        if name == RELEASED["t5"] and "extra_ids" in settings:
            given = {key: value for key, value in settings.items() if value is not None}
            settings = {**T5, **given}
        return cls(
            path.read_bytes(),
            switch(settings, "do_lower_case", None),
            settings,
            str(path),
            remove_space=switch(settings, "remove_space", released),
            keep_accents=switch(settings, "keep_accents", not released),
            replace_quotes=switch(settings, "replace_quotes", released),
            split_digit_comma=switch(settings, "split_digit_comma", released),
            extra_ids=_extra_ids(settings),
            remove_marks=switch(settings, "remove_marks", False),
            blanks=str(settings.get("blanks") or ""),
            compose=switch(settings, "compose", False),
            last_blank=switch(settings, "last_blank", False),
            prepend_scheme=str(settings.get("prepend_scheme") or "always"),
            strip_left=switch(settings, "strip_left", False),
        )

    def parsed(self) -> sentencepiece_model_pb2.ModelProto:
        """Returns the parsed model."""
        return _parsed(self._bytes)

    @property
    def is_unigram(self) -> bool:
        """Whether the model is a unigram model, not BPE."""
        kind = self.parsed().trainer_spec.model_type
        return kind == sentencepiece_model_pb2.TrainerSpec.UNIGRAM

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased before the model reads it."""
        return self.rules.lower_case

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""
        apart = {*self.special_ids, *self.sentinel_ids, *self.added}
        words = (f" {self.pieces[i]} " if i in apart else self.pieces[i] for i in ids)
        return " ".join("".join(words).replace(BLANK, " ").split())

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        apart = {*self.special_ids, *self.sentinel_ids, *self.added}
        words = [f" {p} " if i in apart else p for i, p in enumerate(self.pieces)]
        words = [word.replace(BLANK, " ") for word in words]
        joined = offsets.joined(tf.gather(tf.constant(words), ids))
        joined = tf.strings.regex_replace(joined, f"{WHITE_SPACE}+", " ")
        return tf.strings.strip(joined)

    def _spelled(self, piece: str) -> bytes:
        return piece.replace(BLANK, " ").encode()

    def _num_bytes(self, piece: str) -> int:
        return 1 if _BYTE.fullmatch(piece) else super()._num_bytes(piece)

    def _blanks_matter(self) -> bool:
        return self.prepend_scheme != PREPEND[0]

    def _begins_word(self, piece: str, rule: str) -> bool:
        return word_starts.of_piece(piece, rule)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {self.FILE: self._bytes}

    def _decides(self) -> dict[str, Any]:
        settings = {**dataclasses.asdict(self.rules), "split_digit_comma": self.split_digit_comma}
        lower_case = {"do_lower_case": settings.pop("lower_case")}
        for rule in _LATER:
            if not settings[rule]:
                del settings[rule]
        if self.extra_ids:
            lower_case["extra_ids"] = self.extra_ids
        if self._splitter.last_blank:
            lower_case["last_blank"] = True
        if self.prepend_scheme != "always":
            lower_case["prepend_scheme"] = self.prepend_scheme
            if self.strip_left:
                lower_case["strip_left"] = True
        return lower_case if settings == _NO_RULES else lower_case | settings

    def splitting(self) -> dict[str, Any]:
        """Returns the settings that decide how a text is split; see the base class."""
        # The sentinels may follow the pieces of the model or be among them.
        rules = super().splitting()
        rules.pop("extra_ids", None)
        return rules

    def _for_others(self) -> dict[str, Any]:
        # With these settings, transformers does not change text before the model, as in this class,
        # except that it always replaces quotes and splits digits from commas.
        if self.extra_ids:
            return {
                "tokenizer_class": RELEASED["t5"],
                "eos_token": self.pieces[self.sep_id],
                # Whether transformers puts a blank before text after a sentinel, as in span
                # corruption.
                "legacy": switch(self._settings, "legacy", True),
            }
        return {"tokenizer_class": "AlbertTokenizer", "keep_accents": True, "remove_space": False}


_MOST_SENTINELS = 100_000  # a larger number in a file would only take memory
# See `SentencePiece`.
PREPEND = ("always", "first", "never")
_LATER = ("remove_marks", "blanks", "compose")  # rules that are saved only if they have an effect
_NO_RULES = {
    "remove_space": False,
    "replace_quotes": False,
    "keep_accents": True,
    "split_digit_comma": False,
}


def _read(model: bytes, source: str) -> tuple[SentencePieceSplitter, list[str]]:
    """Returns a model and its vocabulary.

    Raises:
      UserError: it is not a SentencePiece model.
    """
    if not model:
        raise UserError(f"{source} is empty: expected a SentencePiece model")
    try:
        splitter = SentencePieceSplitter(model)
        return splitter, splitter.pieces()
    except tf.errors.OpError as error:
        raise UserError(f"{source} is not a SentencePiece model, or is damaged") from error


def _chosen(bare: tf.Tensor | None, texts: tf.Tensor, plain: Callable, other: Callable) -> Any:
    """Applies `other` to the strings [N] that are `bare`, and `plain` to the rest.

    Args:
      bare: bool [N]; None = no string is.
      texts: string [N].
      plain: a function of strings that returns one or several ragged tensors.
      other: a function like `plain`.
    """
    if bare is None:
        return plain(texts)
    places = [tf.where(~bare)[:, 0], tf.where(bare)[:, 0]]
    order = tf.argsort(tf.concat(places, 0))
    made = [way(tf.gather(texts, rows)) for way, rows in zip((plain, other), places, strict=True)]
    if isinstance(made[0], tf.RaggedTensor):
        return tf.gather(tf.concat(made, 0), order)
    return tuple(tf.gather(tf.concat(both, 0), order) for both in zip(*made, strict=True))


def _parsed(model: bytes) -> sentencepiece_model_pb2.ModelProto:
    return sentencepiece_model_pb2.ModelProto.FromString(model)


def with_fairseq_ids(model: bytes, unused: bool, source: str) -> bytes:
    """Returns a model with the ids of fairseq, as transformers computes them from the model's.

    Args:
      model: a model that begins with `<unk>`, `<s>` and `</s>`.
      unused: False = `<s>`, `<pad>`, `</s>` and `<unk>` come before the other pieces, and `<mask>`
        after them (XLM-RoBERTa); True = there are unused tokens before the pieces (CamemBERT).
      source: the name of the model in messages.

    Raises:
      UserError: the model is damaged, or begins with other pieces.
    """
    if _read(model, source)[1][:3] != ["<unk>", "<s>", "</s>"]:
        raise UserError(
            f"{source} does not begin with <unk>, <s> and </s>: does it belong to this tokenizer?"
        )
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    if unused:
        first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    parsed = _parsed(model)
    pieces = list(parsed.pieces)
    del parsed.pieces[:]
    for name in first:
        kind = _KINDS.UNKNOWN if name == "<unk>" else _KINDS.CONTROL
        parsed.pieces.add(piece=name, score=0, type=kind)
    parsed.pieces.extend(pieces[3:])
    parsed.pieces.add(piece="<mask>", score=0, type=_KINDS.CONTROL)
    trainer = parsed.trainer_spec
    trainer.unk_id, trainer.pad_id, trainer.vocab_size = 3, 1, len(parsed.pieces)
    trainer.bos_id, trainer.eos_id = first.index("<s>"), first.index("</s>")
    return parsed.SerializeToString(deterministic=True)


def with_mask(model: bytes, source: str) -> bytes:
    """Returns a model of DeBERTa with the mask token: the last piece, unless the model has it.

    Args:
      model: the bytes of a model file.
      source: the name of the model in messages.

    Raises:
      UserError: the model is damaged.
    """
    if _DEBERTA_MASK in _read(model, source)[1]:
        return model
    parsed = _parsed(model)
    parsed.pieces.add(piece=_DEBERTA_MASK, score=0, type=_KINDS.CONTROL)
    return parsed.SerializeToString(deterministic=True)


def without_mask(model: bytes) -> bytes:
    """Returns a model without the mask token that `with_mask` has appended."""
    parsed = _parsed(model)
    last = parsed.pieces[-1]
    if (last.piece, last.type) != (_DEBERTA_MASK, _KINDS.CONTROL):
        return model
    del parsed.pieces[-1]
    return parsed.SerializeToString(deterministic=True)


def replacements_alone(model: bytes) -> bytes:
    """Returns a model with the character replacements of `model`, and without pieces of text."""
    charsmap = _parsed(model).normalizer_spec.precompiled_charsmap
    alone = sentencepiece_model_pb2.ModelProto()
    alone.pieces.add(piece="<unk>", score=0, type=_KINDS.UNKNOWN)
    alone.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.CHAR
    alone.trainer_spec.unk_id = 0
    alone.normalizer_spec.precompiled_charsmap = charsmap or NO_REPLACEMENTS
    alone.normalizer_spec.add_dummy_prefix = False
    alone.normalizer_spec.remove_extra_whitespaces = False
    alone.normalizer_spec.escape_whitespaces = False
    return alone.SerializeToString(deterministic=True)


def replaced(model: bytes, characters: Sequence[str]) -> dict[str, str]:
    """Returns {character: its normalized form in the model}."""
    replace = tf_text.SentencepieceTokenizer(replacements_alone(model), out_type=tf.string)
    after = offsets.joined(replace.tokenize(tf.constant(characters))).numpy().tolist()
    return {old: new.decode() for old, new in zip(characters, after, strict=True)}


def _released(settings: dict[str, Any]) -> bool:
    """Returns whether the settings are those of a released tokenizer.

    Older folders of this project also name `AlbertTokenizer`, with both switches set so that
    transformers does not change the text.
    """
    name = str(settings.get("tokenizer_class")).removesuffix("Fast")
    alone = settings.get("keep_accents") is True and settings.get("remove_space") is False
    return name in NORMALIZING.values() and not alone


def _extra_ids(settings: dict[str, Any]) -> int:
    """Returns the number of sentinels in the settings.

    Raises:
      UserError: it is not a whole number from 0 to `_MOST_SENTINELS`.
    """
    number = settings.get("extra_ids") or 0
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 <= number <= _MOST_SENTINELS:
        raise UserError(
            f"{SETTINGS_FILE}: extra_ids is {number!r}, but must be a whole number from 0 to "
            f"{_MOST_SENTINELS:,}"
        )
    return number


def _class_of_model(path: AnyPath) -> str | None:
    """Returns the class that transformers would load for the `config.json` beside a vocabulary."""
    config = path.with_name("config.json")
    if not config.is_file():
        return None
    try:
        described = json.loads(config.read_bytes())
    except ValueError as error:
        raise UserError(f"{config} is not JSON: {error}") from error
    return RELEASED.get(str(described.get("model_type"))) if isinstance(described, dict) else None
