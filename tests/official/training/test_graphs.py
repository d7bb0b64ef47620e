"""What is computed eagerly is computed by a graph and by XLA: each objective on each encoder.

The graphs are those of a training step, with the options of a run: TensorFlow optimizes them, and
XLA compiles them. Dropout is on.

Shapes: B batch, T length, C sequences of an example, V vocabulary.
"""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config import compatibility
from official.config.distillation import DistillationConfig
from official.config.encoders import (
    BilmConfig,
    Convolution,
    Disentangled,
    EncoderDecoderConfig,
    LocalAttention,
    StaticConfig,
    TransformerConfig,
    TransformerXLConfig,
)
from official.config.heads import (
    ClassificationConfig,
    KernelRankingConfig,
    Mix,
    MultiLabelConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.late_interaction import Expansion, LateInteractionConfig, TokenIds
from official.config.objectives import (
    AllTokensLMConfig,
    BidirectionalLMConfig,
    CausalLMConfig,
    GeneratorConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    ReplacedTokensConfig,
    SentencePairConfig,
    Seq2SeqLMConfig,
    SpanBoundaryConfig,
)
from official.config.registry import ENCODERS, OBJECTIVES
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.distribution import numerics
from official.modeling.model import Model
from official.training import optimizers, train_step
from official.utils.errors import UserError

Results = dict[str, tf.Tensor]
B, T, V, SLOTS = 3, 7, 23, 4
STEP, PART = tf.constant(2), tf.constant(0)
SIZES = {"vocab_size": V, "num_layers": 1, "dropout": 0.1}
SELF = SIZES | {
    "hidden_size": 12, "num_heads": 3, "intermediate_size": 20, "attention_dropout": 0.1,
}  # fmt: skip
BERT = TransformerConfig(**SELF, max_positions=T, initializer_range=0.3)
ALBERT = dataclasses.replace(BERT, layer_groups=1, embedding_size=6)
GPT2 = dataclasses.replace(
    BERT, norm="pre", causal=True, pooled_position="last", pooler=False, positions="sinusoidal",
    num_key_value_heads=1,
)  # fmt: skip
DEBERTA = dataclasses.replace(
    BERT, num_layers=2, positions="none", disentangled=Disentangled(4, 5),
    convolution=Convolution(),
)  # fmt: skip
DEBERTA_V1 = dataclasses.replace(BERT, disentangled=Disentangled(0, 4, own_projections=True))
MODERN = dataclasses.replace(
    BERT, num_layers=4, norm="pre", positions="rotary", local_attention=LocalAttention(window=2),
    gated=True, activation="gelu", use_bias=False, norm_bias=False, norm_embeddings=True,
    first_norm=False, attention_output_dropout=0.2, segment_types=0, pooler=False,
)  # fmt: skip
XLNET = TransformerXLConfig(**SELF, inner_dropout=0.1, pooler=True, initializer_range=0.3)
STREAM = dataclasses.replace(XLNET, memory_length=SLOTS, num_layers=2, pooler=False)
UNI = dataclasses.replace(STREAM, attention="uni", query_stream=False, segment_types=0)
T5 = EncoderDecoderConfig(
    **SELF, inner_dropout=0.1, relative_buckets=8, relative_max_distance=9, gated=True,
    activation="silu",
)  # fmt: skip
VASWANI = dataclasses.replace(
    T5, norm="layer", norm_position="post", use_bias=True, scale_scores=True, gated=False,
    positions="sinusoidal", scale_embeddings=True, share_dropout=False, activation="relu",
)  # fmt: skip
ELMO = BilmConfig(
    **SIZES, character_size=4, filters=((1, 5), (2, 3)), highway_layers=1, cell_size=9,
    projection_size=6, initializer_range=0.3,
)  # fmt: skip

STATIC = StaticConfig(
    vocab_size=V, hidden_size=12, skipped_ids=(0, 5), dropout=0.1, initializer_range=0.3
)

PAIRS = (MaskedLMConfig(), SentencePairConfig(), SpanBoundaryConfig(offset_size=5))
# Sequences of an example, heads with every option, and heads with few.
SEQUENCES = (
    RankingConfig(pooling="mean", mix=Mix(dropout=0.1)),
    KernelRankingConfig(loss="pointwise"),
    MultipleChoiceConfig(pooling="mean"),
)
# Of texts in windows.
WINDOWS = (
    ClassificationConfig(num_labels=3, join="max"),
    MultiLabelConfig(num_labels=3, pooling="mean"),
    RegressionConfig(pooling="first"),
)
VECTORS = SentenceEmbeddingConfig(
    pooling="mean,max,last", symmetric=True, sizes=(2, 4), projection=Projection(size=4)
)
LATE = LateInteractionConfig(
    size=4,
    expansion=Expansion(9),
    ids=TokenIds((3,), (4, 5), expansion=6, skipped=(7, 8)),
)
SPARSE = SparseEmbeddingConfig(document_flops=1.0, query_flops=1.0)
HEADS = (
    ClassificationConfig(num_labels=3, bilstm=4),
    MultiLabelConfig(num_labels=3),
    RegressionConfig(pooling="first", activation="relu"),
    TokenClassificationConfig(
        num_labels=4, crf=True, bilstm=5, mix=Mix(dropout=0.1), output_mix=Mix(norm="token")
    ),
    SpanAnswerConfig(form="conditional"),
)
PLAIN_HEADS = (
    ClassificationConfig(num_labels=3, pooling="mean"),
    MultiLabelConfig(num_labels=3, pooling="mean"),
    RegressionConfig(pooling="mean", mix=Mix(norm="layer", dropout=0.1, penalty=0.1)),
    TokenClassificationConfig(num_labels=4),
    SpanAnswerConfig(mix=Mix(norm="token")),
)
OUTPUTS = {"cross_entropy": 1.0, "logits": 1.0, "temperature": 2.0}
STATES = {"cosine": 1.0, "hidden": 1.0}
ATTENTION = {"relation": 1.0, "scores": 1.0}
EVERY = DistillationConfig(
    **OUTPUTS, **STATES, **ATTENTION, relations=("attention", "query", "key", "value")
)
REGROUPED = DistillationConfig(
    **OUTPUTS, **ATTENTION, relations=("query", "key", "value"), relation_heads=2
)
MEMORY = ("memory", "memory_mask")


class Case(NamedTuple):
    """A model: the encoder, the objectives, and the fields of the batch beside those of `rows`.

    The outputs that distillation matches are those of the first objective.
    """

    encoder: Any
    objectives: tuple
    fields: tuple[str, ...] = ()


CASES = {
    "bert": Case(BERT, PAIRS),
    "electra": Case(
        dataclasses.replace(BERT, pooler=False),
        (
            GeneratorConfig(size=1 / 3, baseline=True),
            ReplacedTokensConfig(adversarial_weight=1.0),
            AllTokensLMConfig(),
        ),
    ),
    "albert_heads": Case(ALBERT, HEADS),
    "bert_sequences": Case(BERT, (*SEQUENCES, VECTORS, SPARSE), ("sequences",)),
    "bert_windows": Case(BERT, WINDOWS, ("sequences", "windows_mask")),
    "deberta": Case(DEBERTA, PAIRS),
    "deberta_v1": Case(DEBERTA_V1, PAIRS),
    "modern": Case(
        MODERN,
        (
            MaskedLMConfig(),
            ClassificationConfig(num_labels=3, pooling="mean", transform=True),
            TokenClassificationConfig(num_labels=4, transform=True),
        ),
    ),
    "minilm": Case(BERT, (MaskedLMConfig(form="linear"), EVERY)),
    "gpt2": Case(GPT2, (CausalLMConfig(direction="backward"), REGROUPED)),
    "xlnet": Case(STREAM, (PermutationLMConfig(),), (*MEMORY, "permutation_mask", "backward")),
    "xlnet_heads": Case(
        XLNET,
        (
            *PAIRS,
            *PLAIN_HEADS,
            DistillationConfig(head="masked_lm", **OUTPUTS, **STATES),
        ),
    ),
    "xlnet_sequences": Case(XLNET, (*SEQUENCES, VECTORS, SPARSE), ("sequences",)),
    "transformer_xl": Case(UNI, (CausalLMConfig(),), MEMORY),
    "t5": Case(
        T5,
        (
            Seq2SeqLMConfig(z_loss=1e-2),
            MaskedLMConfig(),
            SpanBoundaryConfig(offset_size=5),
            *PLAIN_HEADS,
            dataclasses.replace(EVERY, head="seq2seq_lm"),
        ),
    ),
    "vaswani": Case(VASWANI, (Seq2SeqLMConfig(), REGROUPED)),
    "t5_sequences": Case(T5, (*SEQUENCES, VECTORS, SPARSE), ("sequences",)),
    "sparse_sums": Case(
        BERT,
        (SparseEmbeddingConfig(pooling="sum", logarithms=2, queries="table", form="linear"),),
        ("sequences",),
    ),
    "elmo": Case(
        ELMO, (BidirectionalLMConfig(samples=9),),
        (*MEMORY, "character_ids", "backward_character_ids"),
    ),
    "lists": Case(
        BERT,
        (RankingConfig(loss="lambda", k=1), DistillationConfig(**OUTPUTS)),
        ("sequences",),
    ),
    # Of vectors of fewer numbers, bfloat16 changes which token is the best.
    "late_interaction": Case(BERT, (dataclasses.replace(LATE, size=8),), ("sequences",)),
    "static_late_interaction": Case(STATIC, (LATE,), ("sequences",)),
    "t5_late_interaction": Case(T5, (dataclasses.replace(LATE, mean=True),), ("sequences",)),
    "labels_and_translations": Case(
        BERT,
        (
            SentenceEmbeddingConfig(loss="softmax", labels=("a", "b", "c"), normalize=False),
            DistillationConfig(logits=1.0, texts="first"),
        ),
        ("sequences",),
    ),
    "elmo_heads": Case(
        dataclasses.replace(ELMO, memory_length=0),
        (*PLAIN_HEADS, DistillationConfig(**STATES)),
        ("character_ids",),
    ),
    "elmo_sequences": Case(
        dataclasses.replace(ELMO, memory_length=0, tokens="words"),
        (*SEQUENCES, dataclasses.replace(VECTORS, mix=Mix(dropout=0.1))),
        ("sequences",),
    ),
    "static": Case(
        STATIC,
        (
            *PLAIN_HEADS,
            SentencePairConfig(),
            DistillationConfig(head="classification", **OUTPUTS, cosine=1.0),
        ),
    ),
    "static_sequences": Case(
        dataclasses.replace(STATIC, num_rows=9),
        (*SEQUENCES, dataclasses.replace(VECTORS, pooling="pooled")),
        ("sequences",),
    ),
}  # fmt: skip
# What rounding changes in a graph and under XLA, as a part of the largest value of a result. XLA
# rounds to bfloat16 (2^-9) at other places than TensorFlow.
TOLERANCES = {"float32": (2e-5, 2e-5), "mixed_bfloat16": (0.05, 0.1)}


def rows(left: bool) -> dict[str, np.ndarray]:
    """Returns rows of different lengths with all targets; `left` = the second is padded there."""
    rng = np.random.default_rng(0)
    real = np.arange(T) < np.array([T, 5, 4])[:, None]
    if left:
        real[1] = real[1, ::-1]
    first = real.argmax(axis=1).astype("int32")
    whole = lambda high, shape: rng.integers(0, high, shape).astype("int32")  # noqa: E731
    one = np.ones(B, "int32")
    return {
        "token_ids": whole(V, (B, T)) * real,
        "segment_ids": whole(2, (B, T)) * real,
        "padding_mask": real,
        "example_weights": np.array([1, 1, 0.5], "float32"),
        "row_seeds": whole(99, (B, 2)),
        "masked_positions": first[:, None] + np.array([[1, 2], [3, 0], [2, 0]], "int32"),
        "masked_ids": whole(V, (B, 2)),
        "masked_weights": np.array([[1, 1], [1, 0], [1, 0]], "float32"),
        "span_left": first[:, None] + np.array([[0, 0], [2, 0], [1, 0]], "int32"),
        "span_right": first[:, None] + np.array([[3, 3], [4, 0], [3, 0]], "int32"),
        "span_offset": np.array([[0, 1], [0, 0], [0, 0]], "int32"),
        "span_weights": np.array([[1, 1], [1, 0], [1, 0]], "float32"),
        "next_sentence_label": whole(2, B),
        "original_ids": whole(V, (B, T)) * real,
        "replaced": whole(2, (B, T)).astype(bool) & real,
        "target_ids": whole(V, (B, T)),
        "target_mask": np.arange(T) < np.array([4, T, 6])[:, None],
        "backward_target_ids": whole(V, (B, T)),
        "label": whole(3, B),
        "score": rng.standard_normal(B).astype("float32"),
        "label_flags": (np.arange(3) < whole(4, (B, 1))).astype("int32"),
        "word_ids": np.where(real, np.arange(T), -1).astype("int32"),
        "tag_ids": np.where(real, whole(4, (B, T)), -1).astype("int32"),
        "context_start": first + one,
        "context_length": real.sum(axis=1).astype("int32") - 1,
        "window_start": 0 * one,
        "own_start": 0 * one,
        "own_end": T * one,
        "answer_start": np.array([1, -1, 0], "int32"),
        "answer_end": np.array([3, -1, 1], "int32"),
    }


def sequences() -> dict[str, np.ndarray]:
    """Returns two examples of two sequences, a query and a document each: [2, 2, T]."""
    rng = np.random.default_rng(1)
    real = np.arange(T) < np.array([T, 5, 6, 4]).reshape(2, 2, 1)
    tokens = rng.integers(4, V, (2, 2, T)).astype("int32")
    return {
        "token_ids": tokens * real,
        "segment_ids": (np.arange(T) > 2).astype("int32") * real,
        "padding_mask": real,
        "text_mask": real & (np.arange(T) != 2),
        "answer": np.array([1, 0], "int32"),
        "label": np.array([2, 0], "int32"),
        "label_flags": np.array([[0, 1, 1], [1, 0, 0]], "int32"),
        "score": np.array([0.5, -1], "float32"),
        "grades": np.array([[0.5, 2], [1, 0]], "float32"),
        "documents_mask": np.array([[True, True], [True, True]]),
        "example_weights": np.array([1, 0.5], "float32"),
    }


def batch_of(case: Case) -> dict[str, tf.Tensor]:
    """Returns the batch of a case."""
    if "sequences" in case.fields:
        given = sequences()
        if "windows_mask" in case.fields:
            given["windows_mask"] = np.array([[True, False], [True, True]])
        return {name: tf.constant(value) for name, value in given.items()}
    rng = np.random.default_rng(2)
    given = rows(left=case.encoder.type == "transformer_xl")
    characters = rng.integers(1, 200, (2, B, T, 50)).astype("int32")
    more = {
        "permutation_mask": rng.random((B, T, T)) < 0.5,
        "backward": np.array([False, True, False]),
        "memory_mask": np.array([[0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool),
        "character_ids": characters[0],
        "backward_character_ids": characters[1],
    }
    if "memory" in case.fields:
        shape = case.encoder.memory_shape
        more["memory"] = rng.standard_normal((B, *shape)).astype("float32")
        more["memory_mask"] = more["memory_mask"][:, -shape[1] :]
    given |= {name: more[name] for name in case.fields}
    return {name: tf.constant(value) for name, value in given.items()}


def model_of(case: Case, objectives: tuple, seed: int = 0, **changes: Any) -> Model:
    """Returns a model whose biases, too, have random values."""
    encoder = dataclasses.replace(case.encoder, **changes)
    model = Model(types.SimpleNamespace(seed=seed, encoder=encoder, objectives=objectives))
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        if len(variable.shape) == 1:
            variable.assign_add(0.3 * rng.standard_normal(variable.shape))
    return model


def step_of(case: Case) -> train_step.TrainStep:
    """Returns the training step of a case."""
    sizes = {"teacher_size": case.encoder.hidden_size, "teacher_layers": case.encoder.num_layers}
    full = [
        dataclasses.replace(o, **sizes) if o.type == "distillation" else o for o in case.objectives
    ]
    model = model_of(case, tuple(full))
    if full[-1].type == "distillation":
        model.objectives[-1].attach_teachers([model_of(case, case.objectives[:1], 1, dropout=0.5)])
    optimizer = optimizers.make(configs.Recipe(steps=1), 1, model)
    memory = object() if "memory" in case.fields else None  # only the loop reads and writes it
    strategy = tf.distribute.get_strategy()
    return train_step.TrainStep(model, optimizer, strategy, seed=5, memory=memory)


def eager_gradients(step: train_step.TrainStep, batch, scales) -> Results:
    """Computes eagerly what a step of one stage computes."""
    model, rng = step.model, train_step.draws(step.seed, STEP, 0, len(batch["example_weights"]))
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        prepared = model.prepare(batch, rng)
        encoded = model.encode_as_read(prepared, rng)
        losses, metrics = model.terms(prepared, rng, encoded)
        loss = tf.add_n([losses[name] * scales[name] for name in losses])
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    pairs = zip(variables, gradients, strict=True)
    found = {v.path: tf.convert_to_tensor(g) for v, g in pairs if g is not None}
    memory = [] if step.memory is None else [encoded["memory"], encoded["memory_mask"]]
    return named(losses, metrics, found, memory)


def graph_gradients(step: train_step.TrainStep, graph: Callable, batch, scales) -> Results:
    """Computes what a step computes, in a graph of its function."""
    (gradients, losses, metrics), memory = graph(batch, scales, STEP, PART)
    paths = [variable.path for variable in step.updated]
    return named(losses, metrics, dict(zip(paths, gradients, strict=True)), memory)


def named(losses, metrics, gradients, memory) -> Results:
    """Returns all results of a step by name."""
    results = {f"loss/{name}": value for name, value in losses.items()}
    results |= {
        f"metric/{name}/{i}": value
        for name, pair in metrics.items()
        for i, value in enumerate(pair)
    }
    results |= {f"gradient {path}": value for path, value in gradients.items()}
    return results | {f"memory {number}": value for number, value in enumerate(memory)}


def evaluated(model: Model, batch) -> Results:
    """Computes what evaluation and prediction compute."""
    prepared = model.prepare(batch)
    encoded = model.encode_as_read(prepared)
    losses, metrics = model.terms(prepared, encoded=encoded)
    results = {f"loss/{name}": value for name, value in losses.items()}
    results |= {f"metric/{name}": tf.stack(pair) for name, pair in metrics.items()}
    return results | {
        f"prediction {name}": value for name, value in model.predictions(prepared, encoded).items()
    }


def difference(actual: Results, expected: Results, precision: str) -> float:
    """Returns the largest difference, as a part of the largest value of a result.

    Gradients that are almost 0 are compared with the largest one. Metrics in bfloat16 are left out:
    they count scores that rounding may change.
    """
    assert actual.keys() == expected.keys()
    arrays = {name: np.asarray(tf.cast(value, "float64")) for name, value in expected.items()}
    sizes = [np.abs(v).max() for n, v in arrays.items() if n.startswith("gradient")]
    floor = 0.01 * max(sizes, default=1.0)
    found = {}
    for name, value in arrays.items():
        if precision != "float32" and name.startswith("metric/"):
            continue
        assert np.isfinite(value).all(), name
        scale = max(np.abs(value).max(), floor)
        found[name] = np.abs(np.asarray(tf.cast(actual[name], "float64")) - value).max() / scale
    worst = max(found, key=found.get)
    print("DIFF", precision, worst, found[worst])
    return found[worst]


@pytest.fixture(params=TOLERANCES)
def precision(request):
    numerics.set_precision(request.param)
    yield request.param
    numerics.set_precision("float32")


def test_every_objective_is_a_case_of_every_encoder_that_takes_it():
    known = {(case.encoder.type, o.type) for case in CASES.values() for o in case.objectives}
    objectives = {o.type: o for case in CASES.values() for o in case.objectives}
    encoders = {case.encoder for case in CASES.values()}
    assert objectives.keys() == OBJECTIVES.keys()
    assert {encoder.type for encoder in encoders} == ENCODERS.keys()
    for encoder in encoders:
        for name in OBJECTIVES.keys() - {o for e, o in known if e == encoder.type}:
            needed = objectives[name].needs()
            givers = [o for o in objectives.values() if o.gives() & needed]
            whole = configs.Config("x", encoder=encoder, objectives=(*givers, objectives[name]))
            with pytest.raises((ValueError, UserError)):
                for objective in whole.objectives:
                    objective.check(whole)
                compatibility.check_encoder(whole.objectives, encoder, "x")
                Model(whole)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_graphs_compute_what_is_computed_eagerly(name, precision):
    case = CASES[name]
    step, batch = step_of(case), batch_of(case)
    weights = step.model.weight_sums(batch)
    scales = {n: tf.math.divide_no_nan(1.0, tf.cast(w, "float32")) for n, w in weights.items()}
    expected = eager_gradients(step, batch, scales)
    (stage,) = step.stages
    graph = tf.function(functools.partial(step._gradients, stage), autograph=False)
    graph = graph.get_concrete_function(batch, scales, STEP, PART)
    compiled = tf.function(lambda *args: graph(*args), jit_compile=True, autograph=False)
    for function, tolerance in zip((graph, compiled), TOLERANCES[precision], strict=True):
        found = graph_gradients(step, function, batch, scales)
        assert difference(found, expected, precision) < tolerance
    if precision != "float32":  # evaluation has no other
        return
    found = tf.function(functools.partial(evaluated, step.model), autograph=False)(batch)
    assert difference(found, evaluated(step.model, batch), precision) < tolerance
