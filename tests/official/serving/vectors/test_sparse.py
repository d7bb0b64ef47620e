"""Sparse vectors of texts: from a model folder, a search, an export and the commands."""

import dataclasses
import json

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.conversion import huggingface
from official.evaluation.sparse_vectors import SparseVectors
from official.modeling.model import Model
from official.saving import embedding_settings, model_folder
from official.serving import vector_pieces
from official.serving.export import litert, onnx, saved_model
from official.serving.signatures import table
from official.serving.signatures.inputs import TOKENS
from official.serving.vector_pieces import Options
from official.serving.vectors import negatives, smaller
from official.tasks import trec
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import GOLDEN, commands

CLOSE = dict(rtol=0, atol=1e-5)
TEXTS = ["The cat sat on a mat.", "", "dog " * 30, "a cat and a dog", " \t"]
EMPTY = [1, 4]


def write(folder, **options):
    """Writes a model with the weights of a masked LM; returns the vectors of its evaluation."""
    read = huggingface.read(GOLDEN / "hf_files" / "pretraining")
    objective = SparseEmbeddingConfig(**options)
    config = configs.ResolvedConfig.of(
        read.config, objectives=(objective,), segments=None, corruption=None
    )
    model = Model(config)
    rng = np.random.default_rng(1)
    for path, variable in model.variables_by_path().items():
        given = read.variables.get(path.replace("sparse_embedding", "masked_lm"))
        variable.assign(rng.normal(0, 0.5, variable.shape) if given is None else given)
        if path == "sparse_embedding/output_bias":
            variable.assign(rng.normal(-0.5, 1, variable.shape))
    variables = {path: np.asarray(v) for path, v in model.variables_by_path().items()}
    model_folder.write_new(config, read.tokenizer, variables, folder)
    length = model_folder.ModelFolder.open(folder).max_length
    layout = config.encoder.text_layout
    batch = pack_texts([tf.constant(TEXTS)], read.tokenizer, length, layout)
    batch = {name: value[:, None] for name, value in batch.items()}
    ready = model.prepare({**batch, "example_weights": tf.ones(len(TEXTS))})
    vectors = model.predictions(ready)["vectors"][:, 0].numpy()
    vectors[EMPTY] = 0  # of the special tokens alone
    assert 0.1 < np.mean(vectors[0] == 0) < 0.9
    return vectors


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse") / "model"
    return folder, write(folder)


