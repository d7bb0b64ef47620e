"""The terms of distillation and its distances against loops by hand, in float64."""

import dataclasses
import itertools
import math
import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.distillation import DistillationConfig
from official.config.encoders import (
    Disentangled,
    EncoderDecoderConfig,
    LocalAttention,
    TransformerConfig,
)
from official.config.heads import (
    ClassificationConfig,
    MultiLabelConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.objectives import CausalLMConfig, MaskedLMConfig, Seq2SeqLMConfig
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives import distillation
from official.utils.errors import UserError
from tests import small

STUDENT = TransformerConfig(
    vocab_size=13,
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    intermediate_size=12,
    max_positions=8,
    dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.5,
)
TEACHER = dataclasses.replace(
    STUDENT, hidden_size=12, num_layers=4, dropout=0.5, attention_dropout=0.5
)
IDS = np.array([[1, 5, 6, 7, 8, 2, 0, 0], [1, 9, 10, 11, 12, 5, 6, 2], [1, 4, 4, 4, 4, 2, 0, 0]])
REAL = IDS > 0
BATCH = {
    "token_ids": IDS.astype("int32"),
    "segment_ids": np.zeros((3, 8), "int32"),
    "padding_mask": REAL,
    "example_weights": np.array([1, 1, 0], "float32"),
    "masked_positions": np.array([[2, 0], [1, 6], [3, 0]], "int32"),
    "masked_ids": np.array([[6, 0], [9, 6], [1, 0]], "int32"),
    "masked_weights": np.array([[1, 0], [1, 1], [1, 0]], "float32"),
    "label": np.array([2, 0, 1], "int32"),
    "score": np.array([0.5, -1.5, 9.0], "float32"),
}
# Layers 1, 3, ... attend to all tokens of a row, and 2, 4, ... of ModernBERT to those beside.
FORMS = {
    "bert": {},
    "modernbert": {
        "positions": "rotary", "local_attention": LocalAttention(2, 2), "gated": True,
        "norm": "pre", "first_norm": False, "norm_embeddings": True, "use_bias": False,
    },
    "deberta": {"positions": "none", "disentangled": Disentangled(4, 6)},
}  # fmt: skip
CLASSES = ClassificationConfig(num_labels=3, dropout=0.0, weight=0.0)


def make(encoder, *objectives, seed=0):
    config = types.SimpleNamespace(seed=seed, encoder=encoder, objectives=objectives)
    return Model(config, dtype="float64")


def distilled(head=None, teachers=(TEACHER,), student=STUDENT, **options):
    """A student with its teachers, and these."""
    heads = () if head is None else (head,)
    first = teachers[0]
    objective = DistillationConfig(
        teacher_size=first.hidden_size, teacher_layers=first.num_layers, **options
    )
    model = make(student, *heads, objective)
    models = [make(encoder, *heads, seed=7 + i) for i, encoder in enumerate(teachers)]
    model.objectives[-1].attach_teachers(models)
    return model, models


def tensors(batch=BATCH):
    return {name: tf.constant(value) for name, value in batch.items()}


def loss_of(model, term, batch=BATCH, rng=None):
    """The sum of a term and its weight."""
    batch = tensors(batch)
    weights = model.weight_sums(batch)
    prepared = model.prepare(batch, rng)
    losses, _ = model.terms(prepared, rng)
    assert weights.keys() >= losses.keys()
    for name, weight in model.weight_sums(prepared).items():
        np.testing.assert_allclose(weight, weights[name])
    return float(losses[f"distillation_{term}"]), float(weights[f"distillation_{term}"])


def outputs(model, batch=BATCH):
    """What the encoder of a model gives: dict of arrays."""
    encoded = model.encode(tensors(batch), output_all=True)
    return tf.nest.map_structure(np.asarray, encoded)


def computes_pooled_alone(model, batch=BATCH):
    """Whether the encoder computes no position of the last layer but the pooled one."""
    encoded = model.encode_as_read(model.prepare(tensors(batch)))
    return not any(encoded.get("states_read", {"": ["all"]}).values())


def vocabulary_scores(model, states):
    head = model.objectives[0]
    flat = tf.constant(states.reshape(-1, states.shape[-1]))
    return np.asarray(head.logits(flat, model.encoder)).reshape(*states.shape[:-1], 13)


def related(form, layer):
    """The pairs of tokens whose scores a layer, from 0, has a use for."""
    far = 1 if form == "modernbert" and layer == 1 else 8
    every = itertools.product(range(2), range(8), range(8))
    return [(b, q, k) for b, q, k in every if REAL[b, q] and REAL[b, k] and abs(q - k) <= far]


@pytest.mark.parametrize("positions", ["real", "masked"])
@pytest.mark.parametrize("square", [True, False])
def test_soft_targets_of_a_masked_lm(positions, square):
    model, (teacher,) = distilled(
        MaskedLMConfig(), cross_entropy=5.0, temperature=2.0, positions=positions,
        square_temperature=square,
    )  # fmt: skip
    actual, weight = loss_of(model, "cross_entropy")
    mine = vocabulary_scores(model, outputs(model)["sequence_output"])
    theirs = vocabulary_scores(teacher, outputs(teacher)["sequence_output"])
    places = [(0, 2), (1, 1), (1, 6)]
    if positions == "real":
        places = [(b, t) for b in range(2) for t in range(8) if REAL[b, t]]
    expected = sum(kl(softmax(theirs[p] / 2), softmax(mine[p] / 2)) for p in places)
    assert actual == pytest.approx(expected * (4 if square else 1), abs=1e-9)
    assert weight == len(places)
    assert model.term_weights["distillation_cross_entropy"] == 5.0


def test_squared_error_of_the_mean_of_several_teachers():
    model, teachers = distilled(
        CLASSES, teachers=[TEACHER, STUDENT], logits=1.0, cross_entropy=1.0, temperature=3.0
    )
    theirs = [np.asarray(t.objectives[0].logits(outputs(t))) for t in teachers]
    mine = np.asarray(model.objectives[0].logits(outputs(model)))
    squared = kls = 0.0
    for b in range(2):
        mean = (theirs[0][b] + theirs[1][b]) / 2
        squared += sum((mine[b] - mean) ** 2) / 3
        shares = (np.array(softmax(theirs[0][b] / 3)) + softmax(theirs[1][b] / 3)) / 2
        kls += kl(shares, softmax(mine[b] / 3))
    assert loss_of(model, "logits") == (pytest.approx(squared, abs=1e-9), 2)
    assert loss_of(model, "cross_entropy") == (pytest.approx(9 * kls, abs=1e-9), 2)


def test_scores_of_a_regression():
    model, (teacher,) = distilled(RegressionConfig(dropout=0.0), logits=1.0)
    mine, theirs = (np.asarray(m.objectives[0].scores(outputs(m))) for m in (model, teacher))
    expected = sum((mine[b] - theirs[b]) ** 2 for b in range(2))
    assert loss_of(model, "logits") == (pytest.approx(expected, abs=1e-9), 2)


def test_next_tokens_of_a_causal_lm():
    causal = {"causal": True, "pooled_position": None}
    student, teacher = (dataclasses.replace(e, **causal) for e in (STUDENT, TEACHER))
    student = dataclasses.replace(student, hidden_size=12)
    model, (teacher,) = distilled(
        CausalLMConfig(), (teacher,), student, cross_entropy=1.0, cosine=1.0
    )
    actual, weight = loss_of(model, "cross_entropy")
    cut = {**BATCH, **{n: BATCH[n][:, :-1] for n in ("token_ids", "segment_ids", "padding_mask")}}
    mine, theirs = (outputs(m, cut)["sequence_output"] for m in (model, teacher))
    scores = [vocabulary_scores(m, s) for m, s in ((model, mine), (teacher, theirs))]
    places = [(b, t) for b in range(2) for t in range(7) if REAL[b, t + 1]]
    expected = sum(kl(softmax(scores[1][p]), softmax(scores[0][p])) for p in places)
    assert (actual, weight) == (pytest.approx(expected, abs=1e-9), len(places))
    states = [(b, t) for b in range(2) for t in range(7) if REAL[b, t]]
    expected = sum(
        1 - mine[p] @ theirs[p] / math.sqrt((mine[p] @ mine[p]) * (theirs[p] @ theirs[p]))
        for p in states
    )
    assert loss_of(model, "cosine") == (pytest.approx(expected, abs=1e-9), len(states))


def test_starts_and_ends_of_answers():
    window = {
        "context_start": [3, 2, 2], "context_length": [2, 5, 2], "window_start": [0, 4, 0],
        "own_start": [0, 4, 0], "own_end": [9, 9, 9], "answer_start": [1, -1, 0],
        "answer_end": [1, -1, 1],
    }  # fmt: skip
    batch = {**BATCH, **{name: np.array(value, "int32") for name, value in window.items()}}
    model, (teacher,) = distilled(SpanAnswerConfig(), cross_entropy=1.0, temperature=2.0)
    scores = [
        m.objectives[0].boundary_logits(outputs(m, batch)["sequence_output"])
        for m in (teacher, model)
    ]
    expected = 0.0
    for b in range(2):
        begin = window["context_start"][b]
        places = [0, *range(begin, begin + window["context_length"][b])]
        for which in (0, 1):
            rows = [softmax(np.asarray(each[which])[b, places] / 2) for each in scores]
            expected += 4 * kl(*rows) / 2
    assert loss_of(model, "cross_entropy", batch) == (pytest.approx(expected, abs=1e-9), 2)


def test_choices():
    choices = {
        n: np.stack([BATCH[n], BATCH[n][::-1]], axis=1) for n in ("token_ids", "segment_ids")
    }
    batch = {
        **choices, "padding_mask": choices["token_ids"] > 0, "answer": np.array([1, 0, 0], "int32"),
        "example_weights": BATCH["example_weights"],
    }  # fmt: skip
    head = MultipleChoiceConfig(dropout=0.0)
    model, (teacher,) = distilled(head, cross_entropy=1.0, relation=1.0)
    scores = []
    for m in (teacher, model):
        columns = []
        for c in range(2):
            row = {n: v[:, c] for n, v in batch.items() if n in BATCH and v.ndim == 3}
            columns.append(np.asarray(m.objectives[0].outputs(m.encode(tensors(row))))[:, 0])
        scores.append(np.stack(columns, axis=1))
    expected = sum(kl(softmax(scores[0][b]), softmax(scores[1][b])) for b in range(2))
    assert loss_of(model, "cross_entropy", batch) == (pytest.approx(expected, abs=1e-9), 2)
    # Both choices of the first two examples.
    assert loss_of(model, "relation", batch)[1] == (batch["token_ids"][:2] > 0).sum()


def test_documents_of_a_list():
    """The third list has two documents, and its example no weight; the second has one of two."""
    lists = {n: np.stack([BATCH[n], BATCH[n][::-1]], axis=1) for n in ("token_ids", "segment_ids")}
    real = np.array([[True, True], [True, False], [True, True]])
    batch = {
        **lists, "padding_mask": lists["token_ids"] > 0, "text_mask": lists["token_ids"] > 2,
        "grades": np.zeros((3, 2), "float32"), "documents_mask": real,
        "example_weights": BATCH["example_weights"],
    }  # fmt: skip
    head = RankingConfig(dropout=0.0, weight=0.0)
    terms = {"cross_entropy": 1.0, "logits": 1.0, "temperature": 2.0}
    model, teachers = distilled(head, (TEACHER, TEACHER, TEACHER), **terms)
    assert computes_pooled_alone(model, batch)
    scores = []
    for m in (*teachers, model):
        columns = []
        for c in range(2):
            row = {n: v[:, c] for n, v in batch.items() if n in BATCH and v.ndim == 3}
            columns.append(np.asarray(m.objectives[0].outputs(m.encode(tensors(row))))[:, 0])
        scores.append(np.stack(columns, axis=1))
    *theirs, mine = scores
    target = np.mean([softmax(each[0] / 2) for each in theirs], axis=0)
    expected = 4 * kl(target, softmax(mine[0] / 2))  # a document alone has the probability 1
    assert loss_of(model, "cross_entropy", batch) == (pytest.approx(expected, abs=1e-9), 2)
    errors = np.where(real, np.mean(theirs, axis=0) - mine, 0)[:2] ** 2
    assert loss_of(model, "logits", batch) == (pytest.approx(errors.mean(axis=1).sum()), 2)
    # Lists without grades are full.
    pairs = {n: v for n, v in batch.items() if n not in ("grades", "documents_mask")}
    expected = sum(
        4 * kl(np.mean([softmax(t[b] / 2) for t in theirs], axis=0), softmax(mine[b] / 2))
        for b in range(2)
    )
    assert loss_of(model, "cross_entropy", pairs) == (pytest.approx(expected, abs=1e-9), 2)


def test_several_labels():
    head = MultiLabelConfig(num_labels=3, dropout=0.0, weight=0.0)
    model, teachers = distilled(head, (TEACHER, TEACHER), cross_entropy=1.0, temperature=2.0)
    assert computes_pooled_alone(model)
    logits = [np.asarray(m.objectives[0].outputs(m.encode(tensors()))) for m in (*teachers, model)]
    first, second, mine = (1 / (1 + np.exp(-each / 2)) for each in logits)
    expected = 0.0
    for b, c in itertools.product(range(2), range(3)):
        p, q = (first[b, c] + second[b, c]) / 2, mine[b, c]
        expected += 4 / 3 * kl(np.array([p, 1 - p]), np.array([q, 1 - q]))
    assert expected > 0.01
    assert loss_of(model, "cross_entropy") == (pytest.approx(expected, abs=1e-9), 2)
    # Its labels may be unknown; where they are known, they have a term.
    assert "multi_label" not in model.terms(model.prepare(tensors()))[0]
    flags = {**BATCH, "label_flags": np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], "int32")}
    total = float(model.terms(model.prepare(tensors(flags)))[0]["multi_label"])
    by_hand = np.logaddexp(0, logits[2]) - flags["label_flags"] * logits[2]
    assert total == pytest.approx(by_hand[:2].mean(axis=1).sum())


