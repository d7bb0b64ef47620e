"""Copies of texts with other words: a hand-written loop, files, and what is refused."""

import gzip
import json

import numpy as np
import pytest

from experiments import augmentation
from experiments.augmentation import Augmenter, Settings
from experiments.word_neighbors import WordNeighbors
from official import tokenizers
from official.config import ResolvedConfig
from official.conversion import converted_model, huggingface
from official.modeling.model import Model
from official.saving.served_model import ServedModel
from official.serving.generation.mask_filler import MaskFiller
from official.tasks.text_rows import Rows
from official.utils import host_seeding
from official.utils.errors import UserError
from tests import ROOT, commands, small

# Words of one token; of two tokens, with and without a vector; marks, digits and capitals.
TEXTS = ["ba be, bi bobi 42 BA!", "Da", "", "be " * 20 + "ba", "dudo bobi"]
VECTORS = "bobi 1 0\nnear 2 0.5\nfar -1 0\nup 0 3\nx9 1 0\nnearer 4 0.1\n"


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    """A masked LM with random weights that tell places apart, of at most 16 tokens."""
    config = small.config(
        segments__max_length=16, objectives=[{"type": "masked_lm"}], encoder__initializer_range=0.5
    )
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("tokens")))
    model = Model(ResolvedConfig.of(config))
    return MaskFiller(ServedModel(ResolvedConfig.of(config), tokenizer, model, max_length=16))


@pytest.fixture
def neighbors(tmp_path):
    (tmp_path / "vectors.txt").write_text(VECTORS)
    return WordNeighbors(tmp_path / "vectors.txt")


def likely(filler, text, number, count):
    """The most probable words in the place of a token, by eager calls for this text alone."""
    tokenizer, model = filler.source.tokenizer, filler.source.model
    ids = tokenizer.encode([text])[0].tolist()
    ids[number] = tokenizer.mask_id
    row = np.array([[tokenizer.cls_id, *ids[:14], tokenizer.sep_id]], np.int32)
    states = model.encode({"token_ids": row})["sequence_output"]
    logits = np.array(model.objectives[0].logits(states[0], model.encoder))[number + 1]
    words = [i for i, piece in enumerate(tokenizer.pieces) if piece in small.WORDS]
    chosen = sorted(words, key=lambda i: -logits[i])[:count]
    return [tokenizer.pieces[i] for i in sorted(chosen)]


def test_copies_are_those_of_a_loop(filler, neighbors):
    """Every draw and candidate, for batches of several sizes."""
    settings = Settings(copies=6, candidates=3, probability=0.6, seed=7)
    expected = []
    first = TEXTS[0]
    near = ["nearer", "near", "up"]  # x9 is no word
    tokens = [("ba", 0), ("be", 1), ("bi", 3), ("BA", 7)]
    words = {word: likely(filler, first, place, 3) for word, place in tokens}
    words = {**{w: words[w] for w in ("ba", "be", "bi")}, "bobi": near[:3], "BA": words["BA"]}
    words["bobi"] = [word for word in near if word != "up"] + ["up"]
    rng = host_seeding.numpy_rng(7, 5, 0)
    for chances, picks in rng.random((6, 2, 5)):
        new = {}
        for (word, candidates), chance, pick in zip(words.items(), chances, picks, strict=True):
            new[word] = candidates[int(pick * 3)] if chance < 0.6 else word
        if new["BA"] != "BA":
            new["BA"] = new["BA"].upper()
        copy = f"{new['ba']} {new['be']}, {new['bi']} {new['bobi']} 42 {new['BA']}!"
        if copy not in (first, *expected):
            expected.append(copy)
    numbers = [(5, i) for i in range(len(TEXTS))]
    for size in (1, 2, 64):
        augmenter = Augmenter(filler, neighbors, settings, batch_size=size)
        copies = augmenter.copies(TEXTS, numbers)
        assert copies[0] == expected and len(expected) > 3
        if size == 1:
            one = copies
        assert copies == one
        # Of the long text, the words within the 14 tokens are replaced; dudo has no vector.
        assert augmenter.replaceable == [4 + 1 + 14, 2] and augmenter.others == 7 + 1
    assert all(copy == copy.title() for copy in copies[1]) and copies[2] == []
    assert all(copy.split()[14:] == TEXTS[3].split()[14:] for copy in copies[3])
    assert all(copy.startswith("dudo ") for copy in copies[4])
    alone = Augmenter(filler, neighbors, settings).copies(TEXTS[3:4], numbers[3:4])
    assert alone == copies[3:4]


