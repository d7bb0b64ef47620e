"""Folders of model2vec: their vectors, and the way back.

Shapes: V pieces, R rows, D size of a vector.
"""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

import official
from official.config.heads import RegressionConfig
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.conversion import converted_model, huggingface, model2vec
from official.utils.errors import UserError

# model2vec removes the special tokens that stand around a text.
PIECES = ["[PAD]", "[UNK]", "the", "cat", "sat", "##s", "a", "mat", "."]
D = 4
CLOSE = dict(rtol=0, atol=1e-5)
TEXTS = ["The cat sat.", "", "cats the mat xyz a", "xyz", "a " * 600]
CONFIG = {
    "model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "x",
    "apply_pca": 4, "sif_coefficient": 1e-4, "hidden_dim": 256, "seq_length": 1000000,
    "normalize": True, "pooling": "mean", "max_length": 512, "embedding_dtype": "float32",
}  # fmt: skip


def tokenizer_json(pieces):
    added = [
        {"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i in range(2)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 512, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 0}, "direction": "Right", "pad_to_multiple_of": None,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {p: i for i, p in enumerate(pieces)}},
    }  # fmt: skip


def make(folder, tensors, pieces=PIECES, **changes):
    """A folder as model2vec 0.10 writes it."""
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(pieces)))
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "x.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def tensors(dtype=np.float32, rows=9, **others):
    table = np.random.default_rng(0).normal(0, 40, (rows, D))
    return {"embeddings": table.astype(dtype), **others}


def expected(vectors, normalize=True):
    """The vectors of `TEXTS`, given those of the pieces; the unknown token does not count."""
    ids = [[2, 3, 4, 8], [], [3, 5, 2, 7, 6], [], [6] * 512]
    means = [np.mean(vectors[i], axis=0) if i else np.zeros(D) for i in ids]
    lengths = [np.linalg.norm(mean) if normalize else 1 for mean in means]
    return np.array([m / n if n else m for m, n in zip(means, lengths, strict=True)])


MAPPING = np.array([0, 1, 2, 2, 0, 1, 2, 0, 1])
WEIGHTS = np.linspace(0.5, 2, len(PIECES), dtype=np.float32)
CASES = {
    "float32": (tensors(), {}),
    "float16": (tensors(np.float16), {}),
    "int8": (tensors(np.int8), {"embedding_dtype": "int8"}),
    "not_normalized": (tensors(), {"normalize": False}),
    "weights": (tensors(weights=WEIGHTS), {}),
    "float64_weights": (tensors(weights=WEIGHTS.astype(np.float64)), {}),
    "shared_rows": (tensors(rows=3, mapping=MAPPING, weights=WEIGHTS),
                    {"vocabulary_quantization": 3}),
    "unweighted_rows": (tensors(rows=3, mapping=MAPPING), {"vocabulary_quantization": 3}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_vectors_and_the_way_back(name, tmp_path):
    given, changes = CASES[name]
    converted = huggingface.read(make(tmp_path / "theirs", given, **changes))
    converted_model.write(converted, tmp_path / "model")
    table = given["embeddings"].astype(np.float64)
    vectors = table[given.get("mapping", np.arange(len(PIECES)))]
    vectors = vectors * given.get("weights", np.ones(len(PIECES)))[:, None]
    wanted = expected(vectors, changes.get("normalize", True))
    model = official.load(tmp_path / "model")
    close = dict(rtol=0, atol=1e-5 * np.abs(wanted).max())
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=2), wanted, **close)
    np.testing.assert_allclose(official.load(tmp_path / "theirs").encode(TEXTS), wanted, **close)
    assert any("is of int8" in note for note in converted.notes) == (name == "int8")
    assert huggingface.write(tmp_path / "model", tmp_path / "back", "last") == (
        [] if changes.get("normalize", True)
        else ["the unknown token does not count in a text, here and in model2vec; "
              "sentence-transformers counts it: its vectors of texts that have one are shorter"]
    )  # fmt: skip
    np.testing.assert_allclose(official.load(tmp_path / "back").encode(TEXTS), wanted, **close)
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (back["max_length"], back["normalize"], back["hidden_dim"]) == (
        512, changes.get("normalize", True), D
    )  # fmt: skip
    stored = safetensors.numpy.load_file(tmp_path / "back" / "model.safetensors")
    assert ("mapping" in stored) == ("mapping" in given)
    described = json.loads((tmp_path / "back" / "tokenizer.json").read_text())
    assert described["model"]["vocab"] == {p: i for i, p in enumerate(PIECES)}
    assert described["post_processor"] is None and described["truncation"]["max_length"] == 512
    kinds = [module["type"].rpartition(".")[2] for module in json.loads(
        (tmp_path / "back" / "modules.json").read_text())]  # fmt: skip
    assert kinds == ["StaticEmbedding", *["Normalize"] * changes.get("normalize", True)]


