"""`tokenizer.json`, the format of the `tokenizers` package, read and written.

transformers 5 saves it instead of all other files of a vocabulary. The reader returns one of the
tokenizers of this project, with the same ids in Python and inside a graph:

  model      normalizer, pre-tokenizer
  WordPiece  BertNormalizer, BertPreTokenizer; of this project's own folders with NFC before
  BPE        none or NFC, ByteLevel, or a Split at words with marks before it
  Unigram    quotes, NFKD, StripAccents or a Replace of the combining marks, Lowercase, NFC with
             Precompiled; WhitespaceSplit, Metaspace
             or Lowercase, white space, NFC; Metaspace (DeBERTa of transformers 5)

Other combinations, such as Gemma's and Llama-3's, and WordLevel become a `components.Components`.

An unsupported component is refused by name. The special tokens and the number of separators between
the texts of a pair come from the post-processor. The ids are those of the `tokenizers` package,
except for the differences that the modules of the three kinds list, and for

  - `Precompiled` of the Unigrams above next to combining marks, where that package looks up a
    letter with its marks as a unit; `Components` do so too, with the marks of Unicode 17, as in
    tokenizers 0.23.3 (0.22.2 has an older version): see `charsmap`;
  - `Precompiled` after `Strip` (DeBERTa of transformers 4) at the end of a text, where a blank
    before removed characters becomes a piece in that package;
  - the unknown token with `normalized` in such a file, where a blank before it in a text becomes a
    piece in that package;
  - in `Components`, characters that are newer than Unicode 12 and that a Unicode form, lower-casing
    or StripAccents changes: the libraries have tables of different versions;
  - in `Components`, U+FFFF in text that is lower-cased, and ties between segmentations of a
    Unigram.
"""

import base64
import dataclasses
import functools
import itertools
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from official.tokenizers import (
    added_tokens,
    folder_keys,
    patterns,
    post_processors,
    text_steps,
    word_models,
    word_steps,
    wordpiece,
)
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe import GPT2, WITH_MARKS, ByteBPE
from official.tokenizers.components import FILE as FILE
from official.tokenizers.components import Components, ComponentSplitter
from official.tokenizers.composition import FORM, NFC
from official.tokenizers.pair_forms import ONE, SEPARATORS
from official.tokenizers.post_processors import PostProcessor
from official.tokenizers.sentencepiece import PREPEND, SentencePiece, replaced
from official.tokenizers.sentencepiece_rules import COMBINING, NO_REPLACEMENTS
from official.tokenizers.word_starts import BLANK
from official.tokenizers.wordpiece import WordPiece
from official.utils import json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The class of transformers that changes nothing in the file.
AS_DESCRIBED = "PreTrainedTokenizerFast"
_QUOTES = [
    {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")
]
# Steps of a normalizer that remove blanks as a SentencePiece model does by itself.
_BLANKS: list[dict[str, Any]] = [
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    *(
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}
        for content in (" ", BLANK)
    ),
]
# The normalizer of DeBERTa in transformers 5; Lowercase may come first.
_COMPOSES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": NFC},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
# Removes the accents of ALBERT and XLNet. `StripAccents` would remove vowel signs too, which have
# no combining class.
_NO_ACCENTS = {"type": "Replace", "pattern": {"Regex": COMBINING}, "content": ""}
_HANGUL = "\u1112\u1161"  # two parts of a syllable, which NFC composes to one character
# The characters at which WhitespaceSplit splits text.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
# The pre-tokenizer of a WordPiece without its basic tokenizer, which splits as `str.split`.
_AT_WHITE_SPACE: dict[str, Any] = {
    "type": "Split",
    "pattern": {"Regex": r"[\t-\r\x1c-\x1f\x{85}\p{Z}]+"},
    "behavior": "Removed",
    "invert": False,
}
# GPT-2's words, with marks as letters.
LETTERS_AND_MARKS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
)
_SPLITS_WITH_MARKS: dict[str, Any] = {
    "type": "Split",
    "pattern": {"Regex": LETTERS_AND_MARKS},
    "behavior": "Isolated",
    "invert": False,
}
_KNOWN = {
    "normalizer": "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, "
    "Precompiled, BertNormalizer, ByteLevel and sequences of them",
    "pre_tokenizer": "Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation, Digits, Split, "
    "CharDelimiterSplit, Metaspace, ByteLevel and sequences of them",
}
_LONGEST_PIECE = 256  # bytes, in tensorflow-text's WordPiece
_KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece
_JOINED = (_KINDS.NORMAL, _KINDS.USER_DEFINED)  # pieces that text becomes by joining pairs