def test_tags_of_words():
    head = TokenClassificationConfig(num_labels=4, dropout=0.0, weight=0.0)
    words = np.full((3, 8), -1, "int32")
    words[0, [1, 3]], words[1, [1, 2, 6]], words[2, 1] = (0, 1), (0, 1, 2), 0
    batch = {**BATCH, "word_ids": words}
    model, (teacher,) = distilled(head, cross_entropy=1.0, logits=1.0)
    theirs, mine = (
        np.asarray(m.objectives[0].logits(m.encode(tensors()))) for m in (teacher, model)
    )
    places = [(b, t) for b in range(2) for t in range(8) if words[b, t] >= 0]
    expected = sum(kl(softmax(theirs[p]), softmax(mine[p])) for p in places)
    assert loss_of(model, "cross_entropy", batch) == (pytest.approx(expected, abs=1e-9), 5)
    expected = sum(((theirs[p] - mine[p]) ** 2).mean() for p in places)
    assert loss_of(model, "logits", batch) == (pytest.approx(expected, abs=1e-9), 5)
    # Without tags there is no other term; with them there is.
    assert "token_classification" not in model.terms(model.prepare(tensors(batch)))[0]
    tagged = tensors({**batch, "tag_ids": np.where(words >= 0, 2, -1).astype("int32")})
    total = float(model.terms(model.prepare(tagged))[0]["token_classification"])
    assert total == pytest.approx(-sum(math.log(softmax(mine[p])[2]) for p in places))


