"""Tests of the shards of rankings."""

import json

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from official import config, data, tasks, tokenizers
from official.shards import features, manifest, parsing, side_texts
from official.tasks import trec
from official.utils.errors import UserError
from tests import commands, small
from tfrecords_tools import build_task_shards, inspect_shards
from tfrecords_tools.tasks import builder as task_builder
from tfrecords_tools.tasks import ranking, tables

QUERIES = {"q1": "ba be", "q2": "bi", "q3": "bo bu", "q4": "da"}
DOCUMENTS = {f"d{i}": " ".join(small.WORDS[i : i + 3 + i]) for i in range(8)}
QRELS = {"q1": {"d0": 2, "d1": 1, "d2": 0}, "q2": {"d3": 1}, "q4": {"d5": 1}}
RUN = {
    "q1": {"d0": 5.0, "d2": 4.0, "d3": 3.0, "d4": 2.0, "d7": 1.0},
    "q2": {"d1": 1.0, "d2": 2.0},
    "q3": {"d1": 1.0},
    "q4": {"d5": 1.0},
}


def write(folder, queries=QUERIES, documents=DOCUMENTS, qrels=QRELS, **runs):
    folder.mkdir(exist_ok=True)
    for name, texts in {"queries": queries, "documents": documents}.items():
        lines = [f"{key}\t{text}\n" for key, text in texts.items()]
        (folder / f"{name}.tsv").write_text("id\ttext\n" + "".join(lines))
    with open(folder / "qrels", "w") as stream:
        trec.write_qrels(stream, qrels)
    for split, run in (runs or {"train": RUN, "validation": RUN}).items():
        with open(folder / f"{split}.run", "w") as stream:
            trec.write_run(stream, run, "first")
    return folder


def collection(folder, bad=None, qrels="qrels", **how):
    return ranking.read_collection(
        folder / "queries.tsv",
        folder / "documents.tsv",
        qrels and folder / qrels,
        bad or tables.BadRows(),
        **how,
    )


def build(folder, output, splits=("train", "validation"), **how):
    return task_builder.build(
        how.pop("task", tasks.ranking()),
        {split: folder / f"{split}.run" for split in splits},
        tokenizers.load(small.tokenizer_folder(folder / "tokenizer")),
        output,
        input=folder,
        queries="queries.tsv",
        documents="documents.tsv",
        qrels=how.pop("qrels", "qrels"),
        **{"max_length": 32, "report": lambda line: None, **how},
    )


def examples(folder, split, result):
    paths = [str(folder / shard.name) for shard in result.split(split)]
    parsed = parsing.parse(tf.stack(list(tf.data.TFRecordDataset(paths))), result.features)
    order = range(len(parsed["row"]))
    if split == "train":
        order = np.argsort(parsed["row"])
    values = {
        name: value.to_list() if hasattr(value, "to_list") else value.numpy().tolist()
        for name, value in parsed.items()
    }
    return {name: [value[i] for i in order] for name, value in values.items()}


def spelled(ids, tokenizer):
    return " ".join(tokenizer.pieces[i] for i in ids)


def pair(query, document):
    return f"[CLS] {QUERIES[query]} [SEP] {DOCUMENTS[document]} [SEP]"


