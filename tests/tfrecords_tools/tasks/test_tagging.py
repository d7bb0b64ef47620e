"""Files of tags to shards: readers, tokens of words, windows, repair, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.shards import side_texts
from official.tasks import tag_files
from official.tokenizers import windows
from official.utils.errors import UserError
from official.utils.text_lines import BadRows
from tests import GOLDEN, small
from tfrecords_tools.tasks import builder as task_builder
from tfrecords_tools.tasks import tagging

TASK = tasks.generic("tagging", "0", label="-1")
CONLL = "-DOCSTART- -X- O\n\nbaba X B-PER\nbebo X I-PER\n \t\nbi  X O\n\n\n"


def tokenizer(tmp_path, kind="wordpiece"):
    if kind == "wordpiece":
        return tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    if kind == "characters":
        return tokenizers.Characters(["<S>", "</S>", "<UNK>", *small.WORDS])
    golden = json.loads((GOLDEN / "byte_bpe.json").read_text())
    merges = [tuple(line.split(" ")) for line in golden["merges.txt"].splitlines()[1:]]
    return tokenizers.ByteBPE(golden["vocab.json"], merges)


def read(path, text, rule="words", nested="refuse", widen=False, **options):
    path.write_text(text)
    bad = options.setdefault("bad", BadRows())
    records = tag_files.read(path, TASK.columns, **options)
    return list(tagging.as_words(records, None, rule, bad, nested, widen))


def build(tmp_path, files, kind="wordpiece", max_length=32, **options):
    paths = {}
    for split, text in files.items():
        paths[split] = tmp_path / f"{split}.{'jsonl' if text.startswith('{') else 'conll'}"
        paths[split].write_text(text)
    said = []
    built = task_builder.build(
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
    (text,) = read(tmp_path / "test.conll", "ba\nbe\n", labeled=False)
    assert (text.words, text.tags) == (("ba", "be"), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ba\n", "line 1: one column ('ba')"),
        ("", "is empty: it has no words"),
        ("-DOCSTART- O\n", "is empty: it has no words"),
    ],
)
def test_broken_conll_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read(tmp_path / "a.conll", text)


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        ("be NNP I-NP B-X", "wrong number of columns", "line 4: 4 columns .* where line 1 has 3"),
        ("be B-X", "wrong number of columns", "line 4: 2 columns .'be B-X'. where line 1 has 3"),
        (
            "New York\tNNP\tB-X",
            "other separators",
            "line 4: .* separated by tabs, and line 1",
        ),
        ("b\udcffe X O", "not UTF-8", "line 4: not UTF-8"),
    ],
)
def test_lines_of_conll_that_cannot_be_used(tmp_path, line, reason, message):
    """The text of the line is left out, and no other."""
    path = tmp_path / "a.conll"
    text = f"ba X B-X\n\nbo X O\n{line}\nbi X O\n\nbu X O\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=f"a.conll, {message}.*--skip_bad_rows"):
        list(tag_files.read(path, TASK.columns))
    bad = BadRows(skip=True)
    found = [text.words for text in tag_files.read(path, TASK.columns, bad=bad)]
    assert found == [("ba",), ("bu",)] and bad.counts == {reason: 1}


def test_a_line_with_a_tab_is_separated_by_tabs(tmp_path):
    (text,) = read(tmp_path / "a.conll", "New York\tB-LOC\nis\tO\nbig \t O\n")
    assert text.words == ("New York", "is", "big") and text.tags == ("B-LOC", "O", "O")
    for rows in ("is O\nNew York\tB-LOC\n", "New York\tB-LOC\nis O\n"):
        with pytest.raises(UserError, match="line 2: .* has columns separated by (tabs|blanks)"):
            read(tmp_path / "a.conll", rows)
    with pytest.raises(UserError, match="line 2: one column .'O'., expected a word and its tag"):
        read(tmp_path / "a.conll", "is\tO\n\tO\n")
    columns = dataclasses.replace(TASK.columns, text="1")
    (tmp_path / "a.conll").write_text("x\tis\tO\nx\t \tO\n")
    with pytest.raises(UserError, match="line 2: the word is empty"):
        list(tag_files.read(tmp_path / "a.conll", columns))


def test_other_names_of_keys(tmp_path):
    rows = [
        {"tokens": ["Ada", "is"], "ner_tags": ["B-PER", "O"]},
        {"tokens": ["Ada", "is"], "ner_tags": [1, 0]},
        {"words": ["Ada", "is"], "tags": ["B-PER", "O"], "row": 3, "entities": []},
        {"text": "Ada is", "spans": [{"start": 0, "end": 3, "label": "PER"}]},
        {"text": "Ada is", "label": [[0, 3, "PER"]]},
        {"text": "Ada is", "words": ["Ada is"], "tags": ["O"], "entities": [
            {"start": 0, "end": 3, "type": "PER", "text": "Ada", "score": 0.5}]},
    ]  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = read(tmp_path / "a.jsonl", text, labels=["O", "B-PER"])
    assert [(each.words, each.tags) for each in found] == [(("Ada", "is"), ("B-PER", "O"))] * 6
    with pytest.raises(UserError, match="line 2: tag 1 is a number: name the tags with --labels"):
        read(tmp_path / "a.jsonl", text)
    with pytest.raises(UserError, match="line 2: tag 1 is not from 0 to 0, those of --labels"):
        read(tmp_path / "a.jsonl", text, labels=["O"])


def test_nested_spans(tmp_path):
    places = [(0, 10, "ORG"), (0, 3, "LOC"), (4, 10, "X"), (11, 13, "PER")]
    spans = [{"start": a, "end": b, "type": kind} for a, b, kind in reversed(places)]
    row = json.dumps({"text": "New London is", "spans": spans})
    with pytest.raises(UserError, match=r"span 0-3 \(LOC\) is inside 0-10 .*--nested_spans=inner"):
        read(tmp_path / "a.jsonl", row)
    (inner,) = read(tmp_path / "a.jsonl", row, nested="innermost")
    assert (inner.tags, inner.left_out) == (("B-LOC", "B-X", "B-PER"), 1)
    (outer,) = read(tmp_path / "a.jsonl", row, nested="outermost")
    assert (outer.tags, outer.left_out) == (("B-ORG", "I-ORG", "B-PER"), 2)
    spans[0] = {"start": 2, "end": 5, "type": "X"}
    row = json.dumps({"text": "New London is", "spans": spans})
    with pytest.raises(UserError, match="overlap"):
        read(tmp_path / "a.jsonl", row, nested="outermost")


NESTED = [
    ("AMD/Intel chips", 0, 3, "ORG"), ("Ada's cat", 0, 3, "PER"), ("York-based firm", 0, 4, "LOC"),
    ("Ada is", 0, 3, "PER"),
]  # fmt: skip


def test_entities_inside_words(tmp_path):
    rows = [
        {"text": text, "spans": [{"start": a, "end": b, "type": kind}]}
        for text, a, b, kind in NESTED
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = read(tmp_path / "a.jsonl", text)
    assert [each.tags[0] for each in found] == ["B-ORG", "B-PER", "B-LOC", "B-PER"]
    assert [each.words[0] for each in found] == ["AMD", "Ada", "York", "Ada"]
    bad = BadRows(skip=True)
    assert len(read(tmp_path / "a.jsonl", text, rule="edges", bad=bad)) == 1
    assert bad.counts == {"span that cuts a word": 3}
    row = json.dumps({"text": "東京タワーに", "spans": [{"start": 0, "end": 5, "type": "LOC"}]})
    with pytest.raises(
        UserError, match="cuts the word 'タワーに'.*--split_words .basic, tokens or"
    ):
        read(tmp_path / "a.jsonl", row)
    (each,) = read(tmp_path / "a.jsonl", row, rule="characters")
    assert each.tags == ("B-LOC", *["I-LOC"] * 4, "O")


@pytest.mark.parametrize("rule", ["words", "tokens"])
def test_shards_have_the_text_and_the_rule(tmp_path, rule):
    text = "bébo-\u200bbi'd ba"
    row = {"text": text, "spans": [{"start": 0, "end": 4, "type": "X"}]}
    task = dataclasses.replace(TASK, split_words=rule)
    built, _ = build(tmp_path, {"train": json.dumps(row)}, task=task)
    assert built.task.split_words == rule
    (kept,) = side_texts.read_tagged(tmp_path / "shards", "train", built)
    assert kept.text == text
    assert kept.words == tuple(text[a:b] for a, b in kept.offsets)
    ends = [b for (_, b), tag in zip(kept.offsets, kept.tags, strict=True) if tag != "O"]
    assert ends[-1] == 4 and kept.tags[0] == "B-X"
    config = configs.from_dict(
        {
            "name": "t", "encoder": {"type": "transformer", "hidden_size": 8, "num_heads": 2},
            "objectives": [{"type": "token_classification"}],
        }
    )  # fmt: skip
    batch = next(iter(ShardDataset(tmp_path / "shards", config, "train").dataset(1)))
    chosen = tokenizer(tmp_path)
    running = text if rule == "tokens" else " ".join(kept.words)
    real = batch["padding_mask"][0].numpy()
    ids, read_at = (batch[name][0].numpy()[real].tolist() for name in ("token_ids", "word_ids"))
    assert ids[1:-1] == chosen.encode([running])[0].tolist()
    if rule == "tokens":
        assert read_at == [-1, *range(len(kept.words)), -1]


def test_tags_that_the_train_file_lacks_are_said(tmp_path):
    rows = {"train": "ba B-X\nbe I-X\n", "validation": "bo B-X\nbi B-Y\nbu I-Y\n\nbi B-Y\n"}
    _, said = build(tmp_path, rows)
    assert said[-1] == (
        "validation: 3 words have tags that the train file lacks (B-Y 2, I-Y 1): a model has no "
        "example to learn them from, and metrics count these entities as missed"
    )


def test_bad_texts_are_counted(tmp_path):
    """Also those that only the other texts show to be wrong."""
    rows = "ba B-X\n\nba I-X\n\nba B-Z\n\nba B-X E-Z\n\nbo O\n"
    task = tasks.generic("tagging", "0", label="-1", labels=["O", "B-X", "I-X"])
    with pytest.raises(UserError, match="line 3: the tag 'I-X'.*; --skip_bad_rows leaves"):
        build(tmp_path, {"train": rows.replace("ba B-X E-Z\n\n", "")}, task=task)
    built, said = build(tmp_path, {"train": rows}, task=task, skip_bad_rows=True)
    assert built.totals.splits["train"].skipped == {
        "tags out of order": 1, "tag not in the set": 1, "wrong number of columns": 1,
    }  # fmt: skip
    assert built.totals.splits["train"].texts == 2


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
        ({"word": []}, "neither 'tokens'"),
        ({"tokens": ["a"], "tags": []}, "1 tokens and 0 tags"),
        ({"tokens": ["a b"], "tags": ["O"]}, "word 'a b' is empty or has a blank"),
        ({"tokens": ["a"]}, "'tags' is None"),
        ({"tokens": []}, "the text has no words"),
        ({"text": "ab cd", "spans": [{"start": 1, "end": 2, "type": "X"}]}, "cuts the word 'ab'"),
        ({"text": "ab cd", "spans": [{"start": 2, "end": 3, "type": "X"}]}, "covers no word"),
        ({"text": "ab", "spans": [{"start": 0, "end": 3, "type": "X"}]}, "is not inside the text"),
        ({"text": "ab", "spans": [{"start": 0, "type": "X"}]}, "whole numbers 'start' and 'end'"),
        (
            {"text": "ab", "spans": [{"start": 0, "end": 2, "type": "X"}] * 2},
            "have the same position",
        ),
    ],
)
def test_broken_json_is_refused(tmp_path, row, message):
    with pytest.raises(UserError, match=f"a.jsonl, line 2: .*{message}"):
        read(tmp_path / "a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n' + json.dumps(row))


def test_a_span_is_widened_to_words(tmp_path):
    row = {"text": "abc de", "spans": [{"start": 1, "end": 5, "type": "X"}]}
    (text,) = read(tmp_path / "a.jsonl", json.dumps(row), widen=True)
    assert text.tags == ("B-X", "I-X")


def encoded(texts, chosen):
    """The ids and the word ids of each text."""
    tokens = windows.encode_words(tf.ragged.constant(texts, ragged_rank=1), chosen)
    return list(zip(tokens.ids, tokens.word_ids, strict=True))


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "characters"])
def test_tokens_of_words_are_those_of_running_text(tmp_path, kind):
    chosen = tokenizer(tmp_path, kind)
    rng = np.random.default_rng(1)
    texts = [
        ["".join(rng.choice(small.WORDS, rng.integers(1, 3))) for _ in range(rng.integers(1, 9))]
        for _ in range(30)
    ]
    texts.append(["ba", "x" * 10_000, "(be)", "中国", "\u200b", "bo"])
    for words, tokens in zip(texts, encoded(texts, chosen), strict=True):
        ids, word_ids = (part.numpy() for part in tokens)
        np.testing.assert_array_equal(ids, chosen.encode([" ".join(words)])[0])
        found = word_ids[word_ids >= 0].tolist()
        assert found == sorted(set(found))
        for number, word in enumerate(words):
            if word == "\u200b" and kind == "wordpiece":
                assert number not in found
                continue
            at = word_ids.tolist().index(number)
            alone = chosen.encode([word if number == 0 else f" {word}"])[0]
            assert ids[at] == alone[0]


def test_each_word_is_read_in_the_window_with_most_context(tmp_path):
    chosen = tokenizer(tmp_path)
    lengths = (0, 1, 5, 6, 7, 8, 9, 30, 31)
    ids = tf.RaggedTensor.from_row_lengths(tf.ragged.range(lengths).values, lengths)
    made = windows.cut_words(windows.WordTokens(ids, ids, None), chosen, 8)
    cut = [part.numpy().tolist() for part in made.windows]
    for text, length in enumerate(lengths):
        mine = [i for i, row in enumerate(cut[0]) if row == text]
        spans = {i: (cut[1][i], cut[1][i] + cut[2][i]) for i in mine}
        read = []
        for i in mine:
            row, word_ids = made.token_ids[i].numpy(), made.word_ids[i].numpy()
            assert len(row) <= 8
            words = word_ids[word_ids >= 0].tolist()
            np.testing.assert_array_equal(row[word_ids >= 0], words)
            start, end = spans[i]
            for word in words:
                contexts = [min(word - a, b - 1 - word) for a, b in spans.values() if a <= word < b]
                assert min(word - start, end - 1 - word) == max(contexts)
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
    assert side_texts.read_tagged(tmp_path / "shards", "test", built)[0].words == ("ba", "be")
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
        r"O I-X B-X\), which expects 'B-X': .*--repair_tags"
    )
    with pytest.raises(UserError, match=message):
        build(tmp_path, {"train": text})
    built, said = build(tmp_path, {"train": text}, repair_tags=True)
    assert built.totals.splits["train"].repaired_tags == 1
    assert said[0].endswith("1 tags repaired")
    assert side_texts.read_tagged(tmp_path / "shards", "train", built)[0].tags == (
        "O",
        "B-X",
        "B-X",
    )


def test_tags_that_are_no_entities(tmp_path):
    """Parts of speech: all words are counted, and the metrics are those of words."""
    train = "the\tDET\ncat\tNOUN\n.\tPUNCT\n\nthe\tDET\nran\tVERB\n"
    built, said = build(tmp_path, {"train": train, "validation": "the\tDET\n"})
    assert built.task.labels == ("DET", "NOUN", "PUNCT", "VERB")
    assert built.task.metrics == ("accuracy", "macro_f1")
    assert built.totals.splits["train"].labels == {"DET": 2, "NOUN": 1, "PUNCT": 1, "VERB": 1}
    assert "tags DET 2, NOUN 1, PUNCT 1, VERB 1" in said[0]


def test_tags_of_no_scheme_among_entities(tmp_path):
    train = "ba B-X\n\nbe O\nbi NOUN\n\nbo O\n"
    with pytest.raises(UserError, match=r"line 4: tag 'NOUN': is neither 'O' nor .*, or none"):
        build(tmp_path, {"train": train})
    (tmp_path / "again").mkdir()
    built, _ = build(tmp_path / "again", {"train": train}, skip_bad_rows=True)
    assert built.totals.splits["train"].skipped == {"not a tag": 1}


def test_labels_that_are_named(tmp_path):
    task = tasks.generic("tagging", "0", label="-1", labels=["O", "B-PER", "I-PER"])
    with pytest.raises(UserError, match="line 1: tag 'B-X' is not one of O, B-PER, I-PER"):
        build(tmp_path, {"train": "ba B-X\n"}, task=task)
    with pytest.raises(UserError, match="no tag but 'O'"):
        build(tmp_path, {"train": "ba O\n"})


def test_texts_without_words_are_left_out(tmp_path):
    rows = '{"tokens": [], "tags": []}\n{"tokens": ["ba"], "tags": ["B-X"]}\n'
    with pytest.raises(UserError, match="line 1: the text has no words; --skip_bad_rows"):
        build(tmp_path, {"train": rows})
    built, _ = build(tmp_path, {"train": rows}, skip_bad_rows=True)
    assert built.totals.skipped == {"no words": 1}


@pytest.mark.parametrize(
    ("name", "text", "entities", "labels"),
    [
        ("without types", "ba B\nbe I\nbi O\nbo B\n", {"_": 2}, "O B-_ I-_"),
        ("with _", "ba B_X\nbe I_X\nbi O\nbo B_Y\n", {"X": 1, "Y": 1}, "O B-X B-Y I-X"),
        ("BILOU", "ba B-X\nbe L-X\nbi O\nbo U-X\n", {"X": 2}, "O B-X E-X S-X"),
        ("BMES", "ba B-X\nbe M-X\nbi E-X\nbo S-X\n", {"X": 2}, "O B-X E-X I-X S-X"),
    ],
)
def test_other_spellings_of_tags(tmp_path, name, text, entities, labels):
    built, said = build(tmp_path, {"train": text, "validation": "ba O\n"})
    assert built.totals.splits["train"].entities == entities
    assert built.task.labels == tuple(labels.split())
    assert built.task.metrics[0] == "f1"
    assert said[0].startswith("the tags ")


def test_labels_may_be_named_in_the_spelling_of_the_file(tmp_path):
    task = tasks.generic("tagging", "0", label="-1", labels=["O", "U-X", "B-X", "L-X"])
    built, _ = build(tmp_path, {"train": "ba B-X\nbe L-X\nbi U-X\n"}, task=task)
    assert built.task.labels == ("O", "S-X", "B-X", "E-X")


def test_widened_spans_are_counted_and_gold_is_kept(tmp_path):
    rows = [
        {"text": "baba bebo", "spans": [[0, 2, "X"], [5, 9, "Y"]]},
        {"text": "ba be", "spans": [[0, 2, "X"]]},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    built, said = build(tmp_path, {"train": text, "validation": text}, repair_tags=True)
    assert built.totals.splits["train"].widened_spans == 1
    assert "1 spans (33.3%) widened to whole words" in said[0] and "missed" not in said[0]
    assert "1 spans (33.3%) widened to whole words, and count as missed in metrics" in said[1]
    first, second = side_texts.read_tagged(tmp_path / "shards", "validation", built)
    assert first.tags == ("B-X", "B-Y") and first.spans == ((0, 2, "X"), (5, 9, "Y"))
    assert second.spans is None