def test_targets_of_a_decoder():
    student = EncoderDecoderConfig(
        vocab_size=13, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=12, dropout=0.0
    )
    teacher = dataclasses.replace(student, hidden_size=12, num_layers=2)
    targets = np.array([[5, 6, 1, 0], [7, 1, 0, 0], [8, 8, 8, 1]], "int32")
    batch = {**BATCH, "target_ids": targets, "target_mask": targets > 0}
    batch.pop("segment_ids")
    model, (teacher,) = distilled(
        Seq2SeqLMConfig(), (teacher,), student, cross_entropy=1.0, relation=1.0
    )
    scores = []
    for m in (teacher, model):
        encoded = m.encode(m.prepare(tensors(batch)))
        hidden = encoded["decoder_output"]
        logits = m.objectives[0].logits(tf.reshape(hidden, (-1, hidden.shape[-1])), m.encoder)
        scores.append(np.asarray(logits).reshape(3, 4, 13))
    places = [(b, u) for b in range(2) for u in range(4) if targets[b, u]]
    expected = sum(kl(softmax(scores[0][p]), softmax(scores[1][p])) for p in places)
    assert loss_of(model, "cross_entropy", batch) == (pytest.approx(expected, abs=1e-9), 5)
    assert loss_of(model, "relation", batch)[0] > 0.001