def read(
    path: AnyPath, settings: Mapping[str, Any], described: Mapping[str, Any] | None = None
) -> Tokenizer:
    """Reads a tokenizer from a `tokenizer.json` and its settings.

    Args:
      path: the file.
      settings: those of `tokenizer_config.json`, and the listed tokens.
      described: the content of the file after the changes of a class (`class_rules`); None = the
        unchanged content.

    Raises:
      UserError: the file is not valid, or has an unsupported component.
    """
    if described is None:
        described = json_files.read(path, "is this the file of a tokenizer?")
    try:
        tokenizer = _Reader(path, settings, described).tokenizer()
        folder_keys.check(FILE, described, str(path))
        return tokenizer
    except UserError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is malformed ({type(error).__name__}: {error})") from error


class _Unusual(UserError):
    """A file of no usual kind, for `Components`; the message names the unusual component."""


class _Reader:
    """Reads one file."""

    def __init__(self, path: AnyPath, settings: Mapping[str, Any], described: Mapping[str, Any]):
        self._path = path
        self._described = described
        self._settings = dict(settings)
        model = described.get("model")
        if not isinstance(model, dict):
            raise UserError(f"{path} has no `model`: is this the file of a tokenizer?")
        self._model: dict[str, Any] = model

    def tokenizer(self) -> Tokenizer:
        # Older files do not name the type.
        kind = self._model.get("type") or self._guessed()
        kinds = {"WordPiece": self._wordpiece, "BPE": self._byte_bpe, "Unigram": self._unigram}
        self._specials()
        given = dict(self._settings)
        try:
            if kind in kinds:
                return kinds[kind]()
        except _Unusual:
            self._settings = given
        return self._components(kind)

    def _guessed(self) -> str | None:
        if "merges" in self._model:
            return "BPE"
        if isinstance(self._model.get("vocab"), list):
            return "Unigram"
        return "WordPiece" if "continuing_subword_prefix" in self._model else None

    def _refused(self, component: str, found: Any, wanted: str) -> _Unusual:
        shown = json.dumps(found, ensure_ascii=False)
        shown = shown if len(shown) <= 120 else f"{shown[:117]}..."
        return _Unusual(
            f"{self._path}: {component} is {shown}, which is not supported inside a graph: only "
            f"{wanted}"
        )

    def _only(self, component: str, found: Any, *allowed: Any) -> None:
        """Checks that a setting has one of the allowed values."""
        if found not in allowed:
            raise self._refused(component, found, " or ".join(map(json.dumps, allowed)))

    def _steps(self, component: str, inner: str) -> list[dict[str, Any]]:
        """Returns the steps of a component: those of a sequence, or the component itself."""

        def steps(found: Any) -> list[dict[str, Any]]:
            if found is None:
                return []
            if not isinstance(found, dict):
                raise UserError(f"{self._path}: {component} is {found!r}, expected an object")
            if found.get("type") != "Sequence":
                return [found]
            return [step for part in found.get(inner) or () for step in steps(part)]

        return steps(self._described.get(component))

    def _specials(self) -> None:
        """Sets the names of the special tokens, and the separators of a pair."""
        settings = self._settings
        first, last, separators = self._template()
        if separators is not None:
            settings.setdefault(SEPARATORS, separators)
        unknown = self._model.get("unk_token")
        if unknown is None and isinstance(number := self._model.get("unk_id"), int):
            pieces = self._model.get("vocab") or ()
            unknown = pieces[number][0] if 0 <= number < len(pieces) else None
        bos, eos = settings.get("bos_token"), settings.get("eos_token")
        for key, names in {
            "unk_token": (unknown,),
            "sep_token": (last, eos),
            "cls_token": (first, bos, last, eos),
        }.items():
            if settings.get(key) is None:
                settings[key] = next((name for name in names if name is not None), None)

    def _template(self) -> tuple[str | None, str | None, int | None]:
        """Returns the first and the last special token of a text, and the separators of a pair."""
        name = "post_processor"
        said = post_processors.read(self._steps(name, "processors"))
        if said is None:
            types = "BertProcessing or RobertaProcessing or TemplateProcessing"
            raise self._refused(name, self._described[name], types)
        if not said.adds_tokens:
            return None, None, None
        form = said.form()
        if form is None:
            wanted = (
                "<cls> A <sep>, A <sep> <cls> or A </s>, and a pair of the same form with one or "
                "two <sep> between its texts"
            )
            raise self._refused(f"{name} (single and pair)", said.words(), wanted)
        return form.cls, form.sep, form.separators

    def _pieces(self) -> list[str]:
        """Returns the vocabulary by id; added tokens fill its gaps.

        Raises:
          UserError: an id has no piece.
        """
        vocabulary = self._model.get("vocab")
        if not isinstance(vocabulary, dict) or not vocabulary:
            raise UserError(
                f"{self._path}: model.vocab is empty, or is not an object of pieces and ids"
            )
        pieces: dict[int, str] = {}
        for piece, number in vocabulary.items():
            if type(number) is not int or number < 0 or number in pieces:
                raise UserError(
                    f"{self._path}: model.vocab: {piece!r} has id {number!r}, but must have a "
                    "number that no other piece has"
                )
            pieces[number] = piece
        last = max(pieces)
        if last >= len(pieces):
            for content, (number, _) in self._settings[added_tokens.LISTED].items():
                if number is not None and number < last:
                    pieces.setdefault(number, content)
        # the number comes from a file, so it is checked before memory is allocated
        if last >= len(pieces):
            lacking = next(i for i in range(len(pieces)) if i not in pieces)
            raise UserError(
                f"{self._path}: model.vocab has no piece for the id {lacking}, and "
                f"{pieces[last]!r} has the id {last:,}: {len(pieces):,} pieces have the numbers "
                f"from 0 to {len(pieces) - 1:,}"
            )
        return [pieces[i] for i in range(len(pieces))]

    def _wordpiece(self) -> WordPiece:
        prefix = "continuing_subword_prefix"
        self._only(f"model.{prefix}", self._model.get(prefix, "##"), wordpiece.CONTINUES)
        steps = self._steps("normalizer", "normalizers")
        # Folders of other tools with these steps become `Components`.
        nfc = steps[:1] == [{"type": NFC}] and self._settings.get(FORM) == NFC
        steps = steps[nfc:]
        limit = self._model.get(wordpiece.MAX_CHARACTERS, wordpiece.DEFAULT_LIMIT)
        if type(limit) is not int or not 1 <= limit <= wordpiece.MOST_CHARACTERS:
            wanted = f"a whole number from 1 to {wordpiece.MOST_CHARACTERS:,}"
            raise self._refused(f"model.{wordpiece.MAX_CHARACTERS}", limit, wanted)
        if not steps and self._described.get("pre_tokenizer") == _AT_WHITE_SPACE:
            return WordPiece(
                self._pieces(),
                settings=self._settings,
                source=str(self._path),
                max_input_chars_per_word=limit,
                do_basic_tokenize=False,
                nfc=nfc,
            )
        if [step["type"] for step in steps] != ["BertNormalizer"]:
            raise self._refused("normalizer", self._described.get("normalizer"), "BertNormalizer")
        self._only("normalizer.clean_text", steps[0].get("clean_text", True), True)
        splits = [step["type"] for step in self._steps("pre_tokenizer", "pretokenizers")]
        if splits != ["BertPreTokenizer"]:
            found = self._described.get("pre_tokenizer")
            raise self._refused("pre_tokenizer", found, "BertPreTokenizer")
        return WordPiece(
            self._pieces(),
            bool(steps[0].get("lowercase", True)),
            steps[0].get("strip_accents"),
            self._settings,
            str(self._path),
            limit,
            bool(steps[0].get("handle_chinese_chars", True)),
            nfc=nfc,
        )

    def _byte_bpe(self) -> ByteBPE:
        for key, allowed in {
            "dropout": (None, 0.0),
            "continuing_subword_prefix": (None, ""),
            "end_of_word_suffix": (None, ""),
            "byte_fallback": (None, False),
            "ignore_merges": (None, False),
        }.items():
            self._only(f"model.{key}", self._model.get(key), *allowed)
        forms = [step["type"] for step in self._steps("normalizer", "normalizers")]
        if forms not in ([], [NFC]):
            raise self._refused("normalizer", self._described.get("normalizer"), "none or NFC")
        steps = self._steps("pre_tokenizer", "pretokenizers")
        pattern = GPT2
        if len(steps) == 2 and steps[0] == _SPLITS_WITH_MARKS:
            pattern, steps = WITH_MARKS, steps[1:]
            self._only("add_prefix_space", steps[0].get("add_prefix_space", True), False)
        if [step["type"] for step in steps] != ["ByteLevel"]:
            raise self._refused("pre_tokenizer", self._described.get("pre_tokenizer"), "ByteLevel")
        own = steps[0].get("use_regex", True)
        self._only("pre_tokenizer.use_regex", own, pattern == GPT2)
        merges = self._merges()
        prefix = bool(steps[0].get("add_prefix_space", True))
        return ByteBPE(
            self._pieces(),
            merges,
            prefix,
            self._settings,
            str(self._path),
            nfc=bool(forms),
            pattern=pattern,
        )

    def _merges(self) -> list[tuple[str, str]]:
        """Returns the merges; older files write one as a text with a blank between the parts."""
        merges = list[tuple[str, str]]()
        for number, merge in enumerate(self._model.get("merges") or (), 1):
            parts = merge.split(" ") if isinstance(merge, str) else merge
            if (
                not isinstance(parts, list)
                or len(parts) != 2
                or not all(isinstance(part, str) and part for part in parts)
            ):
                raise UserError(
                    f"{self._path}: model.merges: merge {number} is not a pair: {merge!r}"
                )
            merges.append((parts[0], parts[1]))
        return merges

    def _unigram(self) -> SentencePiece:
        steps = self._steps("normalizer", "normalizers")
        compose = steps[-len(_COMPOSES) :] == _COMPOSES
        steps = steps[: -len(_COMPOSES)] if compose else [s for s in steps if s not in _BLANKS]
        replace_quotes, remove_marks, order = False, False, list[int]()
        charsmap = NO_REPLACEMENTS
        composes = False
        nothing: dict[str, Any] = {}
        for step, after in itertools.zip_longest(steps, steps[1:], fillvalue=nothing):
            if step == {"type": NFC} and after.get("type") == "Precompiled":
                composes = True  # these replacements compose characters too: see `_sentencepiece`
                continue
            if step in _QUOTES:
                order.append(_QUOTES.index(step))
                replace_quotes = True
                continue
            if step == _NO_ACCENTS:
                order.append(3)
                continue
            remove_marks |= step["type"] == "StripAccents"
            order.append(
                {"NFKD": 2, "StripAccents": 3, "Lowercase": 4, "Precompiled": 5}.get(
                    step["type"], 6
                )
            )
            if step["type"] == "Precompiled":
                charsmap = base64.b64decode(step["precompiled_charsmap"] or "") or NO_REPLACEMENTS
        both = [{0, 1} <= set(order) or not {0, 1} & set(order)]
        both.append({2, 3} <= set(order) or not {2, 3} & set(order))
        both.append(not compose or order in ([], [4]))
        both.append(not composes or _composes(_model([("<unk>", 0.0)], 0, False, charsmap, set())))
        if 6 in order or order != sorted(set(order)) or not all(both):
            raise self._refused(
                "normalizer",
                [step["type"] for step in steps],
                "Replace of `` and '', NFKD with StripAccents, Lowercase, Precompiled, in this "
                "order",
            )
        pre = self._steps("pre_tokenizer", "pretokenizers")
        if [s["type"] for s in pre] not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
            raise self._refused(
                "pre_tokenizer",
                self._described.get("pre_tokenizer"),
                "Metaspace, which WhitespaceSplit may precede",
            )
        scheme = pre[-1].get("prepend_scheme")
        if scheme is None:
            scheme = "always" if pre[-1].get("add_prefix_space", True) else "never"
        # After WhitespaceSplit, 'first' and 'never' would leave words without a mark at their
        # beginning.
        schemes = PREPEND if len(pre) == 1 else PREPEND[:1]
        self._only("pre_tokenizer.prepend_scheme", scheme, *schemes)
        # The package treats a text whose first blank was removed as text in the middle.
        strip_left = any(s.get("strip_left") for s in self._steps("normalizer", "normalizers"))
        if scheme == "first":
            self._only("normalizer.Strip.strip_left", strip_left, False)
        self._only("pre_tokenizer.replacement", pre[-1].get("replacement"), BLANK)
        pieces = self._scored()
        extra_ids = _trailing_sentinels([piece for piece, _ in pieces])
        model = _model(
            pieces[: len(pieces) - extra_ids],
            self._model["unk_id"],
            bool(self._model.get("byte_fallback")),
            charsmap,
            {c for c, (_, token) in self._settings[added_tokens.LISTED].items() if token.special},
        )
        return SentencePiece(
            model,
            4 in order,
            self._settings,
            str(self._path),
            keep_accents=2 not in order,
            remove_marks=remove_marks,
            compose=compose,
            **self._white_space(model, len(pre) == 2),
            extra_ids=extra_ids,
            prepend_scheme=scheme,
            strip_left=strip_left,
            replace_quotes=replace_quotes,
        )

    def _white_space(self, model: bytes, splits: bool) -> dict[str, Any]:
        """Returns the settings of white space; the model itself splits only at blanks.

        Args:
          model: the model.
          splits: whether WhitespaceSplit comes before Metaspace.
        """
        if splits:
            same = replaced(model, [c for c in _WHITE_SPACE if c != " "])
            return {"blanks": "".join(c for c, new in same.items() if c == new)}
        steps = self._steps("normalizer", "normalizers")
        replaces = [*_BLANKS, _COMPOSES[0]]
        if not [step for step in steps if step["type"] == "Replace" and step in replaces]:
            wanted = "with Replace of ' {2,}' in the normalizer, or with WhitespaceSplit"
            raise self._refused("pre_tokenizer", self._described["pre_tokenizer"], wanted)
        tokens = {content: token for content, (_, token) in
                  self._settings[added_tokens.LISTED].items() if token.normalized}  # fmt: skip
        if _BLANKS[-1] in steps:
            # Blanks are replaced before these tokens are found, so the tokens could not strip them.
            found = [content for content, t in tokens.items() if t.lstrip or t.rstrip]
            if found:
                wanted = (
                    f"without an added token that is `normalized` and strips, such as {found[0]!r}"
                )
                raise self._refused("normalizer.Replace", _BLANKS[-1], wanted)
        if [step for step in steps if step["type"] == "Strip"]:
            # The end of a text is stripped before these tokens are found. In files of transformers
            # 4 the unknown token is `normalized`; it is allowed, and texts that spell it are a
            # known difference.
            found = [content for content in tokens if content != self._settings["unk_token"]]
            if found:
                wanted = f"without an added token that is `normalized`, such as {found[0]!r}"
                raise self._refused("normalizer.Strip", steps[-1], wanted)
            return {}
        return {"last_blank": True}

    def _scored(self) -> list[tuple[str, float]]:
        """Returns the pieces with their scores."""
        vocabulary = self._model.get("vocab")
        pieces: dict[str, float] = {}
        for number, entry in enumerate(vocabulary if isinstance(vocabulary, list) else ()):
            whole = isinstance(entry, list) and len(entry) == 2
            if not whole or not isinstance(entry[0], str) or not isinstance(entry[1], int | float):
                raise UserError(
                    f"{self._path}: model.vocab: {entry!r} is not a piece with its score"
                )
            if not entry[0] or entry[0] in pieces:
                what = "is empty" if not entry[0] else f"{entry[0]!r} is listed twice"
                raise UserError(f"{self._path}: model.vocab: piece {number} {what}")
            if "\0" in entry[0]:  # SentencePiece would end the process
                raise UserError(
                    f"{self._path}: model.vocab: piece {number} has the character U+0000, which no "
                    "Unigram here may contain"
                )
            pieces[entry[0]] = float(entry[1])
        if not pieces:
            raise UserError(f"{self._path}: model.vocab is empty, or is not a list of pieces")
        unknown = self._model.get("unk_id")
        if type(unknown) is not int or not 0 <= unknown < len(pieces):
            raise self._refused("model.unk_id", unknown, "the number of a piece")
        apart = self._special() | {list(pieces)[unknown]}
        if self._model.get("byte_fallback"):
            apart |= set(filter(_is_byte, pieces))
        if pieces.keys() <= apart:
            raise UserError(
                f"{self._path}: model.vocab has only special tokens: a Unigram needs pieces of text"
            )
        return list(pieces.items())

    def _components(self, kind: str | None) -> Components:
        """Returns a tokenizer made of the components.

        Raises:
          UserError: a component is unknown, or has settings that are not supported inside a graph.
        """
        settings = self._settings
        normalizers = []
        tokens = [token for _, token in settings[added_tokens.LISTED].values() if token.normalized]
        for step in self._steps("normalizer", "normalizers"):
            normalizer = self._understood("normalizer", text_steps.step, step)
            if tokens and not normalizer.local:
                # The step changes the whole text before such tokens are found.
                wanted = (
                    f"without an added token that is `normalized`, such as {tokens[0].content!r}"
                )
                raise self._refused("normalizer", step, wanted)
            normalizers.append(normalizer)
        strips = [token.content for token in tokens if token.lstrip or token.rstrip]
        signs = (text_steps.Replace, text_steps.Bytes)  # these may replace blanks
        if strips and any(isinstance(step, signs) for step in normalizers):
            wanted = (
                f"without an added token that is `normalized` and strips, such as {strips[0]!r}"
            )
            raise self._refused("normalizer", self._described["normalizer"], wanted)
        pre: list[word_steps.Step] = []
        found = self._steps("pre_tokenizer", "pretokenizers")
        for number, step in enumerate(found):
            make = functools.partial(word_steps.steps, is_first=not number)
            pre += self._understood("pre_tokenizer", make, step)
            if (
                step["type"] == "Metaspace"
                and normalizers
                and step.get("prepend_scheme") == "first"
            ):
                # The normalizer may remove the first character of a text, and 'first' depends on
                # it.
                raise self._refused("pre_tokenizer", step, "without a normalizer")
        types = [step["type"] for step in found]
        of_bytes = [step for step in self._steps("normalizer", "normalizers")
                    if step["type"] == "ByteLevel"]  # fmt: skip
        bytes_, blanks = "ByteLevel" in types or bool(of_bytes), "Metaspace" in types
        prefix = self._model.get("continuing_subword_prefix") or ""
        suffix = self._model.get("end_of_word_suffix") or ""
        model: word_models.Model
        if kind == "BPE":
            pieces = self._pieces()
            model = self._pairs(pieces, prefix, suffix)
        elif kind == "Unigram":
            scored = self._scored()
            pieces = [piece for piece, _ in scored]
            unk_id, fallback = int(self._model["unk_id"]), bool(self._model.get("byte_fallback"))
            model = word_models.Unigram(
                _model(scored, unk_id, fallback, NO_REPLACEMENTS, self._special())
            )
        elif kind in ("WordPiece", "WordLevel"):
            pieces = self._pieces()
            unknown = self._model.get("unk_token")
            if unknown not in pieces:
                raise UserError(f"{self._path}: model.unk_token {unknown!r} is not in model.vocab")
            if kind == "WordLevel":
                ids = {piece: i for i, piece in enumerate(pieces)}
                model = word_models.WholeWords(ids, ids[unknown])
            else:
                prefix = self._model.get("continuing_subword_prefix", wordpiece.CONTINUES)
                model = self._word_pieces(pieces, unknown, prefix)
        else:
            kinds = "WordPiece or BPE or Unigram or WordLevel"
            raise self._refused("model", self._model.get("type"), kinds)
        replaced = json.dumps(self._described.get("normalizer"), ensure_ascii=False)
        style, mark = "words", ""
        if bytes_:
            style = "bytes"
        elif blanks or BLANK in replaced or kind == "Unigram":
            style = "blanks"
        elif prefix:
            style, mark = "continues", prefix
        elif suffix:
            style, mark = "ends", suffix
        names = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
        return Components(
            pieces,
            ComponentSplitter(normalizers, pre, model),
            {name: self._described.get(name) for name in names},
            style,
            mark,
            settings,
            str(self._path),
        )

    def _understood(self, component: str, make: Callable, step: dict[str, Any]) -> Any:
        """Returns `make(step)`; raises UserError for unknown steps of a component."""
        try:
            made = make(step)
        except patterns.Unsupported as error:
            raise self._refused(component, step, f"without {error}") from error
        if made is None:
            raise self._refused(component, step, _KNOWN[component])
        return made

    def _special(self) -> set[str]:
        """Returns the texts of the listed special tokens."""
        listed = self._settings[added_tokens.LISTED]
        return {content for content, (_, token) in listed.items() if token.special}

    def _pairs(self, pieces: Sequence[str], prefix: str, suffix: str) -> word_models.PairModel:
        self._only("model.dropout", self._model.get("dropout"), None, 0.0)
        fallback = bool(self._model.get("byte_fallback"))
        ids = {piece: i for i, piece in enumerate(pieces)}
        unknown = self._model.get("unk_token")
        if unknown is not None and unknown not in ids:
            raise UserError(f"{self._path}: model.unk_token {unknown!r} is not in model.vocab")
        return word_models.PairModel(
            ids,
            self._merges(),
            str(self._path),
            unk_id=None if unknown is None else ids[unknown],
            fuse_unk=bool(self._model.get("fuse_unk")),
            byte_fallback=fallback,
            ignore_merges=bool(self._model.get("ignore_merges")),
            prefix=prefix,
            suffix=suffix,
        )

    def _word_pieces(
        self, pieces: Sequence[str], unknown: str, prefix: str
    ) -> word_models.WordPieces:
        limit = self._model.get(wordpiece.MAX_CHARACTERS, wordpiece.DEFAULT_LIMIT)
        if type(limit) is not int or not 1 <= limit <= wordpiece.MOST_CHARACTERS:
            wanted = f"a whole number from 1 to {wordpiece.MOST_CHARACTERS:,}"
            raise self._refused(f"model.{wordpiece.MAX_CHARACTERS}", limit, wanted)
        if not prefix:
            raise self._refused("model.continuing_subword_prefix", prefix, "a text")
        if found := [piece for piece in pieces if "\0" in piece]:
            raise self._refused("model.vocab", found[0], "pieces without U+0000 of a WordPiece")
        if found := [p for p in pieces if len(p.encode()) > _LONGEST_PIECE]:
            wanted = f"pieces of up to {_LONGEST_PIECE} bytes of a WordPiece"
            raise self._refused("model.vocab", found[0], wanted)
        ids = {piece: i for i, piece in enumerate(pieces)}
        return word_models.WordPieces(ids, unknown, limit, prefix)