def test_triples_of_a_query_a_relevant_document_and_a_candidate_that_is_not(tmp_path):
    lines = []
    built = build(write(tmp_path / "in"), tmp_path / "out", negatives=3, report=lines.append)
    tokenizer = tokenizers.load(tmp_path / "out" / "tokenizer")
    rows = examples(tmp_path / "out", "train", built)
    assert rows["row"] == list(range(len(rows["row"])))
    triples = []
    for ids, lengths, segments in zip(
        rows["token_ids"], rows["sequence_lengths"], rows["segment_lengths"], strict=True
    ):
        assert len(lengths) == 2 and sum(lengths) == len(ids) == sum(segments)
        texts = spelled(ids[: lengths[0]], tokenizer), spelled(ids[lengths[0] :], tokenizer)
        triples.append(
            next(
                (q, a, b)
                for q in QUERIES
                for a in DOCUMENTS
                for b in DOCUMENTS
                if texts == (pair(q, a), pair(q, b))
            )
        )
        assert sum(segments[:2]) == lengths[0]
        assert segments[0] == len(QUERIES[triples[-1][0]].split()) + 2
    # Each relevant document beside three of d2, d3, d4 and d7; q2 has only two others. q3 has no
    # relevant document, q4 no other one.
    assert len(set(triples)) == len(triples) == 3 + 3 + 2
    for query, relevant, other in triples:
        assert QRELS[query][relevant] > 0
        assert other in RUN[query] and QRELS[query].get(other, 0) == 0
    assert {t[1] for t in triples if t[0] == "q1"} == {"d0", "d1"}
    assert built.task.sequences == {"train": 2, "validation": 1}
    assert built.totals.splits["train"].left_out == {
        "queries without a relevant document": 1,
        "queries without a candidate that is not relevant": 1,
    }
    assert lines[0].startswith("train: 2 queries, 8 triples;")
    assert "1 queries without a relevant document" in lines[0]


def listed(folder, result):
    """The lists of the train split: (query, documents, grades, number of sequences)."""
    tokenizer = tokenizers.load(folder / "tokenizer")
    rows, found = examples(folder, "train", result), []
    names = {pair(q, d): (q, d) for q in QUERIES for d in DOCUMENTS}
    for ids, lengths, grades in zip(
        rows["token_ids"], rows["sequence_lengths"], rows["grades"], strict=True
    ):
        ends = np.cumsum(lengths)
        texts = [spelled(ids[b - n : b], tokenizer) for n, b in zip(lengths, ends, strict=True)]
        pairs = [names[text] for text in texts[: len(grades)]]
        assert texts[len(grades) :] == ["[CLS] [SEP] [SEP]"] * (len(lengths) - len(grades))
        ((query,), documents) = {q for q, _ in pairs}, [d for _, d in pairs]
        assert len(set(documents)) == len(documents)
        found.append((query, documents, grades, len(lengths)))
    return found


def test_lists_have_relevant_documents_others_and_their_grades(tmp_path):
    lines = []
    folder = write(tmp_path / "in")
    built = build(folder, tmp_path / "out", negatives=2, list_size=4, report=lines.append)
    lists = listed(tmp_path / "out", built)
    # q1 has two relevant documents, which are half of a list, and four others; q2 one and two.
    assert [(query, grades, size) for query, _, grades, size in lists] == [
        *[("q1", [2, 1, 0, 0], 4)] * 2,
        *[("q2", [1, 0, 0], 4)] * 2,
    ]
    for query, documents, grades, _ in lists:
        assert [QRELS[query].get(document, 0) for document in documents] == grades
        assert all(d in RUN[query] for d, g in zip(documents, grades, strict=True) if not g)
    assert lists[0][1] != lists[1][1]  # other draws
    assert built.task.sequences == {"train": 4, "validation": 1}
    assert (built.config.list_size, built.config.list_labels) == (4, "grades")
    assert lines[0].startswith("train: 2 queries, 4 lists;")
    rows = examples(tmp_path / "out", "validation", built)
    assert rows["grades"][:3] == [[2], [0], [0]] and len(rows["grades"]) == 9
    assert inspect_shards.verify_examples(tmp_path / "out") == ([], 13)
    # A list of two has room for one relevant document: each has its turn.
    built = build(folder, tmp_path / "two", negatives=1, list_size=2)
    pairs = [(q, d[0], g) for q, d, g, _ in listed(tmp_path / "two", built)]
    assert sorted(pairs) == [("q1", "d0", [2, 0]), ("q1", "d1", [1, 0]), ("q2", "d3", [1, 0])]


