"""`--layout=hub`: transformers.js in node gives the answers of `official.load`.

`make parity-node` installs it in `.parity/node`; without it, or without node, nothing runs here.
"""

import json
import shutil
import subprocess
import unicodedata

import numpy as np
import pytest

import official
from official.serving.export import hub
from tests.official.serving.export.test_hub import fed, outputs
from tests.parity.conftest import HERE, ROOT
from tests.parity.test_hub_parity import CLOSE, SYSTEMS, check, make, pairs, rows, wanted

PACKAGE = ROOT / ".parity" / "node"
COUNT = 100


@pytest.fixture(scope="module")
def node():
    """Runs the reader."""
    if not shutil.which("node") or not (PACKAGE / "node_modules" / "@huggingface").exists():
        pytest.skip(f"no transformers.js in {PACKAGE}: `make parity-node` installs it")

    def run(parent, asked):
        (parent / "asked.json").write_text(json.dumps(asked))
        script = [shutil.which("node"), HERE / "transformers_js.mjs", PACKAGE, parent]
        done = subprocess.run(script, capture_output=True, text=True, timeout=600)
        assert not done.returncode, done.stderr
        return json.loads((parent / "answers.json").read_text("utf-8"))

    return run


def exported(parent, name, head, folder=None, **options):
    """The loaded model of a folder that is exported into another one."""
    folder = folder or head
    make(parent / f"{folder}_model", name, head)
    hub.export(parent / f"{folder}_model", parent / folder, **options)
    return official.load(parent / f"{folder}_model")


def flat(answers, name):
    """One output of all rows, or of all their tokens."""
    return np.concatenate([np.atleast_1d(answer[name]) for answer in answers])


def test_heads(node, tmp_path):
    masked = [f"[MASK] {text}" for text in rows(COUNT)]
    given = {"classification": rows(COUNT), "tags": rows(COUNT), "masked_lm": masked}
    # To transformers.js a second text without characters is none.
    filled = [pair for pair in pairs(COUNT) if pair[1]]
    given |= {"answer": filled, "ranking": filled}
    loaded = {head: exported(tmp_path, "bert", head) for head in given}
    found = node(tmp_path, {h: {"reader": h, "rows": texts} for h, texts in given.items()})

    labels = loaded["classification"].classify(given["classification"])
    for label, (*scores,) in zip(labels, found["classification"], strict=True):
        scores = {each["label"]: each["score"] for each in scores}
        assert scores == pytest.approx(label.probabilities, abs=1e-5)

    names = loaded["tags"].config.objectives[0].labels
    chances = odds(wanted(loaded["tags"], "tags", given["tags"])["logits"])
    starts, seen = 0, 0
    for text, tags in zip(given["tags"], found["tags"], strict=True):
        for tag in tags:
            token = chances[starts + tag["index"]]
            assert tag["entity"] == names[token.argmax()]
            assert tag["score"] == pytest.approx(token.max(), abs=1e-5)
        seen += len(tags)
        starts += int(fed(loaded["tags"], [text])["attention_mask"].sum())
    assert starts == len(chances) and seen > 0.8 * starts

    fillings = loaded["masked_lm"].fill_mask(masked, top_k=3)
    for (right,), words in zip(fillings, found["masked_lm"], strict=True):
        assert [word["token"] for word in words] == [each.token_ids[0] for each in right]
        scores = [each.probability for each in right]
        assert [word["score"] for word in words] == pytest.approx(scores, abs=1e-5)

    for head in ("answer", "ranking"):
        for name, values in wanted(loaded[head], head, given[head]).items():
            assert np.ptp(values) > 0.01
            check(flat(found[head], name), values.reshape(-1))


def odds(logits):
    scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def test_vectors(node, tmp_path):
    loaded = {name: exported(tmp_path, name, "vectors", name) for name in SYSTEMS}
    # Before SentencePiece's unigrams, transformers.js always composes characters.
    texts = [unicodedata.normalize("NFKC", text) for text in rows(COUNT)]
    asked = {name: {"reader": "vectors", "rows": texts} for name in SYSTEMS}
    small = exported(tmp_path, "bert", "vectors", "int8", precision="int8")
    found = node(tmp_path, {**asked, "int8": {"reader": "int8", "rows": texts}})
    for name, model in loaded.items():
        right = model.encode(texts)
        assert np.ptp(right, axis=0).min() > 0.01
        pooled, answers = found[name]
        np.testing.assert_allclose(pooled, right, **CLOSE)
        np.testing.assert_allclose([each["sentence_embedding"] for each in answers], right, **CLOSE)
    int8 = outputs(tmp_path / "int8", fed(small, texts))["sentence_embedding"]
    np.testing.assert_allclose(
        [each["sentence_embedding"] for each in found["int8"]], int8, **CLOSE
    )