def test_vectors_are_those_of_the_training(model):
    folder, expected = model
    loaded = official.load(folder)
    for batch_size in (32, 2):
        found = loaded.encode(TEXTS, batch_size, sparse=True)
        np.testing.assert_allclose(found.dense(), expected, **CLOSE)
    assert np.diff(found.offsets)[EMPTY].tolist() == [0, 0]
    cut = loaded.encode(TEXTS, sparse=True, max_active_dims=3)
    assert np.diff(cut.offsets).tolist() == [3, 0, 3, 3, 0]
    (words, *_) = loaded.words(cut)
    order = np.argsort(-expected[0])[:3]
    assert [word for word, _ in words] == [loaded.tokenizer.pieces[i] for i in order]
    np.testing.assert_allclose([weight for _, weight in words], expected[0][order], **CLOSE)
    assert [word for word, _ in loaded.words(found, 1)[0]] == [words[0][0]]
    assert len(loaded.encode([], sparse=True)) == 0
    for name, value in (("pooling", "mean"), ("normalize", True), ("layer", 0), ("size", 2)):
        with pytest.raises(UserError, match=f"{name}: sparse vectors have none"):
            loaded.encode(TEXTS, sparse=True, **{name: value})


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions(model, precision):
    folder, expected = model
    loaded = official.load(folder, precision=precision)
    found = loaded.encode(TEXTS, sparse=True)
    np.testing.assert_allclose(found.dense(), expected, rtol=0, atol=0.1)
    assert np.diff(found.offsets)[EMPTY].tolist() == [0, 0]
    parts, kind, default = saved_model.restore(folder, precision=precision)
    outputs = table.make(parts, kind, default)[1]["embed_sparse"](tf.constant(TEXTS))
    found = as_dense(outputs, expected.shape[1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.1)
    assert not found[EMPTY].any()


def test_a_masked_lm_alone_has_the_vectors_too(model, tmp_path):
    folder, expected = model
    config = configs.load_resolved(folder / "config.yaml")
    source = model_folder.ModelFolder.open(folder)
    variables = {
        path.replace("sparse_embedding", "masked_lm"): array
        for path, array in source.variables()[0].items()
    }
    masked = huggingface.read(GOLDEN / "hf_files" / "pretraining").config
    masked = configs.ResolvedConfig.of(
        masked, objectives=masked.of_types("masked_lm"), encoder=config.encoder
    )
    model_folder.write_new(masked, source.tokenizer, variables, tmp_path / "masked")
    loaded = official.load(tmp_path / "masked")
    np.testing.assert_allclose(loaded.encode(TEXTS, sparse=True).dense(), expected, **CLOSE)
    assert loaded.search(["a cat"], TEXTS, sparse=True)[0].shape == (1, 5)
    assert not loaded.embedder.is_sparse


def test_a_table_that_is_padded_beyond_the_vocabulary(tmp_path):
    """Queries by a table and documents have one size, and a row without a piece is a number."""
    read = huggingface.read(GOLDEN / "hf_files" / "pretraining")
    count = read.tokenizer.vocab_size
    encoder = dataclasses.replace(read.config.encoder, vocab_size=count + 8)
    config = configs.ResolvedConfig.of(
        read.config, encoder=encoder, objectives=(SparseEmbeddingConfig(queries="table"),),
        segments=None, corruption=None,
    )  # fmt: skip
    rng, variables = np.random.default_rng(1), Model(config).variables_by_path()
    arrays = {path: rng.normal(0, 0.5, v.shape).astype("f4") for path, v in variables.items()}
    arrays["sparse_embedding/output_bias"][count:] = 9
    arrays["sparse_embedding/query_weights"][:] = 2
    model_folder.write_new(config, read.tokenizer, arrays, tmp_path / "padded")
    loaded = official.load(tmp_path / "padded")
    documents = loaded.encode(TEXTS, sparse=True)
    assert documents.size == count + 8 and documents.ids.max() == count + 7
    strongest = {word for word, _ in loaded.words(documents, 8)[0]}
    assert strongest == {f"<{i}>" for i in range(count, count + 8)}
    asked = loaded.encode(["a cat"], sparse=True, prompt="query").dense()
    products = (asked @ documents.dense().T)[0]
    numbers, scores = loaded.search(["a cat"], TEXTS, top_k=2)
    np.testing.assert_array_equal(numbers[0], np.argsort(-products)[:2])
    np.testing.assert_allclose(scores[0], np.sort(products)[:-3:-1], **CLOSE)


def test_a_model_without_a_masked_lm_is_refused():
    loaded = official.load(GOLDEN / "hf_files" / "bare")
    message = r"scores of a masked LM, and this model has none \(its objectives: none\): train it"
    with pytest.raises(UserError, match=message):
        loaded.encode(TEXTS, sparse=True)


def test_searches(model):
    folder, expected = model
    loaded = official.load(folder)
    queries = ["a cat sat", "", "the dog"]
    vectors = loaded.encode(queries, sparse=True).dense()
    products = vectors @ expected.T
    numbers, scores = loaded.search(queries, TEXTS, top_k=5)
    for row, values in enumerate(products):
        order = np.argsort(-values, kind="stable")
        count = np.count_nonzero(values)
        assert numbers[row].tolist() == [*order[:count], *[-1] * (5 - count)]
        np.testing.assert_allclose(scores[row][:count], values[order][:count], **CLOSE)
    assert not set(EMPTY) & set(numbers.ravel()) and np.all(numbers[1] == -1)
    assert len(loaded.search(queries, [""], top_k=3)[0]) == 3  # nothing is found
    with pytest.raises(UserError, match="for_mteb: this model compares vectors of the kind sparse"):
        loaded.for_mteb()


def test_negatives_are_found_by_sparse_vectors(model):
    folder, _ = model
    embedder = official.load(folder).embedder
    pairs = negatives.Pairs([("a cat", "the cat sat"), ("a dog", "dogs ran")], ["a tree", ""])
    found = negatives.by_vectors(embedder, pairs, 4)
    vectors = [embedder.sparse(texts).dense() for texts in (pairs.queries, pairs.documents)]
    products = vectors[0] @ vectors[1].T
    np.testing.assert_allclose(found.positives, np.diag(products), **CLOSE)
    for row, numbers in enumerate(found.numbers):
        assert 3 not in numbers  # the empty document
        np.testing.assert_allclose(found.scores[row], products[row][numbers], **CLOSE)


def test_queries_by_a_table(tmp_path):
    folder = tmp_path / "model"
    write(folder, queries="table")
    loaded = official.load(folder)
    table_of = loaded.model.objectives[0].query_weights.numpy()
    query = "the cat, the cat qqq"
    found = loaded.encode([query, ""], sparse=True, prompt="query")
    ids = np.unique(loaded.tokenizer.encode([query])[0])
    ids = ids[ids != loaded.tokenizer.unk_id]
    assert found.entries(0)[0].tolist() == ids.tolist() and len(found.entries(1)[0]) == 0
    np.testing.assert_array_equal(found.entries(0)[1], table_of[ids])
    documents = loaded.encode(TEXTS, sparse=True).dense()
    numbers, scores = loaded.search([query], TEXTS, top_k=2)
    products = documents @ found.dense()[0]
    assert numbers[0, 0] == products.argmax()
    assert scores[0, 0] == pytest.approx(products.max(), rel=1e-3)
    graphs = exported(folder)
    assert {"embed_sparse", "embed_sparse_query", "embed_sparse_query_tokens"} <= set(graphs)
    outputs = graphs["embed_sparse_query"](tf.constant([query]))
    np.testing.assert_allclose(as_dense(outputs, len(table_of)), found.dense()[:1], **CLOSE)


def exported(folder):
    parts, kind, default = saved_model.restore(folder)
    return table.make(parts, kind, default)[1]


def as_dense(outputs, size):
    ids, weights = np.asarray(outputs["word_ids"]), np.asarray(outputs["weights"])
    assert np.all(np.diff(np.abs(weights), axis=1) <= 0)
    dense = np.zeros((len(ids), size), np.float32)
    np.put_along_axis(dense, ids.astype(int), weights, axis=1)
    return dense


def test_signatures(model):
    folder, expected = model
    graphs = exported(folder)
    assert "embed" not in graphs and "embed_sparse_query" not in graphs
    outputs = graphs["embed_sparse"](tf.constant(TEXTS))
    np.testing.assert_allclose(as_dense(outputs, expected.shape[1]), expected, **CLOSE)
    loaded = official.load(folder)
    batch = pack_texts([tf.constant(TEXTS)], loaded.tokenizer, 16, "cls_first")
    ids = {name: tf.cast(batch[ours], tf.int32) for name, ours in TOKENS.items()}
    outputs = graphs["embed_sparse_tokens"](*ids.values())
    found = loaded.encode(TEXTS, sparse=True, max_length=16).dense()
    np.testing.assert_allclose(as_dense(outputs, expected.shape[1]), found, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_the_settings_of_the_folder_and_other_runtimes(model, tmp_path):
    folder, expected = model
    wanted = SparseVectors.of(expected, 4).dense()
    file = embedding_settings.file(folder)
    file.write_text(json.dumps({"max_active_dims": 4, "prompts": {"query": "a dog "}}))
    try:
        loaded = official.load(folder)
        np.testing.assert_allclose(loaded.encode(TEXTS, sparse=True).dense(), wanted, **CLOSE)
        asked = loaded.encode(["and", ""], sparse=True, prompt="query").dense()
        found = loaded.encode(["a dog and"], sparse=True).dense()
        np.testing.assert_allclose(asked[:1], found, **CLOSE)
        assert np.all(asked[1] == 0)
        outputs = exported(folder)["embed_sparse"](tf.constant(TEXTS))
        assert outputs["word_ids"].shape == (5, 4)
        np.testing.assert_allclose(as_dense(outputs, expected.shape[1]), wanted, **CLOSE)
    finally:
        file.unlink()
    loaded = official.load(folder, runtime="litert")
    np.testing.assert_allclose(loaded.encode(TEXTS, sparse=True).dense(), expected, **CLOSE)
    litert.export(folder, tmp_path / "lite")
    interpreter = tf.lite.Interpreter(str(tmp_path / "lite" / litert.FILE))
    run = interpreter.get_signature_runner("embed_sparse_tokens")
    batch = pack_texts([tf.constant(TEXTS)], loaded.tokenizer, loaded.max_length, "cls_first")
    given = {name: np.asarray(batch[ours], np.int32) for name, ours in TOKENS.items()}
    outputs = run(**given)
    np.testing.assert_allclose(as_dense(outputs, expected.shape[1]), expected, **CLOSE)
    names, _ = onnx.export(folder, tmp_path / "onnx")
    assert names == ["tokens", "embed_sparse_tokens"]
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "embed_sparse_tokens.onnx")
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, given), strict=True))
    np.testing.assert_allclose(as_dense(outputs, expected.shape[1]), expected, **CLOSE)


