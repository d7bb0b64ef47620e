"""Config of the objective `distillation`: a student learns the outputs and layers of a teacher."""

import dataclasses
from collections.abc import Iterable, Sequence

from official.config.heads import SpanAnswerConfig, TokenClassificationConfig
from official.config.parts import Config, EncoderConfig, ObjectiveConfig
from official.utils.names import nearest
from official.utils.strict import above, at_least, one_of

# The objectives whose outputs a student can learn: scores of the vocabulary for each token, numbers
# for each example, scores of the tokens of a row, of tags for each word, and vectors of texts.
TOKEN_HEADS = ("masked_lm", "causal_lm", "seq2seq_lm")
EXAMPLE_HEADS = ("classification", "multi_label", "regression", "multiple_choice", "ranking")
HEADS = (
    *(*TOKEN_HEADS, *EXAMPLE_HEADS),
    *("span_answer", "token_classification", "sentence_embedding"),
)
# Objectives whose outputs are not scores for a softmax, with the reason.
_NUMBERS = {
    "regression": "a regression has one output",
    "sentence_embedding": "vectors have no classes",
}
RELATIONS = ("attention", "query", "key", "value")
PROJECTIONS = ("shared", "each", "none")
TEXTS = ("own", "first")
MEANS = ("intended", "released")
TERMS = ("cross_entropy", "logits", "cosine", "relation", "scores", "hidden")
# The batch field with precomputed outputs of teachers.
TEACHER_LOGITS = "teacher_logits"


