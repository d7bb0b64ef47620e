import json
import math
import tracemalloc

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from official.tasks import beir, bm25, trec
from official.utils.errors import UserError
from tests import commands, small
from tfrecords_tools import build_ranking_data

CRANFIELD = {
    "cran.all.1400": (
        ".I 1\n.T\nlift of a\nwing .\n.A\nsmith,j.\n.B\nj. 1958.\n.W\nlift of a\nwing .\n  in a\n"
        "slipstream .\n.I 2\n.T\n.A\n.B\n.W\n.I 3\n.T\nheat\n.A\n.B\n.W\nheat .\n.W\nof slabs\n"
        ".I 4\n.T\nflow\n.A\n.B\n.W\nflow past a wing\n"
    ),
    "cran.qry": ".I 001\n.W\nwhat lift\nhas a wing .\n.I 004\n.W\nheat ?\n.I 365\n.W\nflow ?\n",
    "cranqrel": "1 1 1 \n1 4 4\n1 3 -1\n2 3 2 \n2 2 3\n3 4 3\n3 1 5\n",
}
CISI = {
    "CISI.ALL": ".I 1\r\n.T\r\nOn Books\r\n.A\r\nDoe\r\n.W\r\nThey are\r\nread.\r\n.X\r\n1\t5\t"
    "1\r\n.I 2\r\n.T\r\nLoans\r\n.A\r\nRoe\r\n.W\r\nOf books.\r\n.X\r\n2\t5\t2\r\n",
    "CISI.QRY": ".I 1\r\n.W\r\nWhich books\r\nare read?\r\n.I 2\r\n.W\r\nNothing.\r\n"
    ".I 3\r\n.T\r\nLoans\r\n.A\r\nDoe\r\n.W\r\nand books\r\n.B\r\n(J. 1)\r\n",
    "CISI.REL": "     1      1\t0\t0.000000\r\n     3      2\t0\t0.000000\r\n",
}
WIKIQA = {
    "train.tsv": "qid\tquestion\tanswer\tlabel\n1\thow old ?\told .\t0\n"
    "1\thow old ?\tvery old .\t1\n1\thow old ?\told .\t0\n2\tno answer ?\tnone\t0\n",
    "dev.tsv": "qid\tquestion\tanswer\tlabel\n1\twho ?\ta man\t1\n1\twho ?\t\"he\"\t0\n",
    "test.tsv": "qid\tquestion\tanswer\tlabel\n7\twhen ?\tvery old .\t0\n7\twhen ?\tin may\t1\n",
}  # fmt: skip


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


def test_cranfield(tmp_path):
    result = build_ranking_data.read_cranfield(write(tmp_path / "in", CRANFIELD))
    assert result.documents == {
        "1": "lift of a wing . in a slipstream .",
        "3": "heat . of slabs",
        "4": "flow past a wing",
    }
    # The third query is .I 365 and number 3 in cranqrel.
    assert result.queries == {"1": "what lift has a wing .", "2": "heat ?", "3": "flow ?"}
    assert result.qrels == {"1": {"1": 4, "4": 1, "3": 0}, "2": {"3": 3}, "3": {"4": 2, "1": 0}}
    assert +result.left_out == {"empty documents": 1, "judgments of empty documents": 1}


def test_cisi(tmp_path):
    result = build_ranking_data.read_cisi(write(tmp_path / "in", CISI))
    assert result.documents == {"1": "On Books They are read.", "2": "Loans Of books."}
    assert result.queries == {"1": "Which books are read?", "3": "Loans and books"}
    assert result.qrels == {"1": {"1": 1}, "3": {"2": 1}}
    assert +result.left_out == {"queries without a relevant document": 1}


def test_wikiqa(tmp_path):
    result = build_ranking_data.read_wikiqa(write(tmp_path / "in", WIKIQA))
    assert result.queries == {"train-1": "how old ?", "validation-1": "who ?", "test-7": "when ?"}
    texts = {name: result.documents[name] for grades in result.qrels.values() for name in grades}
    by_text = {text: name for name, text in texts.items()}
    assert result.splits == {
        "train": {"train-1": [by_text["old ."], by_text["very old ."]]},
        "validation": {"validation-1": [by_text["a man"], by_text['"he"']]},
        "test": {"test-7": [by_text["very old ."], by_text["in may"]]},
    }
    assert result.qrels["test-7"] == {by_text["very old ."]: 0, by_text["in may"]: 1}
    assert +result.left_out == {
        "answers given twice": 1,
        "queries without a relevant document": 1,
    }


