"""A model whose tokenizer gives one type: every door reads its pairs with type 0.

The right answers are those of a twin with two types, whose second type has the vector of the first
one. A model with two types and the same weights answers otherwise.
"""

import dataclasses
import shutil

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import official
from official import tokenizers
from official.data import ShardDataset
from official.saving import checkpoints
from official.serving.export import litert, onnx, saved_model
from official.tokenizers import pair_packing
from official.tokenizers.pair_forms import ONE, TWO
from official.utils.errors import UserError
from tests import choices, small, squads
from tests.official.data.test_shared_rows import make_config
from tests.official.serving.test_predictor import BERT, CLOSE, SECOND, TEXTS, XLNET, load
from tests.tfrecords_tools.tasks import test_ranking

CLASSES = {"type": "classification", "labels": ["bad", "good", "neither"]}
SIZES = {"doc_stride": 4, "max_query_length": 5}
_TABLE = "encoder/embeddings/segment_embedding/table"


def with_types(folder, types):
    """Gives the tokenizer of a model folder another form."""
    tokenizer = tokenizers.load(folder / "tokenizer")
    form = dataclasses.replace(tokenizer.pairs, types=types)
    shutil.rmtree(folder / "tokenizer")
    tokenizer.with_pairs(form).save(folder / "tokenizer")


def three(path, objective, encoder=BERT, **task):
    """A model of one type; its twin; and the same weights with two types: loaded."""
    load(path / "two", objective, encoder=encoder, **task)
    for name in ("one", "twin"):
        shutil.copytree(path / "two", path / name)
    with_types(path / "one", ONE)
    loaded = checkpoints.load(path / "twin", "last")
    variables = dict(loaded.variables)
    names = [_TABLE] if encoder is BERT else [n for n in variables if "segment_embedding" in n]
    for name in names:
        variables[name] = np.stack([variables[name][0]] * 2)
    shutil.rmtree(path / "twin" / "checkpoints")
    checkpoints.save(path / "twin", 1, variables, {})
    return [official.load(path / name) for name in ("one", "twin", "two")]


def probabilities(labels):
    return np.array([list(label.probabilities.values()) for label in labels])


def other(actual, control):
    """Whether types make a difference, so that the test could see one."""
    return np.abs(np.asarray(actual) - np.asarray(control)).max() > 1e-2


@pytest.mark.slow
@pytest.mark.long
def test_exports_and_keras_layers(tmp_path):
    one, twin, two = three(tmp_path, CLASSES)
    expected = probabilities(twin.classify(TEXTS, SECOND))
    np.testing.assert_allclose(probabilities(one.classify(TEXTS, SECOND)), expected, **CLOSE)
    assert other(expected, probabilities(two.classify(TEXTS, SECOND)))
    saved_model.export(tmp_path / "one", tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["pair"]
    actual = served(text=tf.constant(TEXTS), text_b=tf.constant(SECOND))
    np.testing.assert_allclose(actual["probabilities"], expected, **CLOSE)
    litert.export(tmp_path / "one", tmp_path / "lite")
    onnx.export(tmp_path / "one", tmp_path / "onnx")
    for folder in ("lite", "onnx"):
        tokenizer = tokenizers.load(tmp_path / folder / "tokenizer")
        assert tokenizer.pairs == one.tokenizer.pairs
        packed = pair_packing.pack_texts(
            [tf.constant(TEXTS), tf.constant(SECOND)], tokenizer, one.max_length
        )
        given = {
            "input_word_ids": packed["token_ids"].numpy(),
            "input_mask": packed["padding_mask"].numpy().astype(np.int32),
            "input_type_ids": packed["segment_ids"].numpy(),
        }
        if folder == "lite":
            model = tf.lite.Interpreter(str(tmp_path / "lite" / litert.FILE))
            found = model.get_signature_runner("tokens")(**given)["probabilities"]
        else:
            session = onnxruntime.InferenceSession(tmp_path / "onnx" / "tokens.onnx")
            (found,) = session.run(["probabilities"], given)
        np.testing.assert_allclose(found, expected, **CLOSE)
    states = []
    for name in ("one", "twin", "two"):
        encoder, preprocess = official.keras_encoder(tmp_path / name)
        again = type(preprocess).from_config(preprocess.get_config())
        batch = again(TEXTS, SECOND)
        assert bool(np.any(batch["segment_ids"])) is (name != "one")
        states.append(encoder(**batch)["pooled_output"].numpy())
    np.testing.assert_allclose(states[0], states[1], **CLOSE)
    assert other(states[0], states[2])


CHOICES = [["a", "dog"]] * 2
QUERIES, CONTEXTS = ["the dog?", "a mat"], ["The cat sat. " * 9, "mat a"]
HEADS = {
    "classification": (CLASSES, lambda m: probabilities(m.classify(TEXTS, SECOND))),
    "choice": (
        {"type": "multiple_choice"},
        lambda m: [list(c.probabilities) for c in m.choose(TEXTS[:2], SECOND[:2], CHOICES)],
    ),
    "ranking": ({"type": "ranking"}, lambda m: m.rank("the dog", TEXTS)),
    "answer": (
        {"type": "span_answer", "max_answer_length": 4},
        lambda m: [answer.score for answer in m.answer(QUERIES, CONTEXTS)],
    ),
}


LONG = [*(name for name in HEADS if name != "answer"), "xlnet"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    ["answer", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)],
)
def test_heads(tmp_path, head):
    objective, ask = HEADS.get(head) or HEADS["classification"]
    task = SIZES if head == "answer" else {}
    encoder = XLNET if head == "xlnet" else BERT
    one, twin, two = (ask(m) for m in three(tmp_path, objective, encoder, **task))
    np.testing.assert_allclose(one, twin, **CLOSE)
    assert other(one, two)


