"""MTEB's runner on a model: scores are those of scipy, of pytrec_eval and of the search."""

import json

import numpy as np
import pytest
import pytrec_eval
from scipy import stats

import official
from official.conversion import converted_model, huggingface
from official.evaluation import rankings
from official.serving.vectors import search
from official.tasks import beir, trec
from tests import GOLDEN

WORDS = "the cat sat a dog ran cats and dogs tree mat under on".split()


def test_scores_of_local_tasks(mteb, tmp_path):
    folder = tmp_path / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    settings = {"pooling": ["mean"], "prompts": {"query": "the dog ", "LocalSTS": "a cat "}}
    (folder / "embedding.json").write_text(json.dumps(settings))
    draw = np.random.default_rng(0)
    text = lambda: " ".join(draw.choice(WORDS, draw.integers(1, 8)))  # noqa: E731
    pairs = [(text(), text(), float(draw.integers(0, 6))) for _ in range(40)]
    documents = {f"d{i}": (text() if i % 2 else "", text()) for i in range(150)}
    queries = {f"q{i}": text() for i in range(9)}
    qrels = {}
    for query in queries:
        judged = draw.choice(list(documents), 12, replace=False)
        qrels[query] = {str(name): int(draw.integers(0, 3)) for name in judged}
    data = {"pairs": pairs, "documents": documents, "queries": queries, "qrels": qrels}
    (tmp_path / "data.json").write_text(json.dumps(data))
    said = json.loads(mteb.run("mteb_tasks.py", folder, tmp_path / "data.json").splitlines()[-1])

    model = official.load(folder)
    first, second, scores = zip(*pairs, strict=True)
    one, other = (
        model.encode(texts, normalize=True, prompt="LocalSTS") for texts in (first, second)
    )
    spearman = stats.spearmanr((one * other).sum(axis=1), scores).statistic
    assert said["scores"]["LocalSTS"]["cosine_spearman"] == pytest.approx(spearman, abs=1e-3)

    texts = {name: " ".join(filter(None, each)) for name, each in documents.items()}
    beir.write(tmp_path / "set", queries, texts.items(), {"test": qrels})
    judged, output = beir.read(tmp_path / "set"), tmp_path / "x.run"
    search.write(model.embedder, judged.queries, judged.documents, output, 100, "x", own=False)
    run = trec.read_run(output)
    ours = rankings.compute(beir.METRICS, qrels, run)
    each = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    theirs = said["scores"]["LocalRetrieval"]
    for name, of_mteb, measure in (
        ("ndcg_10", "ndcg_at_10", "ndcg_cut_10"),
        ("recall_100", "recall_at_100", "recall_100"),
    ):
        mean = np.mean([values[measure] for values in each.values()])
        assert ours[name] == pytest.approx(mean)
        assert theirs[of_mteb] == pytest.approx(mean, abs=1e-4)
    assert theirs["mrr_at_10"] == pytest.approx(ours["mrr_10"], abs=1e-4)
    assert all(own == of_mteb for own, of_mteb in said["prompts"])
    assert len({own for own, _ in said["prompts"]}) == 5
    meta = said["meta"]
    assert (meta["name"], meta["embed_dim"]) == (f"local/{model.config.name}", 12)
    assert (meta["similarity_fn_name"], meta["framework"]) == ("cosine", ["TensorFlow"])
    assert meta["revision"] == model.for_mteb().revision