def is_same(tokenizer: Tokenizer, model: SentencePiece) -> bool:
    """Returns whether a tokenizer of a `tokenizer.json` equals that of a SentencePiece model.

    Some rules of blanks are ignored: the file does not contain them.
    """
    if not isinstance(tokenizer, SentencePiece) or tokenizer.pieces != model.pieces:
        return False
    ours, theirs = tokenizer.parsed(), model.parsed()
    tables = [m.normalizer_spec.precompiled_charsmap or NO_REPLACEMENTS for m in (ours, theirs)]
    if tables[0] != tables[1] or not model.is_unigram:
        return False
    rules = ("replace_quotes", "keep_accents", "lower_case", "compose")
    if any(getattr(tokenizer.rules, rule) != getattr(model.rules, rule) for rule in rules):
        return False
    prefix = "always" if theirs.normalizer_spec.add_dummy_prefix else "never"
    if tokenizer.prepend_scheme != (prefix if prefix == "never" else model.prepend_scheme):
        return False
    return all(
        abs(a.score - b.score) <= 1e-4 * max(1, abs(b.score))
        for a, b in zip(ours.pieces, theirs.pieces, strict=False)
        # Pieces of a number and a comma, which are split, have lower scores in the file.
        if b.type == _KINDS.NORMAL and not (model.split_digit_comma and b.piece.endswith(","))
    )