def squad(*paragraphs):
    """A file of SQuAD's form, of contexts and their questions."""
    listed = [
        {"context": context, "qas": [{"id": key, "question": text} for key, text in asked.items()]}
        for context, asked in paragraphs
    ]
    return json.dumps({"data": [{"title": "a", "paragraphs": listed}]})


def test_squad(tmp_path):
    files = {
        "one.json": squad(
            ("A wing.\nIts lift.", {"q1": "What lifts?", "q2": "Why?"}), ("Heat.", {})
        ),
        "two.json": squad(("A wing.\nIts lift.", {"q3": " Where  is it?"}), ("Flow.", {"q4": "?"})),
    }
    folder = write(tmp_path / "in", files)
    result = build_ranking_data.read_squad(folder)
    # A paragraph without questions is searched too, and one that stands twice is one document.
    assert result.documents == {"p1": "A wing. Its lift.", "p2": "Heat.", "p3": "Flow."}
    assert result.queries == {"q1": "What lifts?", "q2": "Why?", "q3": "Where is it?", "q4": "?"}
    assert result.qrels == {"q1": {"p1": 1}, "q2": {"p1": 1}, "q3": {"p1": 1}, "q4": {"p3": 1}}
    assert list(build_ranking_data.read_squad(folder / "two.json").queries) == ["q3", "q4"]
    (folder / "two.json").write_text(squad(("Flow.", {"q1": "?"})))
    with pytest.raises(
        UserError, match="two.json: article 1 .* paragraph 1: the id 'q1' is that of"
    ):
        build_ranking_data.read_squad(folder)
    (folder / "two.json").write_text(squad(("Flow.", {"q 4": "?"})))
    with pytest.raises(UserError, match="'q 4' cannot be an id: it is empty or has a blank in it"):
        build_ranking_data.read_squad(folder)
    (folder / "two.json").write_text(squad(("Flow.", {"q4": 5})))
    with pytest.raises(UserError, match="question 'q4': 'question' is 5, expected a text"):
        build_ranking_data.read_squad(folder)
    (folder / "two.json").write_text('{"articles": []}')
    with pytest.raises(UserError, match="is this one of SQuAD's files?"):
        build_ranking_data.read_squad(folder)
    with pytest.raises(UserError, match="has no .json: --format=squad reads files of SQuAD's form"):
        build_ranking_data.read_squad(write(tmp_path / "none", {"a.tsv": ""}))


def test_bm25_is_that_of_a_loop():
    documents = {"a": "wing wing lift", "b": "Wing in heat-flow", "c": "a flow", "d": "other words"}
    result = build_ranking_data.Collection({"q": "wing flow flow?"}, documents, {})
    words = {"a": "wing wing lift", "b": "wing in heat flow", "c": "a flow", "d": "other words"}
    split = {name: text.split() for name, text in words.items()}
    mean = sum(map(len, split.values())) / 4
    expected = {}
    for name, text in split.items():
        score = 0.0
        for word in ("wing", "flow", "flow"):
            having = sum(word in other for other in split.values())
            weight = math.log(1 + (4 - having + 0.5) / (having + 0.5))
            count = text.count(word)
            score += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(text) / mean))
        expected[name] = score
    run = build_ranking_data.rank(result, {"q": None}, depth=9)
    assert run["q"] == pytest.approx({n: s for n, s in expected.items() if s}, rel=1e-6)
    assert list(run["q"]) == sorted(run["q"], key=expected.get, reverse=True)
    assert list(build_ranking_data.rank(result, {"q": None}, depth=2)["q"]) == list(run["q"])[:2]
    # Of named candidates those without a word of the query too.
    assert set(build_ranking_data.rank(result, {"q": ["d", "a"]}, depth=9)["q"]) == {"a", "d"}


