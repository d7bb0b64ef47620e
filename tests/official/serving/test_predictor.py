"""`official.load(DIR)` says of texts what the functions of the SavedModel say."""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.compute import first_call, precision
from official.serving.signatures import inputs, table
from official.tokenizers.pair_packing import pack_arrays
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "hf_files" / "bare"
BERT = {
    "type": "transformer", "hidden_size": 12, "num_layers": 2, "num_heads": 3,
    "intermediate_size": 20, "max_positions": 24, "initializer_range": 0.5,
}  # fmt: skip
XLNET = {
    "type": "transformer_xl", "hidden_size": 12, "num_layers": 2, "num_heads": 3,
    "intermediate_size": 20, "initializer_range": 0.5,
}  # fmt: skip
DEBERTA = {
    **BERT, "activation": "gelu", "pooler_activation": "gelu", "positions": "none",
    "disentangled": {"buckets": 4, "max_distance": 9}, "segment_types": 0,
}  # fmt: skip
# Of its layers the second one is local, with a window of five tokens.
MODERN = {
    **BERT, "positions": "rotary", "local_attention": {"window": 4, "global_every": 2},
    "segment_types": 0, "activation": "gelu", "gated": True, "use_bias": False, "norm": "pre",
    "norm_bias": False, "norm_embeddings": True, "first_norm": False,
}  # fmt: skip
TEXTS = ["The cat sat.", "", "a", "dog " * 40, "ünïcødé 猫 😀", "A quick dog ran on a mat!"]
SECOND = ["The dog ran.", "", "cats", "?", "cat " * 50, "a mat"]
CLOSE = dict(rtol=0, atol=1e-5)


def load(folder, *objectives, encoder=BERT, max_length=16, **task):
    """A model folder with random weights, loaded."""
    folder.mkdir(exist_ok=True)
    tokenizer = tokenizers.load(GOLDEN)
    raw = {"name": "x", "encoder": {**encoder, "vocab_size": tokenizer.vocab_size}}
    if encoder["type"] != "bilm":
        raw["encoder"]["pooler"] = True
    config = configs.from_dict({**raw, "objectives": objectives, "recipe": {"steps": 1}})
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(folder, 1, variables, {})
    (folder / "task.json").write_text(json.dumps({"max_length": max_length, **task}))
    return official.load(folder)


def server(loaded, **task):
    """The signatures of an export."""
    kind, head = table.served(loaded.config, loaded.model)
    weights = precision.Weights([loaded.model.encoder, head])
    context = inputs.ServingContext(
        loaded.config, loaded.tokenizer, loaded.model, loaded.max_length, task,
        weights=weights, head=head,
    )  # fmt: skip
    return kind.signatures(context)


def constants(*texts):
    return [tf.constant(values, tf.string) for values in texts]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2, 32])
def test_labels(tmp_path, batch_size):
    loaded = load(tmp_path, {"type": "classification", "labels": ["bad", "good", "neither"]})
    single, pair = (server(loaded)[name] for name in ("single", "pair"))
    for actual, expected in (
        (loaded.classify(TEXTS, batch_size=batch_size), single(*constants(TEXTS))),
        (loaded.classify(TEXTS, SECOND, batch_size), pair(*constants(TEXTS, SECOND))),
    ):
        assert [label.label.encode() for label in actual] == expected["label"].numpy().tolist()
        assert all(list(label.probabilities) == ["bad", "good", "neither"] for label in actual)
        chances = [list(label.probabilities.values()) for label in actual]
        np.testing.assert_allclose(chances, expected["probabilities"], **CLOSE)
        assert np.ptp(chances, axis=0).min() > 0.01
    assert loaded.classify([]) == []


