"""The config of a run with its five sections, and the base classes of its parts.

A part is a frozen dataclass of settings and imports no Keras. Its `type` is its name in YAML. The
layer or function that runs it is in the module that `official.config.registry.module_of` imports.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from official.config.blocks import Norm
from official.config.recipe import Recipe
from official.config.segments import Segments
from official.tokenizers.word_starts import RULES as WORD_START_RULES
from official.utils.errors import UserError
from official.utils.strict import Tagged, above, omitted


class Part(Tagged):
    """A part of a config; `type` is its name in YAML.

    Attributes:
      module: the module that implements it, in the package of its kind; empty = the module named
        like the type.
    """

    module: ClassVar[str] = ""

    # Subclasses are dataclasses; the base classes are not.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the part reads."""
        return frozenset()

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that the part adds."""
        return frozenset()


class EncoderConfig(Part):
    """Sizes and settings of an encoder: the attributes that heads and tools read from all encoders.

    Attributes:
      vocab_size: rows of the token table; None = the size of the tokenizer's vocabulary.
      hidden_size: D, the width of the states.
      embedding_size: E, the width of the token table; None = the hidden size.
      num_layers: the number of layers.
      decoder_layers: the number of layers of the decoder; 0 = no decoder; None = this type of
        encoder never has a decoder.
      layer_groups: the number of groups of layers that share parameters; None = none do.
      num_heads: N, the number of attention heads; 0 = there is no attention.
      head_size: H, the size of a head; None = the hidden size divided by N.
      max_positions: the largest number of tokens in a sequence.
      segment_types: rows of the segment table; 0 = no table.
      pooler: whether there is a pooled output.
      pooled_position: the position that is pooled, `first`, `first_of_text` or `last`.
      layout: the layout of a task's texts; see `official.tokenizers.pair_packing`.
      initializer: the distribution of the initial weights, of heads as well.
      initializer_range: the scale of this distribution.
      memory_length: the number of positions of earlier rows in the memory; 0 = no memory.
      reuse_length: the number of positions at the start of a row that may become memory; 0 = all.
      causal: whether positions do not attend to later positions.
      causal_setting: the setting that makes the encoder causal, for messages.
      first_norm: whether the first layer has the same norms as the others.
      query_stream: whether it has the query stream of XLNet, for permutation LM.
      gives_scores: whether it returns attention scores.
      has_token_table: whether it has a token table, to which outputs can be tied.
      reads_characters: whether it reads the characters of words.
      mixes_layers: whether vectors of texts are pooled from a mix of all layers, without the marks
        of a sentence (ELMo).
      pools_texts: whether the pooled output is the vector of a text as such (static vectors), which
        objectives of such vectors then pool.
      recomputes: whether it supports `recipe.recompute`.
      adapter_size: the bottleneck of the adapters of each layer; None = there are none.
      activation: the activation of hidden layers in heads.
      norm_epsilon: the epsilon that norms add to the variance.
      norm_type: the norm of hidden layers in heads: `layer` or `rms`.
      norm_bias: whether layer norms in heads have an offset.
      hidden_bias: whether the hidden layers of heads have biases.
      batch_fields: the fields of a batch that only some encoders read, and this one reads.
      trainable_parts: the keys of `recipe.trainable` that the encoder supports.
    """

    vocab_size: int | None
    embedding_size: int | None
    num_layers: int
    max_positions: int
    segment_types: int
    pooler: bool
    pooled_position: str
    initializer: str
    initializer_range: float
    decoder_layers: int | None = None
    layer_groups: int | None = None
    head_size: int | None = None
    first_norm: bool = True
    query_stream: bool = False
    memory_length: int = 0
    reuse_length: int = 0
    adapter_size: int | None = None
    activation: str
    norm_epsilon: float
    norm_type: str = "layer"
    norm_bias: bool = True
    hidden_bias: ClassVar[bool] = True
    batch_fields: ClassVar[tuple[str, ...]] = ()
    causal_setting: ClassVar[str] = "causal: true"
    gives_scores: ClassVar[bool] = False
    has_token_table: ClassVar[bool] = True
    mixes_layers: ClassVar[bool] = False
    pools_texts: ClassVar[bool] = False
    recomputes: ClassVar[bool] = False

    # Subclasses have these as fields, or compute them from other fields.
    @property
    def hidden_size(self) -> int:
        """See the class."""
        raise NotImplementedError

    @property
    def num_heads(self) -> int:
        """See the class."""
        raise NotImplementedError

    @property
    def layout(self) -> str:
        """See the class."""
        raise NotImplementedError

    @property
    def causal(self) -> bool:
        """See the class."""
        return False

    @property
    def reads_characters(self) -> bool:
        """See the class."""
        return False

    @property
    def decodes_masks(self) -> bool:
        """Whether an enhanced mask decoder can run its last layer twice (DeBERTa)."""
        return False

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The shape of the memory of a row, for encoders with a memory."""
        raise NotImplementedError

    @property
    def attention_size(self) -> int:
        """H, the size of an attention head."""
        return self.head_size or self.hidden_size // self.num_heads

    @property
    def trainable_parts(self) -> frozenset[str]:
        """See the class."""
        return frozenset()

    @property
    def norms(self) -> Norm:
        """The norms of hidden layers in heads."""
        return Norm(self.norm_epsilon, self.norm_type, self.norm_bias)

    @property
    def known_vocab_size(self) -> int:
        """The vocabulary size.

        Raises:
          UserError: the size is not set.
        """
        if self.vocab_size is None:
            raise UserError("encoder.vocab_size: not set, and no tokenizer to take it from")
        return self.vocab_size

    @property
    def text_layout(self) -> str:
        """The layout of texts for the encoder without the head of a task."""
        return self.layout

    @property
    def num_states(self) -> int:
        """The number of layers whose states it returns, including the token layer."""
        return self.num_layers + 1

    def reach(self, layer: int) -> int | None:
        """Returns the largest distance that a layer, counted from 0, attends to; None = any."""
        del layer
        return None

    def of_vocabulary(self, size: int, special_ids: Sequence[int]) -> Self:
        """Returns the encoder with what it leaves to the tokenizer of the data.

        Args:
          size: the number of pieces.
          special_ids: the ids of the special tokens.
        """
        del special_ids
        known = self.vocab_size is not None
        return self if known else dataclasses.replace(self, vocab_size=size)

    def without_memory(self) -> Self:
        """Returns the encoder for rows that do not continue each other."""
        names = {field.name for field in dataclasses.fields(self)}
        off = {name: 0 for name in ("memory_length", "reuse_length") if name in names}
        return dataclasses.replace(self, **off) if self.memory_length else self