def test_words_of_all_scripts_are_found(tmp_path):
    documents = {
        "hi": "किताब मेज़ पर है", "hi2": "की बात", "zh": "北京今天的天气很好。",
        "zh2": "上海的电影节明天开始。", "th": "กรุงเทพมหานครเป็นเมืองหลวง", "th2": "ภาษาไทย",
    }  # fmt: skip
    queries = {"hi": "किताब", "zh": "北京天气", "zh2": "电影节", "th": "เมืองหลวง", "none": "xyz"}
    result = build_ranking_data.Collection(queries, documents, {})
    run = build_ranking_data.rank(result, dict.fromkeys(queries), depth=2)
    assert {query: next(iter(ranked)) for query, ranked in run.items()} == {
        query: query for query in queries if query != "none"
    }
    assert list(run["hi"]) == ["hi"]
    # A query that finds nothing is counted.
    result.splits = {"train": dict.fromkeys(queries)}
    assert build_ranking_data.write(result, tmp_path / "a", 2) == {"train": 4}
    assert result.left_out == {"queries of train that share no word with a document": 1}
    result.splits["test"] = {"none": None}
    with pytest.raises(UserError, match="no query of the test split shares a word with a document"):
        build_ranking_data.write(result, tmp_path / "b", 2)


def dense(result, wanted, depth):
    """The ranking from a matrix of all queries and documents."""
    vectorizer = CountVectorizer(token_pattern=r"(?u)\w+", dtype=np.float64)
    counts = vectorizer.fit_transform(result.documents.values()).tocsr()
    lengths = np.asarray(counts.sum(axis=1))[:, 0]
    having = np.diff(counts.tocsc().indptr)
    weights = np.log1p((len(lengths) - having + 0.5) / (having + 0.5))
    norms = 1.2 * (1 - 0.75 + 0.75 * lengths / lengths.mean())
    rows = np.repeat(np.arange(len(lengths)), np.diff(counts.indptr))
    counts.data *= 2.2 * weights[counts.indices] / (counts.data + norms[rows])
    words = vectorizer.transform(result.queries[query] for query in wanted)
    run = {}
    for (query, given), row in zip(wanted.items(), (words @ counts.T).toarray(), strict=True):
        scores = {
            name: float(np.float32(score))
            for name, score in zip(result.documents, row, strict=True)
            if (score if given is None else name in given)
        }
        if ranked := trec.ordered(scores)[:depth]:
            run[query] = dict(ranked)
    return run


@pytest.mark.parametrize("scores_at_once", [1, 90, 10**9])
@pytest.mark.parametrize("depth", [1, 7, 40])
def test_bm25_is_that_of_a_dense_matrix(monkeypatch, scores_at_once, depth):
    monkeypatch.setattr(bm25, "SCORES_AT_ONCE", scores_at_once)
    rng = np.random.default_rng(0)
    text = lambda words: " ".join(rng.choice(words, rng.integers(1, 5)))  # noqa: E731
    # Few words give many equal scores.
    documents = {f"d{i}": text(small.WORDS[:6]) for i in rng.permutation(30)}
    queries = {f"q{i}": text(small.WORDS[:7]) for i in range(20)}
    result = build_ranking_data.Collection(queries, documents, {})
    wanted = {query: None for query in queries}
    wanted |= {f"q{i}": [f"d{j}" for j in rng.permutation(30)[: 3 * i]] for i in range(5)}
    run = build_ranking_data.rank(result, wanted, depth)
    expected = dense(result, wanted, depth)
    assert [(query, list(ranked.items())) for query, ranked in run.items()] == [
        (query, list(ranked.items())) for query, ranked in expected.items()
    ]
    assert any(len(set(ranked.values())) < len(ranked) for ranked in run.values()) or depth == 1


def test_bm25_holds_the_scores_of_few_queries(monkeypatch):
    """The memory does not grow with the number of queries."""
    monkeypatch.setattr(bm25, "SCORES_AT_ONCE", 1000)
    documents = {f"d{i}": "ba be" for i in range(500)}
    peaks = []
    for count in (2, 10, 100):  # the first call imports
        queries = {f"q{i}": "ba" for i in range(count)}
        result = build_ranking_data.Collection(queries, documents, {})
        tracemalloc.start()
        build_ranking_data.rank(result, dict.fromkeys(queries), 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] + 100_000  # a dense matrix of 100 queries has 400,000 bytes