def test_lists_with_the_scores_of_a_run(tmp_path):
    folder = write(tmp_path / "in", train={**RUN, "q2": {"d1": -1.5, "d2": 2.25}}, validation=RUN)
    how = {"list_size": 3, "negatives": 1, "list_labels": "scores", "qrels": None}
    built = build(folder, tmp_path / "out", **how)
    lists = listed(tmp_path / "out", built)
    # All candidates of q1 in two lists, the second one filled; those of q3 and q4 stand alone.
    assert [(query, len(documents), size) for query, documents, _, size in lists] == [
        ("q1", 3, 3), ("q1", 2, 3), ("q2", 2, 3),
    ]  # fmt: skip
    assert sorted(lists[0][1] + lists[1][1]) == sorted(RUN["q1"])
    for query, documents, scores, _ in lists[:2]:
        assert scores == sorted(scores, reverse=True) == [RUN[query][d] for d in documents]
    assert lists[2][1:3] == (["d2", "d1"], [2.25, -1.5])
    assert built.totals.splits["train"].left_out == {"queries without a second candidate": 2}


def test_batches_of_lists_have_grades_and_a_mask(tmp_path):
    built = build(write(tmp_path / "in"), tmp_path / "out", negatives=1, list_size=4)
    rows = examples(tmp_path / "out", "train", built)
    source = _source(tmp_path / "out", "train", training=True)
    assert {"grades", "documents_mask"} <= source.fields
    (batch,) = source.dataset(4).take(1)
    assert batch["token_ids"].shape == (4, 4, 32) and batch["grades"].shape == (4, 4)
    names = "row", "grades", "documents_mask"
    for row, grades, mask in zip(*(batch[n].numpy() for n in names), strict=True):
        given = rows["grades"][row]
        assert grades.tolist() == given + [0] * (4 - len(given))
        assert mask.tolist() == [True] * len(given) + [False] * (4 - len(given))
    assert {len(grades) for grades in rows["grades"]} == {3, 4}


@pytest.mark.parametrize("grades", [[], [1.0] * 5, [float("nan"), 0.0]])
def test_grades_that_are_not_those_of_a_list_are_refused(grades):
    limits = parsing.Limits("FOLDER", 9, 0, 9, sequences=4)
    example = {"grades": grades, "sequence_lengths": [2, 2, 2, 2], "token_ids": [1] * 8}
    records = features.serialize([example])
    with pytest.raises(UserError, match="FOLDER: grades: (not from 1 to 4|a number is not fin)"):
        with parsing.reported("FOLDER"):
            parsing.parse(tf.constant(records), example, limits)


def test_inspect_shows_each_sequence(tmp_path):
    built = build(write(tmp_path / "in"), tmp_path / "out")
    rows = examples(tmp_path / "out", "train", built)
    shown = [text.split("\n  ") for text in inspect_shards.examples(tmp_path / "out", 99)]
    facts, *texts = next(lines for lines in shown if lines[0].endswith("row 0"))
    assert facts.partition(": ")[2] == f"{len(rows['token_ids'][0])} tokens, row 0"
    assert [text[:4] for text in texts] == ["1A: ", "1B: ", "2A: ", "2B: "]
    assert texts[0] == texts[2].replace("2A", "1A") == "1A: [CLS] ba be [SEP]"
    assert texts[1] == f"1B: {DOCUMENTS['d0']} [SEP]"


def test_triples_are_a_function_of_seed_and_query(tmp_path):
    folder = write(tmp_path / "in")
    drawn = {}
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        built = build(folder, tmp_path / name, seed=seed, negatives=2)
        drawn[name] = examples(tmp_path / name, "train", built)["token_ids"]
    assert drawn["a"] == drawn["b"] != drawn["c"]
    # Other queries do not matter.
    write(folder, train={"q1": RUN["q1"]}, validation=RUN)
    alone = build(folder, tmp_path / "d", negatives=2)
    assert examples(tmp_path / "d", "train", alone)["token_ids"] == drawn["a"][:4]


