"""Vectors in other precisions and by LiteRT, beside those in float32 by TensorFlow."""

import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

import official
from official.config.sentence_embedding import Projection
from official.serving import vector_pieces
from official.serving.export import litert, saved_model
from official.serving.light import runs
from official.serving.signatures.inputs import TOKENS
from official.serving.vectors import vector_files
from official.serving.vectors.embedder import Embedder
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.test_predictor import BERT, MODERN, XLNET, load
from tests.official.serving.test_tagging import ELMO
from tests.official.serving.vectors.test_learned_vectors import write as write_learned

# Large enough that the converter stores integers: it leaves small matrices as they are.
SIZES = {"hidden_size": 96, "num_heads": 4, "intermediate_size": 192, "initializer_range": 0.08}
WORDS = "the cat sat a dog ran cats and dogs tree mat under on".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtimes") / "model"
    load(folder, encoder={**BERT, **SIZES})
    return folder


@pytest.fixture(scope="module")
def texts():
    """Texts of different lengths, one of them empty and some longer than the model's 16 tokens."""
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, n)) for n in [*draw.integers(1, 30, 40), 0]]


@pytest.fixture(scope="module")
def vectors(folder, texts):
    return official.load(folder).encode(texts, normalize=True)


def cosines(found, vectors):
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    return np.sum(found * vectors, axis=1)


@pytest.mark.slow
def test_litert_gives_the_vectors(folder, texts, vectors):
    model, plain = official.load(folder, runtime="litert"), official.load(folder)
    found = model.encode(texts, normalize=True)
    np.testing.assert_allclose(found, vectors, rtol=0, atol=1e-5)
    assert model.vectors.cut == sum(len(ids) > 14 for ids in model.tokenizer.encode(texts)) > 0
    settings = {"pooling": "max,first", "layer": 1, "max_length": 9}
    wanted = plain.encode(texts, **settings)
    np.testing.assert_allclose(model.encode(texts, **settings), wanted, rtol=0, atol=1e-5)
    for (pieces, *_, tokens), (also, *_, states) in zip(
        model.tokens(texts[:5]), plain.tokens(texts[:5]), strict=True
    ):
        assert pieces == also and len(pieces) > 0
        np.testing.assert_allclose(tokens, states, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoder", [XLNET, pytest.param(MODERN, marks=pytest.mark.long)], ids=["xlnet", "modernbert"]
)
def test_litert_gives_the_vectors_of_other_encoders(tmp_path, texts, encoder):
    """Rows of XLNet are padded on the left."""
    wanted = load(tmp_path / "model", encoder=encoder).encode(texts)
    found = official.load(tmp_path / "model", runtime="litert").encode(texts)
    assert np.ptp(wanted, axis=0).max() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_litert_in_int8(folder, texts, vectors):
    model = official.load(folder, precision="int8", runtime="litert")
    found = model.encode(texts, normalize=True)
    cosine = cosines(found, vectors)
    assert 0.99 < cosine.min() < 1 - 1e-6
    assert np.abs(found - found[:1]).max() > 0.05  # texts differ by more than int8 does
    assert np.abs(found - vectors).max() < 0.03
    # Neither other texts nor padding change the vector of a text.
    alone = np.concatenate([model.encode([text], normalize=True) for text in texts[:9]])
    np.testing.assert_allclose(alone, found[:9], rtol=0, atol=1e-6)
    # Everything but vectors is computed in float32.
    weights = official.load(folder).model.variables_by_path()
    for path, variable in model.model.variables_by_path().items():
        np.testing.assert_array_equal(variable, weights[path])
    checksums = {m.embedder.checksum(m.embedder.settings) for m in (model, official.load(folder))}
    assert len(checksums) == 2


@pytest.mark.slow
def test_other_precisions_of_tensorflow(folder, texts, vectors, tmp_path):
    found = official.load(folder, precision="bfloat16").encode(texts, normalize=True)
    assert 0.999 < cosines(found, vectors).min() < 1 - 1e-6
    model = official.load(folder, precision="int8")
    assert 0.99 < cosines(model.encode(texts, normalize=True), vectors).min() < 1 - 1e-6
    saved_model.export(folder, tmp_path / "saved", precision="int8")
    embed = tf.saved_model.load(str(tmp_path / "saved")).signatures["embed"]
    served = embed(text=tf.constant(texts))["vectors"].numpy()
    found = model.encode(texts)
    assert np.ptp(np.linalg.norm(found, axis=1)) > 0.01  # not normalized: the folder says nothing
    np.testing.assert_allclose(found, served, rtol=0, atol=1e-4)


