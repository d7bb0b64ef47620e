"""Late interaction beside PyLate: folders that either side has written have the same vectors."""

import json

import numpy as np
import pytest

import official
from official.config.late_interaction import Expansion
from official.conversion import converted_model, huggingface
from tests.parity.test_late_interaction_parity import DOCUMENTS, QUERIES

CLOSE = dict(rtol=0, atol=1e-5)
# Some of the punctuation and the last word are in no vocabulary of words.
DOCUMENTS = [*DOCUMENTS, "The sea ~ the river { } , Spain \u732b .", "The dogs ran . " * 9]


@pytest.fixture(scope="module")
def folders(pylate, tmp_path_factory):
    """The parent of the folders, PyLate's answers to its own, and our models of them."""
    parent = tmp_path_factory.mktemp("pylate")
    for name in ("theirs", "back"):
        (parent / name).mkdir()
        texts = {"queries": QUERIES, "documents": DOCUMENTS}
        (parent / name / "texts.json").write_text(json.dumps(texts))
    pylate.run("pylate_folders.py", "make", parent / "theirs")
    theirs = json.loads((parent / "theirs" / "answers.json").read_text())
    for name in theirs:
        converted_model.write(huggingface.read(parent / "theirs" / name), parent / name)
    return parent, theirs, {name: official.load(parent / name) for name in theirs}


def test_folders_that_came_in_have_the_vectors_there(folders):
    parent, theirs, ours = folders
    assert theirs.keys() == {"bert", "attend", "bare", "roberta", "modernbert", "stanford"}
    for name, right in theirs.items():
        for model in (ours[name], official.load(parent / "theirs" / name)):
            found = {
                "queries": model.token_vectors(QUERIES, "query"),
                "documents": model.token_vectors(DOCUMENTS),
            }
            for kind, vectors in found.items():
                for one, other in zip(vectors, right[kind], strict=True):
                    np.testing.assert_allclose(one, other, **CLOSE, err_msg=name)
        numbers, scores = ours[name].search(QUERIES, DOCUMENTS, top_k=len(DOCUMENTS))
        expected = np.take_along_axis(np.array(right["scores"]), numbers, 1)
        np.testing.assert_allclose(scores, expected, **CLOSE)
        assert np.ptp(right["scores"]) > 0.02


def test_settings_of_pylate(folders):
    """Each of them changes the vectors, so that the comparison above depends on it."""
    _, theirs, ours = folders
    objectives = {name: model.config.objectives[0] for name, model in ours.items()}
    assert objectives["bert"].expansion == Expansion(9)
    assert objectives["attend"].expansion == Expansion(11, attend=True)
    assert (objectives["bare"].expansion, objectives["bare"].query_length) == (None, 8)
    assert [len(x) for x in theirs["bare"]["queries"]] == [6, 8, 4]
    assert max(len(x) for x in theirs["bare"]["documents"]) == 14
    assert objectives["attend"].skipped_words == (".", "the")
    assert "[UNK]" in objectives["bert"].skipped_words
    ids = objectives["roberta"].ids
    assert len(ids.query_prefix) == len(ids.document_prefix) == 1
    assert objectives["bare"].ids.query_prefix == ()
    stanford = objectives["stanford"]
    assert (stanford.expansion, stanford.document_length) == (Expansion(13), 16)
    assert stanford.ids.query_prefix[0] + 1 == stanford.ids.document_prefix[0]


def test_folders_that_went_out_have_the_vectors_here(pylate, hf5, folders):
    parent, theirs, _ = folders
    for name in theirs:
        huggingface.write(parent / name, parent / "back" / name, "last")
        settings = parent / "back" / name / "config_sentence_transformers.json"
        assert json.loads(settings.read_text())["model_type"] == "ColBERT"
    readers = (pylate, "pylate_folders.py"), (hf5, "st_late_interaction.py")
    for reference, script in readers:
        reference.run(script, "answer", parent / "back")
        back = json.loads((parent / "back" / "answers.json").read_text())
        assert back.keys() == theirs.keys()
        for name, right in theirs.items():
            for kind in ("queries", "documents"):
                for one, other in zip(back[name][kind], right[kind], strict=True):
                    np.testing.assert_allclose(one, other, **CLOSE, err_msg=f"{script} {name}")
            np.testing.assert_allclose(back[name]["scores"], right["scores"], **CLOSE)