def test_a_folder_of_beir_and_back(tmp_path):
    """From Cranfield to a folder of BEIR, to a ranking task, and to a folder of BEIR."""
    cranfield = build_ranking_data.read_cranfield(write(tmp_path / "in", CRANFIELD))
    cranfield.splits = {"train": {"1": None}, "validation": {"2": None}, "test": {"3": None}}
    sizes = build_ranking_data.write_beir(cranfield, tmp_path / "beir")
    assert sizes == {"train": 1, "validation": 1, "test": 1}
    files = sorted(file.name for file in (tmp_path / "beir" / "qrels").iterdir())
    assert files == ["dev.tsv", "test.tsv", "train.tsv"]
    read = build_ranking_data.read_beir(tmp_path / "beir")
    assert read == cranfield.__class__(
        cranfield.queries, cranfield.documents, cranfield.qrels, cranfield.splits, read.left_out
    )
    assert not +read.left_out
    build_ranking_data.write(read, tmp_path / "ranking", 10)
    again = build_ranking_data.read_ranking(tmp_path / "ranking")
    assert (again.queries, again.documents) == (cranfield.queries, cranfield.documents)
    assert again.qrels == cranfield.qrels
    assert {split: list(them) for split, them in again.splits.items()} == {
        "train": ["1"], "validation": ["2"], "test": ["3"]
    }  # fmt: skip
    build_ranking_data.write_beir(again, tmp_path / "again")
    for name in ("corpus.jsonl", "queries.jsonl", *(f"qrels/{name}" for name in files)):
        old, new = ((tmp_path / x / name).read_text() for x in ("beir", "again"))
        assert old == new
    with (tmp_path / "beir" / "qrels" / "dev.tsv").open("a") as stream:
        stream.write("2\tgone\t1\n9\t1\t1\n")
    read = build_ranking_data.read_beir(tmp_path / "beir")
    assert read.qrels == cranfield.qrels
    assert +read.left_out == {
        "judgments of unknown documents": 1,
        "judgments of unknown queries": 1,
    }
    for name in files:
        (tmp_path / "beir" / "qrels" / name).unlink()
    with pytest.raises(UserError, match="qrels has none of train.tsv, dev.tsv, test.tsv"):
        build_ranking_data.read_beir(tmp_path / "beir")


def test_a_number_is_not_a_query_and_a_document(tmp_path):
    """A search of a folder of BEIR takes a document with the id of the query for the query."""
    cranfield = build_ranking_data.read_cranfield(write(tmp_path / "in", CRANFIELD))
    cranfield.splits = {"test": {"1": None, "3": ["4"]}, "train": {"2": None}}
    apart = build_ranking_data.apart(cranfield)
    assert apart.queries == {"q1": "what lift has a wing .", "q2": "heat ?", "q3": "flow ?"}
    assert apart.documents == cranfield.documents
    assert apart.qrels == {"q1": {"1": 4, "4": 1, "3": 0}, "q2": {"3": 3}, "q3": {"4": 2, "1": 0}}
    assert apart.splits == {"test": {"q1": None, "q3": ["4"]}, "train": {"q2": None}}
    assert build_ranking_data.apart(apart) is apart
    # Of the first query, the relevant document of the same number is found now.
    found = {"q1": {"1": 1.0}}
    assert beir.without_own(found) == found and beir.without_own({"1": {"1": 1.0}}) == {"1": {}}


def test_shares_of_the_queries():
    names = [f"q{i}" for i in range(50)]
    shares = build_ranking_data.split_queries(names, 0.2, 0.1, seed=1)
    assert {name: len(them) for name, them in shares.items()} == {
        "validation": 10,
        "test": 5,
        "train": 35,
    }
    assert sorted(q for them in shares.values() for q in them) == sorted(names)
    assert shares == build_ranking_data.split_queries(names, 0.2, 0.1, seed=1)
    assert shares != build_ranking_data.split_queries(names, 0.2, 0.1, seed=2)


FAULTS = [
    ("cranfield", "cranqrel", "9 1 1", "there is no query '9'"),
    ("cranfield", "cranqrel", "1 9 1", "there is no document '9'"),
    ("cranfield", "cranqrel", "1 1 1", "document '1' is judged twice for '1'"),
    ("cranfield", "cranqrel", "1 1", "2 columns, expected 3"),
    ("cranfield", "cranqrel", "1 1 x", "'x' is not a whole number"),
    ("cisi", "CISI.REL", "1 2 0", "3 columns, expected 4"),
    ("wikiqa", "dev.tsv", "1\twho ?\ta man", "3 columns, expected 4 (qid question answer"),
    ("wikiqa", "dev.tsv", "1\twhy ?\ta man\t1", "question '1' has another text in an earlier line"),
    ("wikiqa", "dev.tsv", "1\twho ?\ta boy\t2", "label 2 is neither 0 nor 1"),
    ("wikiqa", "dev.tsv", "1\twho ?\ta boy\tyes", "'yes' is not a whole number"),
]