@pytest.mark.parametrize("projection", ["shared", "each"])
@pytest.mark.parametrize("layers", [(), (1, 4)])
def test_hidden_states_through_a_projection(projection, layers):
    model, (teacher,) = distilled(hidden=1.0, projection=projection, layers=layers)
    names = ["projection"] * 3 if projection == "shared" else [f"projection_{i}" for i in range(3)]
    variables = {p: np.asarray(v) for p, v in model.variables_by_path().items()}
    mine, theirs = (outputs(m)["hidden_states"] for m in (model, teacher))
    expected = 0.0
    for i, layer in enumerate([0, *(layers or (2, 4))]):
        kernel = variables[f"distillation/{names[i]}/kernel"]
        bias = variables[f"distillation/{names[i]}/bias"]
        for b, t in zip(*np.nonzero(REAL[:2]), strict=True):
            expected += np.mean((mine[i][b, t] @ kernel + bias - theirs[layer][b, t]) ** 2)
    assert loss_of(model, "hidden") == (pytest.approx(expected, abs=1e-9), 14)
    own = [path for path in variables if path.startswith("distillation/")]
    assert len(own) == 2 * len(set(names))


@pytest.mark.parametrize("form", FORMS)
def test_attention_scores(form):
    student, teacher = (dataclasses.replace(e, **FORMS[form]) for e in (STUDENT, TEACHER))
    model, (teacher,) = distilled(teachers=(teacher,), student=student, scores=1.0, layers=(1, 4))
    mine, theirs = (outputs(m)["attention_parts"] for m in (model, teacher))
    expected = pairs = 0
    for i, layer in enumerate([0, 3]):
        for b, q, k in related(form, i):
            pairs += 1
            error = mine[i].scores[b, :, q, k] - theirs[layer].scores[b, :, q, k]
            expected += np.mean(error**2)
    assert loss_of(model, "scores") == (pytest.approx(expected, abs=1e-9), pairs / 2)
    model, (teacher,) = distilled(scores=1.0)  # Layer i of k times as many is i k + k - 1.
    mine, theirs = (outputs(m)["attention_parts"] for m in (model, teacher))
    errors = [mine[i].scores - theirs[2 * i + 1].scores for i in range(2)]
    expected = sum(np.mean(e[b, :, q, k] ** 2) for e in errors for b, q, k in related("bert", 0))
    assert loss_of(model, "scores")[0] == pytest.approx(expected, abs=1e-9)


