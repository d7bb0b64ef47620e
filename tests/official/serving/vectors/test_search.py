"""Exact search: against a sort of all scores, in bounded memory, from files to a TREC run."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import pytrec_eval

import official
from official import tokenizers
from official.config import ResolvedConfig
from official.conversion import converted_model, huggingface
from official.evaluation import rankings
from official.modeling.model import Model
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.served_model import ServedModel
from official.serving import reranking
from official.serving.predictor import Predictor
from official.serving.vectors import search
from official.tasks import beir, trec
from official.utils.errors import UserError
from tests import GOLDEN, commands, small

GARDEN = ("official.commands.garden", "search")
TEXTS = ["the cat sat", "a dog ran", "cats and dogs", "the tree .", "a mat under the tree"]


def test_memory_does_not_grow_with_the_documents():
    """A million documents of 64 numbers are 256 MB; the search keeps the best of each query."""
    table = np.random.default_rng(0).standard_normal((search.BLOCK, 64)).astype(np.float32)
    embedder = SimpleNamespace(
        is_sparse=False,
        settings=EmbeddingSettings(similarity="dot"),
        texts=lambda texts, *_, **__: table[: len(texts)] * (len(texts[0]) + 1),
    )

    def peak(blocks):
        documents = ("x" * (i // search.BLOCK % 7) for i in range(blocks * search.BLOCK))
        tracemalloc.start()
        best = search.nearest(embedder, ["q"] * 100, documents, 10).found
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, best

    few, many = peak(4), peak(40)
    assert many[0] < 1.2 * few[0] < 20e6
    assert (many[1].scores[:, 0] >= few[1].scores[:, 0]).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return folder


def test_search_compares_the_vectors_of_encode(folder, tmp_path):
    model, lines = official.load(folder), []
    numbers, scores = model.search(["a cat", "the tree"], TEXTS, top_k=3, report=lines.append)
    asked, given = (model.encode(x, normalize=True) for x in (["a cat", "the tree"], TEXTS))
    expected = asked @ given.T
    np.testing.assert_array_equal(numbers, np.argsort(-expected, axis=1)[:, :3])
    np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, :-4:-1], atol=1e-6)
    assert model.search(["a"], [], top_k=3)[0].shape == (1, 0)
    # Prompts stand before queries and before documents; distances are not of normalized vectors.
    model.embedder.settings = EmbeddingSettings(
        prompts={"query": "the dog ", "passage": "a cat "}, similarity="euclidean"
    )
    numbers, scores = model.search(["ran"], TEXTS, top_k=5)
    asked = model.encode(["the dog ran"])
    given = model.encode([f"a cat {text}" for text in TEXTS])
    distances = np.linalg.norm(given - asked, axis=1)
    assert numbers[0].tolist() == np.argsort(distances).tolist()
    np.testing.assert_allclose(-scores[0], np.sort(distances), atol=1e-5)
    for given, message in (
        ((["a"],), "search: give either documents or vectors"),
        (("a", ["b"]), "queries: give a list"),
        ((["a"], "b"), "documents: give a list"),
        ((["a"], ["b"], 0), "top_k: 0 is less than 1"),
    ):
        with pytest.raises(UserError, match=message):
            model.search(*given)


def test_a_folder_of_beir_is_scored_as_pytrec_eval_does(tmp_path):
    """With ties, grades, hits that are the queries themselves, and judgments of other ids."""
    draw = np.random.default_rng(0)
    names = [f"d{i}" for i in range(300)] + [f"q{i}" for i in range(20)]
    vectors = {name: (2 * draw.integers(-2, 3, 3) - 1).astype(np.float32) for name in names}
    words = {name: " ".join(map(str, vector)) for name, vector in vectors.items()}
    qrels = {}
    for query in names[300:]:
        judged = [*draw.choice(names, 30, replace=False), query, "gone"]
        qrels[query] = {str(name): int(draw.integers(0, 4)) for name in judged}
    queries = {name: words[name] for name in names[300:]}
    beir.write(tmp_path / "set", queries, words.items(), {"test": qrels})
    embedder = SimpleNamespace(
        is_sparse=False,
        settings=EmbeddingSettings(similarity="dot"),
        texts=lambda texts, *_, **__: np.float32([[float(x) for x in t.split()] for t in texts]),
    )
    judged = beir.read(tmp_path / "set")
    output = tmp_path / "x.run"
    search.write(embedder, judged.queries, judged.documents, output, 100, "x", own=False)
    # Their run is that of all scores, of which trec_eval takes the best. Equal scores at the end of
    # a run of 100 are the earlier documents.
    theirs = {}
    for query in queries:
        scores = {n: float(vectors[query] @ vectors[n]) for n in names if n != query}
        theirs[query] = dict(sorted(scores.items(), key=lambda item: -item[1])[:100])
    run = trec.read_run(output)
    assert run == theirs
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100"})
    each = evaluator.evaluate(theirs).values()
    computed = rankings.compute(beir.METRICS, judged.qrels, run)
    for name, other in (("ndcg_10", "ndcg_cut_10"), ("recall_100", "recall_100")):
        assert computed[name] == pytest.approx(np.mean([values[other] for values in each]))
    assert judged.unknown(names) == 20


def test_a_cross_encoder_orders_the_best_of_a_run_anew(tmp_path):
    (tmp_path / "documents.tsv").write_text("".join(f"d{i}\t{'x' * i}\n" for i in range(1, 7)))
    run = {"a": {f"d{i}": -float(i) for i in range(1, 5)}, "b": {"d6": 1.0, "d5": 1.0}}
    asked = []

    def rank(queries, documents):
        asked.extend(zip(queries, documents, strict=True))
        return np.float32([len(document) for document in documents])

    queries, output = {"a": "first", "b": "second", "c": "third"}, tmp_path / "new.run"
    given = (SimpleNamespace(rank=rank), queries, tmp_path / "documents.tsv", run, output)
    assert reranking.write(*given, 3, "x") == [f"d{i}" for i in range(1, 7)]
    assert asked == [(queries["a"], "x" * i) for i in (1, 2, 3)] + [
        ("second", "x" * 6), ("second", "x" * 5)
    ]  # fmt: skip
    found = trec.read_run(output)
    assert {query: list(scores) for query, scores in found.items()} == {
        "a": ["d3", "d2", "d1"],
        "b": ["d6", "d5"],
    }
    run["a"]["d9"] = 0.0
    with pytest.raises(UserError, match="documents.tsv: document 'd9' of the run is missing"):
        reranking.write(*given, 3, "x")


def test_a_run_reranked_by_a_model_has_its_scores(tmp_path):
    config = small.config(
        segments=None,
        corruption=None,
        objectives=[{"type": "ranking"}],
        encoder__initializer_range=0.5,
    )
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    config = ResolvedConfig.of(config)
    ranker = Predictor(ServedModel(config, tokenizer, Model(config), max_length=16))
    texts = {"d1": "ba be bi", "d2": "do du", "d3": "bi bo da di"}
    (tmp_path / "documents.tsv").write_text("".join(f"{d}\t{t}\n" for d, t in texts.items()))
    run = {"q": dict.fromkeys(texts, 1.0)}
    output = tmp_path / "new.run"
    reranking.write(ranker, {"q": "ba du"}, tmp_path / "documents.tsv", run, output, 3, "x")
    scores = ranker.rank("ba du", list(texts.values()))
    assert len(set(scores.tolist())) == 3
    assert trec.read_run(output)["q"] == pytest.approx(dict(zip(texts, scores, strict=True)), 1e-4)


def test_runs_are_fused_without_a_model(tmp_path):
    """Ranks by hand; the documents of equal sums, the depth, the metrics, and what is refused."""
    texts = {name: name for name in ("q1", "a", "b", "c", "d")}
    judgments = {"test": {"q1": {"b": 1}, "q2": {"a": 1, "gone": 1}}}
    beir.write(tmp_path / "set", {"q1": "x", "q2": "y"}, texts.items(), judgments)
    (tmp_path / "1.run").write_text(
        "q1 Q0 q1 1 9 x\nq1 Q0 a 2 8 x\nq1 Q0 b 3 7 x\nq1 Q0 c 4 6 x\nq2 Q0 a 1 1 x\n"
    )
    (tmp_path / "2.run").write_text("q1 Q0 b 1 0.3 y\nq1 Q0 d 2 0.2 y\nq1 Q0 a 3 0.1 y\n")
    runs = f"--fuse={tmp_path}/1.run,{tmp_path}/2.run"
    options = [runs, f"--output={tmp_path}/out.run", "--top_k=3"]
    done = commands.run(*GARDEN, *options, f"--beir={tmp_path}/set", status=0)
    assert f"wrote {tmp_path}/out.run: 2 queries, 2 runs" in done.stdout
    # The query itself is no hit, so the documents of 1.run have the ranks 1 to 3.
    assert trec.read_run(tmp_path / "out.run") == {
        "q1": {"b": 1 / 62 + 1 / 61, "a": 1 / 61 + 1 / 63, "d": 1 / 62},
        "q2": {"a": 1 / 61},
    }
    figures = dict(line.split() for line in done.stdout.splitlines()[-3:])
    expected = (1 + 1 / (1 + 1 / np.log2(3))) / 2
    assert float(figures["ndcg_10"]) == pytest.approx(expected, abs=1e-6)
    # Without the folder nothing is left out, and nothing is scored.
    done = commands.run(*GARDEN, *options, status=0)
    assert done.stdout.splitlines()[-1].startswith("wrote")
    assert trec.read_run(tmp_path / "out.run")["q1"] == {
        "b": 1 / 63 + 1 / 61, "a": 1 / 62 + 1 / 63, "q1": 1 / 61,
    }  # fmt: skip
    (tmp_path / "3.run").write_text("q1 Q0 elsewhere 1 9 x\n")
    for given, message in (
        ([*options, "--model_dir=m"], "--fuse: no model searches; remove --model_dir"),
        ([*options, "--texts=t"], "--fuse: no model searches; remove --texts"),
        ([*options, "--split=dev"], "--split: names the judgments of --beir, which is missing"),
        ([f"--fuse={tmp_path}/1.run", *options[1:]], "--fuse: expected two runs or more"),
        (
            [f"{runs},{tmp_path}/3.run", *options[1:], f"--beir={tmp_path}/set"],
            "3.run, line 1: there is no document 'elsewhere'",
        ),
        (options[1:], "--model_dir is missing: only --fuse needs none"),
    ):
        assert message in commands.run(*GARDEN, *given, status=2).stderr


@pytest.mark.slow
@pytest.mark.long
def test_command(folder, tmp_path):
    (tmp_path / "queries.tsv").write_text("id\ttext\nq1\ta cat\nq2\tthe tree\n")
    with (tmp_path / "documents.jsonl").open("w") as stream:
        for i, text in enumerate(TEXTS):
            stream.write(json.dumps({"_id": f"d{i}", "text": text}) + "\n")
    options = [
        "--mode=search", f"--model_dir={folder}", f"--queries={tmp_path}/queries.tsv",
        f"--texts={tmp_path}/documents.jsonl",
    ]  # fmt: skip
    run = tmp_path / "found.run"
    done = commands.run("official.main", *options, f"--output={run}", "--top_k=2", status=0)
    assert f"wrote {run}: 2 queries, 5 documents" in done.stdout
    numbers, scores = official.load(folder).search(["a cat", "the tree"], TEXTS, top_k=2)
    lines = [line.split() for line in run.read_text().splitlines()]
    assert [(x[0], x[2]) for x in lines] == [
        (f"q{row + 1}", f"d{number}") for row in range(2) for number in numbers[row]
    ]
    np.testing.assert_allclose([float(x[4]) for x in lines], scores.ravel(), atol=1e-5)
    best = {f"q{row + 1}": f"d{numbers[row, 0]}" for row in range(2)}
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} 1\n" for q, d in best.items()))
    given = [f"--qrels={tmp_path}/qrels", f"--run={run}", "--metrics=ndcg_10,mrr"]
    done = commands.run("official.commands.score_run", *given, status=0)
    assert done.stdout.split() == ["queries", "2", "ndcg_10", "1.000000", "mrr", "1.000000"]
    done = commands.run("official.main", *options, f"--output={tmp_path}/found.tsv", status=2)
    assert "TREC runs are written as .run: name such a file" in done.stderr
    # The same as a folder of BEIR, with a query that is not judged.
    texts = {f"d{i}": text for i, text in enumerate(TEXTS)}
    judgments = {"validation": {q: {d: 1, "gone": 1} for q, d in best.items()}}
    asked = {"q1": "a cat", "q2": "the tree", "q3": "a dog"}
    beir.write(tmp_path / "set", asked, texts.items(), judgments)
    options = [*options[:2], f"--beir={tmp_path}/set"]
    given = ["--top_k=2", f"--output={tmp_path}/again.run"]
    done = commands.run("official.main", *options, "--split=validation", *given, status=0)
    assert (tmp_path / "again.run").read_text() == run.read_text()
    said = done.stdout.splitlines()
    assert said[1:3] == [
        "1 queries without judgments, which are left out",
        "2 judgments of unknown documents, which count as not found",
    ]
    ideal = 1 + 1 / np.log2(3)
    figures = {line.split()[0]: float(line.split()[1]) for line in said[3:]}
    assert figures == pytest.approx(
        {"ndcg_10": 1 / ideal, "mrr_10": 1, "recall_100": 0.5}, abs=1e-6
    )
    done = commands.run("official.main", *options, *given, status=2)
    assert "test.tsv is missing: the splits of" in done.stderr
    done = commands.run(
        "official.main", *options, "--split=dev", f"--rerank={run}", *given, status=2
    )
    assert "rank: this model has no objective ranking" in done.stderr
    done = commands.run("official.main", *options, f"--texts={run}", *given, status=2)
    assert "give either --beir=FOLDER or --queries=FILE and --texts=FILE" in done.stderr