def test_candidates_are_numbered_as_the_lines_of_their_run(tmp_path):
    run = {"q2": RUN["q2"], "q1": RUN["q1"]}
    folder = write(tmp_path / "in", validation=run, test={"q3": RUN["q3"]})
    built = build(folder, tmp_path / "out", splits=("validation", "test"))
    tokenizer = tokenizers.load(tmp_path / "out" / "tokenizer")
    listed = side_texts.read_candidates(tmp_path / "out", built, "validation")
    order = [("q2", "d2"), ("q2", "d1"), *(("q1", d) for d in RUN["q1"])]
    assert listed.pairs == tuple(order)
    assert listed.qrels == {"q2": QRELS["q2"], "q1": QRELS["q1"]}
    rows = examples(tmp_path / "out", "validation", built)
    assert rows["row"] == list(range(7))
    assert [spelled(ids, tokenizer) for ids in rows["token_ids"]] == [pair(*p) for p in order]
    assert rows["sequence_lengths"] == [[len(ids)] for ids in rows["token_ids"]]
    assert built.task.unlabelled == ("test",)
    assert side_texts.read_candidates(tmp_path / "out", built, "test").qrels == {}
    scores = np.arange(7, dtype=np.float32)
    assert listed.run(np.arange(7)[::-1], scores[::-1]) == {
        "q2": {"d2": 0, "d1": 1},
        "q1": {"d0": 2, "d2": 3, "d3": 4, "d4": 5, "d7": 6},
    }


def test_long_documents_are_cut_and_counted(tmp_path):
    documents = {**DOCUMENTS, "d0": "ba " * 100_000}
    folder = write(tmp_path / "in", documents=documents, validation={"q2": {"d0": 1.0, "d1": 0.0}})
    built = build(folder, tmp_path / "out", splits=("validation",), max_length=16)
    rows = examples(tmp_path / "out", "validation", built)
    assert [len(ids) for ids in rows["token_ids"]] == [16, 8]
    assert rows["segment_lengths"][0] == [3, 13]
    assert built.totals.splits["validation"].truncated == 1
    assert built.totals.tokens == 24


def _source(folder, split, training=False, **recipe):
    settings = config.Config("x", recipe=config.Recipe(steps=1, **recipe))
    return data.ShardDataset(folder, settings, split, training)


def test_batches_have_an_axis_of_sequences(tmp_path):
    built = build(write(tmp_path / "in"), tmp_path / "out")
    source = _source(tmp_path / "out", "validation")
    assert "text_mask" in source.fields
    rows = examples(tmp_path / "out", "validation", built)
    tokenizer = source.tokenizer
    batches = list(source.dataset(4))
    seen = 0
    for batch in batches:
        assert batch["token_ids"].shape == (4, 1, 32)
        for b in range(4):
            if not batch["example_weights"][b]:
                continue
            row = int(batch["row"][b])
            ids, mask = batch["token_ids"][b, 0].numpy(), batch["padding_mask"][b, 0].numpy()
            assert ids[mask].tolist() == rows["token_ids"][row]
            assert (ids[~mask] == tokenizer.pad_id).all()
            first = rows["segment_lengths"][row][0]
            expected = (np.arange(32) >= first) & mask
            np.testing.assert_array_equal(batch["segment_ids"][b, 0], expected)
            text = mask & ~np.isin(ids, tokenizer.special_ids)
            np.testing.assert_array_equal(batch["text_mask"][b, 0], text)
            assert text.sum() == mask.sum() - 3
            seen += 1
    assert seen == 9

    triples = examples(tmp_path / "out", "train", built)
    (batch,) = _source(tmp_path / "out", "train", training=True).dataset(4).take(1)
    assert batch["token_ids"].shape == (4, 2, 32)
    for b in range(4):
        row = int(batch["row"][b])
        ids = np.concatenate(
            [batch["token_ids"][b, c][batch["padding_mask"][b, c]] for c in range(2)]
        )
        assert ids.tolist() == triples["token_ids"][row]