def test_means_of_the_release_of_tinybert():
    """Plain means over all positions, of states and of scores with 0 for what is masked."""
    model, (teacher,) = distilled(scores=1.0, hidden=1.0, means="released")
    mine, theirs = outputs(model), outputs(teacher)
    hidden = np.where(REAL[:2], 0.0, -10000.0)[:, None, None, :]  # [B, 1, 1, T]

    def masked(scores):
        scores = scores[:2] + hidden
        return np.where(scores <= -100, 0.0, scores)

    expected = sum(
        np.mean(np.square(masked(mine["attention_parts"][i].scores) - masked(part.scores)))
        for i, part in enumerate(theirs["attention_parts"][1::2])
    )
    loss, weight = loss_of(model, "scores")
    assert (loss / weight, weight) == (pytest.approx(expected, abs=1e-9), 2 * 8 * 8)
    variables = {p: np.asarray(v) for p, v in model.variables_by_path().items()}
    kernel, bias = (variables[f"distillation/projection/{name}"] for name in ("kernel", "bias"))
    expected = sum(
        np.mean(np.square(state[:2] @ kernel + bias - theirs["hidden_states"][2 * i][:2]))
        for i, state in enumerate(mine["hidden_states"])
    )
    loss, weight = loss_of(model, "hidden")
    assert (loss / weight, weight) == (pytest.approx(expected, abs=1e-9), 2 * 8)


@pytest.mark.parametrize(
    ("layer", "form"), [(None, "bert"), (3, "bert"), (2, "modernbert"), (None, "deberta")]
)
def test_relations_of_minilm(layer, form):
    student, teacher = (dataclasses.replace(e, **FORMS[form]) for e in (STUDENT, TEACHER))
    model, (teacher,) = distilled(
        teachers=(teacher,), student=student, relation=1.0, relation_layer=layer
    )
    mine = outputs(model)["attention_parts"][-1]
    theirs = outputs(teacher)["attention_parts"][(layer or 4) - 1]
    expected = 0.0
    for b, t in zip(*np.nonzero(REAL[:2]), strict=True):
        real = np.flatnonzero(REAL[b])
        near = [k for c, q, k in related(form, 1) if (c, q) == (b, t)]
        for n in range(2):
            expected += kl(theirs.weights[b, n, t, near], mine.weights[b, n, t, near]) / 2
            rows = [
                softmax((part.value[b, n, real] @ part.value[b, n, t]) / math.sqrt(size))
                for part, size in ((theirs, 6), (mine, 4))
            ]
            expected += kl(*rows) / 2
    assert loss_of(model, "relation") == (pytest.approx(expected, abs=1e-9), 14)


def test_relations_of_minilm_v2_between_other_heads():
    teacher = dataclasses.replace(TEACHER, num_heads=3)
    model, (teacher,) = distilled(
        None, (teacher,), relation=1.0, relations=("query", "key", "value"), relation_heads=4
    )
    mine, theirs = (outputs(m)["attention_parts"][-1] for m in (model, teacher))
    expected = 0.0
    for name in ("query", "key", "value"):
        vectors = [
            getattr(part, name).transpose(0, 2, 1, 3).reshape(3, 8, 4, -1)
            for part in (theirs, mine)
        ]
        for b, t in zip(*np.nonzero(REAL[:2]), strict=True):
            real = np.flatnonzero(REAL[b])
            for g in range(4):
                rows = [
                    softmax(v[b, real, g] @ v[b, t, g] / math.sqrt(v.shape[-1])) for v in vectors
                ]
                expected += kl(*rows) / 4
    assert loss_of(model, "relation") == (pytest.approx(expected, abs=1e-9), 14)


