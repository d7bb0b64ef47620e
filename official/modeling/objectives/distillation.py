"""Distillation: the outputs, states and attention of a frozen teacher (Hinton et al., 2015).

The terms are those of DistilBERT (Sanh et al., 2019, section 3), TinyBERT (Jiao et al., 2020,
section 3.1), MiniLM and MiniLMv2 (Wang et al., 2020 and 2021, section 3). They are means over real
tokens, or over pairs of real tokens. Padding does not count, except with `means: released` of
TinyBERT.

The teacher is a complete model, which the trainer attaches. It reads the same batch as the student,
without dropout. Its variables do not belong to this layer, so it is neither trained nor saved.

Shapes: B batch, T length, N heads, H head size, D hidden, R rows of outputs, C outputs of a row,
G relation heads, K teachers.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from keras import ops
from typing_extensions import override

from official.config.distillation import EXAMPLE_HEADS, TEACHER_LOGITS, DistillationConfig
from official.config.parts import EncoderConfig
from official.modeling import masks
from official.modeling.encoders.base import Encoder
from official.modeling.encoders.inputs import encode, encode_read
from official.modeling.layers.attention import Attended
from official.modeling.layers.kernels import times_transposed
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, ensembles
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError

_TEACHER_OUTPUTS = "teacher_outputs"  # the batch field with the results of the teachers


@dataclasses.dataclass
class _References:
    """References to layers outside this objective, which Keras does not track here.

    Attributes:
        others: the other objectives of the student.
        head: the objective whose outputs are matched; None = no outputs are matched.
        teachers: (model, its objective that corresponds to `head`) for each teacher.
    """

    others: list[Any] = dataclasses.field(default_factory=list)
    head: Any = None
    teachers: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)


class Objective(base.Objective):
    """The terms of `DistillationConfig`; only projections of hidden states have variables."""

    config: DistillationConfig

    def __init__(self, config: DistillationConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        self._references = _References()
        self.projections = []
        if not config.hidden or config.projection == "none":
            return
        if config.teacher_size is None:
            raise UserError(f"{self.name}.teacher_size: unknown: it is filled in from the teacher")
        shared = config.projection == "shared"
        for i in range(1 if shared else encoder_config.num_layers + 1):
            projection = Linear(
                encoder_config.hidden_size,
                config.teacher_size,
                initializer=self.initializer,
                name="projection" if shared else f"projection_{i}",
                dtype=self.dtype_policy,
            )
            self.projections.append(projection)

    @override
    def join(self, objectives) -> None:
        self._references.others = [objective for objective in objectives if objective is not self]
        if self.config.matches_outputs:
            heads = {id(objective.config): objective for objective in objectives}
            try:
                self._references.head = heads[id(self.config.head_of(o.config for o in objectives))]
            except ValueError as error:
                raise UserError(f"{self.name}.{error}") from None

    @override
    def build(self, input_shape=None):
        for projection in self.projections:
            projection.build()

    def attach_teachers(self, models):
        """Sets the teachers.

        Args:
            models: `official.modeling.model.Model`s. They are not trained or saved.

        Raises:
            UserError: a teacher has no objective that corresponds to the one whose outputs are
              matched.
        """
        head = self._references.head
        teachers = []
        for model in models:
            alike = [o for o in model.objectives if head is not None and _alike(o, head)]
            if head is not None and not alike:
                there = ", ".join(o.config.type for o in model.objectives) or "none"
                raise UserError(
                    f"{self.name}.teachers: the outputs of {head.config.type} are matched, but a "
                    f"teacher has the objectives {there}: train it for them first"
                )
            teachers.append((model, alike[0] if alike else None))
        self._references.teachers = teachers

    @property
    @override
    def teachers(self):
        return tuple(model for model, _ in self._references.teachers)

    @property
    @override
    def term_weights(self) -> dict[str, float]:
        weights = self.config.term_weights
        return {f"{self.name}_{term}": w * self.config.weight for term, w in weights.items()}

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        """See `base.Objective`; the positions of its head are listed by the head."""
        if not self._has_teachers(batch):
            return ()
        if self.config.matches_states or self._references.head.config.type not in EXAMPLE_HEADS:
            return None
        return () if self._references.head.positions_read(batch) is not None else None

    @property
    @override
    def uses_all_layers(self) -> bool:
        return bool(self._references.teachers) and self.config.matches_layers

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Runs the teachers.

        Returns:
            The batch with their results, for `terms`.
        """
        del rng  # teachers have no dropout
        if not self._references.teachers or TEACHER_LOGITS in batch:
            return batch
        read = base.first_sequences(batch) if self.config.texts == "first" else batch
        results = [self._run(model, head, read) for model, head in self._references.teachers]
        return {**batch, _TEACHER_OUTPUTS: results}

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`; without teachers there are no terms."""
        if not self._has_teachers(batch):
            return {}
        batch = self._prepared_by_others(batch)
        examples = self._row_weights(batch)
        tokens = ops.sum(self.as_loss(batch["padding_mask"]) * examples[:, None])
        length = ops.shape(batch["padding_mask"])[1]
        positions = ops.sum(examples) * ops.cast(length, examples.dtype)
        sums = {}
        for term in self.config.term_weights:
            if term in ("cross_entropy", "logits"):
                weights = self._references.head.matched_weights(batch, self.config.positions)
                sums[term] = ops.sum(weights)
            elif term == "scores" and self._released:
                sums[term] = positions * ops.cast(length, examples.dtype)
            elif term == "hidden" and self._released:
                sums[term] = positions
            elif term == "scores":
                sums[term] = self._mean_pairs(batch, examples)
            else:
                sums[term] = tokens
        return {f"{self.name}_{term}": total for term, total in sums.items()}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; without teachers there are no terms."""
        if not self._has_teachers(batch):
            return base.Terms(losses={}, metrics={})
        losses: dict[str, Tensor] = {}
        if self.config.matches_outputs:
            losses |= self._output_terms(batch, encoded, encoder, rng)
        if self.config.matches_states:
            teacher = batch[_TEACHER_OUTPUTS][0]
            examples = self._row_weights(batch)
            tokens = self.as_loss(batch["padding_mask"]) * examples[:, None]
            losses |= self._state_terms(encoded, teacher, tokens, examples)
            losses |= self._relation_term(encoded, teacher, batch, tokens)
            losses |= self._score_term(encoded, teacher, batch, examples)
        return base.Terms({f"{self.name}_{term}": loss for term, loss in losses.items()}, {})

    @property
    def _released(self):
        return self.config.means == "released"

    def _has_teachers(self, batch: Batch):
        return bool(self._references.teachers) or TEACHER_LOGITS in batch

    def _mean_pairs(self, batch: Batch, examples: Tensor) -> Tensor:
        """Returns the mean over layers of the number of pairs of tokens that a layer attends to.

        `examples` [B] are the weights of rows.
        """
        encoder, total = self.encoder_config, 0.0
        layers = collections.Counter(map(encoder.reach, range(encoder.num_states - 1)))
        for far, related in self._pairs_by_reach(batch, layers).items():
            found = ops.sum(ops.sum(self.as_loss(related), axis=(1, 2)) * examples)
            total = total + found * (layers[far] / layers.total())
        return total

    def _pairs_by_reach(self, batch: Batch, reaches: Iterable[int | None], **options):
        """Returns {reach of layers: their `pairs`} (see `EncoderConfig.reach`)."""
        causal = self.encoder_config.causal
        return {
            far: pairs(batch, causal, distance=far, **options) for far in dict.fromkeys(reaches)
        }

    def _row_weights(self, batch: Batch) -> Tensor:
        """Returns the weight of each row of the encoder: an example, or a choice or window of one.

        Returns:
            [B].
        """
        examples = self.example_weights(batch)
        if (own := batch.get("example_rows")) is None:
            return examples
        rows = ops.broadcast_to(examples[:, None], ops.shape(own))
        if "windows_mask" in batch:
            rows *= ops.cast(batch["windows_mask"], rows.dtype)
        return ops.reshape(rows, (-1,))

    def _prepared_by_others(self, batch: Batch):
        """Returns a batch after `prepare` of the other objectives that decide weights."""
        for other in self._references.others:
            # A causal LM shifts the tokens, and must not do so twice.
            if other.config.decides_weights and "causal_weights" not in batch:
                batch = other.prepare(batch)
        return batch

    def _run(self, model, head, batch: Batch):
        """Returns the results of a teacher: a dict of tensors without gradient."""
        config = self.config
        if not config.matches_states and head.config.type in EXAMPLE_HEADS:
            encoded = encode_read(model.encoder, [head], batch)
        else:
            all_layers = config.matches_layers or (head is not None and head.uses_all_layers)
            encoded = encode(model.encoder, batch, None, all_layers)
        result = {}
        if config.matches_outputs:
            result["outputs"] = head.matched_outputs(
                batch, encoded, model.encoder, config.positions
            )
        if config.cosine:
            result["sequence_output"] = encoded["sequence_output"]
        if config.hidden:
            result["hidden_states"] = encoded["hidden_states"]
        if config.scores or config.relation:
            result["attention_parts"] = encoded["attention_parts"]
        return _constant(result)

    def _output_terms(self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None):
        config, head = self.config, self._references.head
        student = head.matched_outputs(batch, encoded, encoder, config.positions, rng)
        if TEACHER_LOGITS in batch:
            teachers = ops.unstack(self.as_loss(batch[TEACHER_LOGITS]), axis=1)
        else:
            teachers = [teacher["outputs"] for teacher in batch[_TEACHER_OUTPUTS]]
        teachers = [ops.cast(rows, student.dtype) for rows in teachers]  # K of [R, C]
        if config.texts == "first":
            count = batch["example_rows"].shape[1]
            teachers = [ops.repeat(rows, count, axis=0) for rows in teachers]
        weights = head.matched_weights(batch, config.positions)
        losses = {}
        if config.cross_entropy:
            factor = config.temperature**2 if config.square_temperature else 1.0
            apart = binary_divergence if head.link == "sigmoid" else divergence
            soft = apart(student, teachers, config.temperature)
            losses["cross_entropy"] = ops.sum(soft * weights) * factor
        if config.logits:
            target = sum(teachers[1:], teachers[0]) / len(teachers)
            losses["logits"] = ops.sum(squared_error(student, target) * weights)
        return losses

    def _state_terms(self, encoded: Encoded, teacher, tokens, examples):
        """Returns the terms of hidden states; `tokens` [B, T] and `examples` [B] are weights."""
        losses = {}
        if self.config.cosine:
            pair = [self.as_loss(each["sequence_output"]) for each in (encoded, teacher)]
            losses["cosine"] = ops.sum(cosine_distance(*pair) * tokens)
        if self.config.hidden:
            states, targets = encoded["hidden_states"], teacher["hidden_states"]
            layers = self.config.matched_layers(len(states) - 1, len(targets) - 1)
            if self._released:
                tokens = ops.broadcast_to(examples[:, None], ops.shape(tokens))
            total = 0.0
            for i, layer in enumerate([0, *layers]):
                state = states[i]
                if self.projections:
                    state = self.projections[i if len(self.projections) > 1 else 0](state)
                errors = squared_error(self.as_loss(state), self.as_loss(targets[layer]))
                total = total + ops.sum(errors * tokens)
            losses["hidden"] = total
        return losses

    def _score_term(self, encoded: Encoded, teacher, batch: Batch, examples):
        """Returns the term of attention scores; `examples` [B] are weights."""
        if not self.config.scores:
            return {}
        mine, theirs = encoded["attention_parts"], teacher["attention_parts"]
        reaches = [self.encoder_config.reach(i) for i in range(len(mine))]
        related = self._pairs_by_reach(batch, reaches, from_padding=self._released)
        total = 0.0
        for i, layer in enumerate(self.config.matched_layers(len(mine), len(theirs))):
            ours, target = self.as_loss(mine[i].scores), self.as_loss(theirs[layer - 1].scores)
            if self._released:
                ours, target = without_masked(ours), without_masked(target)
            total = total + ops.sum(score_error(ours, target, related[reaches[i]]) * examples)
        return {"scores": total}

    def _relation_term(self, encoded: Encoded, teacher, batch: Batch, tokens):
        """Returns the term of the relations of the last layer; `tokens` [B, T] are weights."""
        config = self.config
        if not config.relation:
            return {}
        mine = encoded["attention_parts"][-1]
        theirs = teacher["attention_parts"][(config.relation_layer or 0) - 1]
        far = self.encoder_config.reach(self.encoder_config.num_states - 2)
        reaches = {kind: far if kind == "attention" else None for kind in config.relations}
        related = self._pairs_by_reach(batch, reaches.values())
        total = 0.0
        for kind in config.relations:
            ours, target = (
                self.as_loss(relation(part, kind, config.relation_heads)) for part in (mine, theirs)
            )
            total = total + ops.sum(
                relation_divergence(ours, target, related[reaches[kind]]) * tokens
            )
        return {"relation": total}


def divergence(student: Tensor, teachers: Sequence[Tensor], temperature: float = 1.0) -> Tensor:
    """Returns KL(teachers || student) of softmax(outputs / temperature): [R].

    It is the cross-entropy with soft targets minus the entropy of the targets (Hinton et al., 2015,
    section 2). The targets of several teachers are the mean of their probabilities.

    Args:
        student: [R, C].
        teachers: [R, C] each.
        temperature: T.
    """
    targets = ops.stack([ops.log_softmax(logits / temperature) for logits in teachers])
    targets = ensembles.log_mean(targets)  # [R, C]
    guesses = ops.log_softmax(student / temperature)
    return ops.sum(ops.exp(targets) * (targets - guesses), axis=-1)


def binary_divergence(
    student: Tensor, teachers: Sequence[Tensor], temperature: float = 1.0
) -> Tensor:
    """Returns the mean over the outputs of the divergences of their sigmoids: [R].

    The arguments are those of `divergence`; each output and 0 are the logits of two classes.
    """
    student, *teachers = (ops.stack([x, ops.zeros_like(x)], axis=-1) for x in (student, *teachers))
    return ops.mean(divergence(student, teachers, temperature), axis=-1)


def squared_error(student: Tensor, target: Tensor) -> Tensor:
    """Returns the mean of the squared differences over the last axis: [...]."""
    return ops.mean(ops.square(student - target), axis=-1)


def cosine_distance(student: Tensor, target: Tensor) -> Tensor:
    """Returns 1 - cosine of vectors [..., D]: [...]."""
    products = ops.sum(student * target, axis=-1)
    squares = ops.sum(ops.square(student), axis=-1) * ops.sum(ops.square(target), axis=-1)
    return 1 - products * ops.rsqrt(ops.maximum(squares, 1e-16))


def pairs(
    batch: Batch, causal: bool = False, from_padding: bool = False, distance: int | None = None
) -> Tensor:
    """Returns whether the first of two real tokens attends to the second: bool [B, T, T].

    The batch has `padding_mask` [B, T], and may have `part_ids` and `block_ids` as in
    `official.modeling.encoders.inputs`. With `from_padding`, the first of a pair may be padding.
    `distance` is the largest distance of the two; None = any.
    """
    real = ops.cast(batch["padding_mask"], "bool")
    length = ops.shape(real)[1]
    mask = masks.combine(
        masks.padding(real),
        None if from_padding else real[:, None, :, None],
        masks.parts(batch["part_ids"]) if "part_ids" in batch else None,
        masks.blocks(batch["block_ids"]) if "block_ids" in batch else None,
        masks.causal(length, length) if causal else None,
        None if distance is None else masks.window(length, length, distance),
    )
    return mask[:, 0]


def score_error(student: Tensor, target: Tensor, related: Tensor) -> Tensor:
    """Returns the squared differences of scores, summed over pairs, averaged over heads: [B].

    Args:
        student: attention scores before the softmax, [B, N, T, T].
        target: the same of the teacher, [B, N, T, T].
        related: the pairs that count, bool [B, T, T].
    """
    errors = ops.mean(ops.square(student - target), axis=1)  # [B, T, T]
    return ops.sum(ops.where(related, errors, ops.zeros_like(errors)), axis=(1, 2))


def without_masked(scores: Tensor) -> Tensor:
    """Returns scores with 0 in place of -100 or less, which TinyBERT's release treats as masked."""
    return ops.where(scores <= -100, ops.zeros_like(scores), scores)


def relation_divergence(student: Tensor, target: Tensor, related: Tensor) -> Tensor:
    """Returns KL(teacher || student) of each token's distribution, averaged over heads: [B, T].

    Args:
        student: the logits of the relation, [B, G, T, T].
        target: the same of the teacher, [B, G, T, T].
        related: the tokens that each token is related to, bool [B, T, T]; other tokens have
            probability 0, and a token without relations has the divergence 0.
    """
    related = related[:, None]
    hidden = masks.bias(related, student.dtype)
    targets, guesses = ops.log_softmax(target + hidden), ops.log_softmax(student + hidden)
    losses = ops.exp(targets) * (targets - guesses)
    losses = ops.where(related, losses, ops.zeros_like(losses))
    return ops.mean(ops.sum(losses, axis=-1), axis=1)


def relation(attended: Attended, kind: str, heads: int = 0) -> Tensor:
    """Returns the logits of a relation among the tokens of a row: [B, G, T, T].

    They are the scores of the attention, or the products of all queries, keys or values with each
    other, divided by the root of the head size (MiniLM, section 3.2). With `heads`, the vectors of
    all attention heads are joined and split into G heads (MiniLMv2, section 3.1).

    Args:
        attended: the record of an attention layer.
        kind: 'attention', 'query', 'key' or 'value'.
        heads: G; 0 = N.
    """
    if kind == "attention":
        return attended.scores
    vectors = getattr(attended, kind)  # [B, N, T, H]
    batch, count, length, size = ops.shape(vectors)
    if heads and heads != count:
        joined = ops.reshape(ops.transpose(vectors, (0, 2, 1, 3)), (batch, length, heads, -1))
        vectors, size = ops.transpose(joined, (0, 2, 1, 3)), count * size // heads
    return times_transposed(vectors * size**-0.5, vectors)


def _alike(objective, head):
    """Whether an objective of a teacher has the same outputs as the student's objective."""
    tasks = {o.config.task for o in (objective, head)} - {""}
    return objective.config.type == head.config.type and len(tasks) < 2


def _constant(value):
    """Returns nested tensors without their gradients."""
    if isinstance(value, dict):
        return {name: _constant(each) for name, each in value.items()}
    if isinstance(value, tuple):
        made = [_constant(each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return ops.stop_gradient(value)