def test_batches_of_litert_have_few_positions(folder, monkeypatch):
    monkeypatch.setattr(runs, "POSITIONS", 40)
    lengths = np.array([3, 30, 1, 12, 2, 3, 14, 0])
    grouped = Embedder(official.load(folder)._source, "float32")._groups(lengths, 3, 16)
    groups = [rows.tolist() for rows in grouped]  # of 2, 3, 4; 5, 5; 14, 16; 16 positions a row
    assert groups == [[7, 2, 4], [0, 5], [3, 6], [1]]
    groups = [rows.tolist() for rows in Embedder(official.load(folder)._source)._groups(
        lengths, 3, 16)]  # fmt: skip
    assert groups == [[7, 2, 4], [0, 5, 3], [6, 1]]


def test_threads(monkeypatch):
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 2)
    together = threading.Barrier(2, timeout=60)

    def wait(item):
        together.wait()  # passes only if two items are in progress
        return -item

    assert list(runs.in_threads(wait, range(6), litert.num_threads())) == [0, -1, -2, -3, -4, -5]


@pytest.mark.slow
@pytest.mark.parametrize("precision", litert.PRECISIONS)
def test_an_export_has_pooling_projection_and_norm_inside(tmp_path, texts, precision):
    """Ids in, and out the vectors that were learned."""
    write_learned(tmp_path / "model", pooling="mean,last", projection=Projection(size=5))
    model = official.load(tmp_path / "model")
    wanted = model.encode(texts)
    litert.export(tmp_path / "model", tmp_path / "lite", precision=precision)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert")
        interpreter = tf.lite.Interpreter(str(tmp_path / "lite" / litert.FILE))
    layout = model.config.encoder.text_layout
    batch = pack_texts([tf.constant(texts)], model.tokenizer, model.max_length, layout)
    given = {name: tf.cast(batch[field], tf.int32).numpy() for name, field in TOKENS.items()}
    found = interpreter.get_signature_runner("embed_tokens")(**given)["vectors"]
    assert found.shape == (len(texts), 5)
    if precision == "float32":
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert cosines(found, wanted).min() > 0.99


@pytest.mark.slow
def test_the_command(folder, texts, vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "CHUNK", 16)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    done = commands.run(
        "official.main", "--mode=embed", f"--model_dir={folder}", f"--texts={tmp_path}/texts.txt",
        f"--output={tmp_path}/out", "--pieces=npy", "--piece_size=30", "--normalize",
        "--runtime=litert", "--precision=int8", status=0,
    )  # fmt: skip
    found = np.concatenate([np.load(tmp_path / "out" / f"vectors-0000{i}.npy") for i in (0, 1)])
    wanted = official.load(folder, precision="int8", runtime="litert").encode(texts, normalize=True)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert "41 texts in 2 pieces" in done.stdout


def test_what_is_refused(folder, tmp_path):
    for given, message in (
        ({"precision": "int4"}, "precision: 'int4' is not one of float32, bfloat16, int8"),
        ({"runtime": "onnx"}, "runtime: 'onnx' is not one of tensorflow, litert"),
        (
            {"precision": "bfloat16", "runtime": "litert"},
            "--precision=bfloat16: LiteRT computes in float32 or int8 on CPUs",
        ),
    ):
        with pytest.raises(UserError, match=message):
            official.load(folder, **given)
    load(tmp_path / "elmo", encoder={**ELMO, "tokens": "words"})
    with pytest.raises(UserError, match="--runtime=litert: not supported for bilm .ELMo.; remove"):
        official.load(tmp_path / "elmo", runtime="litert")
    options = vector_pieces.Options(str(folder), runtime="litert")
    with pytest.raises(UserError, match="--workers: one process has all threads of LiteRT"):
        vector_pieces.write(options, tmp_path / "texts", tmp_path / "out", workers=2)
    for flags, message in (
        (["--mode=embed", "--data=d", "--layers=all"], "--runtime: not supported with --data"),
        (
            ["--mode=search", "--queries=q", "--texts=t", "--rerank=r"],
            "--runtime=litert: --rerank compares no vectors; remove it",
        ),
    ):
        output = f"--output={tmp_path}/out.run"
        done = commands.run(
            "official.main", *flags, f"--model_dir={folder}", output, "--runtime=litert", status=2
        )
        assert message in done.stderr