def test_sequences_that_share_a_row_have_the_losses_of_rows_of_their_own():
    student = dataclasses.replace(STUDENT, hidden_size=12)
    terms = {"cross_entropy": 1.0, "cosine": 1.0, "relation": 1.0, "scores": 1.0, "hidden": 1.0}
    model, _ = distilled(MaskedLMConfig(), student=student, **terms)
    apart = {n: v[:2] for n, v in BATCH.items()}
    lengths = REAL[:2].sum(axis=1)
    joined = {
        name: np.concatenate([apart[name][b, :n] for b, n in enumerate(lengths)] + [[0, 0]])[None]
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    part_ids = np.repeat([0, 1, 2], [*lengths, 2])[None]
    positions = np.concatenate([*(np.arange(n) for n in lengths), [0, 0]])[None]
    masked = apart["masked_positions"] + np.array([[0], [lengths[0]]])
    together = {
        **joined,
        "token_ids": joined["token_ids"].astype("int32"),
        "segment_ids": joined["segment_ids"].astype("int32"),
        "padding_mask": joined["padding_mask"].astype(bool),
        "part_ids": part_ids.astype("int32"),
        "positions": positions.astype("int32"),
        "part_starts": np.array([[0, lengths[0]]], "int32"),
        "example_weights": np.ones(1, "float32"),
        "masked_positions": masked.reshape(1, -1).astype("int32"),
        "masked_ids": apart["masked_ids"].reshape(1, -1),
        "masked_weights": apart["masked_weights"].reshape(1, -1),
    }
    for term in terms:
        loss, weight = loss_of(model, term, apart)
        assert loss_of(model, term, together) == (pytest.approx(loss, abs=1e-9), weight), term
        assert loss > 1e-3


def test_padding_of_packed_rows_is_not_counted():
    objective = {"type": "distillation", "scores": 1.0, "means": "released"}
    with pytest.raises(UserError, match="means: released counts the padding of rows of one seq"):
        small.config(objectives=[objective], segments__packing=2)


def test_a_teacher_with_an_enhanced_mask_decoder():
    """It predicts by the last layer that reads the positions, as it does at masks."""
    student, teacher = (dataclasses.replace(e, **FORMS["deberta"]) for e in (STUDENT, TEACHER))
    model = make(student, MaskedLMConfig(), DistillationConfig(cross_entropy=1.0))
    decoder = make(teacher, MaskedLMConfig(enhanced_mask_decoder=True), seed=7)
    model.objectives[-1].attach_teachers([decoder])
    mine = vocabulary_scores(model, outputs(model)["sequence_output"])
    every = tensors({**BATCH, "masked_positions": np.tile(np.arange(8, dtype="int32"), (3, 1))})
    (states,) = decoder.encode_as_read(every)["states_read"]["masked_lm"]
    theirs = vocabulary_scores(decoder, np.asarray(states))
    places = [(b, t) for b in range(2) for t in range(8) if REAL[b, t]]
    expected = sum(kl(softmax(theirs[p]), softmax(mine[p])) for p in places)
    assert loss_of(model, "cross_entropy") == (pytest.approx(expected, abs=1e-9), len(places))


def test_a_student_that_is_its_teacher_has_no_loss():
    everything = dict(
        cross_entropy=1.0, logits=1.0, cosine=1.0, relation=1.0, scores=1.0, hidden=1.0,
        projection="none",
    )  # fmt: skip
    model, (teacher,) = distilled(MaskedLMConfig(), (STUDENT,), **everything)
    theirs = teacher.variables_by_path()
    for path, variable in model.variables_by_path().items():
        variable.assign(theirs[path])
    losses, _ = model.terms(model.prepare(tensors()))
    for term in ("cross_entropy", "logits", "cosine", "relation", "scores", "hidden"):
        assert float(losses[f"distillation_{term}"]) == pytest.approx(0, abs=1e-9), term
    assert float(losses["masked_lm"]) > 0.1


def test_the_teacher_is_not_trained_or_saved_and_has_no_dropout():
    model, (teacher,) = distilled(CLASSES, cross_entropy=1.0, hidden=1.0, relation=1.0)
    paths = set(model.variables_by_path())
    assert paths == {
        *make(STUDENT, CLASSES).variables_by_path(),
        "distillation/projection/kernel", "distillation/projection/bias",
    }  # fmt: skip
    student = {id(v) for v in model.variables}
    assert not [v.path for v in teacher.variables if id(v) in student]
    first, again = (
        model.prepare(tensors(), rng)["teacher_outputs"][0]["outputs"]
        for rng in (None, Draws((1, 2)))
    )
    np.testing.assert_array_equal(first, again)  # its rates are 0.5
    with tf.GradientTape() as tape:
        losses, _ = model.terms(model.prepare(tensors(), Draws((1, 2))), Draws((1, 2)))
        total = sum(losses.values())
    everything = [v.value for v in (*model.variables, *teacher.variables)]
    gradients = tape.gradient(total, everything)
    count = len(model.variables)
    assert [g for g in gradients[count:] if g is not None] == []
    reached = {
        path
        for path, g in zip(model.variables_by_path(), gradients[:count], strict=True)
        if g is not None
    }
    assert {"classification/output/kernel", "distillation/projection/kernel"} <= reached
    assert "encoder/layer_0/attention/query_key_value/kernel" in reached


def test_a_head_of_weight_0_needs_no_labels_and_shows_its_accuracy_if_there_are_any():
    assert CLASSES.needs() == frozenset() and ClassificationConfig().needs() == {"label"}
    assert RegressionConfig(weight=0.0).needs() == frozenset()
    model, _ = distilled(CLASSES, cross_entropy=1.0)
    unlabelled = tensors({n: v for n, v in BATCH.items() if n != "label"})
    losses, metrics = model.terms(model.prepare(unlabelled))
    assert losses.keys() == {"distillation_cross_entropy"} and not metrics
    losses, metrics = model.terms(model.prepare(tensors()))
    assert losses.keys() == {"classification", "distillation_cross_entropy"}
    assert metrics.keys() == {"classification_accuracy"}
    assert model.term_weights["classification"] == 0


def test_cached_outputs_replace_the_teachers():
    model, (teacher,) = distilled(CLASSES, cross_entropy=1.0, logits=1.0)
    cached = np.asarray(teacher.objectives[0].logits(outputs(teacher)))[:, None]
    config = DistillationConfig(cross_entropy=1.0, logits=1.0, cache="folder")
    alone = make(STUDENT, CLASSES, config)
    batch = {**BATCH, "teacher_logits": cached.astype("float32")}
    for term in ("cross_entropy", "logits"):
        loss, weight = loss_of(model, term)
        assert loss_of(alone, term, batch) == (pytest.approx(loss, rel=1e-5), weight)
    assert all(computes_pooled_alone(each, batch) for each in (alone, model))


def test_without_teachers_there_is_no_term():
    model = make(STUDENT, CLASSES, DistillationConfig(relation=1.0))
    losses, _ = model.terms(model.prepare(tensors()))
    assert losses.keys() == {"classification"} and model.weight_sums(tensors()).keys() == {
        "classification"
    }
    assert computes_pooled_alone(model)  # so that serving is not slower


def test_errors_of_the_layer():
    with pytest.raises(UserError, match="teacher_size: unknown: it is filled in from the teacher"):
        make(STUDENT, DistillationConfig(hidden=1.0))
    model = make(STUDENT, CLASSES, DistillationConfig(logits=1.0))
    with pytest.raises(UserError) as caught:
        model.objectives[-1].attach_teachers([make(TEACHER, MaskedLMConfig())])
    assert (
        "the outputs of classification are matched, but a teacher has the objectives masked_lm"
    ) in str(caught.value)


RNG = np.random.default_rng(0)
REAL_TOKENS = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)