def described(
    tokenizer: Tokenizer, layout: str = "cls_first", segment_types: int = 1
) -> dict[str, Any] | None:
    """Returns the content of a `tokenizer.json` for a tokenizer.

    Args:
      tokenizer: the tokenizer.
      layout: how texts are packed, one of `pair_packing.LAYOUTS`.
      segment_types: the number of types that the encoder reads.

    Returns:
      The content; None = the `tokenizers` package cannot express it.
    """
    if isinstance(tokenizer, Components):
        content = tokenizer.content()
        content["post_processor"] = content["post_processor"] or _post_processor(
            tokenizer, layout, segment_types > 1
        )
        return content
    parts = _PARTS.get(type(tokenizer))
    if parts is None:
        return None
    tokens = tokenizer.sentinels | tokenizer.special_tokens | tokenizer.added
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **dataclasses.asdict(tokens[i])} for i in sorted(tokens)],
        "post_processor": _post_processor(tokenizer, layout, segment_types > 1),
        **parts(tokenizer),
    }


def _wordpiece(tokenizer: WordPiece) -> dict[str, Any]:
    as_case = tokenizer.strip_accents == tokenizer.lower_case
    base = tokenizer.pieces[: tokenizer.num_base_pieces]
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": tokenizer.tokenize_chinese_chars,
        # null means the value of `lowercase`.
        "strip_accents": None if as_case else tokenizer.strip_accents,
        "lowercase": tokenizer.lower_case,
    }
    basic = tokenizer.do_basic_tokenize
    steps = [{"type": NFC}] if tokenizer.nfc else []
    return {
        "normalizer": _sequence([*steps, normalizer] if basic else steps),
        "pre_tokenizer": {"type": "BertPreTokenizer"} if basic else _AT_WHITE_SPACE,
        "decoder": {"type": "WordPiece", "prefix": wordpiece.CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.pieces[tokenizer.unk_id],
            "continuing_subword_prefix": wordpiece.CONTINUES,
            wordpiece.MAX_CHARACTERS: tokenizer.max_input_chars_per_word,
            "vocab": {piece: i for i, piece in enumerate(base)},
        },
    }


