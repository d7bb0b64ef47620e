"""Tokens that are found in raw text before a tokenizer splits it.

These are user-defined markers ("[E1]"), new words ("covid19"), T5's sentinels and, with
`special=True`, the special tokens. The rules are those of the `tokenizers` package: tokens are
found from the left, the longest one of those that begin at the same character, and each part of the
text between them is split as a separate text. Tokens with `normalized` are searched for in these
parts after they are normalized (lower-cased, for example), in their normalized form. White space
that belongs to another token is not part of them. If several tokens have the same normalized form,
a special token is found, or else the one with the lowest id, as in tokenizers 0.22 (in 0.23.3 any
of them may be found, and the choice differs between processes).

The same function runs in a graph and, called eagerly, in Python.

Shapes: N texts, P parts of all texts, Q pieces of all parts, A tokens; a ragged dimension is
written None.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from official.tokenizers import file_formats, offsets, utf8
from official.utils import json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILE = "added_tokens.json"  # {text: id}, as transformers 4 writes it
# The key of the tokens in `tokenizer_config.json`: {id: token}.
DECODER = "added_tokens_decoder"
# The key of the tokens in the settings of a tokenizer: {text: Listed}.
LISTED = "added_tokens"
# Lists of tokens without ids; transformers 5 has the first.
_NAMED = ("extra_special_tokens", "additional_special_tokens")
_CUT = b"\xff"  # no UTF-8 text has this byte
# The characters of Rust's `\w`, and inside a character class the characters of its `\s`.
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}"
    r"\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}]"
)
SPACE = r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in raw text.

    Attributes:
      content: its text.
      lstrip: whether white space before it belongs to it.
      rstrip: whether white space after it belongs to it.
      single_word: whether it is found only if no letter or digit is next to it.
      normalized: whether it is searched for in normalized text.
      special: whether it is a marker and not a part of the text.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False


class Listed(NamedTuple):
    """An entry of a file's list of tokens.

    Attributes:
      id: its id; None = the next one after the vocabulary.
      token: the token.
    """

    id: int | None
    token: AddedToken


def read(folder: AnyPath, settings: Mapping[str, Any]) -> dict[str, Listed]:
    """Reads the tokens that the files of a folder list: {text: token}.

    Args:
      folder: may contain `tokenizer.json`, `added_tokens.json` and `special_tokens_map.json`.
      settings: those of `tokenizer_config.json`.

    Raises:
      UserError: a file is not JSON, or an entry is not a token with an id.
    """
    special: dict[str, dict[str, Any]] = {}  # names without ids
    by_name = folder / "special_tokens_map.json"
    for source, values in {
        by_name: json_files.read(by_name) if by_name.is_file() else {},
        folder / "tokenizer_config.json": settings,
    }.items():
        for key in _NAMED:
            named = values.get(key) or []
            if not isinstance(named, list | dict):
                raise UserError(f"{source}: {key} is {named!r}, but must be a list of tokens")
            for value in named.values() if isinstance(named, dict) else named:
                flags = {"content": value, "special": True} if isinstance(value, str) else value
                token = _token(flags, f"{source}: {key}")
                special[token.content] = dataclasses.asdict(token)
    found = {content: Listed(None, AddedToken(**flags)) for content, flags in special.items()}
    if (folder / FILE).is_file():
        roles = [value for key, value in settings.items() if key.endswith("_token")]
        for content, number in json_files.read(folder / FILE).items():
            marks = content in special or content in roles
            flags = special.get(content, {"content": content, "special": marks})
            flags = {**flags, "normalized": flags.get("normalized", not marks)}
            found[content] = _listed(number, flags, str(folder / FILE))
    if (folder / "tokenizer.json").is_file():
        described = json_files.read(folder / "tokenizer.json")
        entries = described.get("added_tokens") or []
        if not isinstance(entries, list):
            raise UserError(f"{folder / 'tokenizer.json'}: added_tokens: expected a list")
        for flags in entries:
            number = flags.get("id") if isinstance(flags, dict) else None
            entry = _listed(number, flags, f"{folder / 'tokenizer.json'}: added_tokens")
            found[entry.token.content] = entry
    decoder = settings.get(DECODER) or {}
    where = f"{folder / 'tokenizer_config.json'}: {DECODER}"
    if not isinstance(decoder, dict):
        raise UserError(f"{where} is {decoder!r}, but must be a mapping from ids to tokens")
    for number, flags in decoder.items():
        entry = _listed(int(number) if number.isdecimal() else number, flags, where)
        found[entry.token.content] = entry
    return found


def _listed(number: Any, flags: Any, where: str) -> Listed:
    token = _token(flags, where)
    if type(number) is not int or number < 0:
        raise UserError(f"{where}: {token.content!r} has id {number!r}, but must have a number")
    return Listed(number, token)


def _token(flags: Any, where: str) -> AddedToken:
    if not isinstance(flags, dict) or not isinstance(flags.get("content"), str):
        raise UserError(f"{where}: {flags!r} is not a token: it needs `content`, its text")
    if not flags["content"]:
        raise UserError(f"{where}: a token has no text in `content`")
    names = [field.name for field in dataclasses.fields(AddedToken)][1:]
    for name in names:
        if not isinstance(flags.get(name, False), bool):
            raise UserError(f"{where}: {name} is {flags[name]!r}, but must be true or false")
    return AddedToken(flags["content"], *(flags.get(name, False) for name in names))


def read_lines(path: AnyPath) -> list[AddedToken]:
    """Reads user-defined tokens, one a line: its text, or a JSON object with its text and flags.

    A token without flags is special, and is not normalized:

      [E1]
      {"content": "covid19", "normalized": true, "single_word": true}

    Raises:
      UserError: the file is not UTF-8, or a line has no token, repeats one of an earlier line, or
        has unknown flags.
    """
    tokens: dict[str, AddedToken] = {}
    names = {field.name for field in dataclasses.fields(AddedToken)}
    for number, line in enumerate(file_formats.read_pieces(path), 1):
        where = f"{path}:{number}"
        flags: Any = {"content": line, "special": True}
        if line.startswith('{"'):
            try:
                flags = json.loads(line)
            except ValueError as error:
                raise UserError(f"{where}: not JSON: {error}") from error
        token = _token(flags, where)
        if unknown := sorted(set(flags) - names):
            raise UserError(
                f"{where}: {unknown[0]!r} is not a flag: the flags are {', '.join(names)}"
            )
        if token.content in tokens:
            raise UserError(f"{where}: {token.content!r} is in an earlier line as well")
        tokens[token.content] = token
    return list(tokens.values())


def appended(pieces: Sequence[str], settings: Mapping[str, Any], source: str) -> list[str]:
    """Returns a vocabulary followed by the added tokens of the settings.

    Args:
      pieces: the vocabulary.
      settings: have the tokens under `LISTED`.
      source: the name of the vocabulary in messages.

    Raises:
      UserError: a token has the id of another piece, or an id has no token.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    added: dict[int, str] = {}
    unnumbered = []
    for content, (number, _) in settings.get(LISTED, {}).items():
        if content in ids:
            if number not in (None, ids[content]):
                raise UserError(
                    f"{source} has the piece {content!r} at {ids[content]}, and the added token "
                    f"{content!r} has the id {number}: are the files of the same tokenizer?"
                )
        elif number is None:
            unnumbered.append(content)
        elif number < len(pieces):
            raise UserError(
                f"{source} has the piece {pieces[number]!r} at {number}, the id of the added token "
                f"{content!r}: are the files of the same tokenizer?"
            )
        elif number in added:
            raise UserError(
                f"{source}: the added tokens {added[number]!r} and {content!r} have the same id, "
                f"{number}"
            )
        else:
            added[number] = content
    for expected, number in enumerate(sorted(added), len(pieces)):
        if number != expected:
            raise UserError(
                f"{source}: the added token {added[number]!r} has the id {number}, and no piece "
                f"has the id {expected}: ids must follow one another"
            )
    return [*pieces, *(added[number] for number in sorted(added)), *unnumbered]


