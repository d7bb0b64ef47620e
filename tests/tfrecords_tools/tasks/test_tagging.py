"""Files of tags to shards: readers, tokens of words, windows, repair, and what is refused."""

import json

import numpy as np
import pytest

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.shards import tagged_texts
from official.tokenizers import word_windows
from official.utils.errors import UserError
from tests import GOLDEN, small
from tfrecords_tools.tasks import tagging
from tfrecords_tools.tasks.readers import tagged_files

TASK = tasks.generic("tagging", "0", label="-1")
CONLL = "-DOCSTART- -X- O\n\nbaba X B-PER\nbebo X I-PER\n \t\nbi\tX\tO\n\n\n"


def tokenizer(tmp_path, kind="wordpiece"):
    if kind == "wordpiece":
        return tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    if kind == "characters":
        return tokenizers.Characters(["<S>", "</S>", "<UNK>", *small.WORDS])
    golden = json.loads((GOLDEN / "byte_bpe.json").read_text())
    merges = [tuple(line.split(" ")) for line in golden["merges.txt"].splitlines()[1:]]
    return tokenizers.ByteBPE(golden["vocab.json"], merges)


def read(path, text, **options):
    path.write_text(text)
    return list(tagged_files.read(path, TASK.columns, **options))


def build(tmp_path, files, kind="wordpiece", max_length=32, **options):
    paths = {}
    for split, text in files.items():
        paths[split] = tmp_path / f"{split}.{'jsonl' if text.startswith('{') else 'conll'}"
        paths[split].write_text(text)
    said = []
    built = tagging.build(
        options.pop("task", TASK), paths, tokenizer(tmp_path, kind), tmp_path / "shards",
        max_length, report=said.append, **options,
    )  # fmt: skip
    return built, said


def test_conll(tmp_path):
    first, second = read(tmp_path / "a.conll", CONLL)
    assert (first.words, first.tags) == (("baba", "bebo"), ("B-PER", "I-PER"))
    assert (second.words, second.tags, second.lines) == (("bi",), ("O",), (6,))
    assert first.location.endswith("a.conll, line 3")


def test_conll_without_tags(tmp_path):
    (text,) = read(tmp_path / "test.conll", "ba\nbe\n", labelled=False)
    assert (text.words, text.tags) == (("ba", "be"), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ba\n", "line 1: one column ('ba')"),
        ("ba O\nbe X-PER\n", "line 2: tag 'X-PER': is neither 'O'"),
        ("", "is empty: it has no words"),
        ("-DOCSTART- O\n", "is empty: it has no words"),
    ],
)
def test_broken_conll_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read(tmp_path / "a.conll", text)


def test_json_lines(tmp_path):
    rows = [
        {"tokens": ["a", "b"], "tags": ["S-X", "O"]},
        {"text": "See (Ada Byron) in U.S., 中国", "spans": [
            {"start": 5, "end": 14, "type": "PER"}, {"start": 19, "end": 22, "type": "LOC"},
            {"start": 25, "end": 27, "type": "LOC"},
        ]},
    ]  # fmt: skip
    first, second = read(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert (first.words, first.tags) == (("a", "b"), ("S-X", "O"))
    assert second.words == ("See", "(", "Ada", "Byron", ")", "in", "U.S", ".", ",", "中", "国")
    assert second.tags == tuple("O O B-PER I-PER O O B-LOC O O B-LOC I-LOC".split())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": []}, "neither 'tokens'"),
        ({"tokens": ["a"], "tags": []}, "1 tokens and 0 tags"),
        ({"tokens": ["a b"], "tags": ["O"]}, "word 'a b' is empty or has a blank"),
        ({"tokens": []}, "'tags' is None"),
        ({"text": "ab cd", "spans": [{"start": 1, "end": 2, "type": "X"}]}, "cuts the word 'ab'"),
        ({"text": "ab cd", "spans": [{"start": 2, "end": 3, "type": "X"}]}, "has no word"),
        ({"text": "ab", "spans": [{"start": 0, "end": 3, "type": "X"}]}, "is not inside the text"),
        ({"text": "ab", "spans": [{"start": 0, "type": "X"}]}, "whole numbers 'start' and 'end'"),
        ({"text": "ab", "spans": [{"start": 0, "end": 2, "type": "X"}] * 2}, "share a word"),
    ],
)
def test_broken_json_is_refused(tmp_path, row, message):
    with pytest.raises(UserError, match=f"a.jsonl, line 2: .*{message}"):
        read(tmp_path / "a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n' + json.dumps(row))


def test_a_span_is_widened_to_words(tmp_path):
    row = {"text": "abc de", "spans": [{"start": 1, "end": 5, "type": "X"}]}
    (text,) = read(tmp_path / "a.jsonl", json.dumps(row), widen=True)
    assert text.tags == ("B-X", "I-X")


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "characters"])
def test_tokens_of_words_are_those_of_running_text(tmp_path, kind):
    chosen = tokenizer(tmp_path, kind)
    rng = np.random.default_rng(1)
    texts = [
        ["".join(rng.choice(small.WORDS, rng.integers(1, 3))) for _ in range(rng.integers(1, 9))]
        for _ in range(30)
    ]
    texts.append(["ba", "x" * 10_000, "(be)", "中国", "\u200b", "bo"])
    for words, each in zip(texts, word_windows.encode(texts, chosen), strict=True):
        np.testing.assert_array_equal(each.ids, chosen.encode([" ".join(words)])[0])
        found = each.word_ids[each.word_ids >= 0].tolist()
        assert found == sorted(set(found))
        for number, word in enumerate(words):
            if word == "\u200b" and kind == "wordpiece":
                assert number not in found
                continue
            at = each.word_ids.tolist().index(number)
            alone = chosen.encode([word if number == 0 else f" {word}"])[0]
            assert each.ids[at] == alone[0]