def _byte_bpe(tokenizer: ByteBPE) -> dict[str, Any]:
    base = tokenizer.pieces[: tokenizer.num_base_pieces]
    step = {
        "type": "ByteLevel",
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": True,
        "use_regex": tokenizer.pattern == GPT2,
    }
    steps = [_SPLITS_WITH_MARKS, step]
    return {
        "normalizer": {"type": NFC} if tokenizer.nfc else None,
        "pre_tokenizer": step
        if tokenizer.pattern == GPT2
        else {"type": "Sequence", "pretokenizers": steps},
        "decoder": {**step, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(base)},
            "merges": [list(pair) for pair in tokenizer.merges],
        },
    }


def _sentencepiece(tokenizer: SentencePiece) -> dict[str, Any]:
    model = tokenizer.parsed()
    rules = tokenizer.rules
    steps: list[dict[str, Any]] = [*_QUOTES] if rules.replace_quotes else []
    if not rules.keep_accents:
        marks = {"type": "StripAccents"} if rules.remove_marks else _NO_ACCENTS
        steps += [{"type": "NFKD"}, marks]
    if rules.lower_case:
        steps.append({"type": "Lowercase"})
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap and charsmap != NO_REPLACEMENTS:
        if _NO_ACCENTS in steps and _composes(model.SerializeToString()):
            # NFKD decomposed characters that a model composes again, such as Korean syllables;
            # `Precompiled` does not compose clusters of more than 5 bytes.
            steps.append({"type": NFC})
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    steps += _COMPOSES if rules.compose else []
    last_blank = tokenizer.module().last_blank
    scheme, strip_left = tokenizer.prepend_scheme, tokenizer.strip_left
    if not model.normalizer_spec.add_dummy_prefix:
        scheme, strip_left = "never", True
    alone = last_blank or scheme != "always" or rules.compose
    if alone and not (last_blank or rules.compose):
        steps.append({"type": "Strip", "strip_left": strip_left, "strip_right": True})
    if alone and not rules.compose:
        steps.append(_BLANKS[-2])
    metaspace = {
        "type": "Metaspace",
        "replacement": BLANK,
        "prepend_scheme": scheme,
        "split": True,
    }
    split = [metaspace] if alone else [{"type": "WhitespaceSplit"}, metaspace]
    several = rules.compose or len(split) > 1
    return {
        "normalizer": _sequence(steps),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split} if several else metaspace,
        "decoder": metaspace,
        "model": (_unigram if tokenizer.is_unigram else _pairs)(tokenizer),
    }