@dataclasses.dataclass(frozen=True)
class DistillationConfig(ObjectiveConfig):
    """Distillation from the outputs and layers of a frozen teacher. Terms of weight 0 are left out.

    Attributes:
      teachers: model folders. Several teachers teach the mean of their probabilities, or of
        their outputs; layers are matched with one teacher only.
      checkpoint: the checkpoint of the teachers: `best`, `last`, a step or a path.
      cache: a folder with the outputs of the teachers for the shards, from
        `official.commands.teacher_outputs`. The teachers then do not run. "" = they run in each
        step.
      head: the objective whose outputs are matched: its type, or its task if there are several.
        "" = the only one.
      temperature: T, which divides the outputs of both before the softmax.
      square_temperature: whether the cross-entropy is multiplied by T^2, so that the size of its
        gradient does not depend on T (Hinton et al., 2015, section 2).
      positions: for outputs of tokens, the tokens that are matched: 'real' = all but padding;
        'masked' = those that masked LM predicts.
      texts: for `sentence_embedding`, the text whose teacher vector is the target of each text of
        an example: its 'own', or the 'first' text, of which the others are translations (Reimers
        and Gurevych, 2020, section 2). With 'first' the teacher reads only the first texts.
      cross_entropy: weight of the soft cross-entropy: of `ranking` over the documents of a list, of
        `multi_label` the mean of those of the labels. The reported loss is KL(teacher || student) =
        the cross-entropy minus the entropy of the teacher, which is a constant.
      logits: weight of the mean squared error of the outputs before the softmax. What fills the
        list of a `ranking` has no error.
      cosine: weight of 1 - cosine of the last hidden states (DistilBERT).
      relation: weight of KL(teacher || student) of the `relations` of the last layer (MiniLM).
      relations: 'attention' = the attention distributions, which for layers with local attention
        are over nearby tokens; 'query', 'key' and 'value' = the softmax of the scaled products of
        these vectors with each other, of all tokens. MiniLM has attention and value, MiniLMv2
        query, key and value.
      relation_heads: the number of relation heads that query, key and value are split into
        (MiniLMv2: 48 or 64); 0 = the attention heads, whose number must be the same in student and
        teacher.
      relation_layer: the layer of the teacher, counted from 1; None = the last.
      scores: weight of the mean squared error of the attention scores before the softmax
        (TinyBERT), summed over the matched layers. Pairs of tokens that a layer does not attend to
        do not count.
      hidden: weight of the mean squared error of the hidden states (TinyBERT), summed over the
        embeddings and the matched layers.
      layers: for each layer of the student, the layer of the teacher, counted from 1, that it is
        matched with. Empty = every k-th layer, if the teacher has k times as many layers.
      projection: how hidden states are projected to the teacher's width: 'shared' = one
        projection for all layers (the release), 'each' = one for each (the paper), or 'none'.
      means: the elements of the means of `scores` and `hidden`. 'intended' = real tokens, and pairs
        of real tokens; 'released' = all positions of a row, including padding, as in the release of
        TinyBERT. Then scores of padded keys, and scores of -100 or less, have no error, so the more
        padding there is, the less `scores` weighs compared with `hidden`.
      teacher_layers: the number of layers of the teacher; filled in automatically.
      teacher_size: the hidden size of the teacher; filled in automatically.
      teacher_checksums: SHA-256 of the weights of each teacher; filled in automatically.
      weight: factor of all terms in the sum.
    """

    type = "distillation"
    packs = True  # only tokens of the same part are related

    teachers: tuple[str, ...] = ()
    checkpoint: str = "best"
    cache: str = ""
    head: str = ""
    temperature: float = 1.0
    square_temperature: bool = True
    positions: str = "real"
    texts: str = "own"
    cross_entropy: float = 0.0
    logits: float = 0.0
    cosine: float = 0.0
    relation: float = 0.0
    relations: tuple[str, ...] = ("attention", "value")
    relation_heads: int = 0
    relation_layer: int | None = None
    scores: float = 0.0
    hidden: float = 0.0
    layers: tuple[int, ...] = ()
    projection: str = "shared"
    means: str = "intended"
    teacher_layers: int | None = None
    teacher_size: int | None = None
    teacher_checksums: tuple[str, ...] = ()
    weight: float = 1.0

    def __post_init__(self):
        above(self, 0, "temperature")
        at_least(self, 0, *TERMS, "relation_heads")
        at_least(self, 1, "relation_layer", "teacher_size")
        at_least(self, 0, "teacher_layers")
        one_of("positions", self.positions, ["real", "masked"])
        one_of("texts", self.texts, TEXTS)
        one_of("projection", self.projection, PROJECTIONS)
        one_of("means", self.means, MEANS)
        for relation in self.relations:
            one_of("relations", relation, RELATIONS)
        if not self.relations or len(set(self.relations)) < len(self.relations):
            raise ValueError(f"relations: name each of {', '.join(RELATIONS)} at most once")
        if self.relation_heads and "attention" in self.relations:
            raise ValueError(
                f"relation_heads: {self.relation_heads} heads have no attention distributions: "
                "take relations: [query, key, value], or relation_heads: 0"
            )
        if any(layer < 1 for layer in self.layers) or list(self.layers) != sorted(self.layers):
            raise ValueError("layers: expected numbers from 1 in ascending order")
        if len(self.teachers) > 1 and self.matches_states:
            raise ValueError(
                f"teachers: {len(self.teachers)} teachers, but states can be matched with only "
                f"one: name one, or remove {', '.join(TERMS[2:])}"
            )
        if self.cache and self.matches_states:
            raise ValueError(
                f"cache: contains only the outputs of the teachers: remove {', '.join(TERMS[2:])}, "
                "or the cache"
            )

    @property
    def term_weights(self) -> dict[str, float]:
        """The weight of each term with a weight above 0."""
        return {name: w for name in TERMS if (w := getattr(self, name))}

    @property
    def matches_outputs(self) -> bool:
        """Whether outputs of an objective are matched."""
        return bool(self.cross_entropy or self.logits)

    @property
    def matches_layers(self) -> bool:
        """Whether states or attention of several layers are matched."""
        return bool(self.relation or self.scores or self.hidden)

    @property
    def matches_states(self) -> bool:
        """Whether states or attention of any layer are matched."""
        return bool(self.cosine) or self.matches_layers

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        fields = {"padding_mask"}
        if self.matches_outputs and self.positions == "masked":
            fields |= {"masked_positions", "masked_weights"}
        return frozenset(fields)

    def head_of(self, objectives: Iterable[ObjectiveConfig]) -> ObjectiveConfig:
        """Returns the objective whose outputs are matched.

        Raises:
          ValueError: there is no such objective, or there are several and `head` names none of
            them.
        """
        objectives = list(objectives)
        every = [objective for objective in objectives if objective.type in HEADS]
        heads = [h for h in every if not self.head or self.head in (h.type, h.task)]
        if len(heads) == 1:
            return heads[0]
        there = ", ".join(o.type for o in objectives if o is not self) or "none"
        if heads:
            raise ValueError(
                f"head: {self.head!r} may be one of {', '.join(h.name for h in heads)}: name one"
            )
        known = [name for o in every for name in (o.type, o.task) if name]
        hint = nearest(self.head, known) if self.head else ""
        raise ValueError(
            f"head: {self.head!r}: the outputs of {', '.join(HEADS)} can be matched, but the other "
            f"objectives are {there}: add the objective that the teacher has{hint}"
        )

    def check(self, whole: Config) -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""
        if not self.term_weights:
            raise ValueError(f"nothing is matched: give one of {', '.join(TERMS)} a weight")
        if self.texts == "first" and (self.matches_states or not self.matches_outputs):
            raise ValueError(
                "texts: first is only for the vectors of texts: give logits a weight, and remove "
                f"{', '.join(TERMS[2:])}"
            )
        if whole.objectives and whole.objectives[-1] is not self:
            raise ValueError("it reads fields that the other objectives prepare: put it last")
        if self.matches_outputs:
            head = self.head_of(whole.objectives)
            numbers = _NUMBERS.get(head.type)
            if numbers and self.cross_entropy:
                raise ValueError(f"cross_entropy: {numbers}: take logits")
            if isinstance(head, SpanAnswerConfig) and head.form != "independent":
                raise ValueError(
                    f"head: span_answer.form: {head.form} has ends that depend on the start: take "
                    "independent"
                )
            if isinstance(head, TokenClassificationConfig) and head.crf:
                raise ValueError(
                    "head: token_classification.crf: a teacher has no outputs from which the "
                    "transitions of a CRF could be learned: take crf: false"
                )
            if self.texts == "first" and head.type != "sentence_embedding":
                raise ValueError(
                    f"texts: first is only for sentence_embedding, and the head is {head.type}"
                )
            if self.positions == "masked" and head.type != "masked_lm":
                raise ValueError(
                    f"positions: masked is only for masked_lm, and the head is {head.type}"
                )
        if self.means == "released" and whole.segments and whole.segments.packing > 1:
            raise ValueError(
                "means: released counts the padding of rows of one sequence: take intended, or "
                "segments.packing: 1"
            )

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder does not return what is matched."""
        if (self.relation or self.scores) and not encoder.gives_scores:
            raise ValueError(
                f"encoder.type: {encoder.type} does not return its attention scores: take "
                "transformer, or remove relation and scores"
            )
        if self.hidden and not encoder.num_layers:
            raise ValueError(
                f"encoder.type: {encoder.type} has no layers to match: remove hidden; logits "
                "matches vectors of texts"
            )

    def check_teacher(self, student: EncoderConfig, teacher: EncoderConfig) -> None:
        """Checks that the encoders of student and teacher can be matched.

        Raises:
          ValueError: they cannot; the message has the key and both values.
        """
        if self.cosine and student.hidden_size != teacher.hidden_size:
            raise ValueError(
                "cosine: compares states of the same width, but the student has hidden_size "
                f"{student.hidden_size}, the teacher {teacher.hidden_size}: take hidden, which has "
                "a projection, or a student as wide as its teacher"
            )
        if (self.relation or self.scores) and not teacher.gives_scores:
            raise ValueError(
                f"teachers: an encoder of type {teacher.type} does not return attention scores: "
                "take a transformer, or remove relation and scores"
            )
        if self.relation:
            self._check_relations(student, teacher)
        if self.scores:
            _check_heads("scores", student, teacher)
        if self.hidden or self.scores:
            layers = self.matched_layers(student.num_layers, teacher.num_layers)
            if self.scores:
                _check_reach("scores", student, teacher, enumerate(layers, start=1))
        if self.hidden and self.projection == "none" and student.hidden_size != teacher.hidden_size:
            raise ValueError(
                f"projection: none, but the student has hidden_size {student.hidden_size}, the "
                f"teacher {teacher.hidden_size}: take shared or each"
            )

    def matched_layers(self, student_layers: int, teacher_layers: int) -> Sequence[int]:
        """Returns the layer of the teacher, counted from 1, for each layer of the student.

        Raises:
          ValueError: the student is deeper, or `layers` does not match the numbers of layers.
        """
        if student_layers > teacher_layers:
            raise ValueError(
                f"layers: the student has {student_layers} layers, which is more than the "
                f"{teacher_layers} of its teacher: take a student that is not deeper, or remove "
                "scores and hidden"
            )
        if not self.layers:
            if teacher_layers % student_layers:
                raise ValueError(
                    f"layers: missing: the teacher's {teacher_layers} layers are not a multiple of "
                    f"the student's {student_layers}: name the teacher's layer for each of them"
                )
            step = teacher_layers // student_layers
            return range(step, teacher_layers + 1, step)
        if len(self.layers) != student_layers or self.layers[-1] > teacher_layers:
            raise ValueError(
                f"layers: {', '.join(map(str, self.layers))}: the student has {student_layers} "
                f"layers and the teacher {teacher_layers}: name one of 1 to {teacher_layers} for "
                "each layer of the student"
            )
        return self.layers

    def _check_relations(self, student: EncoderConfig, teacher: EncoderConfig) -> None:
        if self.relation_layer and self.relation_layer > teacher.num_layers:
            raise ValueError(
                f"relation_layer: {self.relation_layer}, but the teacher has {teacher.num_layers} "
                "layers"
            )
        if "attention" in self.relations:
            last = student.num_states - 1, self.relation_layer or teacher.num_states - 1
            _check_reach("relation", student, teacher, [last])
        if not self.relation_heads:
            _check_heads("relation", student, teacher)
            return
        for whose, encoder in (("student", student), ("teacher", teacher)):
            size = encoder.num_heads * encoder.attention_size
            if size % self.relation_heads:
                raise ValueError(
                    f"relation_heads: {self.relation_heads} heads do not divide the {size} "
                    f"numbers of a vector of the {whose}: take a divisor of both"
                )


def find(config: Config) -> DistillationConfig | None:
    """Returns the objective of a config that has teachers; None if there is none."""
    return next((o for o in config.objectives if isinstance(o, DistillationConfig)), None)


def _check_reach(
    key: str, student: EncoderConfig, teacher: EncoderConfig, layers: Iterable[tuple[int, int]]
) -> None:
    for ours, theirs in layers:
        pair = [student.reach(ours - 1), teacher.reach(theirs - 1)]
        if len(set(pair)) > 1:
            far = [
                "all tokens" if r is None else f"those at a distance of at most {r}" for r in pair
            ]
            names = "layers" if key == "scores" else "relation_layer"
            more = ", or relations: [query, key, value]" * (key == "relation")
            raise ValueError(
                f"{key}: layer {ours} of the student attends to {far[0]}, but layer {theirs} of "
                f"the teacher to {far[1]}: name a layer that attends to the same tokens "
                f"({names}){more}"
            )


def _check_heads(key: str, student: EncoderConfig, teacher: EncoderConfig) -> None:
    if student.num_heads != teacher.num_heads:
        more = ", or relation_heads with relations: [query, key, value]" * (key == "relation")
        raise ValueError(
            f"{key}: the student has {student.num_heads} attention heads, but the teacher "
            f"{teacher.num_heads}: take a student with as many heads{more}"
        )


PARTS = (DistillationConfig,)