@pytest.mark.slow
def test_a_head_that_reads_each_text_alone_still_tells_them_apart(tmp_path):
    one, _, two = three(tmp_path, {"type": "kernel_ranking"})
    scores = one.rank("the dog", TEXTS)
    np.testing.assert_allclose(scores, two.rank("the dog", TEXTS), **CLOSE)
    assert np.ptp(scores) > 0.01


_folder = small.tokenizer_folder


def folder_of(types):
    """Makes `small.tokenizer_folder` with tokenizers of one form."""

    def made(folder, *options, **more):
        _folder(folder, *options, **more)
        tokenizer = tokenizers.load(folder)
        form = dataclasses.replace(tokenizer.pairs, types=types)
        tokenizer.with_pairs(form).save(folder)
        return folder

    return made


def ranked(folder):
    test_ranking.build(test_ranking.write(folder), folder / "out", negatives=2)
    return folder / "out"


QUESTIONS = choices.rows(8)
SHARDS = {
    "choices": (
        lambda folder: choices.shards(folder, train=QUESTIONS, validation=QUESTIONS[:2]),
        {"type": "multiple_choice"},
    ),
    "questions": (lambda folder: squads.shard_folder(folder, count=4), {"type": "span_answer"}),
    "ranking": (ranked, {"type": "ranking"}),
    "kernels": (ranked, {"type": "kernel_ranking"}),
    "pretraining": (lambda folder: small.shard_folder(folder, make_config(), count=9), None),
}


@pytest.mark.parametrize("kind", SHARDS)
def test_shards_carry_the_types_with_their_tokenizer(tmp_path, monkeypatch, kind):
    build, objective = SHARDS[kind]
    batches, prints = {}, {}
    for types in (TWO, ONE):
        monkeypatch.setattr(small, "tokenizer_folder", folder_of(types))
        folder = build(tmp_path / types)
        config = make_config()
        if objective is not None:
            config = small.config(segments=None, corruption=None, objectives=[objective])
        source = ShardDataset(folder, config)
        batches[types] = next(source.dataset(4).as_numpy_iterator())
        prints[types] = source.tokenizer.fingerprint
    assert prints[ONE] != prints[TWO]
    with pytest.raises(UserError, match="was made with another tokenizer"):
        source.check_tokenizer(tmp_path / TWO / ("out" if build is ranked else "") / "tokenizer")
    one, two = batches[ONE], batches[TWO]
    for name in ("token_ids", "padding_mask"):
        assert np.array_equal(one[name], two[name])
    assert two["segment_ids"].max() == 1
    if kind == "kernels":  # each text is read alone, and these ids say which one it is
        assert np.array_equal(one["segment_ids"], two["segment_ids"])
    else:
        assert not one["segment_ids"].any()
