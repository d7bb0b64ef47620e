"""Config of the objective `sparse_embedding`: a vector of a text has a weight for each word."""

import dataclasses
from typing import ClassVar, Self

from official.config.objectives import check_token_table
from official.config.parts import Config, EncoderConfig, ObjectiveConfig
from official.config.sentence_embedding import TARGETS, check_compared_rows
from official.utils.strict import above, at_least, omitted, one_of

LOSSES = ("multiple_negatives", "margin_mse")
POOLINGS = ("max", "sum")
QUERIES = ("encoder", "table")
RAMPS = ("quadratic", "linear", "none")
FORMS = ("tied", "linear", "kernel")  # of the masked LM
_FLOPS = 5e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseEmbeddingConfig(ObjectiveConfig):
    """Sparse vectors of texts that are compared: a weight for each word of the vocabulary (SPLADE).

    The head is that of masked LM, from whose weights it starts with `--init`. A weight is log(1 +
    max(0, score)), and the vector of a text has the largest one of each word over all tokens,
    [CLS] and [SEP] included (Formal et al., 2021, "SPLADE v2", section 2). Most are 0 after
    training. Vectors are compared by their product.

    An example has C texts, as of `sentence_embedding`: a query, its document and any number of hard
    negatives, or for `margin_mse` a query, its document, another one and the margin of a teacher.

    Attributes:
      loss: `multiple_negatives` or `margin_mse`; see `sentence_embedding`.
      scale: the factor of the products before the softmax.
      pooling: `max` or `sum` over the tokens.
      logarithms: how often log(1 + x) is taken: 1, or 2 (Shen et al., 2025, arXiv:2504.14839).
      queries: `encoder` = queries are read as documents are; `table` = the vector of a query has
        for each of its tokens the weight of a learned table, so that a search needs no network.
        Special and unknown tokens are left out.
      document_flops: the factor of the FLOPS regularizer of documents, the sum over the words of
        the square of the mean weight in the batch (Paria et al., 2020).
      query_flops: that of queries; None = 5e-5, or 0 for a table.
      flops_threshold: vectors with at most so many words other than 0 count as 0 in the means.
      ramp: how both factors rise from 0: `quadratic`, `linear`, or `none` = they do not.
      ramp_steps: the number of steps until they are reached; None = a third of all steps.
      cached_rows: as of `sentence_embedding`.
      form: the form of the masked LM; filled in from the model of `--init`.
      weight: factor of the loss in the sum; it is not one of the regularizers.
    """

    type = "sparse_embedding"
    decides_weights = True
    enhanced_mask_decoder: ClassVar[bool] = False
    similarity: ClassVar[str] = "dot"

    loss: str = "multiple_negatives"
    scale: float = 1.0
    pooling: str = "max"
    logarithms: int = 1
    queries: str = "encoder"
    document_flops: float = 3e-5
    query_flops: float | None = omitted()
    flops_threshold: int = omitted(0)
    ramp: str = "quadratic"
    ramp_steps: int | None = omitted()
    cached_rows: int | None = omitted()
    form: str = omitted("tied")
    weight: float = 1.0

    def __post_init__(self):
        one_of("loss", self.loss, LOSSES)
        one_of("pooling", self.pooling, POOLINGS)
        one_of("queries", self.queries, QUERIES)
        one_of("ramp", self.ramp, RAMPS)
        one_of("form", self.form, FORMS)
        above(self, 0, "scale")
        if self.logarithms not in (1, 2):
            raise ValueError(f"logarithms: {self.logarithms} is not 1 or 2")
        if self.loss == "margin_mse" and self.scale != 1:
            raise ValueError(
                f"scale: {self.scale}: not supported for the loss margin_mse; remove it"
            )
        if self.query_flops is None:
            object.__setattr__(self, "query_flops", 0.0 if self.has_table else _FLOPS)
        at_least(self, 0, "weight", "document_flops", "query_flops", "flops_threshold")
        at_least(self, 1, "ramp_steps", "cached_rows")

    @property
    def has_table(self) -> bool:
        """Whether queries have the weights of a table."""
        return self.queries == "table"

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of a row depends on the other rows of the batch."""
        return bool(self.weight or self.document_flops or self.query_flops)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        fields = {TARGETS[self.loss]} if self.weight and self.loss in TARGETS else set()
        return frozenset(fields | ({"text_mask"} if self.has_table else set()))

    def optional(self) -> frozenset[str]:
        """Returns the fields that an evaluation may lack: a search needs only texts."""
        return self.needs()

    def served_size(self, encoder: EncoderConfig) -> int:
        """Returns the size of the vectors: the rows of the token table."""
        return encoder.known_vocab_size

    def check(self, whole: Config) -> None:
        """Raises ValueError if settings prevent the comparison of the rows of a batch."""
        check_compared_rows(self, whole)

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder has no token table."""
        check_token_table(encoder)

    def started(self, initial: Config | None) -> Self:
        """Returns the objective with the form of the masked LM that it starts from.

        Raises:
          ValueError: the other model has no masked LM over the last layer.
        """
        form = self.form
        if initial is not None:
            heads = initial.of_types(self.type) or initial.of_types("masked_lm")
            if not heads:
                kinds = ", ".join(o.type for o in initial.objectives) or "none"
                raise ValueError(
                    "its head is that of a masked LM, and the model of --init has none (its "
                    f"objectives: {kinds}): name one that was trained with masked_lm, or converted "
                    "from a folder of the class ...ForMaskedLM; a folder of sentence vectors has "
                    "the encoder alone: take the masked LM that it was made from"
                )
            (head, *_) = heads
            if getattr(head, "enhanced_mask_decoder", False):
                raise ValueError(
                    "the masked LM of --init has an enhanced_mask_decoder, which reads the layer "
                    "before the last: not supported; name a model without it"
                )
            form = getattr(head, "form", form)
        return dataclasses.replace(self, form=form)


PARTS = (SparseEmbeddingConfig,)
