"""Spans: heads and losses of transformers, and the best spans against loops by hand."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import SpanAnswerConfig
from official.modeling.layers.random import Draws
from official.modeling.objectives import span_answer
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "span_answer.npz"
BERT = TransformerConfig(
    vocab_size=61, hidden_size=18, num_layers=2, num_heads=3, intermediate_size=23, max_positions=16
)
XLNET = TransformerXLConfig(
    vocab_size=61, hidden_size=18, num_layers=2, num_heads=3, intermediate_size=23
)
LENGTHS, WIDTH = np.array([11, 7, 9]), 11
CLOSE = {"rtol": 0, "atol": 1e-5}
# As in the script that made the golden file: places in rows that begin with [CLS].
CONTEXT_START, CONTEXT_LENGTH = np.array([4, 3, 2]), np.array([6, 3, 6])
START, END = np.array([5, 3, -1]), np.array([8, 3, -1])
FIRST = np.array([0, 10, 3])  # the number of the window's first token in the whole context


def golden(name, path=GOLDEN):
    arrays = np.load(path)
    return {k.removeprefix(f"{name}/"): arrays[k] for k in arrays if k.startswith(f"{name}/")}


def batch(layout, weights=(1, 1, 1)):
    pad = WIDTH - LENGTHS
    mask = np.arange(WIDTH) < LENGTHS[:, None]
    begin = CONTEXT_START
    if layout == "cls_last":
        mask, begin = mask[:, ::-1], pad
    answer = [np.where(p < 0, -1, p - CONTEXT_START + FIRST) for p in (START, END)]
    fields = {
        "token_ids": np.zeros((3, WIDTH)),
        "context_start": begin,
        "context_length": CONTEXT_LENGTH,
        "window_start": FIRST,
        "own_start": FIRST,
        "own_end": FIRST + CONTEXT_LENGTH,
        "answer_start": answer[0],
        "answer_end": answer[1],
    }
    result = {name: tf.constant(value, tf.int32) for name, value in fields.items()}
    return {
        **result,
        "padding_mask": tf.constant(mask.copy()),
        "example_weights": tf.constant(weights, tf.float32),
    }


def make(encoder, form, weights=None, **options):
    objective = span_answer.Objective(SpanAnswerConfig(form=form, **options), encoder)
    objective.build()
    for variable in objective.variables:
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape))
    if weights is not None:
        load(objective, weights)
    return objective


def load(objective, weights):
    if objective.config.form == "independent":
        pairs = {"qa_outputs": objective.output_projection}
    else:
        pairs = {
            "start_logits.dense": objective.start_projection,
            "end_logits.dense_0": objective.end_hidden,
            "end_logits.dense_1": objective.end_projection,
            "answer_class.dense_0": objective.answerable_hidden,
            "answer_class.dense_1": objective.answerable_projection,
        }
        objective.end_norm.scale.assign(weights["weight/end_logits.LayerNorm.weight"])
        objective.end_norm.offset.assign(weights["weight/end_logits.LayerNorm.bias"])
    for name, layer in pairs.items():
        layer.kernel.assign(weights[f"weight/{name}.weight"].T)
        if layer.use_bias:
            layer.bias.assign(weights[f"weight/{name}.bias"])


def losses(objective, fields, states):
    """Of each row."""
    actual = []
    for i in range(3):
        weights = {"example_weights": tf.one_hot(i, 3)}
        terms = objective.terms({**fields, **weights}, {"sequence_output": states}, None)
        actual.append(float(terms.losses["span_answer"]))
    return actual


def test_bert_is_that_of_transformers():
    check_bert(GOLDEN)


def check_bert(path):
    arrays = golden("bert", path)
    objective = make(BERT, "independent", arrays, candidates="row")
    states = tf.constant(arrays["states"])
    mask = np.arange(WIDTH) < LENGTHS[:, None]
    for name, logits in zip(("start", "end"), objective.boundary_logits(states), strict=True):
        assert np.allclose(np.where(mask, logits, 0), arrays[f"{name}_logits"], **CLOSE)
    fields = batch("cls_first")
    assert np.allclose(losses(objective, fields, states), arrays["loss"], **CLOSE)
    # Only where an answer may be: the context and [CLS], with the weights of the examples.
    objective = make(BERT, "independent", arrays)
    fields["example_weights"] = tf.constant([1.0, 0.0, 2.0])
    expected, hits = 0.0, 0.0
    for i, weight in ((0, 1), (2, 2)):
        begin, size = CONTEXT_START[i], CONTEXT_LENGTH[i]
        places = [0, *range(begin, begin + size)]
        right = 0
        for name, target in (("start", START[i]), ("end", END[i])):
            logits = arrays[f"{name}_logits"][i].astype(np.float64)[places]
            place = places.index(max(target, 0))
            expected += weight * 0.5 * (np.log(np.exp(logits).sum()) - logits[place])
            right += int(logits.argmax() == place)
        hits += weight * (right == 2)
    terms = objective.terms(fields, {"sequence_output": states}, None)
    assert float(terms.losses["span_answer"]) == pytest.approx(expected, abs=1e-5)
    total, weight = terms.metrics["span_answer_accuracy"]
    assert (float(total), float(weight)) == (hits, 3.0)
    assert float(objective.weight_sums(fields)["span_answer"]) == 3.0


def test_xlnet_is_that_of_transformers():
    check_xlnet(GOLDEN)


def check_xlnet(path):
    arrays = golden("xlnet", path)
    states, fields = tf.constant(arrays["states"]), batch("cls_last")
    allowed = arrays["p_mask"] == 0
    objective = make(XLNET, "conditional", arrays, answerable_weight=0.0)
    assert np.array_equal(objective.allowed(fields), allowed)
    starts = objective.start_logits(states)
    assert np.allclose(starts, arrays["start_logits"], **CLOSE) or np.allclose(
        np.where(allowed, starts, -1e30), arrays["start_logits"], **CLOSE
    )
    every = tf.tile(tf.range(WIDTH)[None], [3, 1])
    ends = np.where(allowed[:, None], objective.end_logits(states, every), -1e30)
    assert np.allclose(ends, arrays["end_logits"], rtol=1e-6, atol=1e-5)
    null = objective.null_logits(states, starts, allowed)
    assert np.allclose(null, arrays["null_logits"], **CLOSE)
    assert np.allclose(losses(objective, fields, states), arrays["loss"], **CLOSE)
    objective = make(XLNET, "conditional", arrays)
    logits = arrays["null_logits"].astype(np.float64)
    missing = np.array([0, 0, 1])
    chance = 1 / (1 + np.exp(-logits))
    against = -np.log(np.where(missing, chance, 1 - chance))
    actual = losses(objective, fields, states)
    assert np.allclose(actual, arrays["loss"] + 0.5 * against, **CLOSE)
    terms = objective.terms(fields, {"sequence_output": states}, None)
    right, weight = terms.metrics["span_answer_answerable_accuracy"]
    assert (float(right), float(weight)) == (sum((logits > 0) == missing), 3.0)


def spans_by_hand(scores, i, longest):
    """All spans of row i with their scores, best first; `scores` takes positions in the row."""
    begin, size = CONTEXT_START[i], CONTEXT_LENGTH[i]
    actual = []
    for start in range(begin, begin + size):
        for end in range(start, min(start + longest, begin + size)):
            number = FIRST[i] - begin
            actual.append((scores(start, end), start + number, end + number))
    return sorted(actual, reverse=True)


def check_spans(outputs, i, expected, count):
    scores, starts, ends = (
        outputs[name][i].numpy() for name in ("span_scores", "span_starts", "span_ends")
    )
    assert len(scores) == count and (np.diff(scores) <= 0).all()
    kept = min(count, len(expected))
    assert (scores[kept:] < -1e29).all()
    for place, (score, start, end) in enumerate(expected[:kept]):
        assert scores[place] == pytest.approx(score, abs=1e-4)
        assert (starts[place], ends[place]) == (start, end)


@pytest.mark.parametrize("longest, count", [(2, 20), (30, 5), (1, 4)])
def test_best_spans_are_those_of_all_pairs(longest, count):
    arrays = golden("bert")
    objective = make(
        BERT, "independent", arrays, max_answer_length=longest, n_best=count, candidates="row"
    )
    states = {"sequence_output": tf.constant(arrays["states"])}
    outputs = objective.predictions(batch("cls_first"), states, None)
    starts, ends = arrays["start_logits"], arrays["end_logits"]
    for i in range(3):
        expected = spans_by_hand(lambda s, e, i=i: starts[i, s] + ends[i, e], i, longest)
        check_spans(outputs, i, expected, count)
    assert np.allclose(outputs["null_scores"], starts[:, 0] + ends[:, 0], **CLOSE)


def test_spans_begin_with_a_token_that_the_window_owns():
    arrays = golden("bert")
    objective = make(BERT, "independent", arrays, max_answer_length=3)
    fields = batch("cls_first")
    fields["own_start"], fields["own_end"] = fields["own_start"] + 1, fields["own_end"] - 1
    outputs = objective.predictions(fields, {"sequence_output": arrays["states"]}, None)
    for i in range(3):
        real = outputs["span_scores"][i].numpy() > -1e29
        starts = outputs["span_starts"][i].numpy()[real]
        ends = outputs["span_ends"][i].numpy()[real]
        last = FIRST[i] + CONTEXT_LENGTH[i] - 1
        assert set(starts) == set(range(FIRST[i] + 1, last))
        assert ends.max() == last  # which another window owns, as may be


@pytest.mark.parametrize("longest", [2, 30])
def test_a_beam_of_everything_finds_what_transformers_lists(longest):
    arrays = golden("xlnet")
    objective = make(
        XLNET, "conditional", arrays, start_beam=WIDTH, end_beam=WIDTH, max_answer_length=longest
    )
    outputs = objective.predictions(
        batch("cls_last"), {"sequence_output": tf.constant(arrays["states"])}, None
    )
    for i in range(3):
        pad = WIDTH - LENGTHS[i]
        expected = []
        for s, start in enumerate(arrays["start_index"][i]):
            for e in range(WIDTH):
                end = arrays["end_index"][i, e * WIDTH + s]
                size = CONTEXT_LENGTH[i]
                if not pad <= start <= end < min(pad + size, start + longest):
                    continue
                score = arrays["start_log_probs"][i, s] + arrays["end_log_probs"][i, e * WIDTH + s]
                expected.append((score, start - pad + FIRST[i], end - pad + FIRST[i]))
        expected.sort(reverse=True)
        check_spans(outputs, i, expected, WIDTH * WIDTH)
    assert np.allclose(outputs["null_scores"], arrays["null_logits"], **CLOSE)


def test_a_narrow_beam():
    arrays = golden("xlnet")
    wide = make(XLNET, "conditional", arrays, start_beam=WIDTH, end_beam=WIDTH)
    narrow = make(XLNET, "conditional", arrays, start_beam=2, end_beam=1)
    states, fields = {"sequence_output": tf.constant(arrays["states"])}, batch("cls_last")
    every, some = (objective.predictions(fields, states, None) for objective in (wide, narrow))
    assert some["span_scores"].shape == (3, 2)
    for i in range(3):
        spans = {
            (int(s), int(e)): float(score)
            for score, s, e in zip(
                every["span_scores"][i], every["span_starts"][i], every["span_ends"][i], strict=True
            )
            if score > -1e29
        }
        for score, s, e in zip(
            some["span_scores"][i], some["span_starts"][i], some["span_ends"][i], strict=True
        ):
            best = max(v for (start, _), v in spans.items() if start == int(s))
            assert float(score) == pytest.approx(spans[int(s), int(e)], abs=1e-5)
            assert float(score) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("form, encoder", [("independent", BERT), ("conditional", XLNET)])
def test_a_window_without_a_token_of_the_context(form, encoder):
    objective = make(encoder, form)
    fields = batch(encoder.layout)
    fields |= {"context_length": tf.zeros(3, tf.int32), "own_end": fields["own_start"]}
    states = {"sequence_output": tf.random.stateless_normal([3, WIDTH, 18], [1, 2])}
    outputs = objective.predictions(fields, states, None)
    assert (outputs["span_scores"].numpy() < -1e29).all()
    assert np.isfinite(outputs["null_scores"]).all()


def test_dropout_is_before_the_last_map_of_the_regression():
    arrays = golden("xlnet")
    states, fields = tf.constant(arrays["states"]), batch("cls_last")
    objective = make(XLNET, "conditional", arrays, dropout=0.5)
    starts, allowed = objective.start_logits(states), objective.allowed(fields)
    plain = objective.null_logits(states, starts, allowed)
    dropped = objective.null_logits(states, starts, allowed, Draws((1, 2)))
    assert not np.allclose(plain, dropped)
    assert np.allclose(plain, arrays["null_logits"], **CLOSE)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"form": "joint"}, "form: 'joint' is not one of independent, conditional"),
        ({"candidates": "all"}, "candidates: 'all' is not one of context, row"),
        ({"n_best": 0}, "n_best: 0 is less than 1"),
        ({"max_answer_length": 0}, "max_answer_length: 0 is less than 1"),
        ({"dropout": 1.0}, r"dropout: 1.0 is not in \[0, 1\)"),
    ],
)
def test_settings_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        SpanAnswerConfig(**options)