@pytest.mark.slow
def test_scores(tmp_path):
    loaded = load(tmp_path, {"type": "regression"}, encoder=XLNET)
    actual = loaded.score(TEXTS, SECOND, batch_size=4)
    assert actual.dtype == np.float32 and np.ptp(actual) > 0.01
    expected = server(loaded)["pair"](*constants(TEXTS, SECOND))["score"]
    np.testing.assert_allclose(actual, expected, **CLOSE)
    assert loaded.score([]).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        {"type": "ranking"},
        {"type": "kernel_ranking"},
        {"type": "ranking", "output": "sigmoid", "prompt": "the cat "},
    ],
)
def test_documents(tmp_path, head):
    loaded = load(tmp_path, head)
    rank = server(loaded)["rank"]
    actual = loaded.rank("the dog", TEXTS, batch_size=4)
    np.testing.assert_allclose(actual, rank(*constants(["the dog"], TEXTS))["scores"], **CLOSE)
    assert np.ptp(actual) > 0.01
    actual = loaded.rank(SECOND, TEXTS)
    np.testing.assert_allclose(actual, rank(*constants(SECOND, TEXTS))["scores"], **CLOSE)
    assert loaded.rank("the dog", []).shape == (0,)
    raw = loaded.rank("the dog", TEXTS, raw=True)
    right = loaded.rank("the dog", TEXTS)
    if "output" in head:
        right = np.log(right / (1 - right))
    np.testing.assert_allclose(raw, right, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "form, encoder",
    [
        ("independent", BERT),
        ("independent", MODERN),
        ("conditional", XLNET),
        ("conditional", DEBERTA),
    ],
)
def test_answers(tmp_path, form, encoder):
    objective = {"type": "span_answer", "form": form, "max_answer_length": 4}
    sizes = {"doc_stride": 4, "max_query_length": 5}
    loaded = load(tmp_path, objective, encoder=encoder, no_answers=True, **sizes)
    asked = ["the dog?", "", "a cat sat on", "a", "which mat"]
    contexts = ["The cat sat. " * 9, "", "ünïcødé 猫 dog 😀", "A quick dog ran!", "the mat"]
    served = server(loaded, no_answers=True, **sizes)["answer"](*constants(asked, contexts))
    expected = {name: value.numpy() for name, value in served.items()}
    actual = loaded.answer(asked, contexts, batch_size=2)
    for i, answer in enumerate(actual):
        assert answer.text == contexts[i][answer.start : answer.end]
        assert answer.text.encode() == expected["answer"][i]
        assert (answer.start, answer.end) == (expected["start"][i], expected["end"][i])
        if i != 1:  # of an empty context there is no span
            assert answer.score == pytest.approx(expected["score"][i], abs=1e-5)
            assert answer.null_odds == pytest.approx(expected["null_odds"][i], abs=1e-5)
    # Without a threshold each has one, where there is any text.
    actual = loaded.answer(asked, contexts, no_answers=False)
    assert [bool(answer.text) for answer in actual] == [True, False, True, True, True]
    assert {answer.null_odds for answer in actual} == {None}
    both = loaded.answer(["a", "the dog?"], contexts[0])
    assert both[1][:3] == loaded.answer(asked, contexts)[0][:3]


def test_choices(tmp_path):
    loaded = load(tmp_path, {"type": "multiple_choice"}, blank=True)
    contexts = ["The cat sat. " * 9, "", "A quick dog ran!", "a mat"]
    asked = ["the _ sat", "", "who?", "a cat"]
    choices = [["cat", "dog", "mat"], ["a", "the"], ["dog", "cat", "ünïcødé"], ["a", ""]]
    choose = server(loaded, blank=True)["choose"]
    actual = loaded.choose(contexts, asked, choices, batch_size=3)
    for i, choice in enumerate(actual):
        expected = choose(*constants(contexts[i : i + 1], asked[i : i + 1], choices[i : i + 1]))
        np.testing.assert_allclose(choice.probabilities, expected["probabilities"][0], **CLOSE)
        assert choice.index == expected["index"][0] == np.argmax(choice.probabilities)
        assert choice.text == choices[i][choice.index]
        assert choice.probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert np.ptp(choice.probabilities) > 1e-3
    assert loaded.choose([], [], []) == []
    # In the form of RoBERTa, the rows are those that the builder packs.
    form = {"blank": True, "choice_first": True, "max_choice_length": 2}
    actual = server(loaded, **form)["choose"](*constants(contexts[:1], asked[:1], choices[:1]))
    texts = [contexts[0], *(f"the {choice} sat" for choice in choices[0])]
    context, *texts = loaded.tokenizer.encode(texts)
    tokenizer, length = loaded.tokenizer, loaded.max_length
    rows = [pack_arrays([ids[:2], context], tokenizer, length, cut="second") for ids in texts]
    ids = np.stack([row for row, _ in rows])
    types = np.stack([np.repeat([0, 1], lengths) for _, lengths in rows])
    batch = (tf.constant(x[None], tf.int32) for x in (ids, np.ones_like(ids), types))
    expected = server(loaded)["tokens"](*batch)["probabilities"]
    np.testing.assert_allclose(actual["probabilities"], expected, **CLOSE)


