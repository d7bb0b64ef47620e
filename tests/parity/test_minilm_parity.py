"""The released all-MiniLM-L6-v2, converted, and trained and written back: the same vectors."""

import json

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers
from official.tasks import Columns, embeddings
from tfrecords_tools.tasks import builder as task_builder

CLOSE = dict(rtol=0, atol=1e-5)
TEXTS = [
    "", " \t\n", ".", "A man is playing a guitar.", "SOMEONE makes\tmusic,\nloudly!",
    "naïve café — Ångström & Straße №5", "你好，世界。 مرحبا بالعالم", "🙂 e\u0301 \u200b \ufffd",
    "unbelievableness " * 3, "long text " * 300, "a" * 500, *("the same text again",) * 40,
]  # fmt: skip
PAIRS = [
    ("A man plays a guitar on a stage.", "Someone makes music."),
    ("Two dogs run through the snow.", "Animals are outside."),
    ("The committee rejected the plan.", "The plan was not accepted."),
    ("She bought apples and pears.", "She bought fruit."),
    ("He has never been to Paris.", "He does not know Paris."),
    ("The train was an hour late.", "The train did not arrive on time."),
    ("A child is asleep on the sofa.", "A child rests."),
    ("All shops are closed today.", "No shop is open."),
]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minilm")
    (folder / "texts.json").write_text(json.dumps(TEXTS))
    return folder


@pytest.fixture(scope="module")
def released(hf5, parent):
    """The model folder of the release, and its vectors in sentence-transformers."""
    out = parent / "released.npz"
    theirs = hf5.run("st_vectors.py", "", parent / "texts.json", out).split()[-1]
    official.convert(theirs, parent / "model", source="hf")
    return parent / "model", dict(np.load(out))


def test_vectors_of_the_release(released):
    folder, theirs = released
    model = official.load(folder)
    assert model.max_length == 256 < len(model.tokenizer.encode(TEXTS)[9])
    for size in (1, 32):
        found = model.encode(TEXTS, batch_size=size)
        for vectors in theirs.values():
            np.testing.assert_allclose(found, vectors, **CLOSE)


def test_vectors_of_what_is_trained_from_it(released, hf5, parent):
    folder, before = released
    lines = ["first\tsecond", *("\t".join(pair) for pair in PAIRS)]
    (parent / "pairs.tsv").write_text("\n".join(lines) + "\n")
    task_builder.build(
        embeddings.of_columns(Columns("first", "second")),
        {"train": parent / "pairs.tsv"},
        tokenizers.load(folder / "tokenizer"),
        parent / "pairs",
        16,
        report=str,
    )
    config = configs.from_dict(
        {
            "name": "pairs",
            "objectives": [{"type": "sentence_embedding"}],
            "recipe": {
                "steps": 3,
                "batch_size": 4,
                "optimizer": {"learning_rate": 1e-4},
                "jit_compile": False,
            },
        }
    )
    official.train(
        config, parent / "pairs", parent / "tuned", init=folder, evaluate=False, report=str
    )
    official.convert(parent / "tuned", parent / "theirs", target="hf")
    out = parent / "tuned.npz"
    hf5.run("st_vectors.py", parent / "theirs", parent / "texts.json", out)
    theirs = dict(np.load(out))
    found = official.load(parent / "tuned").encode(TEXTS)
    assert np.abs(found - before["32"]).max() > 1e-3
    for vectors in theirs.values():
        np.testing.assert_allclose(found, vectors, **CLOSE)
