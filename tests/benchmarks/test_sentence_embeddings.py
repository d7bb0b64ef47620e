import json

import numpy as np
import pytest

from benchmarks import sentence_embeddings
from tests import commands, small
from tests.official.evaluation.test_layer_states import pretrained

WIKIQA = (
    ("q1", "ba be", "bi bo", 0),
    ("q1", "ba be", "bi ba", 1),
    ("q1", "ba be", "fu fu", 0),
    ("q2", "da de", "de da", 1),
    ("q2", "da de", "fu fa", 0),
)
CRANFIELD = {"1": "ba be bi", "2": "ba fu", "3": "da fa", "4": "lu la"}


def write_table(path, names, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(map(str, row)) for row in (names, *rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path):
    """The files that the benchmark reads, with a few rows each."""
    folder = tmp_path / "data"
    glue = folder / "glue"
    draw = np.random.default_rng(0)
    text = lambda: " ".join(draw.choice(small.WORDS, 3))  # noqa: E731
    names = ("sentence1", "sentence2", "gold_label")
    labels = ("entailment", "neutral", "contradiction")
    rows = [(text(), text(), labels[i % 3]) for i in range(24)]
    write_table(glue / "MNLI/train_sample.tsv", names, rows)
    rows = [(text(), text(), ("entailment", "not_entailment")[i % 2]) for i in range(8)]
    write_table(glue / "QNLI/train_sample.tsv", ("question", "sentence", "label"), rows)
    rows = [("ba", "be", 1), ("di di", "di di", 1), ("do", "du", 0)]
    write_table(glue / "QQP/train_sample.tsv", ("question1", "question2", "is_duplicate"), rows)
    rows = [("ba ba", "ba be", 4.0), ("da", "lu", 1.5), ("fa", "fu fa", 2.0)]
    write_table(glue / "STS-B/dev.tsv", ("sentence1", "sentence2", "score"), rows)
    for split in ("train", "dev", "test"):
        columns = ("qid", "question", "answer", "label")
        write_table(folder / "wikiqa" / f"{split}.tsv", columns, WIKIQA)
    cranfield = folder / "cranfield"
    cranfield.mkdir()
    documents = (f".I {name}\n.T\nt\n.W\n{words}\n" for name, words in CRANFIELD.items())
    (cranfield / "cran.all.1400").write_text("".join(documents))
    (cranfield / "cran.qry").write_text(".I 1\n.W\nba bi\n.I 4\n.W\nda\n")
    # Grades 4, 2 and 1.
    (cranfield / "cranqrel").write_text("1 2 1\n1 1 3 \n2 3 4\n")
    return folder


def test_pairs_are_those_of_the_label_and_differ(data):
    pairs = list(sentence_embeddings.read_pairs(data))
    assert len(pairs) == 8 + 4 + 1 + 2
    assert pairs[-3:] == [("ba", "be"), ("ba be", "bi ba"), ("da de", "de da")]


def test_measures_of_vectors(data):
    measures = sentence_embeddings.Measures(data)
    texts = measures.texts
    assert len(set(texts)) == len(texts) and {"fa", "bi bo", "ba bi", "lu la"} <= set(texts)
    angles = {"ba ba": 0, "ba be": 60, "da": 0, "lu": 30, "fa": 0, "fu fa": 80}
    angles |= {"bi bo": 70, "bi ba": 100, "fu fu": 0, "da de": 60, "de da": 61}
    angles |= {"ba bi": 0, "ba be bi": 10, "ba fu": 20, "da fa": 50, "lu la": 15}

    def encode(texts):
        radians = np.deg2rad([angles[text] for text in texts])
        return 3 * np.stack([np.cos(radians), np.sin(radians)], axis=1)

    spearman, mrr, ndcg = measures.of_vectors(encode)
    # The cosines of the pairs with the scores 4, 1.5 and 2: of 60, 30 and 80 degrees.
    assert spearman == pytest.approx(1 - 6 * (1 + 4 + 1) / 24)
    # The right answers are 40 and 1 degrees away, the best wrong ones 10 and 20.
    assert mrr == pytest.approx((1 / 2 + 1) / 2)
    gains = 1 / np.log2(np.arange(2, 6))
    # Query 1 finds the grades 2, 0, 4, 0; query 2, of no angle too, the grade 1 as the fourth.
    expected = (2 * gains[0] + 4 * gains[2]) / (4 * gains[0] + 2 * gains[1])
    assert ndcg == pytest.approx((expected + gains[3]) / 2)


def test_measures_of_words(data):
    measures = sentence_embeddings.Measures(data)
    spearman, mrr, ndcg = measures.of_bm25()
    assert np.isnan(spearman) and mrr == pytest.approx((1 + 1) / 2)
    # Query 1 shares two words with the grade 2, and one with the grade 4.
    gains = 1 / np.log2([2, 3])
    expected = (2 * gains[0] + 4 * gains[1]) / (4 * gains[0] + 2 * gains[1])
    assert ndcg == pytest.approx((expected + 1) / 2)
    # The first and the third pair share one of their rare words, the second pair none.
    spearman, mrr, ndcg_of_vectors = measures.of_vectors(sentence_embeddings.tf_idf)
    assert spearman == pytest.approx(3**0.5 / 2)
    assert mrr == 1 and ndcg_of_vectors == pytest.approx(ndcg)


def test_table_of_the_results(tmp_path, capsys):
    settings = {
        "pairs": 13000,
        "steps": 208,
        "batch_size": 64,
        "dropout": 0.1,
        "learning_rate": 3e-4,
    }
    rows = (
        (sentence_embeddings.OURS, "float32", 10.0, 15.0, [0.7, 0.5, 0.3]),
        (sentence_embeddings.THEIRS, "float32", 30.0, 40.0, [0.6, 0.4, 0.2]),
        (sentence_embeddings.OURS, "float32", 12.0, 17.0, [0.72, 0.5, 0.3]),
        (sentence_embeddings.THEIRS, "float32", 25.0, 40.0, [0.6, 0.5, 0.2]),
        (sentence_embeddings.OURS, "bfloat16", 8.0, 10.0, [0.5, 0.5, 0.5]),
        (sentence_embeddings.THEIRS, "bfloat16", 12.0, 16.0, [0.25, 0.25, 0.25]),
    )
    names = "side", "precision", "seconds", "cpu_seconds", "measures"
    results = [dict(zip(names, row, strict=True), peak_mib=900) for row in rows]
    path = tmp_path / "results.jsonl"
    assert sentence_embeddings.read_results(path) == []
    path.write_text("".join(json.dumps(result) + "\n" for result in results))
    assert sentence_embeddings.read_results(path) == results
    sentence_embeddings.table({"BM25": [np.nan, 0.5, 0.25]}, results, settings)
    printed = capsys.readouterr().out
    assert "13,000 pairs, 208 steps of 64, dropout 0.1, learning rate 0.0003" in printed
    assert printed.splitlines()[-5:] == [
        "| BM25 | - | 0.5000 | 0.2500 | | | | | | |",
        "| encoder garden, bfloat16 | 0.5000 | 0.5000 | 0.5000 | 1 | 8.0 | 1.00x | 10.0 | 1.00x "
        "| 900 |",
        "| sentence-transformers, bfloat16 | 0.2500 | 0.2500 | 0.2500 | 1 | 12.0 | 1.50x | 16.0 "
        "| 1.60x | 900 |",
        "| encoder garden, float32 | 0.7100 ± 0.0100 | 0.5000 ± 0.0000 | 0.3000 ± 0.0000 | 2 "
        "| 11.0 ± 1.0 | 1.00x | 16.0 ± 1.0 | 1.00x | 900 |",
        "| sentence-transformers, float32 | 0.6000 ± 0.0000 | 0.4500 ± 0.0500 | 0.2000 ± 0.0000 "
        "| 2 | 27.5 ± 2.5 | 2.50x | 40.0 ± 0.0 | 2.50x | 900 |",
    ]


@pytest.mark.slow
@pytest.mark.long
def test_our_side_runs_and_is_tabled(data, tmp_path):
    init = pretrained(tmp_path / "init", tmp_path / "init" / "tokenizer")
    draw = np.random.default_rng(1)
    rows = [(*(" ".join(draw.choice(small.WORDS, 3)) for _ in range(2)), i / 4) for i in range(20)]
    write_table(data / "glue/STS-B/dev.tsv", ("sentence1", "sentence2", "score"), rows)
    done = commands.run(
        "benchmarks.sentence_embeddings",
        f"--data={data}",
        f"--init={init}",
        "--sides",
        sentence_embeddings.OURS,
        "--seeds",
        "3",
        "4",
        "--epochs=2",
        "--batch_size=4",
        "--learning_rate=0.01",
        "--override=recipe.bucket_lengths=[8]",
        f"--results={tmp_path / 'results.jsonl'}",
        status=0,
    )
    lines = done.stdout.splitlines()
    results = sentence_embeddings.read_results(tmp_path / "results.jsonl")
    assert [result["seed"] for result in results] == [3, 4]
    assert [line.split(":")[0] for line in lines if "encoder garden:" in line] == [
        "seed 3",
        "seed 4",
    ]
    first, second = (result["measures"] for result in results)
    untrained, trained = (float(line.split("|")[2].split("±")[0]) for line in lines[-2:])
    assert first != second and abs(trained - untrained) > 0.001
    assert "15 pairs, 8 steps of 4, dropout 0.1, learning rate 0.01" in done.stdout
    names = [line.split("|")[1].strip() for line in lines[-4:]]
    assert names == ["BM25", "TF-IDF", "untrained", "encoder garden, float32"]
    assert trained == pytest.approx((first[0] + second[0]) / 2, abs=1e-4)