class Normalizer(Protocol):
    """The normalization of text before it is split."""

    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the normalized form of strings [N]."""

    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor | None]:
        """Returns the normalized form of each of C characters, string [N, None].

        Also returns whether each character belongs to the one before it, bool [C]; None = no
        character does.
        """


class Parts(NamedTuple):
    """The parts of texts, text and tokens in turns; concatenated, they equal the text.

    Attributes:
      raw: the characters of each part, string [P].
      texts: the text to split, string [P]: without white space that belongs to a token. Empty for
        a token.
      ids: the id of a token, int32 [P]; -1 for text.
      splits: the parts of text i are `splits[i]` to `splits[i + 1]`, int64 [N + 1].
    """

    raw: tf.Tensor
    texts: tf.Tensor
    ids: tf.Tensor
    splits: tf.Tensor

    def begins(self) -> tf.Tensor:
        """Returns whether each part is the first of its text, bool [P]."""
        rows = _rows_of(self.splits, tf.size(self.ids))
        first = tf.ones([1], tf.bool)[: tf.size(self.ids)]
        return tf.concat([first, rows[1:] != rows[:-1]], 0)

    def with_tokens(self, of_texts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Joins the ids of `texts`, int32 [P, None], and those of the tokens: int32 [N, None]."""
        return self.joined(of_texts, self.ids)

    def tokens_with_offsets(self, of_texts: offsets.Tokens) -> offsets.Tokens:
        """Joins the tokens of `texts`, whose offsets count in each part, and the added tokens.

        Returns the ids with offsets that count in the whole text of each row.
        """
        sizes = tf.strings.length(self.raw, unit="UTF8_CHAR")
        ends = tf.cumsum(sizes)
        begins = tf.concat([[0], ends], 0)
        rows = _rows_of(self.splits, tf.size(self.ids))
        starts = ends - sizes - tf.gather(begins, tf.gather(self.splits, rows))  # [P]
        leading = tf.strings.regex_replace(self.raw, f"^[{SPACE}]+", "")
        stripped = tf.strings.regex_replace(self.texts, f"^[{SPACE}]+", "")
        removed = sizes - tf.strings.length(leading, unit="UTF8_CHAR")
        removed -= tf.strings.length(self.texts, unit="UTF8_CHAR")
        removed += tf.strings.length(stripped, unit="UTF8_CHAR")
        removed = tf.where(tf.equal(stripped, ""), 0, removed)
        added = tf.gather(starts + removed, offsets.rows_of(of_texts.ids))
        return offsets.Tokens(
            self.joined(of_texts.ids, self.ids),
            self.joined(of_texts.starts.with_values(of_texts.starts.values + added), starts),
            self.joined(of_texts.ends.with_values(of_texts.ends.values + added), starts + sizes),
        )

    def joined(self, of_texts: tf.RaggedTensor, of_tokens: tf.Tensor) -> tf.RaggedTensor:
        """Joins the values of `texts`, [P, None], and those of the added tokens, [P]: [N, None]."""
        found = self.ids >= 0
        tokens = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(of_tokens, found), tf.cast(found, tf.int64), validate=False
        )
        joined = tf.concat([of_texts, tokens], 1)  # [P, None]
        splits = tf.gather(tf.cast(joined.row_splits, tf.int64), self.splits)
        return tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False)


