"""Configs of the objectives of labeled tasks, each with a head.

A head reads the last layer of the encoder, or a `Mix` of all layers, or the outputs of a BiLSTM
over either.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Self

from typing_extensions import override

from official.config.parts import Config, EncoderConfig, LabelCounts, ObjectiveConfig
from official.utils.errors import UserError
from official.utils.strict import above, at_least, dropout_rate, keys, labels_agree, omitted, one_of

POOLINGS = ("pooled", "first", "mean")
OUTPUTS = ("logits", "sigmoid")  # of a ranking
# Losses of a query's documents; see `official.modeling.objectives.ranking_losses`.
OF_PAIRS = ("rank_net", "lambda")  # the losses with the keys k and scale
LOSSES = (
    *("pairwise", "pointwise", "softmax", "list_net", "list_mle", "p_list_mle", *OF_PAIRS),
    *("adr_mse", "margin_mse", "mse"),
)
SCHEMES = ("ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2pp")
DENSE = ("vector", "states")
NORMS = ("none", "layer", "token")  # the norms of a mix
JOINS = ("mean", "max")
ENSEMBLE_MEANS = ("probabilities", "logits")  # see `official.modeling.objectives.ensembles`
EXACT = (1.0, 1e-3)  # mean and width of the kernel for equal tokens
BALANCED = "balanced"  # weights of labels that follow from how many examples have them


@dataclasses.dataclass(frozen=True)
class Mix:
    """A learned weighted sum of layers, which a head reads instead of the last layer.

    See `official.modeling.layers.layer_mix`.

    Attributes:
      penalty: factor of the squared norm of the weights before the softmax, which is added to the
        loss as the term `NAME_mix`. 1 keeps the weights nearly equal; 0 = no penalty.
      norm: the norm of each layer before the sum: 'none'; 'token' = a mean and a variance for each
        position; 'layer' = one mean and one variance over all real positions of a batch (ELMo, as
        released).
      dropout: the dropout rate of the mixed vectors.
      layers: the layers that are mixed, 0 = the token layer, -1 = the last layer; None = all.
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
            raise ValueError("layers: name at least one layer, or remove it to mix all")

    def numbers(self, count: int) -> list[int]:
        """Returns the indices of the mixed layers, of `count` layers including the token layer.

        Raises:
          ValueError: a layer does not exist, or is named twice.
        """
        named = range(count) if self.layers is None else self.layers
        for layer in named:
            if not -count <= layer < count:
                raise ValueError(
                    f"layers: {layer}: this encoder has the layers 0 (tokens) to {count - 1}"
                )
        numbers = [layer % count for layer in named]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"layers: {list(named)} names a layer twice")
        return numbers


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderConfig(ObjectiveConfig):
    """The config of a head that reads the last layer, or a mix of all layers.

    A head lists those of these keys that it supports; the others keep their defaults.

    Attributes:
      mix: the mix of layers that is read instead of the last layer; None = no mix.
      bilstm: the number of cells of each direction of a BiLSTM between these states and the head
        (Devlin et al., 2019, section 5.1); None = the head reads the states.
      transform: whether these states, or the pooled vector, first pass a hidden layer like that of
        masked LM: a linear layer, the activation of the encoder and a norm (ModernBERT). With
        `--init` it starts from the hidden layer of the other model's masked LM, if any.
      dropout: the dropout rate of the inputs of the BiLSTM and of the head.
      weight: factor of this loss in the sum.
    """

    mix: Mix | None = omitted()
    bilstm: int | None = omitted()
    transform: bool = omitted(False)
    dropout: float = 0.1
    weight: float = 1.0

    def __post_init__(self):
        at_least(self, 1, "bilstm")

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder does not have the layers of a mix, or an activation."""
        if self.transform and encoder.mixes_layers:
            raise ValueError(
                "transform: encoder.type: bilm has no such hidden layer: remove transform"
            )
        for key in ("mix", "output_mix"):
            if (mix := getattr(self, key, None)) is not None:
                try:
                    mix.numbers(encoder.num_states)
                except ValueError as error:
                    raise ValueError(f"{key}.{error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PooledConfig(ReaderConfig):
    """The config of a head that reads one vector for each row.

    Attributes:
      dropout: the dropout rate of the vector, and of the input of the BiLSTM.
      pooling: the vector that the head reads: 'pooled' = the pooler's output or, with `bilstm`,
        the last output of each direction; 'first' = the first position; 'mean' = the mean over
        positions.
      activation: the activation of the vector: 'relu' (TinyBERT's release); None = none.
      dense: a linear layer with the erf form of GELU instead of `transform`: 'vector' = applied to
        the pooled vector; 'states' = applied to each position, before their mean (EuroBERT's late
        pooling); None = no such layer.
      join: of texts in windows (`build_task_shards --windows`), what the output of a text is of
        those of its windows: 'mean' or 'max', of each number alone; None = mean.
      task: the task of the head, if a model has several; see `official.data.mixture`.
    """

    decides_weights = True  # an example may have several sequences

    pooling: str = "pooled"
    activation: str | None = omitted()
    dense: str | None = omitted()
    join: str | None = omitted()
    task: str = ""

    def __post_init__(self):
        super().__post_init__()
        one_of("pooling", self.pooling, POOLINGS)
        dropout_rate(self, "dropout")
        if self.mix is not None and self.reads_pooler:
            raise ValueError(
                "pooling: pooled is an output of the last layer, and mix reads all layers: set "
                "pooling to first or mean"
            )
        if self.activation is not None:
            one_of("activation", self.activation, ("relu",))
        if self.join is not None:
            one_of("join", self.join, JOINS)
        if self.dense is not None:
            one_of("dense", self.dense, DENSE)
            if self.transform:
                raise ValueError("dense: not supported with transform: remove one of them")
            if self.dense == "states" and self.pooling != "mean":
                raise ValueError(f"dense: states is for pooling: mean, not {self.pooling}")

    @property
    def reads_pooler(self) -> bool:
        """Whether the vector is the output of the encoder's pooler."""
        return self.pooling == "pooled" and self.bilstm is None

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder does not return the vector, or the layers of a mix."""
        super().check_encoder(encoder)
        if self.reads_pooler and not encoder.pooler:
            raise ValueError(
                "reads the pooled output: set encoder.pooler to true, or pooling to first or mean"
            )
        if self.pooling == "first" and encoder.pooled_position != "first":
            raise ValueError(
                "pooling: first, but this encoder has encoder.pooled_position: "
                f"{encoder.pooled_position}: take pooled"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelsConfig(ObjectiveConfig):
    """The config of a head that has an output for each label.

    Attributes:
      labels: the names of the labels, in the order of their ids; filled in from the data.
      num_labels: the number of labels; None = the number of `labels`.
    """

    labels: tuple[str, ...] = ()
    num_labels: int | None = None

    @property
    @override
    def takes_labels(self) -> bool:
        return True

    @property
    def label_count(self) -> int:
        """The number of labels.

        Raises:
          UserError: neither `labels` nor `num_labels` is set.
        """
        if count := self.num_outputs:
            return count
        raise UserError(f"{self.name}: neither labels nor num_labels is set")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassesConfig(LabelsConfig):
    """The config of a head whose outputs are classes, of which each prediction has one.

    Attributes:
      class_weights: the weight of each class, in the order of the labels: a loss is multiplied by
        that of its right class, and the sum is divided by the sum of these weights, as in PyTorch's
        `CrossEntropyLoss(weight=)`. 'balanced' = n / (C n_c), for n_c of the n training examples,
        or of the tagged words, which have the class c (King and Zeng, 2001). Empty = all weights
        are 1.
      label_smoothing: the share of the target that all classes have in equal parts (Szegedy et al.,
        2016, section 7); the weights multiply the part of each class.
    """

    class_weights: str | tuple[float, ...] = omitted(())
    label_smoothing: float = omitted(0.0)

    def __post_init__(self):
        dropout_rate(self, "label_smoothing")
        _check_weights(self, "class_weights")
        if self.class_weights and not isinstance(self.class_weights, str):
            if not any(self.class_weights):
                raise ValueError("class_weights: all are 0: nothing would be learned")

    @property
    def factors(self) -> tuple[float, ...]:
        """The weight of each class; empty = all are 1."""
        return _numbers(self, self.class_weights)

    @override
    def counted(self, counts: Callable[[], LabelCounts]) -> Self:
        if self.class_weights != BALANCED:
            return self
        found = counts().check(f"{self.name}: class_weights")
        total = sum(found.with_label)
        weights = tuple(total / (len(found.with_label) * each) for each in found.with_label)
        return dataclasses.replace(self, class_weights=weights)


@keys(
    "labels num_labels class_weights label_smoothing dropout pooling mix bilstm activation "
    "transform dense join weight task"
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationConfig(PooledConfig, ClassesConfig):
    """The class of a text."""

    type = "classification"
    module = "heads"
    layer = "Classification"

    def __post_init__(self):
        super().__post_init__()
        ClassesConfig.__post_init__(self)
        at_least(self, 2, "num_labels")
        labels_agree(self)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return _fields(self, "label")


@keys(
    "labels num_labels thresholds positive_weights label_smoothing dropout pooling mix bilstm "
    "transform dense join weight"
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelConfig(PooledConfig, LabelsConfig):
    """The labels of a text: any number of independent labels.

    Attributes:
      thresholds: for each label, the lowest probability at which a text has the label; empty = 0.5
        for all.
      positive_weights: for each label, the factor of the losses of the texts that have it, as in
        PyTorch's `BCEWithLogitsLoss(pos_weight=)`. 'balanced' = the number of training examples
        without the label, divided by that of those with it. Empty = all factors are 1.
      label_smoothing: the distance of a target from 0 or 1, times 2.
    """

    type = "multi_label"
    module = "heads"
    layer = "MultiLabel"

    thresholds: tuple[float, ...] = ()
    positive_weights: str | tuple[float, ...] = omitted(())
    label_smoothing: float = omitted(0.0)

    def __post_init__(self):
        super().__post_init__()
        at_least(self, 1, "num_labels")
        dropout_rate(self, "label_smoothing")
        _check_weights(self, "positive_weights")
        count = self.num_outputs
        labels_agree(self)
        if any(not 0 <= threshold <= 1 for threshold in self.thresholds):
            raise ValueError(
                f"thresholds: expected probabilities from 0 to 1, got {list(self.thresholds)}"
            )
        if count and len(self.thresholds) not in (0, count):
            raise ValueError(f"thresholds: {len(self.thresholds)}, but there are {count} labels")

    @property
    def factors(self) -> tuple[float, ...]:
        """The factor of each label; empty = all are 1."""
        return _numbers(self, self.positive_weights)

    @override
    def counted(self, counts: Callable[[], LabelCounts]) -> Self:
        if self.positive_weights != BALANCED:
            return self
        found = counts().check(f"{self.name}: positive_weights")
        weights = tuple((found.examples - each) / each for each in found.with_label)
        return dataclasses.replace(self, positive_weights=weights)

    def limits(self, count: int) -> tuple[float, ...]:
        """Returns the threshold of each of `count` labels."""
        return self.thresholds or (0.5,) * count

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return _fields(self, "label_flags")


@keys("dropout pooling mix bilstm activation transform dense join weight task")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionConfig(PooledConfig):
    """A score of a text."""

    type = "regression"
    module = "heads"
    layer = "Regression"

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return _fields(self, "score")


@keys("dropout pooling mix bilstm transform weight")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceConfig(PooledConfig):
    """The right one of several choices."""

    type = "multiple_choice"
    module = "heads"
    layer = "MultipleChoice"

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"answer"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingLossConfig(ObjectiveConfig):
    """The loss of the documents of a query, which have grades or the scores of a teacher.

    Examples without grades have the relevant document first: its grade is 1, that of others 0.

    Attributes:
      loss: 'pairwise' = the hinge loss max(0, margin - better + other) of two scores; 'pointwise' =
        the mean of the binary cross-entropies of the documents; 'softmax' = the cross-entropy of
        the first document among those with lower grades (MT-DNN; Liu et al., 2019, section 3.1);
        'list_net' = the cross-entropy of the softmax of the scores with that of the grades (Cao et
        al., 2007); 'list_mle' = minus the log-likelihood of the order of the grades (Xia et al.,
        2008), and 'p_list_mle' with weights for the first positions (Lan et al., 2014); 'rank_net'
        = the logistic loss of all pairs with different grades (Burges et al., 2005), and 'lambda'
        with the weights of LambdaLoss for NDCG (Wang et al., 2018); 'adr_mse' = the squared error
        of approximate ranks; 'margin_mse' = the squared error of the margins of the first document
        over the others (Hofstätter et al., 2020); 'mse' = the squared error of the scores. The last
        two learn the scores of a teacher.
      margin: the margin of the pairwise loss.
      k: for 'rank_net' and 'lambda', the k of NDCG@k: pairs without a document among the first k by
        the scores do not count; None = all count.
      scheme: the weights of 'lambda': 'ndcg_loss1', 'ndcg_loss2', 'lambda_rank', or
        'ndcg_loss2pp' = 10 times the second plus the third.
      scale: for 'rank_net', 'lambda' and 'adr_mse', the factor of the differences of scores.
    """

    decides_weights = True

    loss: str = "pairwise"
    margin: float = 1.0
    k: int | None = omitted()
    scheme: str = omitted("ndcg_loss2pp")
    scale: float = omitted(1.0)

    def __post_init__(self):
        one_of("loss", self.loss, LOSSES)
        one_of("scheme", self.scheme, SCHEMES)
        above(self, 0, "margin", "scale")
        at_least(self, 1, "k")
        if self.k is not None and self.loss not in OF_PAIRS:
            raise ValueError(f"k: loss: {self.loss} has none: take {' or '.join(OF_PAIRS)}")

    @property
    def compares_rows(self) -> bool:
        """Whether the divisor of the loss is known only when all documents have scores."""
        return self.k is not None

    def check(self, whole: Config) -> None:
        """Raises ValueError if `k` needs the scores of examples that are computed separately."""
        if self.compares_rows and whole.recipe.accumulation > 1:
            raise ValueError(
                f"k: {self.k} counts the pairs of all rows of a batch by their scores, but "
                f"recipe.accumulation: {whole.recipe.accumulation} computes them separately: take "
                "accumulation: 1, or remove k"
            )

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"text_mask"})


@keys("loss margin k scheme scale output prompt dropout pooling mix bilstm transform dense weight")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingConfig(PooledConfig, RankingLossConfig):
    """The relevance of a document to a query.

    Attributes:
      output: what predictions and `rank` give: 'logits' = the scores that the loss compares;
        'sigmoid' = the sigmoid of them, from 0 to 1 in the same order.
      prompt: what stands before each query whose documents `rank` scores. Shards have the queries
        of their files, without it.
    """

    type = "ranking"
    layer = "Ranking"

    output: str = omitted("logits")
    prompt: str = omitted("")

    def __post_init__(self):
        super().__post_init__()
        RankingLossConfig.__post_init__(self)
        one_of("output", self.output, OUTPUTS)


@keys("kernels sigma loss margin k scheme scale weight")
@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelRankingConfig(RankingLossConfig):
    """The relevance of a document to a query, by kernel pooling (Xiong et al., 2017).

    Attributes:
      kernels: K: one kernel for equal tokens, and others with evenly spaced means in (-1, 1).
      sigma: the width of the other kernels.
      weight: factor of this loss in the sum.
    """

    type = "kernel_ranking"
    module = "ranking"
    layer = "KernelRanking"
    texts_apart = True
    prompt: ClassVar[str] = ""

    kernels: int = 11
    sigma: float = 0.1
    weight: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        at_least(self, 2, "kernels")
        above(self, 0, "sigma")

    @property
    def means_and_widths(self):
        """The (mean, width) of each kernel; the means of 11 kernels are 1, 0.9, 0.7, ... -0.9."""
        others = self.kernels - 1
        return [EXACT, *((1 - (2 * k + 1) / others, self.sigma) for k in range(others))]


@keys(
    "form candidates max_answer_length n_best start_beam end_beam null_threshold "
    "answerable_weight dropout mix bilstm transform weight"
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanAnswerConfig(ReaderConfig):
    """The start and the end of the answer in a context.

    Attributes:
      form: 'independent' = start and end are predicted separately (BERT); 'conditional' = the end
        depends on the start, and a regression says whether there is an answer (XLNet).
      candidates: the positions of possible answers: 'context' = the context and [CLS]; 'row' =
        all real tokens, with the question, as in BERT's release (predictions are from the
        context only).
      max_answer_length: the largest number of tokens of a predicted answer.
      n_best: the number of answers that are kept for each window, and for each question.
      start_beam: for `conditional`, the number of starts in the beam.
      end_beam: for `conditional`, the number of ends for each start.
      null_threshold: a question has no answer if the null score exceeds the score of the best
        answer (`independent`), or 0 (`conditional`), by more than this.
      answerable_weight: for `conditional`, the factor of the loss of the regression.
      dropout: for `conditional`, the dropout rate before the last layer of the regression; with
        `bilstm`, also the dropout rate of the input of the BiLSTM.
    """

    type = "span_answer"

    form: str = "independent"
    candidates: str = "context"
    max_answer_length: int = 30
    n_best: int = 20
    start_beam: int = 5
    end_beam: int = 5
    null_threshold: float = 0.0
    answerable_weight: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        one_of("form", self.form, ["independent", "conditional"])
        one_of("candidates", self.candidates, ["context", "row"])
        at_least(self, 1, "max_answer_length", "n_best", "start_beam", "end_beam")
        dropout_rate(self, "dropout")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        window = "context_start context_length window_start own_start own_end"
        return frozenset({*window.split(), "answer_start", "answer_end"})


@keys(
    "labels num_labels class_weights label_smoothing crf bilstm dropout mix output_mix transform "
    "weight"
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenClassificationConfig(ReaderConfig, ClassesConfig):
    """The tag of each word, predicted from the first token of the word.

    Attributes:
      crf: whether the tags of a text are predicted together by a linear-chain CRF (Lafferty et al.,
        2001); otherwise each tag is predicted separately, as in BERT.
      bilstm: the number of cells of each direction of a BiLSTM between the encoder and the tags
        (Peters et al., 2018); None = the tags read the states.
      dropout: the dropout rate of the states, and of the outputs of the BiLSTM.
      output_mix: another mix of all layers, which is joined with the output of the BiLSTM (Peters
        et al., 2018, section 3.3); None = no mix.
    """

    type = "token_classification"

    crf: bool = False
    bilstm: int | None = None
    output_mix: Mix | None = omitted()

    def __post_init__(self):
        super().__post_init__()
        ClassesConfig.__post_init__(self)
        dropout_rate(self, "dropout")
        at_least(self, 2, "num_labels")
        if self.crf and (self.class_weights or self.label_smoothing):
            key = "class_weights" if self.class_weights else "label_smoothing"
            raise ValueError(f"{key}: crf: true has one loss for all tags of a text: remove one")
        if self.output_mix is not None and self.bilstm is None:
            raise ValueError("output_mix: not supported without bilstm: set bilstm, or take mix")
        labels_agree(self)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"word_ids", *(("tag_ids",) if self.weight else ())})


def _numbers(config: LabelsConfig, weights: str | tuple[float, ...]) -> tuple[float, ...]:
    """Returns the weights of labels.

    Raises:
      UserError: they are to be balanced, and no data has been counted.
    """
    if isinstance(weights, str):
        raise UserError(f"{config.name}: {weights} weights are known only with training data")
    return weights


def _check_weights(config: LabelsConfig, key: str) -> None:
    """Raises ValueError if the weights of labels are not numbers from 0 on, one for each label."""
    weights = getattr(config, key)
    if isinstance(weights, str):
        if weights != BALANCED:
            raise ValueError(f"{key}: {weights!r} is neither {BALANCED} nor a list of numbers")
        return
    if any(weight < 0 for weight in weights):
        raise ValueError(f"{key}: {list(weights)}: a weight is negative")
    if weights and config.num_outputs and len(weights) != config.num_outputs:
        names = f" ({', '.join(config.labels)})" if config.labels else ""
        raise ValueError(
            f"{key}: {len(weights)} numbers, but there are {config.num_outputs} labels{names}"
        )


def _fields(config: ObjectiveConfig, target: str) -> frozenset[str]:
    """Returns the batch fields that a head reads: the target, and the weights of its task.

    A head of weight 0 does not learn from targets, which may be missing (see `distillation`).
    """
    names = ((target,) if config.weight else ()) + (("example_weights",) if config.task else ())
    return frozenset(config.field(name) for name in names)


PARTS = (
    ClassificationConfig,
    MultiLabelConfig,
    RegressionConfig,
    RankingConfig,
    KernelRankingConfig,
    SpanAnswerConfig,
    MultipleChoiceConfig,
    TokenClassificationConfig,
)
