"""Rerankers of sentence-transformers: scores of folders that either side has written.

The folders have random weights, several systems and versions, and both sides of padding. Pairs
are cut at an odd number of tokens.
"""

import dataclasses
import json

import numpy as np
import pytest

import official
from official.conversion import converted_model, huggingface
from tests.parity.test_way_back_parity import learned, make

CLOSE = dict(rtol=0, atol=1e-5)
QUERY = "The dogs ran to the sea ?"
LONG = "In Spain the river ran to the sea . " * 3
PAIRS = [
    [QUERY, document]
    for document in ("The cat sat on the river .", "", "In Spain ?", "sea", LONG, "Dogs  ran\tto")
] + [["Spain", LONG], [LONG, "Spain"], [LONG, LONG], ["", "the river"]]
LABELS, SHORT = "bert_labels", "roberta_unlimited"
SAME = ("bert_before_4", "bert_5", "bert_gamma")  # as `bert_raw`, in files of other versions


@pytest.fixture(scope="module")
def base(hf5, tmp_path_factory):
    """The parent of the folders, the answers to theirs, and the scores and raw scores here."""
    parent = tmp_path_factory.mktemp("cross_encoders")
    for name in ("theirs", "back"):
        (parent / name).mkdir()
        (parent / name / "pairs.json").write_text(json.dumps(PAIRS))
    hf5.run("st_cross_encoders.py", "make", parent / "theirs")
    theirs = json.loads((parent / "theirs" / "answers.json").read_text())
    for name in theirs.keys() - set(SAME):
        converted_model.write(huggingface.read(parent / "theirs" / name), parent / name)
    tokenizer = learned("wordpiece", parent / "wordpiece")
    for name in ("electra", "bert_prompt"):
        make(parent / f"here_{name}", parent / name, tokenizer)
    ours = {}
    for folder in sorted(path.parent for path in parent.glob("*/config.yaml")):
        if folder.name != LABELS:
            model = official.load(folder)
            texts = tuple(zip(*PAIRS, strict=True))
            ours[folder.name] = model.rank(*texts), model.rank(*texts, raw=True)
    return parent, theirs, ours


def test_folders_that_came_in_score_as_there(base):
    parent, theirs, ours = base
    assert len(theirs) == 14 and len(ours) == 10 + 2
    for name in theirs.keys() & ours.keys():
        right = theirs[name]
        rows = [PAIRS.index(pair) for pair in right["pairs"]]
        assert len(rows) == (6 if name == SHORT else len(PAIRS)), name
        found, raw = (scores[rows] for scores in ours[name])
        np.testing.assert_allclose(found, right["scores"], err_msg=name, **CLOSE)
        np.testing.assert_allclose(raw, right["logits"], err_msg=name, **CLOSE)
        of_one = found[[q == QUERY for q, _ in right["pairs"]]]
        assert np.argsort(-of_one, kind="stable").tolist() == right["best"], name
        # What a wrong reading gives is far away, so the comparison can see it.
        assert np.ptp(raw) > 0.02, name
        assert (np.abs(raw - found).max() > 0.1) == (right["activation"] == "Sigmoid"), name


def test_files_of_other_versions(base):
    parent, theirs, _ = base
    right = huggingface.read(parent / "theirs" / "bert_raw")
    for name in SAME:
        assert theirs[name]["scores"] == theirs["bert_raw"]["scores"]
        found = huggingface.read(parent / "theirs" / name)
        assert found.config.objectives == right.config.objectives
        assert found.tokenizer.max_tokens == right.tokenizer.max_tokens == 24
        assert found.variables.keys() == right.variables.keys()
        for path, array in right.variables.items():
            np.testing.assert_array_equal(found.variables[path], array)


def test_a_prompt_stands_before_the_query_alone(base):
    parent, theirs, _ = base
    right = np.array(theirs["bert_prompt"]["scores"])
    bare = official.load(parent / "bert_prompt")
    (objective,) = bare.config.objectives
    assert objective.prompt == "in Spain: "
    bare.model.objectives[0].config = dataclasses.replace(objective, prompt="")
    queries, documents = zip(*PAIRS, strict=True)
    asked, told = ([objective.prompt + text for text in texts] for texts in (queries, documents))
    np.testing.assert_allclose(bare.rank(asked, documents), right, **CLOSE)
    for wrong in (bare.rank(queries, documents), bare.rank(asked, told)):
        assert np.abs(wrong - right).max() > 0.01


def test_the_way_back(base, hf5):
    parent, theirs, ours = base
    for name in (*ours, LABELS):
        huggingface.write(parent / name, parent / "back" / name, "last")
    hf5.run("st_cross_encoders.py", "answer", parent / "back")
    back = json.loads((parent / "back" / "answers.json").read_text())
    for name, (found, raw) in ours.items():
        right = back[name]
        assert right["pairs"] == PAIRS, name
        np.testing.assert_allclose(right["scores"], found, err_msg=name, **CLOSE)
        np.testing.assert_allclose(right["logits"], raw, err_msg=name, **CLOSE)
        assert np.ptp(raw) > 0.02, name
        if name in theirs:
            assert right["activation"] == theirs[name]["activation"], name
    lengths = theirs[SHORT]["length"], back[SHORT]["length"]
    assert lengths == (162, 160)  # of 162 positions the first two are of no token
    # Several labels are a classification, and come back as one.
    labels = official.load(parent / LABELS).classify(PAIRS)
    found = [list(label.probabilities.values()) for label in labels]
    for right in (theirs[LABELS], back[LABELS]):
        np.testing.assert_allclose(found, right["scores"], **CLOSE)