# Functions that return the components of each kind of tokenizer.
_PARTS: dict[type[Tokenizer], Callable[[Any], dict[str, Any]]] = {
    WordPiece: _wordpiece,
    ByteBPE: _byte_bpe,
    SentencePiece: _sentencepiece,
}


def _unigram(tokenizer: SentencePiece) -> dict[str, Any]:
    model = tokenizer.parsed()
    scored = [[piece.piece, piece.score] for piece in model.pieces]
    if tokenizer.split_digit_comma:
        # A piece of a number with its comma gets a lower score than its two parts, as in
        # transformers.
        for entry in scored:
            if _ends_in_digit_comma(entry[0]):
                entry[1] -= 100
    scored += [[piece, 0.0] for piece in tokenizer.pieces[len(scored) : tokenizer.num_base_pieces]]
    return {
        "type": "Unigram",
        "unk_id": tokenizer.unk_id,
        "vocab": scored,
        "byte_fallback": model.trainer_spec.byte_fallback,
    }


def _pairs(tokenizer: SentencePiece) -> dict[str, Any]:
    """Returns the BPE of a SentencePiece model: all pairs that make a piece, best score first."""
    model = tokenizer.parsed()
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type in _JOINED}
    merges = []
    for number, (piece, score) in enumerate(scores.items()):
        if len(piece) > 1 and not (tokenizer.split_digit_comma and _ends_in_digit_comma(piece)):
            pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
            merges += [(-score, number, *pair) for pair in pairs if scores.keys() >= {*pair}]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokenizer.pieces[tokenizer.unk_id],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.trainer_spec.byte_fallback,
        "ignore_merges": False,
        "vocab": {
            piece: i for i, piece in enumerate(tokenizer.pieces[: tokenizer.num_base_pieces])
        },
        "merges": [[left, right] for _, _, left, right in sorted(merges)],
    }


