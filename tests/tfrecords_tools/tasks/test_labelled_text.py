import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official import tasks, tokenizers
from official.shards import manifest, parsing, shard_folder
from official.utils import progress, strict
from official.utils.errors import UserError
from tfrecords_tools.tasks import builder as task_builder
from tfrecords_tools.tasks import labelled_text
from tfrecords_tools.writing import shards

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a good bad film ##s the is was it not".split()
SENTIMENT = tasks.generic("classification", "text", label="label")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    settings = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizers.load(folder)


def _files(folder, **contents):
    """Files train="a.tsv" and so on, from their content."""
    names = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    files = {}
    for split, content in contents.items():
        files[split] = folder / names[split]
        files[split].write_bytes(content.encode() if isinstance(content, str) else content)
    return files


def _build(task, files, tokenizer, output, **options):
    options.setdefault("report", lambda line: None)
    return task_builder.build(task, files, tokenizer, output, **options)


def _records(folder, split="train"):
    """Every example of a split as a dict of lists; those of the train split by their rows."""
    actual = []
    for shard in manifest.read(folder).split(split):
        for record in tf.data.TFRecordDataset(str(Path(folder) / shard.name)).as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            actual.append(
                {
                    name: list(value.int64_list.value or value.float_list.value)
                    for name, value in example.features.feature.items()
                }
            )
    return sorted(actual, key=lambda each: each["row"]) if split == "train" else actual


def _pieces(ids):
    return " ".join(VOCABULARY[i] for i in ids)


def test_single_sentences(tmp_path, tokenizer):
    files = _files(
        tmp_path,
        train="text\tlabel\nA good film\tpos\nBad\tneg\n\nthe films\tpos\n",
        validation='text\tlabel\n"It was "bad\tneg\n',
        test="index\ttext\n0\tit is not good\n1\tgood\n",
    )
    lines = []
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out", report=lines.append)
    assert _records(tmp_path / "out") == [
        {"token_ids": [2, 5, 6, 8, 3], "segment_lengths": [5], "row": [0], "label": [1]},
        {"token_ids": [2, 7, 3], "segment_lengths": [3], "row": [1], "label": [0]},
        {"token_ids": [2, 10, 8, 9, 3], "segment_lengths": [5], "row": [2], "label": [1]},
    ]
    (validation,) = _records(tmp_path / "out", "validation")
    assert _pieces(validation["token_ids"]) == "[CLS] [UNK] it was [UNK] bad [SEP]"
    test = _records(tmp_path / "out", "test")
    assert [_pieces(r["token_ids"]) for r in test] == [
        "[CLS] it is not good [SEP]",
        "[CLS] good [SEP]",
    ]
    assert [set(r) for r in test] == [{"token_ids", "segment_lengths", "row"}] * 2
    assert lines == [
        "train: 3 examples; 13 tokens; 0 cut at 128 tokens; neg 1 (33.3%), pos 2 (66.7%)",
        "validation: 1 examples; 7 tokens; 0 cut at 128 tokens; neg 1 (100.0%), pos 0 (0.0%)",
        "test: 2 examples; 9 tokens; 0 cut at 128 tokens; no labels",
    ]
    assert built.task.labels == ("neg", "pos")


