"""Entities of raw text: `official.load(DIR).tag`, the signatures, and the steps in Python."""

import random

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.saving import checkpoints, named_arrays
from official.serving.compute import length_groups
from official.serving.export import saved_model
from official.serving.signatures import tagging
from official.tasks import tags as tag_rules
from official.tokenizers import (
    pair_packing,
    text_words,
    windows,
    word_characters,
)
from official.tokenizers.word_characters import Characters
from official.utils import word_rules
from official.utils.errors import UserError
from tests.official.commands.test_export import ask
from tests.official.serving.test_odd_strings import ODD, WORDS
from tests.official.serving.test_predictor import BERT, GOLDEN, XLNET, load, server
from tests.official.tokenizers import slow_windows

LABELS = ["O", "B-LOC", "B-PER", "I-LOC", "I-PER"]
ELMO = {
    "type": "bilm", "character_size": 4, "filters": [[1, 5], [2, 6]], "highway_layers": 1,
    "cell_size": 7, "projection_size": 4, "num_layers": 1,
}  # fmt: skip
HEAD = {"type": "token_classification", "labels": LABELS}
PLAIN = [text for text in ODD if isinstance(text, str)] + ["(", "U.S.", "猫犬", "'s", "\u200d"]


@pytest.fixture(autouse=True)
def groups(monkeypatch):
    """Models this small would read all rows at once."""
    monkeypatch.setattr(length_groups, "STARTING", 0)


def strings(count, seed=0):
    draw = random.Random(seed)
    return [
        draw.choice(["", " "]).join(draw.choices(PLAIN + 3 * WORDS, k=draw.randrange(25)))
        for _ in range(count)
    ]


def model(folder, encoder=BERT, crf=True, max_length=12, save=False, seed=1, rule=None, **head):
    """A model whose tags vary: its chain and its output layer have large random weights."""
    head = {**HEAD, "crf": crf, **head}
    task = {} if rule is None else {"split_words": rule}
    loaded = load(folder, head, encoder=encoder, max_length=max_length, **task)
    rng = np.random.default_rng(seed)
    for variable in loaded.model.objectives[0].trainable_variables:
        variable.assign(rng.normal(0, 1, variable.shape))
    if save:
        variables = named_arrays.values(loaded.model.variables_by_path())
        checkpoints.save(folder, 2, variables, {})
    return loaded


def by_hand(loaded, texts, encoded=None):
    """The entities of lists of words, one window at a time."""
    head = loaded.model.objectives[0]
    results = []
    encoded = encoded or slow_windows.encode(texts, loaded.tokenizer)
    for words, tokens in zip(texts, encoded, strict=True):
        tags, chances = ["O"] * len(words), [1.0] * len(words)
        for window in slow_windows.windows(len(tokens.ids), loaded.max_length):
            ids, word_ids = slow_windows.pack(tokens, window, loaded.tokenizer)
            batch = {
                "token_ids": ids[None],
                "segment_ids": np.zeros_like(ids[None]),
                "padding_mask": np.ones_like(ids[None], bool),
                "word_ids": word_ids[None],
            }
            if loaded.config.encoder.layout == "cls_last":
                batch = {name: np.roll(value, -1, axis=1) for name, value in batch.items()}
                batch["segment_ids"][0, -1] = pair_packing.CLS_SEGMENT
                word_ids = batch["word_ids"][0]
            if isinstance(loaded.tokenizer, Characters):
                batch["character_ids"] = characters(words, window)
            outputs = head.predictions(batch, loaded.model.encode(batch), loaded.model.encoder)
            for t in np.flatnonzero(word_ids >= 0):
                tags[word_ids[t]] = LABELS[int(outputs["tags"][0, t])]
                chances[word_ids[t]] = float(outputs["tag_probabilities"][0, t])
        found = tag_rules.entities(tags)
        results.append([(kind, a, b, np.mean(chances[a:b])) for kind, a, b in found])
    return results


def characters(words, window):
    """The characters of the words of a window, [1, T, 50]."""
    rows = word_characters.of_words(tf.constant(words[window.start : window.end], tf.string))
    ends = (word_characters.SENTENCE_BEGIN, word_characters.SENTENCE_END)
    first, last = (word_characters.mark(which) for which in ends)
    return np.concatenate([first[None], rows, last[None]])[None].astype(np.int32)


