"""Static vectors of the pieces of an encoder: their vectors, components, factors, and the command.

Shapes: n pieces, H hidden size, D size of the static vectors.
"""

import numpy as np
import pytest
import sklearn.decomposition

import official
from official import config as configs
from official import tokenizers
from official.saving import model_folder, named_arrays, static_vectors
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.test_predictor import BERT, GOLDEN, XLNET, load

T5 = {
    "type": "encoder_decoder", "hidden_size": 12, "num_layers": 2, "num_heads": 3,
    "intermediate_size": 20, "decoder_layers": 0,
}  # fmt: skip


def test_factors_are_those_of_the_places_in_the_vocabulary():
    """The values of model2vec 0.10.0 for the 29,525 pieces of BERT's vocabulary."""
    found = static_vectors.factors(static_vectors.probabilities(np.arange(29_525), None))
    np.testing.assert_allclose(found[:3], [0.00197016, 0.00295234, 0.00393258], atol=5e-9)
    assert found[-1] == pytest.approx(0.96682472, abs=5e-9)


@pytest.mark.parametrize("dimensions", [5, 0.7, static_vectors.ALL])
def test_components_are_those_of_scikit_learn(dimensions):
    rng = np.random.default_rng(0)
    vectors = rng.normal(3, 1, (40, 8)) * np.arange(1, 9) @ rng.normal(size=(8, 8))
    wanted = 8 if dimensions == static_vectors.ALL else dimensions
    theirs = sklearn.decomposition.PCA(wanted, svd_solver="full").fit(vectors)
    found, share = static_vectors.projected(vectors.astype(np.float32), dimensions)
    assert found.shape == (40, theirs.n_components_)
    assert share == pytest.approx(theirs.explained_variance_ratio_.sum(), rel=1e-6)
    wanted = theirs.transform(vectors)
    wanted *= np.sign(wanted[np.abs(wanted).argmax(axis=0), np.arange(wanted.shape[1])])
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_few_vectors_stay_as_they_are():
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    found, share = static_vectors.projected(vectors, 5)
    np.testing.assert_array_equal(found, vectors)
    assert share == 1


@pytest.mark.parametrize("dimensions", [0, 13, 2.5, "most"])
def test_bad_dimensions(dimensions):
    with pytest.raises(UserError, match=f"dimensions: {dimensions}: the encoder has vectors of 12"):
        static_vectors.projected(np.zeros((40, 12), np.float32), dimensions)


@pytest.mark.parametrize("encoder", [BERT, XLNET, T5], ids=lambda each: each["type"])
def test_pieces_are_read_alone(encoder, tmp_path):
    """The states of the row of a piece, computed one by one."""
    tokenizer = tokenizers.load(GOLDEN)
    sizes = {**encoder, "vocab_size": tokenizer.vocab_size}
    config = configs.from_dict({"name": "x", "encoder": sizes, "recipe": {"steps": 1}})
    arrays = named_arrays.values(model_folder.build(config).variables_by_path())
    model_folder.write_new(config, tokenizer, arrays, tmp_path / "model")
    model = official.load(tmp_path / "model")
    tokenizer, layout = model.tokenizer, model.config.encoder.text_layout
    found = model.embedder.pieces([7, 20, 9], batch_size=2)
    assert found.shape == (3, 12) and np.ptp(found, axis=0).min() > 1e-3
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    for i, vector in zip([7, 20, 9], found, strict=True):
        row = {"cls_first": [cls, i, sep], "cls_last": [i, sep, cls], "no_cls": [i, sep]}[layout]
        segments = np.array([[0, 0, 2 * (layout == "cls_last")][: len(row)]], np.int32)
        batch = {"token_ids": np.array([row], np.int32), "segment_ids": segments}
        states = model.model.encode(batch)["sequence_output"][0]
        np.testing.assert_allclose(vector, np.mean(states, axis=0), atol=1e-5)


def test_special_tokens_and_unused_lines_have_no_vector(tmp_path):
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "[unused12]", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    tokenizer = tokenizers.load(tmp_path)
    assert static_vectors.with_vectors(tokenizer).tolist() == [0, 2, 6, 8]
    counted = static_vectors.probabilities(np.array([0, 2, 6, 8]), tokenizer, ["cats cat", "x"])
    np.testing.assert_allclose(counted, [0, 0.25, 0.5, 0.25])
    with pytest.raises(UserError, match="frequencies: the texts have none of the pieces"):
        static_vectors.probabilities(np.array([6, 8]), tokenizer, ["", "x"])


@pytest.mark.slow
def test_the_command_writes_a_model_that_encodes_texts(tmp_path):
    teacher = load(tmp_path / "teacher")
    options = (f"--teacher={tmp_path / 'teacher'}", "--static", "--dimensions=5")
    done = commands.run("official.commands.students", *options, f"--output={tmp_path / 'static'}")
    assert "vectors of 5 with " in done.stdout
    model = official.load(tmp_path / "static")
    encoder, tokenizer = model.config.encoder, model.tokenizer
    assert (encoder.hidden_size, encoder.skipped_ids) == (5, tokenizer.special_ids)
    ids = static_vectors.with_vectors(tokenizer)
    vectors, _ = static_vectors.projected(teacher.embedder.pieces(ids), 5)
    vectors *= (1e-4 / (1e-4 + 1 / (np.arange(len(ids)) + 2) / np.sum(
        1 / (np.arange(len(ids)) + 2))))[:, None]  # fmt: skip
    table = np.zeros((tokenizer.vocab_size, 5))
    table[ids] = vectors
    texts = ["The cat sat on a mat.", "", "猫 dog 猫", "a cat and a dog"]
    for text, vector in zip(texts, model.encode(texts), strict=True):
        (found,) = tokenizer.encode([text])
        mean = sum((table[i] for i in found if i != tokenizer.unk_id), np.zeros(5))
        np.testing.assert_allclose(vector, mean / max(np.linalg.norm(mean), 1e-9), atol=1e-5)
    # By the frequencies of a text, in which only some pieces are.
    (tmp_path / "texts.txt").write_text("cat cat\ndog\n")
    more = (f"--frequencies={tmp_path / 'texts.txt'}", "--sif_coefficient=0.01")
    commands.run("official.commands.students", *options, *more, f"--output={tmp_path / 'counted'}")
    counted = official.load(tmp_path / "counted").model.encoder.table.table.numpy()
    pieces = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    plain, _ = static_vectors.projected(teacher.embedder.pieces(ids), 5)
    for piece, p in {"cat": 2 / 3, "dog": 1 / 3, "mat": 0}.items():
        row = plain[list(ids).index(pieces[piece])] * (0.01 / (0.01 + p))
        np.testing.assert_allclose(counted[pieces[piece]], row, atol=1e-6)


@pytest.mark.slow
def test_bad_flags(tmp_path):
    output = tmp_path / "static"
    load(tmp_path / "teacher")
    for flags, message in (
        (["--layers=0"], "--layers: not supported with --static, which keeps all layers"),
        (["--dimensions=many"], "dimensions: 'many' is neither a number nor all"),
    ):
        options = [f"--teacher={tmp_path / 'teacher'}", "--static", f"--output={output}", *flags]
        done = commands.run("official.commands.students", *options)
        assert message in done.stderr
