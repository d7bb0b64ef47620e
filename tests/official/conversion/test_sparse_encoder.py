"""Folders of sentence-transformers with sparse vectors, both ways."""

import json

import numpy as np
import pytest
import safetensors.numpy

import official
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.conversion import huggingface
from official.conversion.sentence_transformers import folder, sparse_encoder
from official.conversion.sentence_transformers.sentence_transformer import SentenceTransformer
from official.saving import embedding_settings
from official.utils.errors import UserError
from tests.official.serving.vectors.test_sparse import CLOSE, TEXTS, write

OPTIONS = {"pooling": "sum", "logarithms": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("sparse")
    vectors = write(parent / "ours", **OPTIONS)
    settings = {"max_length": 16, "prompts": {"query": "a "}, "max_active_dims": 6}
    embedding_settings.file(parent / "ours").write_text(json.dumps(settings))
    official.convert(parent / "ours", parent / "theirs", target="hf")
    return parent, vectors


def test_what_is_written(folders):
    theirs = folders[0] / "theirs"
    read = lambda name: json.loads((theirs / name).read_text())  # noqa: E731
    assert [module["path"] for module in read("modules.json")] == ["", "1_SpladePooling"]
    assert read("1_SpladePooling/config.json") == {
        "pooling_strategy": "sum", "activation_function": "log1p_relu",
        "embedding_dimension": folders[1].shape[1],
    }  # fmt: skip
    settings = read("config_sentence_transformers.json")
    assert settings["model_type"] == "SparseEncoder" and settings["max_active_dims"] == 6
    assert settings["prompts"] == {"query": "a ", "document": ""}
    assert read("sentence_bert_config.json")["transformer_task"] == "fill-mask"
    assert read("config.json")["architectures"] == ["BertForMaskedLM"]
    assert "- splade" in (theirs / "README.md").read_text()


def test_what_is_written_is_read(folders):
    parent, _ = folders
    ours, again = official.load(parent / "ours"), official.load(parent / "theirs")
    objective = again.config.objectives[0]
    assert again.config.objectives == (SparseEmbeddingConfig(**OPTIONS),)
    assert objective.query_flops == 5e-5 and again.config.segments is None
    settings = again.embedder.settings
    assert (settings.max_length, settings.max_active_dims) == (16, 6)
    for prompt in ("query", "document"):
        wanted = ours.encode(TEXTS, sparse=True, prompt=prompt).dense()
        found = again.encode(TEXTS, sparse=True, prompt=prompt).dense()
        np.testing.assert_allclose(found, wanted, **CLOSE)
        assert np.count_nonzero(found[0]) == 6
    assert again.embedder.is_sparse


def test_a_masked_lm_that_says_what_it_is(tmp_path):
    """Without modules.json, as models were released before; the pooling is the usual one."""
    write(tmp_path / "ours")
    huggingface.write(tmp_path / "ours", tmp_path / "theirs", "last")
    expected = official.load(tmp_path / "ours").encode(TEXTS, sparse=True).dense()
    for name in ("modules.json", "sentence_bert_config.json", "1_SpladePooling/config.json"):
        (tmp_path / "theirs" / name).unlink()
    settings = tmp_path / "theirs" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"model_type": "SparseEncoder"}))
    model = official.load(tmp_path / "theirs")
    assert model.embedder.is_sparse and model.config.objectives == (SparseEmbeddingConfig(),)
    np.testing.assert_allclose(model.encode(TEXTS, sparse=True).dense(), expected, **CLOSE)
    settings.unlink()
    model = official.load(tmp_path / "theirs")  # a masked LM
    assert not model.embedder.is_sparse and "fill_mask" in model.methods