class CorruptionConfig(Part):
    """Settings of a corruption, which hides tokens from the model.

    Attributes:
      static: whether masks can be drawn once, when shards are made.
      packs: whether several sequences may share a row.
      max_predictions: P, the largest number of predicted tokens in a sequence, for corruptions that
        are static or pack.
      unit: the unit that is selected; empty = there are no units.
      word_starts: the rule for the SentencePiece pieces that begin a word.
      mask_prob: the share of the predicted tokens that become [MASK].
      random_tokens: the distribution of random tokens; empty = there are none.
      block_size: tokens of a block; a position attends to no later blocks. None = no blocks.
    """

    static: ClassVar[bool] = True
    packs: ClassVar[bool] = False
    max_predictions: int
    unit: str = ""
    word_starts: str = WORD_START_RULES[0]
    mask_prob: float = 0.0
    random_tokens: str = ""
    block_size: int | None = None

    @property
    def sentinels(self) -> int:
        """The number of sentinels that the vocabulary needs."""
        return 0

    def row_predictions(self, length: int, parts: int) -> int:
        """Returns P of a row that several sequences share, for corruptions that pack.

        Args:
          length: tokens of a row.
          parts: the largest number of sequences that share the row.
        """
        raise NotImplementedError

    def check(self, segments: Segments) -> None:
        """Raises ValueError if the sequences of `segments` are too short for the corruption."""