def test_buckets_are_by_the_longest_sequence(tmp_path):
    built = build(write(tmp_path / "in"), tmp_path / "out")
    triples = examples(tmp_path / "out", "train", built)
    source = _source(tmp_path / "out", "train", bucket_lengths=(10, 16))
    lengths = {}
    for batch in source.dataset(2):
        for row, weight in zip(batch["row"].numpy(), batch["example_weights"], strict=True):
            if weight:
                lengths[int(row)] = batch["token_ids"].shape[2]
    longest = [max(several) for several in triples["sequence_lengths"]]
    bounds = [10, 16, 32]
    assert lengths == {
        row: min(b for b in bounds if b >= length) for row, length in enumerate(longest)
    }
    assert len(set(lengths.values())) > 1


FAULTS = [
    ("queries.tsv", "q1\tba\n", "duplicate id", "id 'q1' is already used"),
    ("queries.tsv", "q 5\tba\n", "not an id", "'q 5' cannot be an id"),
    ("queries.tsv", "q5\t \n", "empty text", "the text of 'q5' is empty"),
    ("documents.tsv", "d1\tba\n", "duplicate id", "id 'd1' is already used"),
    ("documents.tsv", "d9\n", "wrong number of columns", "1 column where the header has 2"),
    ("qrels", "q1 0 d9 1\n", "unknown document", "there is no document 'd9'"),
    ("qrels", "q9 0 d1 1\n", "unknown query", "there is no query 'q9'"),
    ("qrels", "q1 0 d1 1\n", "judged twice", "document 'd1' is judged twice for 'q1'"),
]


@pytest.mark.parametrize("name, text, reason, message", FAULTS)
def test_bad_lines_are_named_or_counted(tmp_path, name, text, reason, message):
    folder = write(tmp_path / "in")
    lines = (folder / name).read_text().count("\n")
    with open(folder / name, "a") as stream:
        stream.write(text)
    with pytest.raises(UserError) as error:
        collection(folder)
    assert str(error.value).startswith(f"{folder / name}, line {lines + 1}: ")
    assert message in str(error.value)
    assert str(error.value).endswith("--skip_bad_rows leaves such rows out")
    bad = tables.BadRows(skip=True)
    actual = collection(folder, bad)
    assert bad.counts == {reason: 1}
    assert (dict(actual.queries), dict(actual.documents)) == (QUERIES, DOCUMENTS)
    assert actual.qrels == QRELS
    built = build(folder, tmp_path / "out", skip_bad_rows=True)
    assert built.totals.skipped == {reason: 1}


def test_bad_lines_of_a_run(tmp_path):
    folder = write(tmp_path / "in")
    with open(folder / "validation.run", "a") as stream:
        stream.write("q1 Q0 d9 6 0.5 first\n")
    with pytest.raises(UserError, match="validation.run, line 10: there is no document 'd9'"):
        build(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    built = build(folder, tmp_path / "out", skip_bad_rows=True)
    assert built.totals.splits["validation"].skipped == {"unknown document": 1}
    assert built.totals.splits["validation"].examples == 9


def test_texts_without_a_header_and_as_json_lines(tmp_path):
    folder = write(tmp_path / "in")
    for name in ("queries", "documents"):
        path = folder / f"{name}.tsv"
        path.write_text(path.read_text().removeprefix("id\ttext\n"))
    assert collection(folder, header=False).documents == DOCUMENTS
    lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(QUERIES.values())]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    actual = ranking.read_collection(
        folder / "queries.jsonl", folder / "queries.jsonl", None, tables.BadRows(), header=False
    )
    assert actual.queries == dict(zip("0123", QUERIES.values(), strict=True))
    assert actual.qrels == {}


