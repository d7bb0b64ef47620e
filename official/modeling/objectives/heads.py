"""The base classes of heads: of those that read a layer or a mix of layers, and of pooled output.

Shapes: B batch, or rows of the encoder, T length, D hidden, O outputs.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.kernels import dropout
from official.modeling.layers.layer_mix import LayerMix
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


class Reader(base.Objective):
    """An objective whose config has `mix`: None, or an `official.config.heads.Mix`.

    With a mix, the variables `mix/weights` and `mix/gamma` come before those of the head, and the
    penalty of the weights is the term `NAME_mix`.
    """

    def __init__(self, config, encoder_config, *, name, seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.mix = None
        if config.mix is not None:
            self.mix, self._mixed = self.make_mix("mix")

    def make_mix(self, key: str):
        """Returns the mix that a key of the config describes, and the numbers of its layers."""
        config = getattr(self.config, key)
        layers = _layers(config, self.encoder_config.num_states, f"{self.name}.{key}")
        mix = LayerMix(len(layers), norm=config.norm, name=key, dtype=self.dtype_policy)
        return mix, layers

    @property
    def mixes(self):
        """The mixes of the head with their configs: a list of (config, `LayerMix`)."""
        return [] if self.mix is None else [(self.config.mix, self.mix)]

    def build(self, input_shape=None):
        """Creates the variables of the mix."""
        if self.mix is not None:
            self.mix.build()

    @property
    def uses_all_layers(self) -> bool:
        """See `base.Objective`."""
        return self.mix is not None

    @property
    def term_weights(self) -> dict[str, float]:
        """See `base.Objective`; the weight of the head is not a factor of the penalty."""
        return super().term_weights | ({self._penalty_name: 1.0} if self._has_penalty else {})

    def read(self, encoded: Encoded, rng: Draws | None = None) -> Encoded:
        """Returns the outputs of the encoder with the mix as `sequence_output` [B, T, D].

        Args:
            encoded: the outputs of the encoder, with `hidden_states` if there is a mix.
            rng: `Draws`, or None for inference (no dropout).
        """
        if self.mix is None:
            return encoded
        states = [encoded["hidden_states"][layer] for layer in self._mixed]
        mixed = self.mix(states, encoded.get("padding_mask"))
        return {**encoded, "sequence_output": dropout(mixed, self.config.mix.dropout, rng)}

    def states(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the vectors that the head reads, of the last layer or mixed: [B, T, D]."""
        return self.read(encoded, rng)["sequence_output"]

    def with_penalty_weight(self, sums):
        """Adds the divisor of the penalty, which is that of the head, to `weight_sums`."""
        return sums | ({self._penalty_name: sums[self.name]} if self._has_penalty else {})

    def with_penalty(self, terms, batch: Batch) -> base.Terms:
        """Adds the penalty of the mix to `Terms`.

        A term is the sum over the examples of a batch, so the penalty counts once for each example.
        """
        if not self._has_penalty:
            return terms
        count = self.weight_sums(batch)[self._penalty_name]
        penalty = sum(config.penalty * mix.squared_weights() for config, mix in self.mixes)
        losses = terms.losses | {self._penalty_name: count * self.as_loss(penalty)}
        return base.Terms(losses=losses, metrics=terms.metrics)

    @property
    def _has_penalty(self):
        return any(config.penalty > 0 for config, _ in self.mixes)

    @property
    def _penalty_name(self):
        return f"{self.name}_mix"


class Head(Reader):
    """Dropout and an affine map of the pooled output, with the variables `output/...`.

    With `config.mix` the mix of all layers is pooled. `config.activation` comes before the dropout.
    """

    def __init__(self, config, encoder_config, size, *, name, seed=0, dtype=None):
        """Describes the head.

        Args:
            config: has `pooling`, `dropout` and `mix`.
            encoder_config: the config of the encoder whose output is pooled.
            size: O.
            name: name of the loss, and first part of the variables' paths.
            seed: initial weights are a function of it and of the name.
            dtype: Keras dtype policy; None = the global one.

        Raises:
            UserError: the encoder does not support this pooling.
        """
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        base.check_pooled(name, config.pooling, encoder_config)
        self.output_projection = Linear(
            encoder_config.hidden_size,
            size,
            initializer=self.initializer,
            name="output",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        super().build(input_shape)
        self.output_projection.build()

    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        """See `base.Objective`."""
        if self.uses_all_layers or self.config.pooling == "mean":
            return None
        if self.config.pooling == "pooled":
            return ()
        return (ops.zeros((ops.shape(batch["token_ids"])[0], 1), "int32"),)

    def outputs(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the outputs of each row, in the dtype of losses: [B, O]."""
        pooled = self.pool(self.read(encoded, rng))
        if getattr(self.config, "activation", None) == "relu":
            pooled = ops.relu(pooled)
        return self.as_loss(self.output_projection(dropout(pooled, self.config.dropout, rng)))

    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [B, O]."""
        del batch, encoder, positions
        return self.outputs(encoded, rng)

    def lacks(self, target: str, batch: Batch) -> bool:
        """Returns whether a head that does not learn from targets has none in a batch."""
        return not self.config.weight and self.config.field(target) not in batch

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`."""
        return self.with_penalty_weight({self.name: ops.sum(self.example_weights(batch))})


def _layers(mix, count: int, name: str):
    """Returns the layers that are mixed, of `count` with the token layer, from 0.

    Raises:
        UserError: a layer does not exist, or is named twice.
    """
    named = range(count) if mix.layers is None else mix.layers
    for layer in named:
        if not -count <= layer < count:
            raise UserError(
                f"{name}.layers: {layer}: this encoder has the layers 0 (tokens) to {count - 1}"
            )
    layers = [layer % count for layer in named]
    if len(set(layers)) < len(layers):
        raise UserError(f"{name}.layers: {list(named)} names a layer twice")
    return layers
