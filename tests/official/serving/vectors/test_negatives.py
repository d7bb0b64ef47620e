"""Hard negatives against a loop over all scores, with both searches, and from files."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from official.saving.embedding_settings import EmbeddingSettings
from official.serving.vectors import negatives, search
from official.serving.vectors.negatives import Pairs, Settings
from official.tasks import beir, bm25
from official.utils.errors import UserError
from tests import commands, small

WORDS = small.WORDS[:9]


def _pairs():
    """Pairs in which queries have several positives, positives are shared, and texts occur twice.

    Some documents have the text of a query.
    """
    draw = np.random.default_rng(0)
    text = lambda: " ".join(draw.choice(WORDS, draw.integers(1, 4)))  # noqa: E731
    queries = [text() for _ in range(12)]
    pairs = [(str(draw.choice(queries)), text()) for _ in range(40)]
    return [*pairs, pairs[0], (queries[0], queries[0])], [*(text() for _ in range(60)), *queries]


def _vector(text):
    """A vector of integers, of which many are equal; the last is never 0."""
    return np.float32([sum(map(ord, text)) % 5 - 2, len(text) % 4 - 1, 2 * text.count("a") - 1])


def _embedder(kind):
    return SimpleNamespace(
        is_sparse=False,
        settings=EmbeddingSettings(similarity=kind, prompts={"query": "", "passage": ""}),
        texts=lambda texts, *_, **__: np.stack([_vector(text) for text in texts]),
    )


def _expected(pairs, documents, score, settings):
    """Lines by a sort of all scores, and the number of pairs with too few negatives."""
    lines, few = [], 0
    kept = list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    texts = list(dict.fromkeys([*(positive for _, positive in kept), *documents]))
    for query, positive in kept:
        never = {query, *(p for q, p in kept if q == query)}
        scores = [(score(query, text), text) for text in texts if text not in never]
        ranked = sorted(scores, key=lambda each: -each[0])  # stable: the earlier one first
        ranked = ranked[settings.first_rank - 1 : settings.last_rank]
        own = score(query, positive)
        if settings.margin is not None:
            ranked = [each for each in ranked if each[0] <= own - settings.margin]
        if settings.relative_margin is not None:
            part = settings.relative_margin
            ranked = [each for each in ranked if each[0] <= own - part * abs(own)]
        chosen = [text for _, text in ranked[: settings.count]]
        if len(chosen) < settings.count:
            few += 1
        else:
            lines.append({"query": query, "positive": positive, "negatives": chosen})
    return lines, few


SETTINGS = [
    Settings(),
    Settings(3, first_rank=2, last_rank=9),
    Settings(2, last_rank=30, margin=1.0),
    Settings(2, last_rank=30, relative_margin=0.3),
    Settings(1, last_rank=50, margin=0.5, relative_margin=0.1),
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", ["dot", "euclidean"])
def test_negatives_by_vectors_are_those_of_a_sort(tmp_path, monkeypatch, settings, kind):
    monkeypatch.setattr(search, "BLOCK", 7)
    given, documents = _pairs()
    pairs = Pairs(given, documents)
    top_k = settings.last_rank + pairs.most_excluded
    found = negatives.by_vectors(_embedder(kind), pairs, top_k)
    size, positive, negative = negatives.write(pairs, found, settings, tmp_path / "out.jsonl")

    def score(query, text):
        a, b = _vector(query), _vector(text)
        return float(a @ b) if kind == "dot" else -float(np.float32(np.linalg.norm(a - b)))

    lines, few = _expected(given, documents, score, settings)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == lines and size == len(lines) > 3
    assert pairs.left_out[f"with fewer than {settings.count} negatives"] == few
    assert pairs.left_out["whose texts are the same"] >= 1 <= pairs.left_out["that occur again"]
    own = [score(line["query"], line["positive"]) for line in lines]
    others = [score(line["query"], text) for line in lines for text in line["negatives"]]
    assert (positive, negative) == pytest.approx((np.mean(own), np.mean(others)), abs=1e-5)


@pytest.mark.parametrize("settings", [SETTINGS[1], SETTINGS[3]])
def test_negatives_by_words_are_those_of_a_sort(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(bm25, "SCORES_AT_ONCE", 300)
    given, documents = _pairs()
    pairs = Pairs(given, documents)
    found = negatives.by_words(pairs, settings.last_rank + pairs.most_excluded)
    negatives.write(pairs, found, settings, tmp_path / "out.jsonl")
    scorer = bm25.Scorer(pairs.documents)
    table = {
        query: dict(zip(pairs.documents, row.tolist(), strict=True))
        for query, row in zip(pairs.queries, scorer.scores(pairs.queries), strict=True)
    }
    lines, _ = _expected(given, documents, lambda q, text: table[q][text], settings)
    lines = [x for x in lines if all(table[x["query"]][text] for text in x["negatives"])]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == lines and len(lines) > 2


def test_random_negatives_are_drawn_among_all_ranks(tmp_path):
    given, documents = _pairs()
    pairs = Pairs(given, documents)
    found = negatives.by_vectors(_embedder("dot"), pairs, 20 + pairs.most_excluded)
    texts = []
    for seed in (0, 0, 1):
        settings = Settings(2, 3, 12, sampling="random", seed=seed)
        negatives.write(pairs, found, settings, tmp_path / "out.jsonl")
        texts.append((tmp_path / "out.jsonl").read_text())
    assert texts[0] == texts[1] != texts[2]
    whole = Settings(10, 3, 12)
    negatives.write(pairs, found, whole, tmp_path / "all.jsonl")
    among = [json.loads(x)["negatives"] for x in (tmp_path / "all.jsonl").read_text().splitlines()]
    drawn = [json.loads(line)["negatives"] for line in texts[0].splitlines()]
    places = [[of.index(text) for text in some] for of, some in zip(among, drawn, strict=True)]
    assert all(a < b for a, b in places)
    assert {place for some in places for place in some} == set(range(10))


def test_what_cannot_be_is_refused(tmp_path):
    for values, message in (
        ({"count": 0}, "the number of negatives and the first rank are at least 1"),
        ({"count": 3, "first_rank": 9, "last_rank": 10}, "ranks 9 to 10 are fewer than the 3"),
    ):
        with pytest.raises(UserError, match=message):
            Settings(**values)
    with pytest.raises(UserError, match="there are no pairs of two different texts"):
        Pairs([("a", "a")], ["b"])
    pairs = Pairs([("a", "b")])
    found = negatives.by_vectors(_embedder("dot"), pairs, 2)
    with pytest.raises(UserError, match="no pair has 1 negatives: take other ranks or margins"):
        negatives.write(pairs, found, Settings(), tmp_path / "x.jsonl")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="pairs with negatives are written as .jsonl: name such"):
        negatives.write(pairs, found, Settings(), tmp_path / "x.tsv")
    with pytest.raises(UserError, match="BM25: no document has a word"):
        negatives.by_words(Pairs([("a", "!")]), 2)


@pytest.mark.slow
def test_the_command(tmp_path):
    lines = ["question\tanswer", "ba be\tba da", "ba be\tbe bi", "di\tdi du", "ba\t "]
    lines += ["zz\tba da"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "more.txt").write_text("ba ba\n\nbe\ndi ba\n")
    output = tmp_path / "out.jsonl"
    options = [
        "official.commands.mine_negatives", f"--input={tmp_path}/pairs.tsv",
        "--columns=question,answer",
        f"--output={output}", "--bm25",
    ]  # fmt: skip
    done = commands.run(*options, status=2)
    assert "pairs.tsv, line 5: a text is empty; --skip_bad_rows" in done.stderr
    done = commands.run(*options, "--skip_bad_rows", f"--documents={tmp_path}/more.txt", status=0)
    written = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(x["query"], x["positive"]) for x in written] == [
        tuple(line.split("\t")) for line in lines[1:4]
    ]
    assert written[0]["negatives"] == written[1]["negatives"] == ["be"]
    assert written[2]["negatives"] == ["di ba"]
    assert "1 queries share no word with a document: BM25 finds nothing" in done.stdout
    assert "left out of" in done.stdout and "1 empty text" in done.stdout
    assert "3 pairs with 1 negatives each, of 3 queries and 6 documents" in done.stdout
    # It is what shards of the kind "embedding" are made of.
    small.tokenizer_folder(tmp_path / "tokenizer")
    done = commands.run(
        "tfrecords_tools.build_task_shards", "--task=embedding", f"--train_file={output}",
        "--text_column=query", "--text_pair_column=positive", "--negative_columns=negatives",
        f"--tokenizer={tmp_path}/tokenizer", f"--output={tmp_path}/shards", status=0,
    )  # fmt: skip
    assert "train: 3 examples of 3 texts" in done.stdout
    # The same pairs as judgments of a folder of BEIR.
    documents = {"d1": "ba da", "d2": "be bi", "d3": "di du", "d4": "ba ba", "d5": "be", "d6": ""}
    documents["d7"] = "di ba"
    qrels = {"q1": {"d1": 2, "d2": 1, "d4": 0, "gone": 1}, "q2": {"d3": 1, "d6": 1}}
    queries = {"q1": "ba be", "q2": "di"}
    beir.write(tmp_path / "set", queries, documents.items(), {"train": qrels})
    text = output.read_text()
    options[1:3] = [f"--beir={tmp_path}/set"]
    done = commands.run(*options, status=0)
    assert output.read_text() == text
    assert "2 judgments of unknown or empty documents" in done.stdout
    for more, message in (
        (["--model_dir=x"], "give either --model_dir=FOLDER or --bm25"),
        (["--input=x.tsv"], "give either --input=FILE or --beir=FOLDER"),
    ):
        assert message in commands.run(*options, *more, status=2).stderr
