"""The config of a layer mix: a head that reads all layers of the encoder."""

import dataclasses

from official.utils.strict import at_least, dropout_rate, omitted, one_of

NORMS = ("none", "layer", "token")


@dataclasses.dataclass(frozen=True)
class Mix:
    """A learnt weighted sum of layers, which a head reads in place of the last layer.

    See `official.modeling.layers.layer_mix`.

    Attributes:
        penalty: factor of the squared norm of the weights before the softmax, which is added to the
            loss as the term `NAME_mix`. 1 keeps the weights nearly equal; 0 = no penalty.
        norm: the norm of each layer before the sum: 'none', 'token' = of each position, or 'layer'
            = one mean and one variance over all real positions of a batch (ELMo, as released).
        dropout: the dropout rate of the mixed vectors.
        layers: the layers that are mixed, 0 = the token layer and -1 = the last one; None = all.
    """

    penalty: float = 0.0
    norm: str = "none"
    dropout: float = 0.5
    layers: tuple[int, ...] | None = omitted()

    def __post_init__(self):
        at_least(self, 0, "penalty")
        one_of("norm", self.norm, NORMS)
        dropout_rate(self, "dropout")
        if self.layers is not None and not self.layers:
            raise ValueError("layers: name at least one layer, or leave it out to mix all")


def check_pooling(config) -> None:
    """Raises ValueError if a head with a mix reads the output of the pooler."""
    if config.mix is not None and config.pooling == "pooled":
        raise ValueError(
            "pooling: pooled is an output of the last layer, and mix reads all layers: set pooling "
            "to first or mean"
        )