def _composes(model: bytes) -> bool:
    """Returns whether the replacements of a model compose characters, as those of NFKC do."""
    return replaced(model, [_HANGUL]) == {_HANGUL: unicodedata.normalize("NFC", _HANGUL)}


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _sequence(steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(steps) > 1:
        return {"type": "Sequence", "normalizers": steps}
    return steps[0] if steps else None


def _post_processor(tokenizer: Tokenizer, layout: str, typed: bool) -> dict[str, Any]:
    """Returns the post-processor of a tokenizer.

    Args:
      tokenizer: the tokenizer.
      layout: how texts are packed.
      typed: whether the encoder reads types of tokens.
    """
    pairs = tokenizer.pairs
    if not typed and (pairs.separators == 2 or layout == "no_cls"):
        pairs = dataclasses.replace(pairs, types=ONE)
    cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    if isinstance(tokenizer, ByteBPE):
        step = {"add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": True}
        if cls == sep:  # GPT-2
            return {"type": "ByteLevel", "use_regex": True, **step}
        if pairs == dataclasses.replace(pairs, separators=2, types=ONE):
            ends = {"sep": [sep, ids[sep]], "cls": [cls, ids[cls]]}
            return {"type": "RobertaProcessing", **ends, **step}
    return PostProcessor.of(cls, sep, pairs, layout).template(ids)


def _trailing_sentinels(pieces: Sequence[str]) -> int:
    """Returns the number of sentinels at the end, in T5's order: `<extra_id_0>` is last."""
    count = 0
    while count < len(pieces) and pieces[-1 - count] == f"<extra_id_{count}>":
        count += 1
    return count


def _is_byte(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x")


def _model(
    pieces: Sequence[tuple[str, float]],
    unk_id: int,
    byte_fallback: bool,
    charsmap: bytes,
    special: set[str],
) -> bytes:
    """Returns a unigram model of SentencePiece."""
    model = sentencepiece_model_pb2.ModelProto()
    for number, (piece, score) in enumerate(pieces):
        kind = _KINDS.CONTROL if piece in special else _KINDS.NORMAL
        if byte_fallback and _is_byte(piece):
            kind = _KINDS.BYTE
        kind = _KINDS.UNKNOWN if number == unk_id else kind
        model.pieces.add(piece=piece, score=score, type=kind)
    trainer = model.trainer_spec
    trainer.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    trainer.vocab_size, trainer.unk_id = len(pieces), unk_id
    trainer.unk_piece, trainer.byte_fallback = pieces[unk_id][0], byte_fallback
    model.normalizer_spec.precompiled_charsmap = charsmap
    return model.SerializeToString(deterministic=True)