def test_manifest(tmp_path, tokenizer):
    files = _files(
        tmp_path,
        train="text\tlabel\nA good film\tpos\nBad\tneg\n",
        test="text\ngood good good\n",
    )
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out", max_length=4)
    assert manifest.read(tmp_path / "out") == built
    assert shard_folder.problems(tmp_path / "out", deep=True) == []
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "test-00000-of-00001.tfrecord",
        "tokenizer",
        "train-00000-of-00001.tfrecord",
    ]
    assert (built.kind, built.max_length) == ("task", 4)
    assert built.features == ("token_ids", "segment_lengths", "row", "label")
    assert strict.to_dict(built.task) == {
        "name": "classification",
        "kind": "classification",
        "pair": False,
        "labels": ["neg", "pos"],
        "values": ["neg", "pos"],
        "metrics": ["accuracy"],
        "columns": {"text": "text", "label": "label"},
        "unlabelled": ["test"],
    }
    assert strict.to_dict(built.totals) == {
        "examples": 3,
        "tokens": 11,
        "truncated": 2,
        "skipped": {},
        "splits": {
            "train": {
                "examples": 2,
                "tokens": 7,
                "truncated": 1,
                "skipped": {},
                "labels": {"neg": 1, "pos": 1},
            },
            "test": {"examples": 1, "tokens": 4, "truncated": 1, "skipped": {}, "labels": {}},
        },
    }
    assert built.length_histogram == (0, 0, 0, 1, 2)
    assert built.tokenizer_fingerprint == tokenizer.fingerprint
    for name, digest in built.tokenizer.items():
        content = (tmp_path / "out" / "tokenizer" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest


def test_pairs_are_cut_from_the_longer_text(tmp_path, tokenizer):
    task = tasks.generic("classification", "0", "1", "2", header=False)
    files = _files(tmp_path, train="a a a a a\tbad bad\t1\na\tbad\t0\n")
    built = _build(task, files, tokenizer, tmp_path / "out", max_length=7)
    first, second = _records(tmp_path / "out")
    assert _pieces(first["token_ids"]) == "[CLS] a a [SEP] bad bad [SEP]"
    assert (first["segment_lengths"], first["label"]) == ([4, 3], [1])
    assert _pieces(second["token_ids"]) == "[CLS] a [SEP] bad [SEP]"
    assert second["segment_lengths"] == [3, 2]
    assert (built.totals.truncated, built.task.pair) == (1, True)


def test_regression_scores(tmp_path, tokenizer):
    task = tasks.generic("regression", "text", label="score")
    task = dataclasses.replace(task, score_range=(-1, 5))
    files = _files(
        tmp_path,
        train="text\tscore\na\t3.2\nbad\t-1\ngood\t 5e0\n",
        test="text\tscore\nthe film\t2.5\n",
    )
    lines = []
    built = _build(task, files, tokenizer, tmp_path / "out", report=lines.append)
    scores = [r["score"][0] for r in _records(tmp_path / "out")]
    assert scores == [np.float32(3.2), -1.0, 5.0]
    assert [r["score"] for r in _records(tmp_path / "out", "test")] == [[2.5]]
    assert built.features == ("token_ids", "segment_lengths", "row", "score")
    assert (built.task.labels, built.task.unlabelled) == ((), ())
    assert lines[0] == "train: 3 examples; 9 tokens; 0 cut at 128 tokens"


def test_named_values_become_ids_and_names(tmp_path, tokenizer):
    task = tasks.find("mrpc")
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    files = _files(
        tmp_path,
        train=header + '1\t7\t8\t" a film\tthe film "\n0\t7\t9\ta\tgood\n',
        test="index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tbad\tfilm\n",
    )
    built = _build(task, files, tokenizer, tmp_path / "out")
    first, second = _records(tmp_path / "out")
    assert _pieces(first["token_ids"]) == "[CLS] [UNK] a film [SEP] the film [UNK] [SEP]"
    assert (first["label"], second["label"]) == ([1], [0])
    assert built.totals.splits["train"].labels == {"not_equivalent": 1, "equivalent": 1}
    (test,) = _records(tmp_path / "out", "test")
    assert _pieces(test["token_ids"]) == "[CLS] bad [SEP] film [SEP]"


def _mnli_row(number, first, second, *labels):
    tree = "(ROOT (X a))"
    wide = [number, "31193", "31193n", "government", "( a )", "( a )", tree, tree]
    return "\t".join(map(str, [*wide, first, second, *labels])) + "\n"


def test_mnli_as_distributed(tmp_path, tokenizer):
    head = (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    )
    dev_head = head + "".join(f"\tlabel{n}" for n in range(1, 6)) + "\tgold_label\n"
    contents = {
        "train": head
        + "\tlabel1\tgold_label\n"
        + _mnli_row(0, 'a "good film', "the film", "neutral", "neutral")
        + _mnli_row(1, "a bad film", 'it" is not', "entailment", "contradiction"),
        "validation": dev_head + _mnli_row(0, "a", "bad", *["neutral"] * 5, "entailment"),
        "validation_mismatched": "index\tgenre\tsentence1\tsentence2\tgold_label\n"
        "0\tnineeleven\tgood\tgood film\tcontradiction\n",
        "test": head + "\n" + _mnli_row(0, "the", "film"),
        "test_mismatched": head + "\n" + _mnli_row(0, "it", ""),
    }
    files = {split: tmp_path / f"{split}.tsv" for split in contents}
    for split, path in files.items():
        path.write_text(contents[split])
    built = _build(tasks.find("mnli"), files, tokenizer, tmp_path / "out")
    assert built.task.labels == ("entailment", "neutral", "contradiction")
    assert built.task.unlabelled == ("test", "test_mismatched")
    assert [shard.split for shard in built.shards] == list(tasks.SPLITS)
    first, second = _records(tmp_path / "out")
    assert _pieces(first["token_ids"]) == "[CLS] a [UNK] good film [SEP] the film [SEP]"
    assert (first["label"], second["label"]) == ([1], [2])
    for split, text, label in (
        ("validation", "[CLS] a [SEP] bad [SEP]", [0]),
        ("validation_mismatched", "[CLS] good [SEP] good film [SEP]", [2]),
        ("test", "[CLS] the [SEP] film [SEP]", None),
        # Every row of a test file is to be predicted, whatever it holds.
        ("test_mismatched", "[CLS] it [SEP] [SEP]", None),
    ):
        (record,) = _records(tmp_path / "out", split)
        assert (_pieces(record["token_ids"]), record.get("label")) == (text, label)


def test_qqp_with_its_broken_and_empty_rows(tmp_path, tokenizer):
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    files = _files(
        tmp_path,
        train=head
        + "0\t1\t2\tis it good\tis it bad\t0\n"
        + '1\t3\t4\tthe film\t"was it\n'  # a question with a line break in it
        + '"\tthe film\t1\n'
        + "2\t5\t6\tgood\t\t0\n"
        + "3\t7\t8\ta film\tthe film\t1\n",
        test="id\tquestion1\tquestion2\n0\ta\tbad\n1\t\tgood\n",
    )
    lines = []
    built = _build(tasks.find("qqp"), files, tokenizer, tmp_path / "out", report=lines.append)
    train = _records(tmp_path / "out")
    assert [(r["row"], r["label"]) for r in train] == [([0], [0]), ([4], [1])]
    assert "left out: 1 empty text, 2 wrong number of columns" in lines[0]
    assert built.totals.skipped == {"wrong number of columns": 2, "empty text": 1}
    assert [_pieces(r["token_ids"]) for r in _records(tmp_path / "out", "test")] == [
        "[CLS] a [SEP] bad [SEP]",
        "[CLS] [SEP] good [SEP]",
    ]
    # A test row that cannot be read is an error: it would have no prediction.
    files = _files(tmp_path, test="id\tquestion1\tquestion2\n0\ta\tbad\n1\tbad\n")
    with pytest.raises(UserError, match="test.tsv, line 3: 2 columns where the header has 3"):
        _build(tasks.find("qqp"), files, tokenizer, tmp_path / "test")


def test_labels_by_their_names(tmp_path, tokenizer):
    files = _files(tmp_path, train="sentence\tlabel\na\t1\nbad\tnegative\nfilm\tpositive\n")
    _build(tasks.find("sst2"), files, tokenizer, tmp_path / "out")
    assert [r["label"] for r in _records(tmp_path / "out")] == [[1], [0], [1]]


@pytest.mark.parametrize(
    "name, csv, texts, labels",
    [
        (
            "ag_news",
            r""""3","A film","the film\is ""good"" a""" + '"\n"4","","bad film"\n',
            ["[CLS] a film the film is [UNK] good [UNK] a [SEP]", "[CLS] bad film [SEP]"],
            ["Business", "Sci/Tech"],
        ),
        (
            "dbpedia",
            '14,"The film"," it is a film"\n1,"A","the film"\n',
            ["[CLS] the film it is a film [SEP]", "[CLS] a the film [SEP]"],
            ["WrittenWork", "Company"],
        ),
        (
            "yelp_full",
            '"5","good film\\n\\nit is"\n"1","bad"\n',
            ["[CLS] good film it is [SEP]", "[CLS] bad [SEP]"],
            ["5 stars", "1 star"],
        ),
        (
            "amazon_polarity",
            '"2","good","the film"\n"1","bad film","it is not"\n',
            ["[CLS] good the film [SEP]", "[CLS] bad film it is not [SEP]"],
            ["positive", "negative"],
        ),
    ],
)
def test_texts_with_titles_in_csv(tmp_path, tokenizer, name, csv, texts, labels):
    files = {split: tmp_path / f"{split}.csv" for split in ("train", "test")}
    for path in files.values():
        path.write_text(csv)
    built = _build(tasks.find(name), files, tokenizer, tmp_path / "out")
    for split in files:
        actual = _records(tmp_path / "out", split)
        assert [_pieces(r["token_ids"]) for r in actual] == texts
        assert [built.task.labels[r["label"][0]] for r in actual] == labels
    # A table that names its columns is the same task.
    tsv = _files(tmp_path, train="label\ttext\n1\tbad film\n2\tgood\n")
    _build(tasks.find(name), tsv, tokenizer, tmp_path / "named")
    actual = _records(tmp_path / "named")
    assert [_pieces(r["token_ids"]) for r in actual] == ["[CLS] bad film [SEP]", "[CLS] good [SEP]"]
    assert [r["label"] for r in actual] == [[0], [1]]


def test_imdb_in_folders_and_in_a_table(tmp_path, tokenizer):
    for name, text in {
        "neg/0_1": "bad<br /><br />it is not good", "pos/0_9": "good film", "unsup/1_0": "film",
    }.items():  # fmt: skip
        path = tmp_path / "train" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = _files(tmp_path, test="id\tlabel\trating\ttext\n9\t1\t8\ta film\n")
    files = {"train": tmp_path / "train", "test": files["test"]}
    built = _build(tasks.find("imdb"), files, tokenizer, tmp_path / "out")
    train = [(_pieces(r["token_ids"]), r["label"]) for r in _records(tmp_path / "out")]
    assert train == [("[CLS] bad it is not good [SEP]", [0]), ("[CLS] good film [SEP]", [1])]
    (test,) = _records(tmp_path / "out", "test")
    assert (_pieces(test["token_ids"]), test["label"]) == ("[CLS] a film [SEP]", [1])
    assert built.totals.splits["train"].labels == {"neg": 1, "pos": 1}
    (tmp_path / "train" / "pos" / "0_9.txt").write_text(" \n")
    with pytest.raises(UserError, match="train/pos/0_9.txt: column 'text' is empty"):
        _build(tasks.find("imdb"), files, tokenizer, tmp_path / "other")


def test_trec_coarse_and_fine(tmp_path, tokenizer):
    path = tmp_path / "train_5500.label"
    path.write_text("DESC:manner is it good\nENTY:animal the film\nDESC:def bad\n")
    built = _build(tasks.find("trec"), {"train": path}, tokenizer, tmp_path / "coarse")
    assert [r["label"] for r in _records(tmp_path / "coarse")] == [[1], [2], [1]]
    assert built.task.labels[1:3] == ("description", "entity")
    built = _build(tasks.find("trec_fine"), {"train": path}, tokenizer, tmp_path / "fine")
    assert built.task.labels == ("DESC:def", "DESC:manner", "ENTY:animal")
    assert [r["label"] for r in _records(tmp_path / "fine")] == [[1], [2], [0]]
    path.write_text("DESC:manner is it good\nXYZ:animal the film\n")
    with pytest.raises(UserError, match=r"train_5500.label, line 2: label 'XYZ' in column 'label'"):
        _build(tasks.find("trec"), {"train": path}, tokenizer, tmp_path / "other")


def test_labels_found_are_sorted_as_numbers_if_they_are(tmp_path, tokenizer):
    rows = "".join(f"a\t{label}\n" for label in (10, 9, 1, 10))
    files = _files(tmp_path, train="text\tlabel\n" + rows)
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out")
    assert built.task.labels == ("1", "9", "10")
    assert [r["label"] for r in _records(tmp_path / "out")] == [[2], [1], [0], [2]]


def test_several_shards_of_other_splits_keep_the_order(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(labelled_text.Builder, "rows_at_once", 4)
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 1000)
    rows = [f"{'good ' * (i % 5)}film\t{i % 2}" for i in range(25)]
    content = "text\tlabel\n" + "\n".join(rows)
    files = _files(tmp_path, train=content, validation=content)
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out")
    written = built.split("validation")
    names = [f"validation-{i:05d}-of-00003.tfrecord" for i in range(3)]
    assert [shard.name for shard in written] == names
    assert sum(shard.records for shard in written) == 25
    assert all(900 < shard.bytes <= 1000 for shard in written[:-1])
    assert shard_folder.problems(tmp_path / "out", deep=True) == []
    records = _records(tmp_path / "out", "validation")
    assert [r["row"][0] for r in records] == list(range(25))
    assert [len(r["token_ids"]) for r in records] == [i % 5 + 3 for i in range(25)]
    assert [r["label"][0] for r in records] == [i % 2 for i in range(25)]


def test_the_same_bytes_every_time(tmp_path, tokenizer):
    files = _files(tmp_path, train="text\tlabel\na\t1\nbad film\t0\n")
    for name in ("one", "two"):
        _build(SENTIMENT, files, tokenizer, tmp_path / name)
    for name in ("manifest.json", "train-00000-of-00001.tfrecord"):
        one, two = (tmp_path / folder / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_shards_parse_with_the_table_of_features(tmp_path, tokenizer):
    files = _files(tmp_path, train="text\tlabel\na\t1\nbad film\t0\n")
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out")
    paths = [str(tmp_path / "out" / shard.name) for shard in built.shards]
    (batch,) = tf.data.TFRecordDataset(paths).batch(2)
    parsed = parsing.parse(batch, built.features)
    order = np.argsort(parsed["row"])
    ids = parsed["token_ids"].to_list()
    assert [ids[i] for i in order] == [[2, 5, 3], [2, 7, 8, 3]]
    assert parsed["label"].numpy()[order].tolist() == [1, 0]
    assert parsed["row"].numpy()[order].tolist() == [0, 1]


def test_bad_rows_are_left_out_and_counted_on_request(tmp_path, tokenizer):
    files = _files(
        tmp_path,
        train=b"text\tlabel\na\t1\n \t0\nbad\nfilm\t-\n\xff\t0\nthe\t0\n",
    )
    task = tasks.generic("classification", "text", label="label", labels=["0", "1"])
    lines = []
    built = _build(
        task, files, tokenizer, tmp_path / "out", skip_bad_rows=True, report=lines.append
    )
    assert [r["row"][0] for r in _records(tmp_path / "out")] == [0, 5]
    assert built.totals.skipped == {
        "empty text": 1,
        "wrong number of columns": 1,
        "without a label (-)": 1,
        "not UTF-8": 1,
    }
    assert lines == [
        "train: 2 examples; 6 tokens; 0 cut at 128 tokens; left out: 1 empty text, 1 not UTF-8, "
        "1 without a label (-), 1 wrong number of columns; 0 1 (50.0%), 1 1 (50.0%)"
    ]


def test_progress(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
    files = _files(tmp_path, train="text\tlabel\n" + "a\t1\nbad\t0\n" * 1000)
    lines = []
    _build(SENTIMENT, files, tokenizer, tmp_path / "out", report=lines.append)
    assert lines[0].startswith("train: 1,000 rows so far, ")


@pytest.mark.parametrize(
    "train, message",
    [
        (
            "text\tlabel\nfine\tpos\nfilm\tPos\n",
            "{path}, line 3: label 'Pos' in column 'label' is not one of 'neg', 'pos' "
            "(did you mean 'pos'?); --skip_bad_rows leaves such rows out",
        ),
        ("text\tlabel\nfine\t\n", "{path}: no row can be used: 1 without a label"),
        ("text\tlabel\nfine\tpos\n  \tneg\n", "{path}, line 3: column 'text' is empty"),
        ("text\tlabel\nfine\tpos\nfilm\n", "{path}, line 3: 1 column where the header has 2"),
        (b"text\tlabel\n\xe9\tpos\n", "{path}, line 2: not UTF-8: convert the file"),
        ("text\tlabel\n", "{path} is empty: it has no rows"),
        ("text\tscore\nfine\t1\n", "{path} has no column 'label': its columns are 'text', 'score'"),
    ],
)
def test_errors_of_rows(tmp_path, tokenizer, train, message):
    files = _files(tmp_path, train=train)
    task = tasks.generic("classification", "text", label="label", labels=["neg", "pos"])
    with pytest.raises(UserError) as error:
        _build(task, files, tokenizer, tmp_path / "out")
    assert message.format(path=files["train"]) in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["train.tsv"]  # nothing half-written


@pytest.mark.parametrize("score", ["good", "nan", "inf", "1e39", "3,5"])
def test_scores_that_are_no_numbers(tmp_path, tokenizer, score):
    files = _files(tmp_path, train=f"text\tscore\nfine\t1.5\nfilm\t{score}\n")
    task = tasks.generic("regression", "text", label="score")
    with pytest.raises(UserError) as error:
        _build(task, files, tokenizer, tmp_path / "out")
    message = f"{files['train']}, line 3: {score!r} in column 'score' is not a number"
    assert message in str(error.value)


def test_errors_of_labels(tmp_path, tokenizer, monkeypatch):
    output = tmp_path / "out"
    files = _files(tmp_path, validation="text\tlabel\na\t1\n")
    with pytest.raises(UserError, match="without a train file .* name them with --labels"):
        _build(SENTIMENT, files, tokenizer, output)
    files = _files(tmp_path, train="text\tlabel\na\t1\nb\t1\n")
    with pytest.raises(UserError, match="train.tsv: column 'label' holds '1', and at least two"):
        _build(SENTIMENT, files, tokenizer, output)
    monkeypatch.setattr(labelled_text, "MAX_INFERRED_LABELS", 3)
    files = _files(tmp_path, train="text\tlabel\na\t1\nb\t2\nc\t3\nd\t4\n")
    with pytest.raises(UserError, match="over 3 different values in column 'label': is that the"):
        _build(SENTIMENT, files, tokenizer, output)
    # A label of the other splits that the train file does not have.
    files = _files(tmp_path, train="text\tlabel\na\t1\nb\t2\n", test="text\tlabel\na\t3\n")
    with pytest.raises(UserError, match=r"test.tsv, line 2: label '3' .* not one of '1', '2'"):
        _build(SENTIMENT, files, tokenizer, output)
    # Only a test file may be without labels.
    files = _files(
        tmp_path, train="text\tlabel\na\t1\nb\t2\n", validation="text\na\n", test="text\na\n"
    )
    with pytest.raises(UserError, match="dev.tsv has no column 'label'"):
        _build(SENTIMENT, files, tokenizer, output)


def test_a_label_with_a_line_break_is_a_bad_row(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [{"text": "a", "label": label} for label in ("x", "y\nz", "y")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    find = labelled_text.with_labels_of_train_file
    with pytest.raises(UserError, match=r"train.jsonl, line 2: 'y\\nz' cannot be a label"):
        find(SENTIMENT, {"train": path}, None, False)
    assert find(SENTIMENT, {"train": path}, None, True).labels == ("x", "y")


def test_errors_of_the_whole(tmp_path, tokenizer):
    files = _files(tmp_path, train="text\tlabel\na\t1\nbad film\t0\n")
    with pytest.raises(UserError, match="--max_length=2 leaves no room .* the least is 3"):
        _build(SENTIMENT, files, tokenizer, tmp_path / "out", max_length=2)
    pairs = tasks.generic("classification", "text", "text_b", "label")
    with pytest.raises(UserError, match="--max_length=4 leaves no room .* the least is 5"):
        _build(pairs, files, tokenizer, tmp_path / "out", max_length=4)
    files = _files(tmp_path, train="text\tlabel\n \t1\n\t0\n")
    with pytest.raises(UserError, match="train.tsv: no row can be used: 2 empty text"):
        _build(SENTIMENT, files, tokenizer, tmp_path / "out", skip_bad_rows=True)
    output = tmp_path / "there"
    output.mkdir()
    (output / "file").write_text("mine")
    files = _files(tmp_path, train="text\tlabel\na\t1\nbad film\t0\n")
    with pytest.raises(UserError, match="there is there already: name another folder"):
        _build(SENTIMENT, files, tokenizer, output)
    assert (output / "file").read_text() == "mine"


def test_a_train_file_without_labels_is_text_for_a_teacher(tmp_path, tokenizer):
    task = tasks.generic("classification", "text", label="label", labels=["neg", "pos"])
    validation = "text\tlabel\nBad\tneg\n"
    for name, train in (
        ("none", "text\nA good film\nBad\n"),
        ("unread", "text\tlabel\nA good film\twhat?\nBad\tneg\n"),
    ):
        (tmp_path / name).mkdir()
        files = _files(tmp_path / name, train=train, validation=validation)
        output = tmp_path / name / "out"
        built = _build(task, files, tokenizer, output, unlabelled_train=True)
        assert built.task.unlabelled == ("train",) and built.task.labels == ("neg", "pos")
        rows = _records(output)
        assert [_pieces(row["token_ids"]) for row in rows] == [
            "[CLS] a good film [SEP]", "[CLS] bad [SEP]",
        ]  # fmt: skip
        assert not any("label" in row for row in rows)
        assert [row["label"] for row in _records(output, "validation")] == [[0]]
    files = _files(tmp_path, train="text\nBad\n")
    with pytest.raises(UserError, match="--unlabelled_train does not .* name them with --labels"):
        _build(SENTIMENT, files, tokenizer, tmp_path / "refused", unlabelled_train=True)
    with pytest.raises(UserError, match="label"):
        _build(task, files, tokenizer, tmp_path / "refused")


def test_labels_of_one_number_have_one_order(tmp_path):
    """Of a set of these, whose order depends on the seed of Python's hashes."""
    forms = ["1".zfill(width) for width in range(20, 0, -1)]
    rows = "".join(f"a\t{label}\n" for label in [*forms[1::2], "2", *forms[::2]])
    files = _files(tmp_path, train="text\tlabel\n" + rows)
    task = labelled_text.with_labels_of_train_file(SENTIMENT, files, None, False)
    assert task.labels == (*forms, "2")


def test_labels_that_look_alike_are_named(tmp_path, tokenizer):
    composed, decomposed = "soci\u00e9t\u00e9", "socie\u0301te\u0301"
    rows = [f"a\t{label}" for label in (composed, decomposed, "sport")]
    lines = []
    built = task_builder.build(
        SENTIMENT, _files(tmp_path, train="\n".join(["text\tlabel", *rows])), tokenizer,
        tmp_path / "out", 16, report=lines.append,
    )  # fmt: skip
    assert set(built.task.labels) == {composed, decomposed, "sport"}
    assert lines[0].startswith(
        r"labels that look alike and are not the same characters: 'socie\u0301te\u0301'; "
        r"'soci\xe9t\xe9': if"
    )
    files = _files(
        tmp_path, train=f"text\tlabel\na\tsport\nb\t{composed}\n",
        validation=f"text\tlabel\na\t{decomposed}\n",
    )  # fmt: skip
    with pytest.raises(UserError, match=r"\('socie\\u0301te\\u0301' in Unicode, where 'soci\\xe9t"):
        _build(SENTIMENT, files, tokenizer, tmp_path / "two")


def _objects(tmp_path, *rows, name="train.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _labeled(*labels):
    return [{"text": f"the {i}", "label": label} for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "classes", "skipped"),
    [
        ([0, 2, 1, -1, 0], ("0", "1", "2"), {"without a label (-1)": 1}),
        (["a", "b", -1, "-", "", None], ("a", "b"), None),
        (["-", "+", "+"], ("+", "-"), {}),
        ([-1, 1, 1], ("-1", "1"), {}),
        ([["a"], ["b"], []], ("a", "b"), {"without a label": 1}),
    ],
)
def test_rows_without_a_label_are_left_out_and_counted(
    tmp_path, tokenizer, labels, classes, skipped
):
    """-1 and - are what `datasets` and SNLI write; a list of one label is that of doccano."""
    lines = []
    files = {"train": _objects(tmp_path, *_labeled(*labels))}
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out", report=lines.append)
    assert built.task.labels == classes
    if skipped is None:
        skipped = {"without a label": 2, "without a label (-)": 1, "without a label (-1)": 1}
    assert built.totals.skipped == skipped
    assert ("have no label; --labels names what is one" in lines[0]) == any(
        "(" in s for s in skipped
    )


def test_labels_that_are_named_are_labels(tmp_path, tokenizer):
    files = {"train": _objects(tmp_path, *_labeled(-1, 0, 1, 1))}
    with pytest.raises(UserError, match="the labels are -1, 0 and 1: name them. --labels=-1,0,1"):
        _build(SENTIMENT, files, tokenizer, tmp_path / "out")
    for labels, skipped in [(["-1", "0", "1"], {}), (["0", "1"], {"without a label (-1)": 1})]:
        task = tasks.generic("classification", "text", label="label", labels=labels)
        built = _build(task, files, tokenizer, tmp_path / f"out{len(labels)}")
        assert built.totals.skipped == skipped


def test_a_test_file_without_labels_is_predicted(tmp_path, tokenizer):
    """GLUE's test splits, as `datasets` writes them; of a file with some labels these count."""
    train = _objects(tmp_path, *_labeled("a", "b"))
    test = _objects(tmp_path, *_labeled(-1, -1, -1), name="test.jsonl")
    built = _build(SENTIMENT, {"train": train, "test": test}, tokenizer, tmp_path / "out")
    assert built.task.unlabelled == ("test",) and built.totals.splits["test"].examples == 3
    test = _objects(tmp_path, *_labeled(-1, "a", None), name="test.jsonl")
    built = _build(SENTIMENT, {"train": train, "test": test}, tokenizer, tmp_path / "out2")
    assert built.task.unlabelled == () and built.totals.splits["test"].examples == 1
    assert built.totals.skipped == {"without a label": 1, "without a label (-1)": 1}


def test_scores_of_minus_one(tmp_path, tokenizer):
    files = {"train": _objects(tmp_path, *_labeled(3.2, -1.0, 5, 0))}
    task = tasks.generic("regression", "text", label="label")
    message = r"line 2: '-1.0' in column 'label': no other score .* --score_range=LOWEST,HIGHEST"
    with pytest.raises(UserError, match=message):
        _build(task, files, tokenizer, tmp_path / "out")
    ranged = dataclasses.replace(task, score_range=(0, 5))
    built = _build(ranged, files, tokenizer, tmp_path / "out")
    assert built.totals.skipped == {"without a label (-1.0)": 1}
    below = {"train": _objects(tmp_path, *_labeled(3.2, -1.0, -0.5))}
    assert _build(task, below, tokenizer, tmp_path / "out2").totals.examples == 3
    with pytest.raises(UserError, match="line 3: '-0.5' in column 'label' is not from 0 to 5"):
        _build(ranged, below, tokenizer, tmp_path / "out3")
    test = {"train": _objects(tmp_path, *_labeled(3.2, 0))}
    test["test"] = _objects(tmp_path, *_labeled(-1.0, -1.0), name="test.jsonl")
    built = _build(ranged, test, tokenizer, tmp_path / "out4")
    assert built.task.unlabelled == ("test",)


def test_numbers_of_labels_that_are_named(tmp_path, tokenizer):
    """The form of go_emotions: a list of numbers for each text."""
    task = tasks.generic("multi_label", "text", label="labels", labels=["joy", "anger", "fear"])
    rows = [
        {"text": "a", "labels": [0, 2]},
        {"text": "bad", "labels": []},
        {"text": "c", "labels": [1]},
    ]
    files = {"train": _objects(tmp_path, *rows)}
    lines = []
    _build(task, files, tokenizer, tmp_path / "out", report=lines.append)
    assert [r["label_flags"] for r in _records(tmp_path / "out")] == [
        [1, 0, 1],
        [0, 0, 0],
        [0, 1, 0],
    ]
    assert "labels are numbers: 0 is 'joy', 2 is 'fear'" in lines[0]
    files = {"train": _objects(tmp_path, {"text": "a", "labels": [3]})}
    with pytest.raises(UserError, match="line 1: label '3' in column 'labels' is not one of 'joy'"):
        _build(task, files, tokenizer, tmp_path / "out2")
    task = tasks.generic("multi_label", "text", label="labels")
    files = {
        "train": _objects(tmp_path, {"text": "a", "labels": [3, 10]}, {"text": "b", "labels": [2]})
    }
    built = _build(task, files, tokenizer, tmp_path / "out3")
    assert built.task.labels == ("2", "3", "10")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_labels_and_texts_that_are_no_numbers(tmp_path, tokenizer, value):
    for row in ({"text": "a", "label": value}, {"text": value, "label": "x"}):
        files = {"train": _objects(tmp_path, *_labeled("x", "y"), row)}
        with pytest.raises(UserError, match=r"line 3: '\w+' is (nan|inf), which is no number"):
            _build(SENTIMENT, files, tokenizer, tmp_path / "out")


def test_rows_that_annotators_rejected(tmp_path, tokenizer):
    rows = [
        {"text": "a", "label": "x", "answer": "accept", "_input_hash": 1, "note": "n"},
        {"text": "b", "label": "x", "answer": "reject"},
        {"text": "c", "label": "y", "answer": "ignore"},
        {"text": "d", "label": "y", "status": "Discarded"},
        {"text": "e", "label": "y", "is_gold": False},
        {"text": "f", "label": "y", "status": "open", "answer": None},
    ]
    lines = []
    files = {"train": _objects(tmp_path, *rows)}
    built = _build(SENTIMENT, files, tokenizer, tmp_path / "out", report=lines.append)
    skipped = {
        "marked answer=ignore": 1, "marked answer=reject": 1, "marked is_gold=False": 1,
        "marked status=Discarded": 1,
    }  # fmt: skip
    assert built.totals.skipped == skipped and built.totals.examples == 2
    assert "keys that are not read: 'answer' (1), 'note' (1), 'status' (1)" in lines[0]
    # A column that is asked for is data.
    task = tasks.generic("classification", "text", label="answer", labels=["accept", "reject"])
    files = {"train": _objects(tmp_path, *rows[:2])}
    assert _build(task, files, tokenizer, tmp_path / "out2").totals.examples == 2
    table = "text,label,answer\na,x,accept\nb,x,reject\nc,y,\n"
    (tmp_path / "train.csv").write_text(table)
    built = _build(SENTIMENT, {"train": tmp_path / "train.csv"}, tokenizer, tmp_path / "out3")
    assert built.totals.skipped == {"marked answer=reject": 1}
