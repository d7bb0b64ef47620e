"""The object for MTEB, without mteb (test_mteb_parity.py): vectors, prompts and similarities."""

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial import distance

import official
from official.conversion import converted_model, huggingface
from official.saving.embedding_settings import EmbeddingSettings
from official.serving.vectors import mteb_encoder
from tests import GOLDEN

PROMPTS = {
    "STSBenchmark-query": "the dog ",
    "STSBenchmark": "a cat ",
    "Retrieval-document": "the tree ",
    "Retrieval": "cats ",
    "query": "a dog ",
    "corpus": "dogs ",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mteb") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return official.load(folder)


def test_prompts_in_the_order_of_mteb(model):
    model.embedder.settings = EmbeddingSettings(prompts=PROMPTS)
    encoder, query = model.for_mteb(), SimpleNamespace(value="query")
    for given, name in (
        (("STSBenchmark", "STS", query), "STSBenchmark-query"),
        (("STSBenchmark", "STS", "document"), "STSBenchmark"),
        (("STSBenchmark", "STS"), "STSBenchmark"),
        (("NFCorpus", "Retrieval", "document"), "Retrieval-document"),
        (("NFCorpus", "Retrieval", query), "Retrieval"),
        (("Other", "STS", query), "query"),
        (("Other", "STS", "document"), "corpus"),
        (("Other", "STS"), None),
    ):
        assert encoder.prompt_name(*given) == name
    batches = [{"text": ["cat", "the tree ."]}, {"text": ["mat"], "title": ["x"]}]
    task = SimpleNamespace(name="STSBenchmark", type="STS")
    found = encoder.encode(
        iter(batches), task_metadata=task, hf_split="test", hf_subset="default",
        prompt_type=query, batch_size=2, show_progress_bar=False,
    )  # fmt: skip
    wanted = model.encode(["the dog cat", "the dog the tree .", "the dog mat"])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(model, kind):
    model.embedder.settings = EmbeddingSettings(similarity=kind)
    encoder, draw = model.for_mteb(), np.random.default_rng(0)
    first, second = draw.standard_normal((2, 4, 5)).astype(np.float32)
    if kind == "dot":
        wanted = first.astype(float) @ second.T
    else:
        metric = {"manhattan": "cityblock"}.get(kind, kind)
        wanted = (kind == "cosine") - distance.cdist(first, second, metric)
    np.testing.assert_allclose(encoder.similarity(first, second.tolist()), wanted, atol=1e-5)
    pairs = encoder.similarity_pairwise(first, second)
    np.testing.assert_allclose(pairs, wanted.diagonal(), atol=1e-5)
    np.testing.assert_allclose(encoder.similarity(first[0], second)[0], wanted[0], atol=1e-5)


def test_the_revision_is_that_of_weights_and_settings(model):
    model.embedder.settings = EmbeddingSettings()
    first = model.for_mteb().revision
    assert model.for_mteb("me/model").revision == first
    assert model.for_mteb(revision="2").revision == "2"
    model.embedder.settings = EmbeddingSettings(normalize=True)
    assert model.for_mteb().revision != first
    model.embedder.settings = EmbeddingSettings()
    weights = next(iter(model.model.variables_by_path().values()))
    weights.assign(weights + 1)
    assert model.for_mteb().revision != first
    weights.assign(weights - 1)


def test_neither_mteb_nor_pytorch_is_imported(monkeypatch):
    for name in ("mteb", "torch"):
        monkeypatch.setitem(sys.modules, name, None)  # an import raises ImportError
    importlib.reload(mteb_encoder)