def test_what_cannot_be_built(tmp_path):
    folder = write(tmp_path / "in", train={"q3": RUN["q3"]}, validation=RUN)
    with pytest.raises(UserError) as error:
        build(folder, tmp_path / "out")
    assert str(error.value) == (
        f"{folder / 'train.run'}: nothing to learn from: 1 queries without a relevant document"
    )
    with pytest.raises(UserError, match="--max_length=4 leaves no room .*: the least is 5"):
        build(folder, tmp_path / "out", max_length=4)
    write(folder, qrels={"q1": {"d1": 5}})
    with pytest.raises(UserError, match="grade 5 of document 'd1' for query 'q1': err_20 needs"):
        build(folder, tmp_path / "out")
    build(folder, tmp_path / "out", task=tasks.ranking(["map"]))
    (folder / "queries.tsv").write_text("id\ttext\nq1\t \n")
    with pytest.raises(UserError, match="queries.tsv: no row can be used: 1 empty text"):
        collection(folder, tables.BadRows(skip=True))


def test_candidate_files_that_have_changed(tmp_path):
    built = build(write(tmp_path / "in"), tmp_path / "out")
    with pytest.raises(UserError, match="the train split has no candidates to rank: name --spl"):
        side_texts.read_candidates(tmp_path / "out", built, "train")
    with open(tmp_path / "out" / "validation.qrels", "a") as stream:
        stream.write("q1 0 d7 1\n")
    with pytest.raises(UserError, match="validation.qrels has changed since it was written: exp"):
        side_texts.read_candidates(tmp_path / "out", built, "validation")
    (tmp_path / "out" / "validation.run").unlink()
    with pytest.raises(UserError, match="validation.run is missing: copy the folder again"):
        side_texts.read_candidates(tmp_path / "out", built, "validation")


def _plan(*arguments):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    values(["build_task_shards", *arguments])
    return build_task_shards.plan(values)


def test_flags(tmp_path):
    folder = write(tmp_path / "in")
    ranking = ["--task=ranking", f"--input={folder}"]
    both = ["--queries=queries.tsv", "--documents=documents.tsv"]
    task, files = _plan(*ranking, *both, "--test_file=train.run", "--metrics=map,mrr")
    assert (task.kind, task.metrics) == ("ranking", ("map", "mrr"))
    assert files == {"test": folder / "train.run"}
    for arguments, message in (
        (ranking, "--task=ranking needs --queries, the file with their ids and texts"),
        ([*ranking, both[0]], "--task=ranking needs --documents"),
        ([*ranking, *both], "--task=ranking needs TREC runs with the candidates: --train_file"),
        (
            [*ranking, *both, "--train_file=train.run"],
            "--qrels is missing: training needs to know what is relevant",
        ),
        ([*ranking, *both, "--label_column=x"], "--label_column is not for --task=ranking: its"),
        (
            ["--task=sst2", "--input=x", "--qrels=x"],
            "--qrels is for --task=ranking, not for --task=sst2",
        ),
    ):
        with pytest.raises(UserError) as error:
            _plan(*arguments)
        assert message in str(error.value)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    folder = write(tmp_path / "in")
    with open(folder / "qrels", "a") as stream:
        stream.write("q1 0 d9 1\n")
    done = commands.run(
        "tfrecords_tools.build_task_shards",
        "--task=ranking",
        f"--input={folder}",
        "--queries=queries.tsv",
        "--documents=documents.tsv",
        "--qrels=qrels",
        "--train_file=train.run",
        "--validation_file=validation.run",
        f"--tokenizer={small.tokenizer_folder(tmp_path / 'tokenizer')}",
        f"--output={tmp_path / 'out'}",
        "--max_length=32",
        "--negatives=2",
        "--seed=5",
        "--skip_bad_rows",
    )
    assert done.returncode == 0, done.stderr
    assert "left out of queries, documents and qrels: 1 unknown document" in done.stdout
    assert "train: 2 queries, 6 triples" in done.stdout
    record = manifest.read(tmp_path / "out")
    assert (record.seed, record.config.negatives) == (5, 2)
    assert record.totals.skipped == {"unknown document": 1}