def test_what_is_never_replaced(filler, neighbors):
    always = Settings(copies=4, candidates=1, probability=1.0)
    augmenter = Augmenter(filler, None, always, kept={"ba"})
    (copies,) = augmenter.copies(["Ba bobi ba"], [(1, 0)])
    assert copies == [] and augmenter.replaceable == [0, 0]
    (copies,) = Augmenter(filler, neighbors, always, kept={"ba"}).copies(["ba bobi"], [(1, 0)])
    assert copies == ["ba nearer"]  # four equal copies are one
    never = Settings(copies=4, probability=0.0)
    assert Augmenter(filler, None, never).copies(["ba be"], [(1, 0)]) == [[]]


def test_nearest_words(tmp_path):
    """As in a loop; with the first line of word2vec, other tokens, and equal vectors."""
    rng = np.random.default_rng(0)
    vectors = {word: rng.normal(size=5) for word in small.WORDS}
    vectors |= {"same": vectors["bu"] * 2, "zero": np.zeros(5)}
    others = {"New York": np.ones(5), "x9": np.ones(5), "...": np.ones(5)}
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in (others | vectors).items()]
    with gzip.open(tmp_path / "v.txt.gz", "wt") as stream:
        stream.write("\n".join([f"{len(lines)} 5", *lines]))
    found = WordNeighbors(tmp_path / "v.txt.gz")
    assert found.words == list(vectors)

    def cosine(one, two):
        return one @ two / np.linalg.norm(one) / max(np.linalg.norm(two), 1e-9)

    for word in ("ba", "be", "Bo"):
        own = vectors[word.lower()]
        others = [other for other in vectors if vectors[other] is not own]
        ordered = sorted(others, key=lambda other: -cosine(own, vectors[other]))
        assert found.nearest(word, 4) == tuple(ordered[:4])
    assert found.nearest("bu", 1) == ("same",) and found.nearest("none", 3) == ()
    assert len(found.nearest("ba", 99)) == len(vectors) - 1
    assert WordNeighbors(tmp_path / "v.txt.gz", 6).words == ["ba", "be"]  # of six lines