def test_stored_vectors(model, tmp_path):
    """They are searched as the texts are, in pieces, and appended to."""
    loaded, texts = official.load(model[0]), [*TEXTS, "on and on", "a cat", "dogs ran"]
    for name, rows in (("first", range(5)), ("last", range(5, 8))):
        lines = "".join(f"d{i}\t{texts[i]}\n" for i in rows)
        (tmp_path / f"{name}.tsv").write_text(lines)
    options, out = Options(str(model[0]), size=2), tmp_path / "out"
    vector_pieces.write(options, tmp_path / "first.tsv", out, report=len)
    vector_pieces.write(options, tmp_path / "last.tsv", out, report=len, append=True)
    record = json.loads((out / "_vectors.json").read_text())
    assert [record[key] for key in ("kind", "texts", "pieces")] == ["sparse", 8, 5]
    asked = ["a cat sat", "the dog", ""]
    wanted = loaded.search(asked, texts, top_k=8)
    for _ in range(2):  # the second search has the indexes of the first one
        numbers, scores = loaded.search(asked, vectors=out, top_k=8)
        np.testing.assert_array_equal(numbers, wanted[0])
        np.testing.assert_allclose(scores, wanted[1], **CLOSE)
    assert (numbers[2] == -1).all() and not np.isin(numbers, EMPTY).any()
    words = [np.load(out / f"words-0000{i}.npy") for i in range(5)]
    np.testing.assert_array_equal(np.concatenate(words), loaded.encode(texts, sparse=True).ids)
    with pytest.raises(UserError, match="dtype: int8: sparse vectors have float32: remove it"):
        other = Options(str(model[0]), dtype="int8")
        vector_pieces.write(other, tmp_path / "first.tsv", tmp_path / "int8", report=len)
    with pytest.raises(UserError, match="dtype: bits: sparse vectors have float32: remove it"):
        smaller.write(out, tmp_path / "bits", "bits")
    with pytest.raises(UserError, match="rescore: is for vectors in smaller numbers"):
        loaded.search(asked, vectors=out, rescore=out)
    with pytest.raises(UserError, match="prompt: not supported for vectors of the kind sparse"):
        other = Options(str(model[0]), prompt="query")
        vector_pieces.write(other, tmp_path / "first.tsv", tmp_path / "x", report=len)