def softmax(x):
    e = [math.exp(v - max(x)) for v in x]
    return [v / sum(e) for v in e]


def kl(p, q):
    return sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("count", [1, 3])
def test_divergence_is_of_the_mean_of_probabilities(temperature, count):
    student, teachers = RNG.normal(size=(4, 6)) * 3, RNG.normal(size=(count, 4, 6)) * 3
    actual = distillation.divergence(student, list(teachers), temperature)
    for r in range(4):
        targets = [softmax([v / temperature for v in t[r]]) for t in teachers]
        target = [sum(column) / count for column in zip(*targets, strict=True)]
        guess = softmax([v / temperature for v in student[r]])
        assert actual[r].numpy() == pytest.approx(kl(target, guess), abs=1e-12)
    same = distillation.divergence(student, [student] * count, temperature)
    np.testing.assert_allclose(same, 0, atol=1e-12)


def test_divergence_of_certain_teachers_is_finite():
    teachers = [np.array([[800.0, 0, 0]]), np.array([[800.0, 0, 0]])]
    actual = distillation.divergence(np.zeros((1, 3)), teachers)
    np.testing.assert_allclose(actual, [math.log(3)], rtol=1e-12)


def test_cosine_distance_and_squared_error():
    a, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
    for index in np.ndindex(2, 3):
        x, y = a[index], b[index]
        product = sum(p * q for p, q in zip(x, y, strict=True))
        lengths = math.sqrt(sum(p * p for p in x)) * math.sqrt(sum(q * q for q in y))
        assert distillation.cosine_distance(a, b)[index].numpy() == pytest.approx(
            1 - product / lengths
        )
        mean = sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) / 4
        assert distillation.squared_error(a, b)[index].numpy() == pytest.approx(mean)