@pytest.mark.parametrize("format, name, line, message", FAULTS)
def test_faults_name_file_and_line(tmp_path, format, name, line, message):
    files = {"cranfield": CRANFIELD, "cisi": CISI, "wikiqa": WIKIQA}[format]
    folder = write(tmp_path / "in", {**files, name: files[name] + line + "\n"})
    with pytest.raises(UserError) as error:
        build_ranking_data.READERS[format](folder)
    number = files[name].count("\n") + 1
    assert str(error.value).startswith(f"{folder / name}, line {number}: {message}")


def test_files_that_are_no_collection(tmp_path):
    folder = write(tmp_path / "in", CISI)
    with pytest.raises(UserError, match="there is no file .*cran.all.1400"):
        build_ranking_data.read_cranfield(folder)
    (folder / "CISI.ALL").write_text("\n")
    with pytest.raises(UserError, match="CISI.ALL is empty: it has no entries"):
        build_ranking_data.read_cisi(folder)
    (folder / "CISI.ALL").write_text("\nhere\n.I 1\n")
    with pytest.raises(UserError, match="CISI.ALL, line 2: expected .I and a number, got 'here'"):
        build_ranking_data.read_cisi(folder)
    (folder / "CISI.ALL").write_bytes(b".I 1\n.W\n\xff\n")
    with pytest.raises(UserError, match="CISI.ALL, line 3: not UTF-8: convert the file"):
        build_ranking_data.read_cisi(folder)
    (folder / "CISI.ALL").write_text(".I 1\n.W\na\n.I 1\n.W\nb\n")
    with pytest.raises(UserError, match="CISI.ALL: .I 1 occurs twice"):
        build_ranking_data.read_cisi(folder)
    write(folder, CISI)
    result = build_ranking_data.read_cisi(folder)
    result.splits = {"train": {}}
    with pytest.raises(UserError, match="the train split has no queries: increase its share"):
        build_ranking_data.write(result, tmp_path / "out", 10)


def test_the_command_line(tmp_path):
    folder = write(tmp_path / "in", CRANFIELD)
    command = [
        "tfrecords_tools.build_ranking_data", "--format=cranfield",
        f"--input={folder}", f"--output={tmp_path / 'out'}",
    ]  # fmt: skip
    done = commands.run(*command, "--validation=0.34", "--test=0.33")
    assert done.returncode == 0, done.stderr
    assert "left out: 1 empty documents\n" in done.stdout
    assert "3 documents; queries: train 1, validation 1, test 1; 6 judgments" in done.stdout
    lines = (tmp_path / "out" / "queries.tsv").read_text().splitlines()
    assert lines == ["id\ttext", "1\twhat lift has a wing .", "2\theat ?", "3\tflow ?"]
    qrels = trec.read_qrels(tmp_path / "out" / "qrels")
    assert qrels["1"] == {"1": 4, "4": 1, "3": 0}
    runs = [trec.read_run(tmp_path / "out" / f"{s}.run") for s in ("train", "validation", "test")]
    assert sorted(query for run in runs for query in run) == ["1", "2", "3"]
    command[-1] += "-beir"
    done = commands.run(*command, "--validation=0.34", "--test=0.33", "--to=beir")
    assert done.returncode == 0, done.stderr
    assert "3 documents; queries: train 1, validation 1, test 1; 6 judgments" in done.stdout
    assert len((tmp_path / "out-beir" / "corpus.jsonl").read_text().splitlines()) == 3
    lines = (tmp_path / "out-beir" / "queries.jsonl").read_text().splitlines()
    assert [json.loads(line)["_id"] for line in lines] == ["q1", "q2", "q3"]
    again = [command[0], "--format=beir", f"--input={tmp_path / 'out-beir'}", "--to=beir"]
    done = commands.run(*again, f"--output={tmp_path / 'again'}", status=0)
    kept = (tmp_path / "again" / "queries.jsonl").read_text().splitlines()
    assert sorted(kept) == sorted(lines)
    done = commands.run(*command, "--validation=0.5", "--test=0.5")
    assert done.returncode == 2
    assert "leave nothing to learn from: their sum must be less than 1" in done.stderr
    done = commands.run(*command[:-1], f"--output={tmp_path / 'all'}", "--validation=0", "--test=1")
    assert done.returncode == 0, done.stderr
    assert "3 documents; queries: test 3; 6 judgments" in done.stdout
