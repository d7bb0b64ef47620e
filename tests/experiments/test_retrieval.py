import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import retrieval
from experiments.commands import Done
from official import config as configs
from official import tokenizers
from official.evaluation import rankings
from official.saving import checkpoints, model_folder, named_arrays
from official.tasks import beir, trec
from tests import commands, small, squads

ROOT = Path(retrieval.__file__).parents[1]


def options(folder, *override):
    return argparse.Namespace(
        data=folder / "data", init=str(folder / "encoder"), output=folder / "work",
        override=list(override),
    )  # fmt: skip


def sources(folder, count=30):
    """Small files of Cranfield and of the questions; a query has words of its documents."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(small.WORDS, draw.integers(4, 20))) for _ in range(count)]
    asked = [" ".join(text.split()[:3]) for text in texts[:8]]
    for name in ("cranfield", "squadshifts"):
        (folder / name).mkdir(parents=True)
    for name, entries in (("cran.all.1400", texts), ("cran.qry", asked)):
        lines = (f".I {i}\n.W\n{text}\n" for i, text in enumerate(entries, 1))
        (folder / "cranfield" / name).write_text("".join(lines))
    lines = "".join(f"{i} {i} {1 + i % 4}\n{i} {i + 9} 3\n" for i in range(1, 9))
    (folder / "cranfield/cranqrel").write_text(lines)
    (folder / retrieval.PAIRS).write_text(json.dumps(squads.make(12)))


def encoder(folder):
    """A released encoder as random weights have it."""
    settings = small.config(
        segments=None,
        corruption=None,
        objectives=[{"type": "sentence_embedding"}],
        encoder__max_positions=256,
        encoder__initializer_range=0.3,
    )
    folder.mkdir()
    configs.save(settings, folder / "config.yaml")
    tokenizers.load(small.tokenizer_folder(folder / "words")).save(folder / "tokenizer")
    checkpoints.save(
        folder, 1, named_arrays.values(model_folder.build(settings).variables_by_path()), {}
    )


def test_every_kind_has_its_config_and_parts():
    for name, kind in retrieval.KINDS.items():
        assert not kind.config or (ROOT / f"configs/finetune/{kind.config}.yaml").exists(), name
        earlier = list(retrieval.KINDS)[: list(retrieval.KINDS).index(name)]
        assert set(kind.parts) <= set(earlier), name


def test_what_is_made_is_made_once(tmp_path):
    for name in (*retrieval.COLLECTIONS, "squadshifts"):
        (tmp_path / "data" / name).mkdir(parents=True)
    with pytest.raises(SystemExit, match="no .*new_wiki_v1.0.json: --data is the folder above it"):
        retrieval.Run(options(tmp_path))
    (tmp_path / "data" / retrieval.PAIRS).write_text("")
    said = []

    def command(*words):
        said.append(" ".join(words))
        if len(said) == 3:
            raise SystemExit("error: killed")
        return Done("", 90.0, 60.0)

    given = options(tmp_path, "recipe.seed=1")
    given.init = "package:some"
    with pytest.raises(SystemExit, match="killed"):
        retrieval.Run(given, command).model("static_trained")
    run = retrieval.Run(given, command)
    work = tmp_path / "work"
    assert run.model("static_trained") == work / "static_trained_model"
    modules = [line.split()[0] for line in said]
    # What failed runs again, and nothing before it.
    assert modules == [
        "tfrecords_tools.build_ranking_data",
        "official.convert",
        "official.commands.mine_negatives",
        "official.commands.mine_negatives",
        "tfrecords_tools.build_task_shards",
        "official.commands.students",
        "official.main",
    ]
    assert said[1] == f"official.convert --source=package --input=some --output={work}/released"
    assert said[-1].endswith(
        f"--override=recipe.seed=1 --model_dir={work}/static_trained_model"
    ) and f"--init={work}/static " in said[-1]  # fmt: skip
    assert run.minutes("static_trained") == 2  # of a core: the pieces' vectors and the training
    assert run.minutes("static") == 1 and run.minutes("dense") == 0
    assert run.found("fused", "cisi") == work / "fused_cisi.run"
    assert said[-1].split()[1:] == [
        "--mode=search", f"--beir={work}/cisi",
        f"--fuse={work}/bm25_cisi/test.run,{work}/dense_cisi.run",
        f"--output={work}/fused_cisi.run",
    ]  # fmt: skip
    run.found("reranked", "cisi")
    assert f"--rerank={work}/dense_cisi.run --top_k=20" in said[-1]


def test_milliseconds_are_of_a_core_and_the_median(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(retrieval.time, "process_time", lambda: clock.now)

    def search(seconds):
        clock.now += seconds

    first = [9.0] * retrieval.WARM
    assert retrieval.milliseconds(search, [*first, 0.001, 0.002, 5.0]) == pytest.approx(2.0)
    assert retrieval.milliseconds(search, [0.003, 0.003]) == pytest.approx(3.0)  # too few to warm


def test_bytes(tmp_path):
    np.save(tmp_path / "vectors-00000.npy", np.zeros((5, 3), np.float32))
    (tmp_path / "ids-00000.txt").write_text("a\n" * 5)
    assert retrieval.stored_bytes(tmp_path) == 128 + 60
    search, size = retrieval.by_words(["a b", "b b", "c"])
    # Four weights of 8 bytes with numbers of 4, and where the three words begin.
    assert size == 4 * 12 + 4 * 4
    assert search("b c").tolist() == [[2, 1, 0]]


def test_table():
    rows = [
        {"kind": kind, "collection": name, "ndcg_10": value, "ms": 1.234, "bytes": 1536.0,
         "core_minutes": 7.04}
        for kind, values in (("bm25", (0.4, 0.3)), ("dense", (0.375, 0.35)), ("late", (0.9,)))
        for name, value in zip(("cranfield", "wikiqa"), values, strict=False)
    ]  # fmt: skip
    head, _, first, second, *best = retrieval.table(rows)
    assert head == (
        "| kind | cranfield, NDCG@10 | wikiqa, NDCG@10 | mean | ms a query (cranfield, wikiqa) "
        "| bytes a document (cranfield, wikiqa) | minutes of training |"
    )
    assert first == "| BM25 | 0.4000 | 0.3000 | 0.3500 | 1.23, 1.23 | 1,536, 1,536 | 7.0 |"
    assert second.startswith("| dense, MiniLM as released | 0.3750 | 0.3500 | 0.3625 |")
    assert best == [
        "best by cranfield: BM25, 0.4000",
        "best by wikiqa: dense, MiniLM as released, 0.3500",
        "best by the mean: dense, MiniLM as released, 0.3625",
    ]


@pytest.mark.slow
@pytest.mark.long
def test_from_files_to_the_table(tmp_path, monkeypatch):
    """All kinds on one collection, with few steps of a small encoder."""
    chosen = {"cranfield": retrieval.COLLECTIONS["cranfield"]}
    monkeypatch.setattr(retrieval, "COLLECTIONS", chosen)
    sources(tmp_path / "data")
    encoder(tmp_path / "encoder")

    def command(module, *arguments):
        return Done(commands.run(module, *arguments, status=0).stdout, 60.0, 30.0)

    given = options(
        tmp_path, "recipe.epochs=0", "recipe.steps=2", "recipe.batch_size=4",
        "recipe.bucket_lengths=[]",
    )  # fmt: skip
    rows = retrieval.measure(retrieval.Run(given, command), retrieval.KINDS)
    work, figures = tmp_path / "work", {row["kind"]: row for row in rows}
    assert list(figures) == list(retrieval.KINDS)
    judged = beir.read(work / "cranfield")
    for name, file in (("late", "late_cranfield.run"), ("bm25", "bm25_cranfield/test.run")):
        found = trec.read_run(work / file)
        (expected,) = rankings.compute(["ndcg_10"], judged.qrels, found).values()
        assert figures[name]["ndcg_10"] == expected
    assert figures["bm25"]["ndcg_10"] > 0.5  # queries have words of their documents
    documents = figures["dense"]["documents"]
    size = 4 * small.config().encoder.hidden_size + 128 / documents
    assert figures["dense"]["bytes"] == pytest.approx(size)
    parts = [figures[name] for name in ("bm25", "dense")]
    assert figures["fused"]["bytes"] == pytest.approx(sum(row["bytes"] for row in parts))
    assert figures["fused"]["ms"] > sum(row["ms"] for row in parts)
    assert figures["reranked"]["ms"] > figures["dense"]["ms"]
    # Of a core: masked LM and the vectors of words, half a minute each.
    assert figures["sparse"]["core_minutes"] == 1 and figures["bm25"]["core_minutes"] == 0
    names = ("bm25_cranfield/test.run", "dense_cranfield.run")
    joined = trec.fused(trec.read_run(work / name) for name in names)
    assert trec.read_run(work / "fused_cranfield.run") == joined
    assert len(list(retrieval.table(rows))) == 2 + len(retrieval.KINDS) + 2
    # Nothing runs again.
    again = retrieval.Run(given, lambda *words: pytest.fail(f"again: {words}"))
    assert retrieval.measure(again, retrieval.KINDS) == rows