def test_pairs_are_of_real_tokens_of_one_part():
    parts = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]])
    blocks = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    for batch, causal in [
        ({"padding_mask": REAL_TOKENS}, False),
        ({"padding_mask": REAL_TOKENS.astype("int32")}, True),
        ({"padding_mask": REAL_TOKENS, "part_ids": parts}, False),
        ({"padding_mask": REAL_TOKENS, "part_ids": parts, "block_ids": blocks}, True),
    ]:
        actual = distillation.pairs(batch, causal).numpy()
        for b, i, j in np.ndindex(2, 5, 5):
            expected = REAL_TOKENS[b, i] and REAL_TOKENS[b, j]
            expected &= "part_ids" not in batch or parts[b, i] == parts[b, j]
            expected &= "block_ids" not in batch or blocks[b, i] >= blocks[b, j]
            expected &= not causal or j <= i
            assert actual[b, i, j] == expected, (causal, b, i, j)


def test_score_error():
    student, target = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(2, 3, 5, 5))
    actual = distillation.score_error(
        student, target, distillation.pairs({"padding_mask": REAL_TOKENS})
    )
    for b in range(2):
        expected = 0.0
        for n, i, j in np.ndindex(3, 5, 5):
            if REAL_TOKENS[b, i] and REAL_TOKENS[b, j]:
                expected += (student[b, n, i, j] - target[b, n, i, j]) ** 2 / 3
        assert actual[b].numpy() == pytest.approx(expected, abs=1e-9)


def test_relation_divergence_ignores_padding():
    student, target = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(2, 3, 5, 5))
    related = distillation.pairs({"padding_mask": REAL_TOKENS})
    actual = distillation.relation_divergence(student, target, related).numpy()
    for b, i in np.ndindex(2, 5):
        expected, real = 0.0, np.flatnonzero(REAL_TOKENS[b])
        for n in range(3) if REAL_TOKENS[b, i] else ():
            expected += kl(softmax(target[b, n, i, real]), softmax(student[b, n, i, real])) / 3
        assert actual[b, i] == pytest.approx(expected, abs=1e-12)
    student[0, :, :, 3:] = target[0, :, 3:] = 1e5
    again = distillation.relation_divergence(student, target, related).numpy()
    np.testing.assert_allclose(again, actual, atol=1e-12)


@pytest.mark.parametrize("heads", [0, 2, 4, 8])
@pytest.mark.parametrize("kind", ["query", "key", "value"])
def test_relations_join_and_split_the_heads(kind, heads):
    vectors = {name: RNG.normal(size=(2, 4, 5, 6)) for name in ("query", "key", "value")}
    actual = distillation.relation(types.SimpleNamespace(**vectors), kind, heads).numpy()
    count = heads or 4
    joined = vectors[kind].transpose(0, 2, 1, 3).reshape(2, 5, 24)
    size = 24 // count
    assert actual.shape == (2, count, 5, 5)
    for b, g, i, j in np.ndindex(2, count, 5, 5):
        x, y = (joined[b, k, g * size : (g + 1) * size] for k in (i, j))
        assert actual[b, g, i, j] == pytest.approx(float(x @ y) / math.sqrt(size), abs=1e-12)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_relations_in_a_graph_of_the_user(index, default_optimizer):
    """TensorFlow's optimizer computes some products of any output of `unstack` from the first.

    These are float32 products of a scaled output, to which a mask is added.
    """
    joined = tf.constant(RNG.normal(size=(3, 2, 4, 5, 6)), tf.float32)
    related = REAL_TOKENS[:, None, :, None] & REAL_TOKENS[:, None, None, :]
    hidden = tf.constant(np.where(related, 0, -1e9), tf.float32)

    def logits(joined, relation):
        vectors = types.SimpleNamespace(value=tf.unstack(joined)[index])
        return relation(vectors, "value") + hidden

    expected = logits(joined, distillation.relation)
    found = tf.function(logits)(joined, distillation.relation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_attention_relation_is_the_scores():
    scores = RNG.normal(size=(2, 4, 5, 5))
    attended = types.SimpleNamespace(scores=scores)
    np.testing.assert_array_equal(distillation.relation(attended, "attention"), scores)