def test_a_static_embedding_counts_the_unknown_token(tmp_path):
    """A folder as sentence-transformers 6 writes it, with another length and prompts."""
    folder = make(tmp_path / "theirs", {"embedding.weight": tensors()["embeddings"]})
    (folder / "config.json").unlink()
    described = tokenizer_json(PIECES)
    described["truncation"]["max_length"] = 3
    general = {
        "model_type": "SentenceTransformer",
        "default_prompt_name": None,
        "prompts": {"query": "mat ", "document": ""},
        "similarity_fn_name": "dot",
    }
    kinds = ("sentence_transformer.modules.static_embedding.StaticEmbedding",
             "base.modules.normalize.Normalize")  # fmt: skip
    modules = [
        {"idx": i, "name": str(i), "path": ["", "1_Normalize"][i],
         "type": f"sentence_transformers.{kind}"}
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    for name, content in {"tokenizer.json": described, "modules.json": modules,
                          "config_sentence_transformers.json": general}.items():  # fmt: skip
        (folder / name).write_text(json.dumps(content))
    model = official.load(folder)
    table = tensors()["embeddings"].astype(np.float64)
    ids = [[2, 3, 4], [], [3, 5, 2], [1], [6] * 3]
    means = [table[i].mean(axis=0) if i else np.zeros(D) for i in ids]
    wanted = [mean / max(np.linalg.norm(mean), 1e-9) for mean in means]
    np.testing.assert_allclose(model.encode(TEXTS), wanted, **CLOSE)
    query = table[[7, 2, 3]].mean(axis=0)
    found = model.encode(["the cat sat"], prompt="query")[0]
    np.testing.assert_allclose(found, query / np.linalg.norm(query), **CLOSE)
    assert model.embedder.settings.similarity == "dot"
    # Written as a folder of model2vec, it is a StaticEmbedding for sentence-transformers alone.
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    notes = huggingface.write(tmp_path / "model", tmp_path / "back", "last")
    assert notes == ["the unknown token counts in a text, here and in sentence-transformers; "
                     "model2vec leaves it out"]  # fmt: skip
    name = "config_sentence_transformers.json"
    assert json.loads((tmp_path / "back" / name).read_text()) == general
    # Without a padding token, none but the unknown one could stand around a text.
    described["padding"], described["added_tokens"] = None, described["added_tokens"][1:]
    text = json.dumps(described).replace('"[PAD]"', '"x"').replace("[UNK]", "<unk>")
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match="no special token but the unknown one, which counts"):
        huggingface.read(folder)


def test_rows_without_a_piece_are_read_and_not_written(tmp_path):
    folder = make(tmp_path / "theirs", tensors(rows=12))
    converted = huggingface.read(folder)
    assert converted_model.spare_rows(converted) == "rows 9 to 11"
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "back", "last")
    stored = safetensors.numpy.load_file(tmp_path / "back" / "model.safetensors")
    table = tensors(rows=12)["embeddings"][:9]
    table[:2] = 0  # tokens that do not count
    np.testing.assert_array_equal(stored["embeddings"], table)


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        (tensors(rows=8), {}, "vectors of 8 pieces, but the tokenizer has 9: take the tokenizer"),
        ({"x": np.zeros(3)}, {}, "embeddings: missing: is this a table of static vectors"),
        (tensors(mapping=MAPPING + 1, rows=3), {}, "mapping: has values that are not rows"),
        (tensors(weights=WEIGHTS[1:]), {}, "weights: 8, but there are 9 pieces"),
        ({"embeddings": np.zeros(9, np.float32)}, {}, "embeddings has no rows and columns"),
        ({"embeddings": np.full((9, 4), np.nan, np.float32)}, {}, "contains NaN or infinity"),
        (tensors(), {"prefix": "x"}, "prefix: this key is not known here"),
        (tensors(), {"normalize": "yes"}, "normalize: expected true or false"),
    ],
)
def test_bad_folders(given, changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        huggingface.read(make(tmp_path / "theirs", given, **changes))


@pytest.mark.parametrize(
    ("objectives", "settings", "message"),
    [
        ([RegressionConfig()], {}, "objectives: regression: folders of model2vec have no such"),
        ([SentenceEmbeddingConfig(pooling="pooled", projection=Projection(size=3))], {},
         "objectives: projection: folders of model2vec have no such part"),
        ([], {"pooling": ("mean",)}, "embedding.json: pooling: mean: folders of model2vec have"),
    ],
)  # fmt: skip
def test_parts_that_these_folders_do_not_have(objectives, settings, message, tmp_path):
    read = huggingface.read(make(tmp_path / "theirs", tensors()))
    config = dataclasses.replace(read.config, objectives=tuple(objectives))
    settings = dataclasses.replace(read.embedding, **settings)
    with pytest.raises(UserError, match=message):
        model2vec.write(config, read.variables, read.tokenizer, settings, tmp_path)


def test_a_model_that_counts_the_unknown_token_says_so(tmp_path):
    read = huggingface.read(make(tmp_path / "theirs", tensors()))
    encoder = dataclasses.replace(read.config.encoder, skipped_ids=(0,))
    config = dataclasses.replace(read.config, encoder=encoder)
    given = config, read.variables, read.tokenizer, read.embedding, tmp_path
    assert model2vec.write(*given) == [
        "the unknown token counts in a text, here and in sentence-transformers; model2vec leaves "
        "it out"
    ]
    stored = safetensors.numpy.load_file(tmp_path / "model.safetensors")["embeddings"]
    assert not stored[0].any() and stored[1].any()
    # A size that is kept of each vector is that of the table.
    model2vec.write(*given[:3], dataclasses.replace(read.embedding, size=3), tmp_path)
    smaller = safetensors.numpy.load_file(tmp_path / "model.safetensors")["embeddings"]
    np.testing.assert_array_equal(smaller, stored[:, :3])