def test_folders_that_are_refused(folders):
    theirs = folders[0] / "theirs"

    def changed(name, **changes):
        path = theirs / name
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **changes}))
        try:
            with pytest.raises(UserError) as error:
                official.load(theirs)
        finally:
            path.write_text(before)
        return str(error.value)

    pooling = "1_SpladePooling/config.json"
    assert "activation_function: 'gelu' is not one of relu" in changed(
        pooling, activation_function="gelu"
    )
    assert "pooling: 'mean' is not one of max, sum" in changed(pooling, pooling_strategy="mean")
    settings = "config_sentence_transformers.json"
    assert "set it to dot" in changed(settings, similarity_fn_name="cosine")


def test_a_table_of_queries(tmp_path):
    write(tmp_path / "ours", queries="table")
    official.convert(tmp_path / "ours", tmp_path / "theirs", target="hf")
    ours, again = (official.load(tmp_path / name) for name in ("ours", "theirs"))
    assert again.config.objectives == (SparseEmbeddingConfig(queries="table"),)
    for prompt in ("query", "document"):
        wanted = ours.encode(TEXTS, sparse=True, prompt=prompt).dense()
        found = again.encode(TEXTS, sparse=True, prompt=prompt).dense()
        np.testing.assert_allclose(found, wanted, **CLOSE)
    theirs = tmp_path / "theirs"
    assert sorted(path.name for path in theirs.iterdir()) == [
        "README.md", "config_sentence_transformers.json", "document_0_Transformer",
        "document_1_SpladePooling", "modules.json", "query_0_SparseStaticEmbedding",
        "router_config.json",
    ]  # fmt: skip
    router = json.loads((theirs / "router_config.json").read_text())
    assert router["structure"] == {
        "query": ["query_0_SparseStaticEmbedding"],
        "document": ["document_0_Transformer", "document_1_SpladePooling"],
    }
    place = theirs / "query_0_SparseStaticEmbedding"
    weights = safetensors.numpy.load_file(place / "model.safetensors")["weight"]
    assert np.flatnonzero(weights == 0).tolist() == [0, 1, 2, 3, 4]

    def changed(name, **changes):
        path = theirs / name
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **changes}))
        with pytest.raises(UserError) as error:
            huggingface.read(theirs)
        path.write_text(before)
        return str(error.value)

    name = "router_config.json"
    assert "the routes are query: those of query and document" in changed(
        name, structure={"query": []}
    )
    assert "document with route_mappings: those of" in changed(
        name, parameters={"route_mappings": {"a": "query"}}
    )
    assert "types: query_0_SparseStaticEmbedding: missing" in changed(name, types={})
    types = {**router["types"], "query_0_SparseStaticEmbedding": "Pooling"}
    assert "queries have the modules Pooling: SparseStaticEmbedding is supported" in changed(
        name, types=types
    )
    dense = changed("config_sentence_transformers.json", model_type="CrossEncoder")
    assert "the modules are Transformer, SpladePooling" in dense
    assert "path: weights in JSON" in changed(f"{place.name}/config.json", path="idf.json")
    with pytest.raises(UserError, match="has 99 rows and the vocabulary 35 pieces"):
        sparse_encoder._write_table(tmp_path, np.ones(99), again.embedder.tokenizer)
    # A table that is shorter than that of the tokens gets zeros: the tokens are padded.
    more = {"weight": np.append(weights, 1).astype("float32")}
    less = {"weight": weights[:-2]}
    for tensors in (more, less):
        safetensors.numpy.save_file(tensors, place / "model.safetensors", {"format": "pt"})
        if tensors is more:
            with pytest.raises(UserError, match="expected at most .* got the shape"):
                huggingface.read(theirs)
    found = huggingface.read(theirs).variables["sparse_embedding/query_weights"]
    np.testing.assert_array_equal(found, [*weights[:-2], 0, 0])


def test_a_router_of_dense_vectors_is_refused(tmp_path):
    modules = [folder.Module(name, tmp_path) for name in ("Transformer", "Pooling")]
    dense = folder.Folder(tmp_path, modules, {}, [folder.Module("StaticEmbedding", tmp_path)])
    message = "queries have the modules StaticEmbedding: a SentenceTransformer with a Router is not"
    with pytest.raises(UserError, match=message):
        SentenceTransformer().check(dense)