class Corruption(Protocol):
    """The functions of a module of `official.corruption`, which a config names by `type`.

    Shapes: B rows, T tokens.
    """

    def corrupt(
        self, config: CorruptionConfig, vocabulary: Any, batch: Mapping[str, Any], seeds: Any
    ) -> dict[str, Any]:
        """Hides tokens of a batch: a pure function of the batch and the seeds.

        Args:
          config: the config of the corruption.
          vocabulary: the tokens that it draws from; see `official.corruption.vocabulary`.
          batch: token_ids int32 [B, T], padding_mask bool [B, T], and the fields that the config
            `needs`, bool [B, T] each.
          seeds: a seed for each row, uint64 [B]; see `official.utils.seeding`.

        Returns:
          The batch with other token_ids, and with the fields that the config `gives`.
        """

    def follows(
        self, config: CorruptionConfig, vocabulary: Any, batch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns fields that can be derived from given masks; {} if there are none.

        Only corruptions that are `static` or that `packs` need it, because their masks may be drawn
        before the other fields of a batch are made.

        Args:
          config: the config of the corruption.
          vocabulary: as in `corrupt`.
          batch: the tokens and the masks: token_ids, padding_mask, masked_positions, masked_ids and
            masked_weights.
        """


class LabelCounts(NamedTuple):
    """How often the labels of training examples occur.

    Attributes:
      labels: the names of the labels.
      with_label: how many examples, or tagged words, have each of them.
      examples: the number of all examples.
      folder: the data, for messages.
    """

    labels: Sequence[str]
    with_label: Sequence[int]
    examples: int
    folder: str

    def check(self, key: str) -> Self:
        """Returns the counts.

        Raises:
          UserError: a label does not occur, so that its weight would not be finite.
        """
        missing = [name for name, n in zip(self.labels, self.with_label, strict=True) if not n]
        if missing:
            raise UserError(
                f"{key}: balanced: no training example of {self.folder} has the label "
                f"{', '.join(map(repr, missing))}: give the weights as a list of numbers, or make "
                "the shards without it"
            )
        return self


class ObjectiveConfig(Part):
    """Settings of an objective, a loss that the encoder learns from.

    Attributes:
      packs: whether several sequences may share a row.
      texts_apart: whether it reads each text of a pair separately. Segment ids distinguish the
        texts, and are then always 0 and 1, whatever types the tokenizer returns.
      task: the task whose batches the objective reads, if there are several tasks; empty = all
        batches.
      weight: factor of the loss in the sum of all losses.
      decides_weights: whether `prepare` of its layer decides which rows or tokens count.
      layer: the class of the layer in its module.
      labels: the names of the labels, in the order of their ids; empty = there are none, or they
        are not known.
      num_labels: the number of labels; None = as many as `labels`.
      cached_rows: the number of examples whose vectors are made at once; None = all.
      frozen: whether the layers of the objective keep the weights given with --init.
      decoupled: whether they are updated before the encoder, in a stage of the step of their own.
    """

    packs: ClassVar[bool] = False
    texts_apart: ClassVar[bool] = False
    decides_weights: ClassVar[bool] = False
    layer: ClassVar[str] = "Objective"
    task: str = ""
    weight: float
    labels: tuple[str, ...] = ()
    num_labels: int | None = None
    cached_rows: int | None = None
    frozen: bool = False
    decoupled: bool = False

    @property
    def name(self) -> str:
        """The name of the term, and the first part of the variables' paths."""
        return self.task or self.type

    @property
    def num_outputs(self) -> int:
        """The number of labels, or 0 if it is not known."""
        return self.num_labels or len(self.labels)

    @property
    def reads_pooler(self) -> bool:
        """Whether it reads the output of the encoder's pooler."""
        return False

    @property
    def takes_labels(self) -> bool:
        """Whether the labels of the data are those of the objective."""
        return False

    def optional(self) -> frozenset[str]:
        """Returns the fields of `needs` that an evaluation may lack; it then has no term."""
        return frozenset()

    def check(self, whole: "Config") -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the objective does not suit the encoder."""

    def for_tokenizer(self, tokenizer: Any) -> Self:
        """Returns the config with what it leaves to the tokenizer of the data.

        Args:
          tokenizer: an `official.tokenizers.Tokenizer`.

        Raises:
          UserError: the tokenizer does not suit it.
        """
        del tokenizer
        return self

    def started(self, initial: "Config | None") -> Self:
        """Returns the objective at the start of a run.

        Args:
          initial: the config of the model whose weights the run starts from; None = there is none.

        Raises:
          ValueError: the objective cannot start from that model.
        """
        del initial
        return self

    def counted(self, counts: Callable[[], LabelCounts]) -> Self:
        """Returns the objective with what it leaves to the numbers of labels in the data.

        Args:
          counts: returns those of its task. It reads all examples.

        Raises:
          UserError: the weights of the labels cannot be balanced.
        """
        del counts
        return self

    def field(self, name: str) -> str:
        """Returns the name of a batch field, with the task's name in front if there is one."""
        return f"{self.task}/{name}" if self.task else name


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the steps of a pretraining, with different settings.

    Attributes:
      share: the share of the steps of the run, relative to the sum of all shares.
      change: the keys of the config that differ in this phase, such as `segments.max_length`.
      data_shares: the share of each folder of --data in a batch; empty = as without phases.
    """

    share: float
    change: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_shares: tuple[float, ...] = omitted(())

    def __post_init__(self):
        above(self, 0, "share")
        shares = self.data_shares
        if shares and not (all(share >= 0 for share in shares) and sum(shares) > 0):
            raise ValueError(
                f"data_shares: {', '.join(map(str, shares))}: none may be negative, and one must "
                "exceed 0"
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """The config of one run. A fine-tuning run has neither segments nor corruption.

    Attributes:
      name: the name of the run.
      seed: the seed of every random draw.
      segments: how documents become sequences; None for fine-tuning.
      corruption: how tokens are hidden; None if the objectives need no hidden tokens.
      encoder: the network; None = the encoder of the model given with `--init`.
      objectives: the losses, in the order in which their terms are reported.
      recipe: optimizer, schedule, batches and steps.
      phases: the consecutive phases of a pretraining; empty = one phase.
    """

    name: str
    seed: int = 0
    segments: Segments | None = None
    corruption: CorruptionConfig | None = None
    encoder: EncoderConfig | None = None
    objectives: tuple[ObjectiveConfig, ...] = ()
    recipe: Recipe = Recipe(steps=1)
    phases: tuple[Phase, ...] = omitted(())

    def of_types(self, *types: str) -> tuple[ObjectiveConfig, ...]:
        """Returns the objectives of the given types."""
        return tuple(objective for objective in self.objectives if objective.type in types)


@dataclasses.dataclass(frozen=True, eq=False)
class ResolvedConfig(Config):
    """A config with an encoder: the config of a run or of a trained model.

    `official.training.resolve` makes the config of a run, and `load_resolved` reads that of a
    model.

    Attributes:
      encoder: the network.
    """

    encoder: EncoderConfig = dataclasses.field(kw_only=True)

    @classmethod
    def of(cls, config: Config, source: str = "", **sections: Any) -> "ResolvedConfig":
        """Returns a config with replaced sections.

        Args:
          config: the config.
          source: the file, for the message; empty = the name of the config.
          **sections: the new sections, by name.

        Raises:
          UserError: there is no encoder.
        """
        own = {field.name: getattr(config, field.name) for field in dataclasses.fields(Config)}
        if (own | sections)["encoder"] is None:
            raise UserError(f"{source or config.name}: encoder: missing")
        return cls(**(own | sections))

    def __eq__(self, other: object) -> bool:
        """Compares the sections, also with those of a `Config`."""
        if not isinstance(other, Config):
            return NotImplemented
        names = [field.name for field in dataclasses.fields(Config)]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = Config.__hash__