@pytest.mark.parametrize(
    "text, message",
    [
        ("a 1 2\nb 1\n", r"v.txt, line 2: expected a word and 2 values, .* got 'b 1'"),
        ("a 1 2\nb 1 x\n", "v.txt, line 2: expected a word and 2 values"),
        ("a 1 nan\n", "v.txt, line 1: expected a word and 2 values"),
        ("word\n", "v.txt, line 1: expected a word and the values of its vector"),
        ("2 5\n", "v.txt has no words: expected one and its vector on each line"),
    ],
)
def test_vectors_that_are_not_are_refused(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        WordNeighbors(tmp_path / "v.txt")


class Doubler:
    """Copies that show which text and which draws they are of."""

    replaceable, others = [0, 0], 0

    def copies(self, texts, numbers):
        return [
            [f"{text}+{line}.{i}"] * (text != "none")
            for text, (line, i) in zip(texts, numbers, strict=True)
        ]


def written(tmp_path, name, text, columns, header=True, **options):
    (tmp_path / name).write_text(text)
    output, said = tmp_path / f"out{(tmp_path / name).suffix}", []
    rows = Rows(tmp_path / name, columns, header)
    augmentation.write(Doubler(), rows, output, say=said.append, **options)
    return output.read_text(), said[0]


def test_files_of_rows(tmp_path, monkeypatch):
    """Each row, then the copies of its first and of its second text; in chunks of two rows."""
    monkeypatch.setattr(augmentation, "CHUNK", 2)
    text = 'label\ta\tb\n0\tx "q\ty\n\n1\tnone\tz\n0\tu\tv\n'
    out, said = written(tmp_path, "r.tsv", text, ["a", "2"])
    assert out.splitlines() == [
        "label\ta\tb",
        '0\tx "q\ty', '0\tx "q+2.0\ty', '0\tx "q\ty+2.1',
        "1\tnone\tz", "1\tnone\tz+4.1",
        "0\tu\tv", "0\tu+5.0\tv", "0\tu\tv+5.1",
    ]  # fmt: skip
    assert "out.tsv: 3 rows and 5 copies" in said
    out, _ = written(tmp_path, "r.tsv", "x\t0\ny\t1\n", ["0"], header=False)
    assert out.splitlines() == ["x\t0", "x+1.0\t0", "y\t1", "y+2.0\t1"]
    lines = [{"text": "ä", "label": 1.0, "more": [1]}, {"label": 2, "text": "b"}]
    text = "\n".join(json.dumps(line) for line in lines)
    out, _ = written(tmp_path, "r.jsonl", text, ["text"])
    assert [json.loads(line) for line in out.splitlines()] == [
        lines[0], {**lines[0], "text": "ä+1.0"}, lines[1], {**lines[1], "text": "b+2.0"}
    ]  # fmt: skip
    bad = "a\tb\n1\t2\n3\n"
    out, said = written(tmp_path, "r.tsv", bad, ["a"], skip_bad_rows=True)
    assert out.splitlines() == ["a\tb", "1\t2", "1+2.0\t2"]
    assert "left out: 1 wrong number of columns" in said


@pytest.mark.parametrize(
    "name, text, columns, message",
    [
        ("r.tsv", "a\tb\n1\t2\n3\n", ["a"], "r.tsv, line 3: 1 columns where the first line has 2"),
        (
            "r.tsv",
            "a\tb\n1\t2\n",
            ["c"],
            "--columns: .* has no column 'c': its columns are 'a', 'b",
        ),
        ("r.tsv", "a\tb\n", ["a"], "r.tsv has no rows"),
        ("r.tsv", "", ["a"], "r.tsv has no rows"),
        ("r.jsonl", '{"b": 1}', ["b"], r"line 1: 'b' is not a text of this row \(its keys are 'b'"),
        ("r.csv", "a,b\n", ["a"], r"r.csv: rows are read from .tsv or .jsonl files"),
    ],
)
def test_rows_that_cannot_be_used_are_named(tmp_path, name, text, columns, message):
    with pytest.raises(UserError, match=message):
        written(tmp_path, name, text, columns)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
def test_the_command(tmp_path):
    folder, output = tmp_path / "model", tmp_path / "out.tsv"
    golden = ROOT / "tests" / "golden" / "hf_files" / "pretraining"
    converted_model.write(huggingface.read(golden), folder)
    (tmp_path / "in.tsv").write_text("text\tlabel\nthe cat sat\t1\na dog ran on the mat\t0\n")
    done = commands.run(
        "experiments.augment", f"--model_dir={folder}", f"--input={tmp_path / 'in.tsv'}",
        "--columns=text", f"--output={output}", "--copies=5", "--candidates=3", status=0,
    )  # fmt: skip
    assert done.stdout.startswith(f"{output}: 2 rows and ")
    lines = [line.split("\t") for line in output.read_text().splitlines()]
    assert lines[0] == ["text", "label"] and lines[1] == ["the cat sat", "1"]
    first = [text for text, label in lines[1:] if label == "1"]
    assert len(set(first)) == len(first) > 2 and {len(text.split()) for text in first} == {3}
    assert [label for _, label in lines[1:]] == ["1"] * len(first) + ["0"] * (
        len(lines) - 1 - len(first)
    )
