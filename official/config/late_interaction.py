"""Config of the objective `late_interaction`: vectors of tokens, of which the best ones count."""

import dataclasses
from typing import Any

from typing_extensions import override

from official.config.parts import Config, EncoderConfig, ObjectiveConfig
from official.config.sentence_embedding import check_compared_rows
from official.utils.errors import UserError
from official.utils.strict import above, at_least, omitted, one_of

# The losses, each with the field of its target.
LOSSES = {
    "multiple_negatives": None,
    "distillation": "teacher_scores",
    "margin_mse": "teacher_scores",
}
FORMS = ("fixed", "min")
# The text on which a prefix is tried.
_TRIAL = "text"


@dataclasses.dataclass(frozen=True)
class Expansion:
    """Tokens that are appended to a query, whose vectors count like those of its own tokens.

    Attributes:
      length: the number of tokens of a query with them, special tokens included.
      form: 'fixed' = all queries have this length, and longer ones are cut; 'min' = longer ones
        stay whole.
      attend: whether other tokens attend to them. They always attend to the tokens of the query.
      token: the piece that is appended; None = the mask token.
    """

    length: int = 32
    form: str = "fixed"
    attend: bool = False
    token: str | None = omitted()

    def __post_init__(self):
        at_least(self, 1, "length")
        one_of("form", self.form, FORMS)


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """The ids of the tokens that the settings name.

    Attributes:
      query_prefix: those of the prefix of queries.
      document_prefix: those of the prefix of documents.
      expansion: that of the tokens that expand a query.
      skipped: those of the skipped words that are one token.
    """

    query_prefix: tuple[int, ...] = ()
    document_prefix: tuple[int, ...] = ()
    expansion: int | None = None
    skipped: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateInteractionConfig(ObjectiveConfig):
    """Vectors of tokens: the late interaction of ColBERT (Khattab and Zaharia, 2020).

    The score of a query and a document is a sum over the tokens of the query: of each, the largest
    product with a token of the document. An example has a query, its document and any number of
    hard negatives.

    Attributes:
      loss: `multiple_negatives` = the cross-entropy of the query's document among the documents of
        all rows; `distillation` = KL(teacher || student) of the softmax over the documents of an
        example, times T^2 (Santhanam et al., 2022, section 3.2); `margin_mse` = the squared error
        of the margins between its first document and the others. The scores of the teacher are
        `teacher_scores`.
      scale: the factor of the scores in `multiple_negatives`.
      temperature: T of `distillation`, which divides the scores of both.
      mean: whether a score is divided by the number of tokens of the query, expansion included.
      size: the size of a vector, of a linear layer without bias on the states; None = the states
        themselves.
      query_prefix: a text that stands before each query; often one token, such as `[Q] `.
      document_prefix: a text that stands before each document.
      query_length: longer queries are cut to this number of tokens, the prefix and special tokens
        included; None = the length of `expansion`, or that of the data.
      document_length: longer documents are cut to this number of tokens; None = that of the data.
      expansion: tokens that are appended to queries; None = there are none.
      skipped_words: tokens of documents without vectors, such as punctuation. A word that is not
        one token is ignored.
      cached_rows: the most examples of a replica whose vectors are computed at a time; see
        `sentence_embedding`. None = all examples together.
      ids: the ids of these tokens; filled in from the tokenizer.
      weight: factor of this loss in the sum.
    """

    type = "late_interaction"
    decides_weights = True

    loss: str = "multiple_negatives"
    scale: float = 1.0
    temperature: float = 1.0
    mean: bool = False
    size: int | None = 128
    query_prefix: str = ""
    document_prefix: str = ""
    query_length: int | None = omitted()
    document_length: int | None = omitted()
    expansion: Expansion | None = omitted()
    skipped_words: tuple[str, ...] = ()
    cached_rows: int | None = omitted()
    ids: TokenIds | None = omitted()
    weight: float = 1.0

    def __post_init__(self):
        one_of("loss", self.loss, LOSSES)
        above(self, 0, "scale", "temperature")
        at_least(self, 1, "size", "cached_rows")
        at_least(self, 3, "query_length", "document_length")
        for key, loss in (("scale", "multiple_negatives"), ("temperature", "distillation")):
            if getattr(self, key) != 1 and self.loss != loss:
                raise ValueError(
                    f"{key}: {getattr(self, key)}: not supported for the loss {self.loss}; "
                    "remove it"
                )
        if self.cached_rows and not self.compares_rows:
            raise ValueError(
                f"cached_rows: {self.cached_rows}: not supported for the loss {self.loss}; remove "
                "it, or take recipe.accumulation"
            )
        length, expansion = self.query_length, self.expansion
        if length is not None and expansion is not None and length < expansion.length:
            raise ValueError(
                f"query_length: {length} is less than expansion.length: {expansion.length}: "
                "remove it"
            )

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of a row depends on the other rows of the batch."""
        return bool(self.weight) and self.loss == "multiple_negatives"

    @property
    def similarity(self) -> str:
        """By which texts are compared; see `official.evaluation.nearest_vectors`."""
        return "mean_max_sim" if self.mean else "max_sim"

    @property
    def lengths(self) -> dict[str, int | None]:
        """The most tokens of each kind of text; None = as many as it has."""
        expansion, query = self.expansion, self.query_length
        if expansion is not None and expansion.form == "fixed":
            query = expansion.length
        return {"query": query, "document": self.document_length}

    @property
    def prefixes(self) -> dict[str, str]:
        """What stands before each kind of text."""
        return {"query": self.query_prefix, "document": self.document_prefix}

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        target = LOSSES[self.loss]
        return frozenset({target} if self.weight and target else ())

    def optional(self) -> frozenset[str]:
        """Returns all fields of `needs`: an evaluation of vectors needs only texts."""
        return self.needs()

    def vector_size(self, encoder: EncoderConfig) -> int:
        """Returns the size of the vectors of tokens."""
        return self.size or encoder.hidden_size

    @override
    def for_tokenizer(self, tokenizer: Any) -> "LateInteractionConfig":
        made = self.with_ids(tokenizer)
        for key in ("query_prefix", "document_prefix"):
            text = getattr(self, key)
            alone, trial, both = (
                each.tolist() for each in tokenizer.encode([text, _TRIAL, text + _TRIAL])
            )
            if list(getattr(made.ids, key)) == alone and alone + trial != both:
                raise UserError(
                    f"{self.type}.{key}: {text!r}: the tokenizer joins it and the text that "
                    "follows: let it end with a blank, or make it a token of the vocabulary "
                    "(python -m official.commands.extend_vocabulary)"
                )
        return made

    def with_ids(self, tokenizer: Any, whole: bool = True) -> "LateInteractionConfig":
        """Returns the config with `ids`; a model that is not trained may join prefix and text.

        Args:
          tokenizer: the tokenizer.
          whole: whether a prefix that is a piece of the vocabulary, such as [unused0], is this
            token, although the tokenizer splits it in a text.

        Raises:
          UserError: the tokenizer lacks the token that expands queries.
        """
        numbers = {piece: i for i, piece in enumerate(tokenizer.pieces)}

        def prefix(text: str) -> tuple[int, ...]:
            (split,) = tokenizer.encode([text])
            one = whole and len(split) > 1 and text in numbers
            return (numbers[text],) if one else tuple(split.tolist())

        ids = TokenIds(
            query_prefix=prefix(self.query_prefix),
            document_prefix=prefix(self.document_prefix),
            expansion=self._expansion_id(tokenizer, numbers),
            skipped=tuple(numbers[word] for word in self.skipped_words if word in numbers),
        )
        return dataclasses.replace(self, ids=ids)

    def text_before(self, kind: str, tokenizer: Any) -> str | None:
        """Returns what stands before a text of a kind, `query` or `document`.

        None = the tokenizer does not find the prefix, a token, in a text: its id is put there.
        """
        text, ids = self.prefixes[kind], getattr(self.ids, f"{kind}_prefix")
        return text if tokenizer.encode([text])[0].tolist() == list(ids) else None

    def _expansion_id(self, tokenizer: Any, numbers: dict[str, int]) -> int | None:
        """Returns the id of the token that expands queries; None = none does."""
        if self.expansion is None:
            return None
        token = self.expansion.token
        number = tokenizer.mask_id if token is None else numbers.get(token)
        if number is None:
            what = "the vocabulary has no mask token" if token is None else f"{token!r} is no piece"
            raise UserError(
                f"{self.type}.expansion.token: {what}: name a piece of the vocabulary, or remove "
                "expansion"
            )
        return number

    def check(self, whole: Config) -> None:
        """Raises ValueError if settings prevent the comparison of the rows of a batch."""
        check_compared_rows(self, whole)

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the tokens of a row do not have their own states in this encoder."""
        if encoder.mixes_layers or encoder.text_layout == "cls_last":
            raise ValueError(
                f"not supported for encoder.type: {encoder.type}, only for encoders that read "
                "tokens with the padding behind them: take sentence_embedding"
            )
        length = self.expansion.length if self.expansion else 0
        if length > encoder.max_positions:
            raise ValueError(
                f"expansion.length: {length} is more than encoder.max_positions: "
                f"{encoder.max_positions}"
            )


PARTS = (LateInteractionConfig,)