class Finder(tf.Module):
    """Finds tokens in texts, in a graph or eagerly."""

    def __init__(self, tokens: Mapping[int, AddedToken], normalizer: Normalizer | None):
        """Makes a finder.

        Args:
          tokens: the tokens by id.
          normalizer: normalizes text for tokens with `normalized`; None = text stays as it is.
        """
        super().__init__()
        self._ids = tf.constant(list(tokens), tf.int32)
        flags = tokens.values()
        self._strips_left = tf.constant([token.lstrip for token in flags], tf.bool)
        self._strips_right = tf.constant([token.rstrip for token in flags], tf.bool)
        self._strips = any(token.lstrip or token.rstrip for token in flags)
        self._searches = []
        # If tokens have the same normalized form, the first one is found. Special tokens come
        # first, then lower ids.
        ordered = sorted(
            enumerate(tokens.items()), key=lambda entry: (not entry[1][1].special, entry[1][0])
        )
        for normalized in (False, True):
            numbers = {
                token.content: number
                for number, (_, token) in ordered
                if token.normalized == normalized
            }
            single = [number for number, token in enumerate(flags) if token.single_word]
            if numbers:
                self._searches.append(
                    _Search(numbers, single, len(tokens), normalizer if normalized else None)
                )
        # A quick check in Python: a text without a match contains no token. Normalization may
        # produce a token from any text.
        anything = normalizer is not None and any(token.normalized for token in flags)
        contents = sorted((re.escape(token.content) for token in flags), key=len, reverse=True)
        self.may_be_in = re.compile("" if anything else "|".join(contents)).search

    def cut(self, texts: tf.Tensor) -> Parts:
        """Cuts strings [N], whose bytes that are not UTF-8 become U+FFFD, into parts."""
        raw = utf8.valid(texts)
        splits = tf.range(tf.size(raw, tf.int64) + 1)
        numbers = tf.fill(tf.shape(raw), -1)
        for search in self._searches:
            text = numbers < 0
            whole = tf.where(text, raw, "")
            inner = self._stripped(whole, numbers, splits)
            found, found_numbers = search.find(inner)  # [P, None]
            if self._strips:
                found = _with_ends(found, whole, inner)
            kept = tf.repeat(text, found.row_lengths())
            # A part that is a token has one piece. A text may have several pieces and is not
            # repeated for each.
            tokens = tf.repeat(tf.where(text, "", raw), found.row_lengths())
            raw = tf.where(kept, found.values, tokens)
            numbers = tf.where(kept, found_numbers, tf.repeat(numbers, found.row_lengths()))
            splits = tf.gather(found.row_splits, splits)
        is_token = numbers >= 0
        ids = tf.where(is_token, tf.gather(self._ids, tf.maximum(numbers, 0)), -1)
        left = tf.where(is_token, "", raw)
        return Parts(raw, self._stripped(left, numbers, splits), ids, splits)

    def _stripped(self, texts: tf.Tensor, numbers: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        """Removes from the texts [P] the white space that belongs to the tokens beside them."""
        if not self._strips:
            return texts
        rows = _rows_of(splits, tf.size(numbers))
        same = rows[1:] == rows[:-1]  # [P - 1]
        nothing = tf.zeros([1], tf.bool)[: tf.size(numbers)]

        def of_tokens(flags: tf.Tensor) -> tf.Tensor:
            return tf.gather(flags, tf.maximum(numbers, 0)) & (numbers >= 0)

        after = tf.concat([nothing, of_tokens(self._strips_right)[:-1] & same], 0)
        before = tf.concat([of_tokens(self._strips_left)[1:] & same, nothing], 0)
        texts = tf.where(after, tf.strings.regex_replace(texts, f"^[{SPACE}]+", ""), texts)
        return tf.where(before, tf.strings.regex_replace(texts, f"[{SPACE}]+$", ""), texts)


class _Search(tf.Module):
    """Finds the tokens that are searched for in the same form of a text, raw or normalized."""

    def __init__(
        self,
        numbers: Mapping[str, int],
        single: Sequence[int],
        count: int,
        normalizer: Normalizer | None,
    ):
        super().__init__()
        self._normalizer = normalizer
        contents = [content.encode("utf-8", "replace") for content in numbers]
        if normalizer is not None:
            contents = normalizer.normalized(tf.constant(contents)).numpy().tolist()
        forms: dict[bytes, int] = {}
        for form, number in zip(contents, numbers.values(), strict=True):
            if form:
                forms.setdefault(form, number)
        # RE2 takes the first alternative that matches, so longer ones come first.
        escaped = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
        self._pattern = b"|".join(escaped) or rb"[^\x{0}-\x{10ffff}]"
        self._numbers = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([*forms, _CUT]), tf.constant([*forms.values(), -1], tf.int32)
            ),
            default_value=-1,
        )
        single = [number for number in single if number in forms.values()]
        self._single = tf.constant([i in single for i in range(count)]) if single else None

    def find(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cuts texts [P] around the tokens.

        Returns:
          The characters of each piece, string [P, None], with at least one piece for each text; and
          the id of the piece's token, int32 [Q]; -1 for text.
        """
        normalizer = self._normalizer
        if normalizer is None:
            pieces, numbers = self._cut(texts)
            begins = _segments(pieces, numbers)
            segment = tf.cumsum(tf.cast(begins, tf.int32)) - 1
            count = tf.reduce_sum(tf.cast(begins, tf.int32))
            joined = tf.strings.unsorted_segment_join(pieces.values, segment, count)
            return _ragged(joined, pieces, begins), tf.boolean_mask(numbers, begins)
        pattern = b"(?s).*(?:" + self._pattern + b").*"
        some = tf.strings.regex_full_match(normalizer.normalized(texts), pattern)

        def found() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            cut, numbers = self._find_normalized(tf.boolean_mask(texts, some), normalizer)
            whole = tf.boolean_mask(texts, ~some)
            rows = tf.concat(
                [cut, tf.RaggedTensor.from_row_lengths(whole, tf.ones_like(whole, tf.int64))], 0
            )
            numbers = tf.concat([numbers, tf.fill(tf.shape(whole), -1)], 0)
            order = tf.concat([tf.where(some)[:, 0], tf.where(~some)[:, 0]], 0)
            order = tf.argsort(order)
            rows, numbers = tf.gather(rows, order), tf.gather(rows.with_values(numbers), order)
            return rows.values, numbers.values, tf.cast(rows.row_splits, tf.int64)

        def none() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return texts, tf.fill(tf.shape(texts), -1), tf.range(tf.size(texts, tf.int64) + 1)

        values, numbers, splits = tf.cond(tf.reduce_any(some), found, none)
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False), numbers

    def _cut(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Like `find`, without normalization: pieces, string [P, None], and token ids [Q]."""
        marked = tf.strings.regex_replace(texts, self._pattern, _CUT + rb"\0" + _CUT)
        pieces = tf.strings.split(marked, _CUT)
        turns = tf.ragged.range(pieces.row_lengths()).values % 2
        numbers = tf.where(turns == 1, self._numbers.lookup(pieces.values), -1)
        if self._single is None:
            return pieces, numbers
        # The text between two tokens may be empty. Then the neighbor of a token is the other token.
        rows = offsets.rows_of(pieces)
        empty = tf.equal(pieces.values, "")
        begins_word = tf.strings.regex_full_match(pieces.values, f"(?s){_WORD}.*")
        ends_word = tf.strings.regex_full_match(pieces.values, f"(?s).*{_WORD}")

        def beside(flags: tf.Tensor, by: int) -> tf.Tensor:
            shifted = tf.roll(flags, by, 0) & (tf.roll(rows, by, 0) == rows)
            # `roll` wraps around at both ends: that neighbor is in another row, unless there is
            # only one piece.
            inside = (
                tf.range(tf.size(rows)) >= by
                if by > 0
                else (tf.range(tf.size(rows)) < tf.size(rows) + by)
            )
            return shifted & inside

        before = beside(ends_word, 1) | (beside(empty, 1) & beside(ends_word, 2))
        after = beside(begins_word, -1) | (beside(empty, -1) & beside(begins_word, -2))
        single = tf.gather(self._single, tf.maximum(numbers, 0)) & (numbers >= 0)
        return pieces, tf.where(single & (before | after), -1, numbers)

    def _find_normalized(
        self, texts: tf.Tensor, normalizer: Normalizer
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cuts texts around the tokens in their normalized form; see `find`."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        cleaned, attached = normalizer.normalized_characters(characters)
        origins = offsets.origins(cleaned, attached)
        pieces, numbers = self._cut(offsets.joined(cleaned))
        begins = _segments(pieces, numbers)
        rows = offsets.rows_of(pieces)
        sizes = tf.strings.length(pieces.values)
        ends = tf.cumsum(sizes)
        ends -= tf.gather(tf.concat([[0], ends], 0), tf.gather(pieces.row_starts(), rows))
        starts, ends = offsets.characters_of(
            origins, pieces.with_values(ends - sizes), pieces.with_values(ends)
        )
        limits = tf.gather(tf.cast(characters.row_lengths(), tf.int32), rows)
        starts, ends = tf.minimum(starts.values, limits), tf.minimum(ends.values, limits)
        starts, ends, limits, rows, numbers = (
            tf.boolean_mask(values, begins) for values in (starts, ends, limits, rows, numbers)
        )
        # Text is what lies between tokens.
        same = rows[1:] == rows[:-1]
        begin = tf.concat([[0], tf.where(same, ends[:-1], 0)], 0)[: tf.size(rows)]
        end = tf.where(same, starts[1:], limits[:-1])
        end = tf.concat([end, limits[-1:]], 0)
        token = numbers >= 0
        begin, end = tf.where(token, starts, begin), tf.where(token, ends, end)
        first = tf.cast(tf.gather(characters.row_starts(), rows), tf.int32)
        spans = tf.ragged.range(first + begin, first + tf.maximum(end, begin))
        joined = offsets.joined(spans.with_values(tf.gather(characters.values, spans.values)))
        return _ragged(joined, pieces, begins), numbers


def _with_ends(found: tf.RaggedTensor, whole: tf.Tensor, inner: tf.Tensor) -> tf.RaggedTensor:
    """Restores the white space that was removed from both ends of texts.

    Args:
      found: the pieces of each stripped text, string [P, None]; the first and the last are text.
      whole: the unstripped texts, string [P].
      inner: the stripped texts, string [P].
    """
    size = tf.strings.length(inner)
    same = tf.equal(tf.strings.substr(whole, tf.zeros_like(size), size), inner)
    left = tf.strings.length(tf.strings.regex_replace(whole, f"^[{SPACE}]+", ""))
    begin = tf.where(same, 0, tf.strings.length(whole) - left)
    rest = tf.strings.length(whole) - begin - size
    before = tf.strings.substr(whole, tf.zeros_like(begin), begin)
    after = tf.strings.substr(whole, begin + size, rest)
    rows = offsets.rows_of(found)
    changes, edge = rows[1:] != rows[:-1], tf.ones([1], tf.bool)[: tf.size(rows)]
    first, last = tf.concat([edge, changes], 0), tf.concat([changes, edge], 0)
    before = _where(first, before, rows)
    return found.with_values(before + found.values + _where(last, after, rows))


def _where(some: tf.Tensor, texts: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns string [Q]: the text of the row of each piece with a true flag, "" for others."""
    number = tf.where(some, rows, tf.size(texts, rows.dtype))
    return tf.gather(tf.concat([texts, [""]], 0), number)


def _segments(pieces: tf.RaggedTensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns whether a piece begins a segment, bool [Q].

    A segment is a token, or the text up to the next token.
    """
    rows = offsets.rows_of(pieces)
    token = numbers >= 0
    changes = token[1:] | token[:-1] | (rows[1:] != rows[:-1])
    return tf.concat([[True], changes], 0)[: tf.size(numbers)]


def _ragged(values: tf.Tensor, pieces: tf.RaggedTensor, begins: tf.Tensor) -> tf.RaggedTensor:
    """Returns the values of segments in the rows of their pieces."""
    before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        values, tf.gather(before, pieces.row_splits), validate=False
    )


def _rows_of(splits: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the row of each of `count` values, int64."""
    ragged = tf.RaggedTensor.from_row_splits(tf.range(count), splits, validate=False)
    return offsets.rows_of(ragged)