def test_each_word_is_read_in_the_window_with_most_context(tmp_path):
    chosen = tokenizer(tmp_path)
    for length in (0, 1, 5, 6, 7, 8, 9, 30, 31):
        tokens = word_windows.WordTokens(np.arange(length), np.arange(length))
        windows = word_windows.windows(length, chosen, 8)
        read = []
        for window in windows:
            row = word_windows.pack(tokens, window, chosen)
            assert len(row.ids) <= 8
            words = row.word_ids[row.word_ids >= 0].tolist()
            np.testing.assert_array_equal(row.ids[row.word_ids >= 0], words)
            for word in words:
                contexts = [
                    min(word - w.start, w.end - 1 - word)
                    for w in windows
                    if w.start <= word < w.end and w.end - w.start == window.end - window.start
                ]
                assert min(word - window.start, window.end - 1 - word) == max(contexts)
            read += words
        assert read == list(range(length))


def test_shards(tmp_path):
    rows = {"train": CONLL, "validation": "bo B-LOC\n", "test": "ba\nbe\n"}
    built, said = build(tmp_path, rows)
    assert built.task.labels == ("O", "B-LOC", "B-PER", "I-PER")
    assert built.task.unlabelled == ("test",)
    train = built.totals.splits["train"]
    assert (train.texts, train.words, train.entities) == (2, 3, {"PER": 1})
    assert said[0] == "train: 2 texts in 2 windows; 3 words; 9 tokens; 1 entities (PER 1)"
    assert tagged_texts.read(tmp_path / "shards", "test", built)[0].words == ("ba", "be")
    for layout, expected in (("bert", [-1, 2, -1, 3, -1, -1]), ("xlnet", [-1, 2, -1, 3, -1, -1])):
        encoder = {"type": "transformer"} if layout == "bert" else {"type": "transformer_xl"}
        raw = {"name": "t", "encoder": {**encoder, "hidden_size": 8, "num_heads": 2}}
        config = configs.from_dict({**raw, "objectives": [{"type": "token_classification"}]})
        batch = next(iter(ShardDataset(tmp_path / "shards", config, "train").dataset(2)))
        first = batch["row"].numpy().tolist().index(0)
        mask = batch["padding_mask"].numpy()[first]
        tags, words = (batch[name].numpy()[first] for name in ("tag_ids", "word_ids"))
        assert (tags[~mask] == -1).all() and (words[~mask] == -1).all()
        if layout == "bert":
            assert tags[mask].tolist() == expected
            assert words[mask].tolist() == [-1, 0, -1, 1, -1, -1]
        else:
            assert tags[mask].tolist() == [2, -1, 3, -1, -1, -1]
            assert words[mask].tolist() == [0, -1, 1, -1, -1, -1]


def test_characters_of_words(tmp_path):
    built, _ = build(tmp_path, {"train": CONLL}, "characters")
    assert {"word_lengths", "word_bytes", "word_ids", "tag_ids"} <= set(built.features)


def test_words_without_tokens_and_long_words_are_counted(tmp_path):
    text = "ba B-X\n\u200b O\n" + "x" * 10_000 + " O\n"
    built, said = build(tmp_path, {"train": text})
    assert built.totals.splits["train"].without_token == 1
    assert said[0].endswith("1 words without a token")


def test_broken_tags_are_refused_or_repaired(tmp_path):
    text = "ba O\nbe I-X\nbi B-X\n"
    message = (
        r"train.conll, line 2: the tag 'I-X' of the word 'be' does not follow BIO \(tags there: "
        r"O I-X B-X\), where it is 'B-X': .*--repair_tags"
    )
    with pytest.raises(UserError, match=message):
        build(tmp_path, {"train": text})
    built, said = build(tmp_path, {"train": text}, repair_tags=True)
    assert built.totals.splits["train"].repaired_tags == 1
    assert said[0].endswith("1 tags repaired")
    assert tagged_texts.read(tmp_path / "shards", "train", built)[0].tags == ("O", "B-X", "B-X")


def test_labels_that_are_named(tmp_path):
    task = tasks.generic("tagging", "0", label="-1", labels=["O", "B-PER", "I-PER"])
    with pytest.raises(UserError, match="line 1: tag 'B-X' is none of O, B-PER, I-PER"):
        build(tmp_path, {"train": "ba B-X\n"}, task=task)
    with pytest.raises(UserError, match="no tag but 'O'"):
        build(tmp_path, {"train": "ba O\n"})


def test_texts_without_words_are_left_out(tmp_path):
    rows = '{"tokens": [], "tags": []}\n{"tokens": ["ba"], "tags": ["B-X"]}\n'
    with pytest.raises(UserError, match="line 1: the text has no words; --skip_bad_rows"):
        build(tmp_path, {"train": rows})
    built, _ = build(tmp_path, {"train": rows}, skip_bad_rows=True)
    assert built.totals.skipped == {"no words": 1}