def same(actual, expected):
    for found, wanted in zip(actual, expected, strict=True):
        assert [(e.type, e.start, e.end) for e in found] == [e[:3] for e in wanted]
        scores = [e.score for e in found], [e[3] for e in wanted]
        np.testing.assert_allclose(*scores, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "crf, rule",
    [
        (False, "words"),
        pytest.param(True, None, marks=pytest.mark.slow),  # a folder that names no rule
        pytest.param(False, "characters", marks=pytest.mark.slow),
        pytest.param(False, "tokens", marks=pytest.mark.slow),
    ],
)
def test_entities_are_those_of_windows_one_by_one(tmp_path, crf, rule):
    loaded = model(tmp_path, crf=crf, rule=rule)
    texts = strings(3) + ["The cat's sat on the mat-cat . " * 3, "猫" * 12]
    spans = text_words.spans(texts, rule or word_rules.EARLIER, loaded.tokenizer)
    words = [[text[a:b] for a, b in row] for text, row in zip(texts, spans, strict=True)]
    expected = by_hand(loaded, words)
    assert sum(map(len, expected)) > 20
    assert {entity[0] for row in expected for entity in row} == {"LOC", "PER"}
    same(loaded.tag(words, batch_size=8), expected)
    if rule == "tokens":  # the text itself is tokenized
        ends = [np.array([end for _, end in row]) for row in spans]
        running = slow_windows.encode_running(texts, ends, loaded.tokenizer)
        expected = by_hand(loaded, words, running)
    offsets = [
        [(kind, row[a][0], row[b - 1][1], score) for kind, a, b, score in each]
        for row, each in zip(spans, expected, strict=True)
    ]
    found = loaded.tag(texts, batch_size=5)
    same(found, offsets)
    assert all(
        e.text == text[e.start : e.end] for text, row in zip(texts, found, strict=True) for e in row
    )
    graph = server(loaded, **loaded.task)["tag"](tf.constant(texts))
    assert graph["number"].numpy().tolist() == [len(row) for row in found]
    for row, entities in enumerate(found):
        part = graph["texts"][row, : len(entities)].numpy().tolist()
        assert part == [e.text.encode() for e in entities]


@pytest.mark.slow
def test_an_encoder_that_pads_on_the_left(tmp_path):
    loaded = model(tmp_path, encoder=XLNET)
    texts = [["The", "cat", "sat"] * 7, ["dog"], [], ["a", "\u200b", "mat"]]
    found = loaded.tag(texts)
    same(found, by_hand(loaded, texts))
    assert found[2] == [] and any(found)


@pytest.mark.slow
@pytest.mark.long
def test_an_encoder_that_reads_characters(tmp_path, monkeypatch):
    words = [*word_characters.SPECIALS, *WORDS]
    monkeypatch.setattr(tokenizers, "load", lambda *_: Characters(words))
    head = {**HEAD, "crf": True, "bilstm": 5}
    loaded = model(tmp_path / "m", encoder=ELMO, max_length=8, save=True, seed=2, **head)
    texts = [["The", "cat", "ünïcødé", "sat", "😀"] * 4, ["dog"], [], ["a", "x" * 90, "mat"]]
    found = loaded.tag(texts)
    same(found, by_hand(loaded, texts))
    assert found[2] == [] and any(found)
    saved_model.export(tmp_path / "m", tmp_path / "saved")
    raw = [" ".join(text) for text in texts]
    (given,) = ask(tmp_path / "saved", [("tag", {"text": raw})], tmp_path)
    assert given["number"].tolist() == [len(row) for row in loaded.tag(raw)]


@pytest.mark.slow
@pytest.mark.long
def test_the_saved_model_says_what_python_says(tmp_path):
    """In a process that has only TensorFlow."""
    loaded = model(tmp_path / "m", save=True, rule="tokens")
    texts = strings(200, seed=2) + ["The cat sat on the mat . " * 50, "", "猫" * 100]
    assert saved_model.export(tmp_path / "m", tmp_path / "saved") == ("tag", 12)
    raw = [text.encode() for text in texts] + [text for text in ODD if isinstance(text, bytes)]
    (given,) = ask(tmp_path / "saved", [("tag", {"text": raw})], tmp_path)
    texts = [text.decode(errors="replace") for text in raw]
    found = loaded.tag(texts)
    assert sum(map(len, found)) > 500
    assert given["number"].tolist() == [len(row) for row in found]
    for row, entities in enumerate(found):
        for i, entity in enumerate(entities):
            assert given["starts"][row, i] == entity.start
            assert given["ends"][row, i] == entity.end
            assert given["types"][row, i] == entity.type.encode()
            assert given["texts"][row, i].rstrip(b"\0") == entity.text.encode().rstrip(b"\0")
            assert abs(given["scores"][row, i] - entity.score) < 1e-4


@pytest.mark.slow
def test_entities_are_slices_of_odd_texts(tmp_path):
    loaded = model(tmp_path)
    graph = server(loaded)["tag"]
    texts = strings(1000, seed=4)
    number = 0
    given = {name: value.numpy() for name, value in graph(tf.constant(texts)).items()}
    for row, (text, spans) in enumerate(
        zip(texts, text_words.spans(texts, word_rules.EARLIER), strict=True)
    ):
        words = {edge for span in spans for edge in span}
        last = 0
        for i in range(given["number"][row]):
            a, b = given["starts"][row, i], given["ends"][row, i]
            assert last <= a < b and {a, b} <= words
            assert text[a:b].encode() == given["texts"][row, i]
            last, number = b, number + 1
    assert number > 1000