LABELED = {"classification", "multi_label", "token_classification"}
# Numbers that a head of each type says of texts.
CALLS = {
    "classification": lambda m: [p for x in m.classify(TEXTS, SECOND) for p in x[1].values()],
    "multi_label": lambda m: [p for x in m.classify(TEXTS) for p in x[1].values()],
    "regression": lambda m: m.score(TEXTS),
    "ranking": lambda m: m.rank("the dog", TEXTS),
    "span_answer": lambda m: [x.score for x in m.answer(["the dog?"], "The cat sat. " * 9)],
    "multiple_choice": lambda m: m.choose(TEXTS[:1], ["who?"], [["cat", "dog"]])[0].probabilities,
    "token_classification": lambda m: [x.score for found in m.tag(TEXTS) for x in found],
}


@pytest.mark.slow
@pytest.mark.parametrize("head", CALLS)
def test_first_calls_run_without_a_graph(head, tmp_path, monkeypatch):
    names = ["O", "B-X", "I-X"] if head == "token_classification" else ["a", "b", "c"]
    named = {"labels": names} if head in LABELED else {}
    loaded = load(tmp_path, {"type": head, **named}, doc_stride=4, max_query_length=5)
    eager = noted(loaded.model, monkeypatch)
    first, *others = (np.array(CALLS[head](loaded)) for _ in range(first_call.EAGER_CALLS + 2))
    assert eager == [True] * first_call.EAGER_CALLS + [False]
    assert first.size
    for other in others:
        np.testing.assert_allclose(other, first, rtol=0, atol=2e-6)


def noted(model, monkeypatch):
    """Whether each call of the encoder is eager; the list grows with the calls."""
    encode, eager = model.encode_as_read, []
    monkeypatch.setattr(
        model,
        "encode_as_read",
        lambda *args, **options: eager.append(tf.executing_eagerly()) or encode(*args, **options),
    )
    return eager


def test_many_texts_and_long_ones_are_computed_in_groups(tmp_path, monkeypatch):
    loaded = load(tmp_path, {"type": "regression"})
    eager = noted(loaded.model, monkeypatch)
    loaded.score([*TEXTS, "dog " * 100])
    loaded.score(TEXTS)
    assert eager == [False]


@pytest.mark.slow
def test_a_model_of_several_tasks_is_told_which(tmp_path):
    loaded = load(
        tmp_path,
        {"type": "classification", "labels": ["no", "yes"], "task": "rte"},
        {"type": "classification", "labels": ["bad", "good", "so"], "task": "cola"},
        {"type": "regression", "task": "stsb"},
    )
    encoded = [loaded.encode([text], pooling="pooled")[0] for text in TEXTS]
    for objective, name in zip(loaded.model.objectives, ("rte", "cola", "stsb"), strict=True):
        head = objective.output_projection
        logits = np.array(encoded) @ head.kernel.numpy() + head.bias.numpy()
        if name == "stsb":
            np.testing.assert_allclose(loaded.score(TEXTS), logits[:, 0], **CLOSE)
            continue
        actual = [list(x.probabilities.values()) for x in loaded.classify(TEXTS, task=name)]
        expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(actual, expected, **CLOSE)
    with pytest.raises(UserError, match="task: missing: the tasks .* classify are rte, cola$"):
        loaded.classify(TEXTS)
    with pytest.raises(UserError, match="task: 'mnli' is not known: the tasks .* score are stsb$"):
        loaded.score(TEXTS, task="mnli")


def test_what_a_model_cannot_say_is_refused(tmp_path):
    loaded = load(tmp_path / "labels", {"type": "classification", "num_labels": 2})
    for call, name in (
        (lambda: loaded.score(["a"]), "score: this model has no objective regression"),
        (lambda: loaded.rank("a", ["a"]), "no objective ranking or kernel_ranking"),
        (lambda: loaded.answer(["a"], ["a"]), "no objective span_answer"),
        (lambda: loaded.choose(["a"], ["a"], [["a"]]), "no objective multiple_choice"),
    ):
        with pytest.raises(UserError, match=f"{name}, only classification: call classify$"):
            call()
    with pytest.raises(UserError, match="the classification has no `labels` in config.yaml"):
        loaded.classify(["a"])
    bare = load(tmp_path / "bare")
    with pytest.raises(UserError, match="answer: .* no objective span_answer, only none$"):
        bare.answer(["a"], ["a"])


