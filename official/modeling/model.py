"""The model: an encoder and its objectives.

Shapes: B batch, T length, D hidden, K layers with the token layer.
"""

from typing import Any

import keras
from keras import ops
from typing_extensions import override

from official.config.parts import ResolvedConfig
from official.config.registry import layer_of, module_of
from official.config.trainable import LoRA
from official.modeling.encoders.inputs import encode, encode_read
from official.modeling.layers import low_rank
from official.modeling.layers.base import parts
from official.modeling.layers.random import Draws
from official.modeling.types import Batch, DType, Encoded, Tensor


class Model(keras.Layer):
    """The encoder and the objectives of a config, with all their variables.

    The paths of variables do not depend on the recipe: `encoder/...` and a prefix per objective.
    Only low-rank updates are limited to training.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        *,
        dtype: DType | None = None,
        head_dtype: DType | None = None,
        lora: LoRA | None = None,
        finished: bool = False,
        name: str = "model",
    ):
        """Makes the encoder and the objectives of `config`.

        Args:
            config: has `seed`, `encoder` and `objectives`.
            dtype: Keras dtype policy; None = the global one.
            head_dtype: dtype policy of the objectives; None = `dtype`.
            lora: the `official.config.trainable.LoRA` of a run; None = kernels have no updates.
            finished: whether the encoder runs without other networks: a token table with a
                `Table.base` is the sum of both, as `checkpoints.load_variables` returns it.
            name: name of the layer, which is not a part of variables' paths.

        Raises:
            UserError: the encoder and the objectives do not match.
        """
        super().__init__(name=name, dtype=dtype)
        dtype = self.dtype_policy
        with parts():  # dropout is drawn only from `rng`
            self.encoder = module_of(config.encoder).Encoder(
                config.encoder, seed=config.seed, dtype=dtype
            )
            self.lora_factor = 0.0 if lora is None else lora.factor
            if lora is not None:
                low_rank.attach(self.encoder, lora, config.seed)
            self.objectives = make_objectives(config, head_dtype or dtype)
            for objective in self.objectives:
                objective.attach(self.encoder)
                objective.join(self.objectives)
        if finished and self.encoder.token_table is not None:
            self.encoder.token_table.add_to(None)
        self.build()

    @override
    def build(self, input_shape=None):
        self.encoder.build()
        for objective in self.objectives:
            objective.build()

    def variables_by_path(self):
        """Returns all variables, trainable or not, by their unique paths."""
        paths = {v.path.removeprefix(f"{self.name}/"): v for v in self.variables}
        assert len(paths) == len(self.variables), "two variables have the same path"
        return paths

    def objective(self, *types: str) -> Any:
        """Returns the first objective of one of these types; None if there is none."""
        return next((o for o in self.objectives if o.config.type in types), None)

    def networks(self):
        """Returns this model and the teachers of its objectives, which are not parts of it."""
        return [self, *(model for objective in self.objectives for model in objective.teachers)]

    def freeze_encoder(self):
        """Freezes the weights of the encoder, including those that heads share with it."""
        self.encoder.trainable = False

    @property
    def encoder_frozen(self) -> bool:
        """Whether only the heads are trained."""
        if not self.encoder.trainable:
            return True
        return bool(self.objectives) and all(o.encoder_frozen for o in self.objectives)

    @property
    def term_weights(self) -> dict[str, float]:
        """The factor of each term in the loss: {term: float}."""
        return _merged(objective.term_weights for objective in self.objectives)

    def ramps(self, step: Tensor) -> dict[str, Tensor]:
        """Returns what multiplies `term_weights` in an update; see `base.Objective`."""
        return _merged(objective.ramps(step) for objective in self.objectives)

    def encode(
        self, batch: Batch, rng: Draws | None = None, output_all: bool = False
    ) -> dict[str, Any]:
        """Runs the encoder on a batch: see `official.modeling.encoders.inputs.encode`.

        If the batch has `layer_states` [B, T, K, D], the precomputed states of all layers, they are
        returned instead.
        """
        if (states := batch.get("layer_states")) is not None:
            layers = ops.unstack(ops.cast(states, self.encoder.compute_dtype), axis=2)
            mask = {"padding_mask": batch["padding_mask"]} if "padding_mask" in batch else {}
            return {"sequence_output": layers[-1], "hidden_states": tuple(layers), **mask}
        if self.encoder_frozen:
            rng = None  # a frozen encoder has no dropout
        return encode(self.encoder, batch, rng, output_all)

    def encode_as_read(
        self, batch: Batch, rng: Draws | None = None, objectives=None
    ) -> dict[str, Any]:
        """Runs the encoder, and computes only the positions of the last layer that objectives read.

        Args:
            batch: dict of tensors, after `prepare`.
            rng: `Draws`, or None for inference (no dropout).
            objectives: some of the objectives; None = all.

        Returns:
            See `official.modeling.encoders.inputs.encode_read`.
        """
        if "layer_states" in batch:
            return self.encode(batch)
        objectives = self.objectives if objectives is None else objectives
        return encode_read(self.encoder, objectives, batch, None if self.encoder_frozen else rng)

    def prepare(self, batch: Batch, rng: Draws | None = None, objectives=None) -> Batch:
        """Runs `prepare` of some objectives, before the encoder runs; None = of all objectives."""
        for objective in self.objectives if objectives is None else objectives:
            batch = objective.prepare(batch, rng)
        return batch

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the divisor of each term's sum: {term: scalar}."""
        return _merged(objective.weight_sums(batch) for objective in self.objectives)

    def terms(
        self,
        batch: Batch,
        rng: Draws | None = None,
        encoded: Encoded | None = None,
        objectives=None,
    ) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]]:
        """Returns the loss terms and metrics of objectives for a prepared batch.

        Args:
            batch: dict of tensors.
            rng: `Draws`, or None for inference (no dropout).
            encoded: the result of `encode` or `encode_as_read` for the batch; None = encode it.
            objectives: some of the objectives; None = all.

        Returns:
            losses {term: sum} and metrics {name: (sum, weight)}.
        """
        objectives = self.objectives if objectives is None else objectives
        encoded = self.encode_as_read(batch, rng, objectives) if encoded is None else encoded
        terms = [o.terms(batch, encoded, self.encoder, rng) for o in objectives]
        return _merged(t.losses for t in terms), _merged(t.metrics for t in terms)

    def predictions(self, batch: Batch, encoded: Encoded | None = None) -> dict[str, Tensor]:
        """Returns the predictions of all objectives: a dict of tensors [B, ...].

        `encoded` is as in `terms`.
        """
        encoded = self.encode_as_read(batch) if encoded is None else encoded
        return _merged(o.predictions(batch, encoded, self.encoder) for o in self.objectives)


def make_objectives(config, dtype: DType | None = None):
    """Makes the objectives of a config in order, without variables; arguments as for `Model`."""
    return [
        layer_of(objective)(objective, config.encoder, seed=config.seed, dtype=dtype)
        for objective in config.objectives
    ]


def _merged(dicts):
    return {key: value for d in dicts for key, value in d.items()}