def test_tokens_and_windows_are_those_of_a_loop():
    tokenizer = tokenizers.load(GOLDEN)
    draw = random.Random(3)
    texts = [draw.choices(PLAIN + WORDS, k=draw.randrange(40)) for _ in range(60)]
    texts += [[], [""], ["a"], ["\0", "a b", ""]]
    tokens = windows.encode_words(tf.ragged.constant(texts, ragged_rank=1), tokenizer)
    expected = slow_windows.encode(texts, tokenizer)
    assert tokens.ids.to_list() == [each.ids.tolist() for each in expected]
    assert tokens.word_ids.to_list() == [each.word_ids.tolist() for each in expected]
    for max_length in (3, 4, 9, 200):
        rows = [
            (row, window, slow_windows.pack(each, window, tokenizer))
            for row, each in enumerate(expected)
            for window in slow_windows.windows(len(each.ids), max_length)
        ]
        made = windows.cut_words(tokens, tokenizer, max_length)
        packed = windows.pack_word_windows(tokens, tokenizer, max_length)
        for given in (made.windows.row, packed["row"]):
            assert given.numpy().tolist() == [row for row, _, _ in rows]
        assert made.windows.start.numpy().tolist() == [window.start for _, window, _ in rows]
        for given in (made.word_ids, packed["word_ids"]):
            assert given.to_list() == [each.word_ids.tolist() for _, _, each in rows]
        ids = tf.ragged.boolean_mask(packed["token_ids"], packed["padding_mask"])
        for given in (made.token_ids, ids):
            assert given.to_list() == [each.ids.tolist() for _, _, each in rows]


def test_entities_in_a_graph():
    rng = np.random.default_rng(0)
    labels = ["B-A", "O", *(f"{p}-{k}" for p in "BIES" for k in ("LONG-TYPE", "B")), "I-A"]
    rows = [rng.integers(-1, len(labels), size).tolist() for size in rng.integers(0, 9, 500)]
    chances = [rng.random(len(row)).astype(np.float32).tolist() for row in rows]
    ragged = [tf.ragged.constant(x, t) for x, t in ((rows, tf.int32), (chances, tf.float32))]
    found = tagging.entities_of(*ragged, labels)
    for i, row in enumerate(rows):
        wanted = tag_rules.entities([labels[n] if n >= 0 else "O" for n in row])
        each = [part[i].numpy().tolist() for part in found]
        assert [(t.decode(), a, b) for t, a, b, _ in zip(*each, strict=True)] == wanted
        means = [np.mean(chances[i][a:b]) for _, a, b in wanted]
        np.testing.assert_allclose(each[3], means, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_wrong_inputs(tmp_path):
    loaded = model(tmp_path)
    assert loaded.tag([]) == [] and loaded.tag([""]) == [[]] and loaded.tag([[]]) == [[]]
    for texts, message in (
        ("a cat", "texts: give a list"),
        (["a", ["b"]], "text 0 is a string and text 1 is a list of words"),
        ([3], "text 0 is neither a string nor a list of words: 3"),
        ([["a", None]], "text 0 has a word that is not a string: None"),
    ):
        with pytest.raises(UserError, match=message):
            loaded.tag(texts)
    with pytest.raises(UserError, match="batch_size: 0"):
        loaded.tag(["a"], batch_size=0)


@pytest.mark.slow
@pytest.mark.long
def test_tags_that_mark_no_entities_are_those_of_the_words(tmp_path):
    """Each word comes with its tag: from text, from words, and by hand."""
    loaded = model(tmp_path, crf=False, labels=["DET", "NOUN", "VERB", "O", "PUNCT"], rule="words")
    texts = [["the", "cat", "sat", "."], ["dogs"]]
    hand = []
    for words, tokens in zip(texts, slow_windows.encode(texts, loaded.tokenizer), strict=True):
        (window,) = slow_windows.windows(len(tokens.ids), loaded.max_length)
        ids, word_ids = slow_windows.pack(tokens, window, loaded.tokenizer)
        batch = {"token_ids": ids[None], "word_ids": word_ids[None]}
        batch["segment_ids"], batch["padding_mask"] = 0 * ids[None], ids[None] >= 0
        head = loaded.model.objectives[0]
        tags = head.predictions(batch, loaded.model.encode(batch), loaded.model.encoder)["tags"][0]
        numbers = [int(tags[np.flatnonzero(word_ids == i)[0]]) for i in range(len(words))]
        hand.append([head.config.labels[number] for number in numbers])
    for given in (texts, [" ".join(words) for words in texts]):
        found = loaded.tag(given)
        assert [[e.text for e in row] for row in found] == texts
        assert [[e.type for e in row] for row in found] == hand
    assert len({tag for row in hand for tag in row}) > 1