def test_lists_that_cannot_be_are_refused(tmp_path):
    loaded = load(tmp_path, {"type": "regression"}, {"type": "multiple_choice"})
    with pytest.raises(UserError, match=r"texts: give a list, such as \[text\], not one text"):
        loaded.score("a text")
    with pytest.raises(UserError, match="second: give a list"):
        loaded.score(["a text"], "another")
    with pytest.raises(UserError, match="same length, got 2 texts, 1 second"):
        loaded.score(["a", "b"], ["c"])
    with pytest.raises(UserError, match="batch_size: 0 is less than 1"):
        loaded.score(["a"], batch_size=0)
    with pytest.raises(UserError, match="got 1 contexts, 1 questions, 2 choices"):
        loaded.choose(["a"], ["a"], [["b"], ["c"]])
    for none in ([], "bc"):
        with pytest.raises(UserError, match="choices: row 0 has no list of choices"):
            loaded.choose(["a"], ["a"], [none])


NO_TEXTS = [None, float("nan"), 3, b"a"]


def test_values_that_are_no_texts_are_refused_with_their_number(tmp_path):
    loaded = load(
        tmp_path, {"type": "classification", "labels": ["a", "b"]}, {"type": "regression"},
        {"type": "ranking"}, {"type": "span_answer"}, {"type": "multiple_choice"},
        {"type": "masked_lm"}, {"type": "token_classification", "labels": ["O", "B-X"]},
    )  # fmt: skip
    for value in NO_TEXTS:
        texts, pairs = ["ok", value], [("a", "b"), ("a", value)]
        for method, arguments, name in (
            (loaded.classify, (texts,), "texts"),
            (loaded.score, (["a", "b"], texts), "second"),
            (loaded.classify, (pairs,), "texts"),
            (loaded.rank, ("a", texts), "documents"),
            (loaded.rank, (texts, ["a", "b"]), "query"),
            (loaded.answer, (texts, "a"), "questions"),
            (loaded.answer, (["a", "b"], texts), "contexts"),
            (loaded.choose, (texts, ["a", "b"], [["a"], ["b"]]), "contexts"),
            (loaded.choose, (["a"], ["a"], [texts]), "choices: row 0"),
            (loaded.encode, (texts,), "texts"),
            (loaded.tokens, (texts,), "texts"),
            (loaded.search, (["a"], texts), "texts"),
            (loaded.fill_mask, (texts,), "fill_mask: texts"),
        ):
            with pytest.raises(UserError, match=f"^{name}: text 1 is not a string: "):
                method(*arguments)
        with pytest.raises(UserError, match="text 1 is neither a string nor a list of words"):
            loaded.tag(texts)
    with pytest.raises(UserError, match="texts: give a list, such as .text., not None"):
        loaded.classify(None)


@pytest.mark.slow
def test_pairs_as_tuples_and_halves_of_surrogate_pairs(tmp_path):
    """Pairs are those of two lists; a half is U+FFFD, as vectors of texts have it."""
    loaded = load(tmp_path, {"type": "classification", "labels": ["a", "b"]})
    first, second = ["The cat", "dog"], ["ran", "on a mat"]
    expected = loaded.classify(first, second)
    assert loaded.classify(list(zip(first, second, strict=True))) == expected
    assert loaded.classify([list(pair) for pair in zip(first, second, strict=True)]) == expected
    with pytest.raises(UserError, match="texts: text 1 is no pair, as the first one is: 'dog'"):
        loaded.classify([("a", "b"), "dog"])
    with pytest.raises(UserError, match="texts: text 1 is not a string: "):
        loaded.classify(["dog", ("a", "b")])
    assert loaded.classify(["a \ud83d b"]) == loaded.classify(["a \ufffd b"])
    vectors = [loaded.encode([f"a {half} b"]) for half in ("\ud83d", "\ufffd")]
    np.testing.assert_allclose(*vectors, **CLOSE)
