"""Config of the bidirectional language model of ELMo: sizes and structure."""

import dataclasses

from official.config.encoders import INITIALIZERS
from official.config.part import EncoderConfig
from official.utils.strict import at_least, at_most, dropout_rate, one_of

TOKENS = ("characters", "words")
ACTIVATIONS = ("relu", "tanh")
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_WIDTH = 50  # characters of a word


@dataclasses.dataclass(frozen=True)
class BilmConfig(EncoderConfig):
    """LSTMs of both directions over words (Peters et al., 2018); the defaults are the original.

    Attributes:
        vocab_size: the number of words that are predicted; None = the size of the tokenizer's
            vocabulary.
        tokens: 'characters' = a word is read by its characters; 'words' = it has a vector in a
            table of the vocabulary.
        character_size: the size of the vector of a character.
        filters: the width and the number of the convolutions of each width.
        highway_layers: the number of highway layers after the convolutions.
        activation: of the convolutions: 'relu' or 'tanh'.
        cell_size: C, the cells of an LSTM.
        projection_size: P, the size of the vectors of words and of the outputs of each direction.
        num_layers: L, the number of LSTMs of each direction.
        cell_clip: the largest absolute value of a cell; 0 = no limit.
        projection_clip: the largest absolute value of an output; 0 = no limit.
        skip_connections: whether all LSTMs but the first add their input to their output.
        dropout: the dropout rate of the input of each LSTM and of the last output.
        memory_length: 1 = the state of a row is carried to the row that continues it, in training
            and evaluation on streams; 0 = each row begins with a fresh state.
        initializer: the distribution of the initial weights of heads: `normal` or
            `truncated_normal`. That of the encoder is the release's.
        initializer_range: the standard deviation of the distribution.
    """

    type = "bilm"

    vocab_size: int | None = None
    tokens: str = "characters"
    character_size: int = 16
    filters: tuple[tuple[int, int], ...] = _FILTERS
    highway_layers: int = 2
    activation: str = "relu"
    cell_size: int = 4096
    projection_size: int = 512
    num_layers: int = 2
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True
    dropout: float = 0.1
    memory_length: int = 1
    initializer: str = "truncated_normal"
    initializer_range: float = 0.02

    # Heads and tools read these of every encoder. Only time and memory limit the length.
    embedding_size = None
    max_positions = 2**16
    segment_types = 0
    reuse_length = 0
    pooler = False
    pooled_position = "first"
    layout = "cls_first"

    def __post_init__(self):
        filters = tuple(tuple(pair) for pair in self.filters)
        object.__setattr__(self, "filters", filters)
        if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
            raise ValueError(
                f"filters: {self.filters}: give pairs of a width and a number of convolutions, "
                "such as [[1, 32], [2, 64]]"
            )
        if widest := [width for width, _ in filters if width > _WIDTH]:
            raise ValueError(f"filters: width {widest[0]} exceeds the {_WIDTH} ids of a word")
        widths = [width for width, _ in filters]
        if twice := {width for width in widths if widths.count(width) > 1}:
            raise ValueError(f"filters: width {min(twice)} is there twice: give their sum")
        at_least(self, 1, "vocab_size", "character_size", "cell_size", "projection_size")
        at_least(self, 1, "num_layers")
        at_least(self, 0, "highway_layers", "cell_clip", "projection_clip", "initializer_range")
        at_least(self, 0, "memory_length")
        at_most(self, 1, "memory_length")
        at_most(self, 1000, "num_layers", "highway_layers")
        dropout_rate(self, "dropout")
        one_of("tokens", self.tokens, TOKENS)
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("initializer", self.initializer, INITIALIZERS)

    @property
    def hidden_size(self) -> int:
        """The size of the features: both directions, 2 P."""
        return 2 * self.projection_size

    @property
    def num_heads(self) -> int:
        """There is no attention."""
        return 0

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The shape of what is kept of a row: 2 L states of C cells and P outputs."""
        return 2 * self.num_layers, self.memory_length, self.cell_size + self.projection_size


PARTS = (BilmConfig,)