@pytest.mark.slow
@pytest.mark.long
def test_commands(model, tmp_path):
    folder, expected = model
    loaded = official.load(folder)
    (tmp_path / "texts.txt").write_text("".join(f"{t.strip()}\n" for t in TEXTS))
    given = ["--mode=embed", f"--model_dir={folder}", f"--texts={tmp_path}/texts.txt"]
    commands.run("official.main", *given, f"--output={tmp_path}/v.npz", status=0)
    found = SparseVectors.load(tmp_path / "v.npz")
    np.testing.assert_allclose(found.dense(), expected, **CLOSE)
    output = f"--output={tmp_path}/v.jsonl"
    commands.run("official.main", *given, output, "--max_active_dims=2", status=0)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    words = loaded.words(loaded.encode(TEXTS, sparse=True, max_active_dims=2))
    for line, pairs in zip(lines, words, strict=True):
        assert list(line["vector"]) == [word for word, _ in pairs]
        assert list(line["vector"].values()) == pytest.approx([w for _, w in pairs], abs=1e-5)
    for more, message in (
        ([f"--output={tmp_path}/v.npy"], "the vectors are sparse: name a .npz or .jsonl file"),
        ([f"--output={tmp_path}/w.npz", "--pooling=max"], "--pooling: not supported for sparse"),
        ([f"--output={tmp_path}/w.npz", "--nosparse"], "dense: name a .npy or .jsonl file"),
        ([f"--output={tmp_path}/w", "--pieces=npy", "--normalize"], "normalize: not supported for"),
        ([f"--output={tmp_path}/w.npz", "--layer=1"], "not supported for sparse vectors"),
    ):
        assert message in commands.run("official.main", *given, *more, status=2).stderr
    (tmp_path / "queries.tsv").write_text("id\ttext\nq1\ta cat sat\nq2\tthe dog\n")
    commands.run(
        "official.main", "--mode=search", f"--model_dir={folder}",
        f"--queries={tmp_path}/queries.tsv", f"--texts={tmp_path}/texts.txt",
        f"--output={tmp_path}/found.run", "--top_k=3", status=0,
    )  # fmt: skip
    run = trec.read_run(tmp_path / "found.run")
    numbers, scores = loaded.search(["a cat sat", "the dog"], TEXTS, top_k=3)
    for row, name in enumerate(("q1", "q2")):
        pairs = {str(n + 1): s for n, s in zip(numbers[row], scores[row], strict=True) if n >= 0}
        assert run[name] == pytest.approx(pairs, abs=1e-4)
    given = ["--what=words", "--text=a cat", f"--model_dir={folder}"]
    said = commands.run("official.commands.explain", *given, status=0).stdout
    ((word, weight), *_) = loaded.words(loaded.encode(["a cat"], sparse=True))[0]
    assert f"{weight:8.4f}  {word}" in said.splitlines()[1]
