"""ELECTRA's two networks: as folders of transformers, as the TF1 release, as one model of ours."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from official.conversion import converted_model, huggingface, tf1
from official.saving import model_folder
from official.utils.errors import UserError
from tests.official.conversion import systems
from tests.official.conversion.test_convert_tf1 import save

TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
SHARED = [f"electra.embeddings.{table}.weight" for table in TABLES]
SHARED += [f"electra.embeddings.LayerNorm.{kind}" for kind in ("weight", "bias")]


def both(folder, shared, **changes):
    """A discriminator's folder with the generator's inside; `shared` tensors are the same."""
    config, parts, _ = systems.load("electra_discriminator")
    small_config, small, _ = systems.load("electra_generator")
    weights = dict(small["weight"])
    for name in shared:
        weights[name] = parts["weight"][name]
    systems.write(folder, config, parts["weight"])
    systems.write(folder / "generator", {**small_config, **changes}, weights)
    return parts["weight"], weights


@pytest.mark.parametrize(
    ("shared", "sharing", "own"),
    [(SHARED, "embeddings", 0), (SHARED[:1], "token", 4)],
)
def test_two_folders_become_one_model_and_two_again(tmp_path, shared, sharing, own):
    weights, small = both(tmp_path / "hf", shared)
    converted = huggingface.read(tmp_path / "hf")
    assert converted.leftover == []
    objective, question = converted.config.objectives
    assert (objective.sharing, objective.num_layers, objective.size) == (sharing, 3, 0.4)
    assert question.weight == 50.0
    assert converted.config.corruption.mask_prob == 0.85
    assert converted.config.segments.relation == "none"
    names = [path for path in converted.variables if path.startswith("generator/encoder/emb")]
    assert len(names) == own + 2  # and the projection
    converted_model.write(converted, tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    _, parts, hidden_states = systems.load("electra_discriminator")
    assert systems.compare_encoder(model.encoder, parts, hidden_states).keys() == {"logits"}
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    for folder, expected in (("out", weights), ("out/generator", small)):
        written = safetensors.numpy.load_file(tmp_path / folder / "model.safetensors")
        assert written.keys() == expected.keys()
        for name, array in expected.items():
            assert written[name].tobytes() == array.tobytes(), name
        assert (tmp_path / folder / "vocab.txt").exists()
    described = json.loads((tmp_path / "out" / "generator" / "config.json").read_text())
    assert described["architectures"] == ["ElectraForMaskedLM"]
    assert (described["hidden_size"], described["embedding_size"]) == (6, 10)


def test_the_generator_inside_gives_its_answers(tmp_path):
    weights, small = both(tmp_path / "hf", SHARED)
    converted_model.write(huggingface.read(tmp_path / "hf"), tmp_path / "model")
    joined = model_folder.restore(tmp_path / "model")[2]
    converted_model.write(huggingface.read(tmp_path / "hf" / "generator"), tmp_path / "alone")
    alone = model_folder.restore(tmp_path / "alone")[2]
    batch = systems.load("electra_generator")[1]["batch"]
    expected = alone.encode(batch)["sequence_output"]
    objective = joined.objectives[0]
    actual = systems.run(objective.generator, batch)["sequence_output"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    rows = np.asarray(expected).reshape(-1, expected.shape[-1])
    np.testing.assert_allclose(
        objective.head.logits(rows, objective.generator),
        alone.objectives[0].logits(rows, alone.encoder),
        rtol=0, atol=1e-5,
    )  # fmt: skip


def test_a_generator_of_another_shape_is_refused_with_both_values(tmp_path):
    both(tmp_path / "hf", SHARED, num_attention_heads=3)
    with pytest.raises(
        UserError,
        match=r"generator: num_heads is 3, where a generator with 0\.4 of the discriminator's "
        "hidden size that shares embeddings has 1: convert the two separately",
    ):
        huggingface.read(tmp_path / "hf")


def test_a_folder_of_another_model_is_no_generator(tmp_path):
    both(tmp_path / "hf", SHARED)
    config, parts, _ = systems.load("distilbert_bare")
    shutil.rmtree(tmp_path / "hf" / "generator")
    systems.write(tmp_path / "hf" / "generator", config, parts["weight"])
    with pytest.raises(
        UserError, match="generator: model_type 'distilbert' is not the generator of"
    ):
        huggingface.read(tmp_path / "hf")


def test_heads_of_the_generator_have_the_erf_form_of_gelu(tmp_path):
    config, parts, _ = systems.load("electra_generator")
    folder = systems.write(tmp_path / "hf", {**config, "hidden_act": "relu"}, parts["weight"])
    with pytest.raises(UserError, match="hidden_act: 'relu' is not supported with the head"):
        huggingface.read(folder)


def release_tensors(hidden_size=128, small_size=64, own_embeddings=False):
    """Random tensors under the names of the release, written out by hand."""
    rng = np.random.default_rng(0)
    tensors = {}

    def add(name, *shape):
        tensors[name] = (rng.standard_normal(shape) * 0.2).astype(np.float32)

    def dense(name, inner, outer):
        add(f"{name}/kernel", inner, outer)
        add(f"{name}/bias", outer)

    def norm(name, size):
        add(f"{name}/LayerNorm/beta", size)
        add(f"{name}/LayerNorm/gamma", size)

    def embeddings(scope, size):
        add(f"{scope}/embeddings/word_embeddings", 9, size)
        add(f"{scope}/embeddings/position_embeddings", 8, size)
        add(f"{scope}/embeddings/token_type_embeddings", 2, size)
        norm(f"{scope}/embeddings", size)

    def network(scope, embedding_size, size):
        if embedding_size != size:
            dense(f"{scope}/embeddings_project", embedding_size, size)
        for i in range(2):
            layer = f"{scope}/encoder/layer_{i}"
            for part in ("query", "key", "value"):
                dense(f"{layer}/attention/self/{part}", size, size)
            dense(f"{layer}/attention/output/dense", size, size)
            norm(f"{layer}/attention/output", size)
            dense(f"{layer}/intermediate/dense", size, 2 * size)
            dense(f"{layer}/output/dense", 2 * size, size)
            norm(f"{layer}/output", size)

    embeddings("electra", hidden_size)
    network("electra", hidden_size, hidden_size)
    dense("discriminator_predictions/dense", hidden_size, hidden_size)
    dense("discriminator_predictions/dense_1", hidden_size, 1)
    own = small_size if own_embeddings else hidden_size
    if own_embeddings:
        embeddings("generator", own)
    network("generator", own, small_size)
    dense("generator_predictions/dense", small_size, own)
    norm("generator_predictions", own)
    add("generator_predictions/output_bias", 9)
    return tensors


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "electra_tiny"
    folder.mkdir()
    pieces = [*systems.SPECIALS, "the", "cat", "sat", "##s"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


@pytest.mark.parametrize("own", [False, True])
def test_the_release_comes_in_with_both_networks(release, tmp_path, own):
    tensors = release_tensors(own_embeddings=own)
    save(release, tensors, "electra_tiny")
    converted = tf1.read(release)
    assert converted.leftover == []
    encoder = converted.config.encoder
    assert (encoder.num_heads, encoder.num_layers, encoder.activation) == (2, 2, "gelu")
    objective, _ = converted.config.objectives
    assert objective.sharing == ("none" if own else "embeddings")
    converted_model.write(converted, tmp_path / "model")
    variables = model_folder.restore(tmp_path / "model")[2].variables_by_path()
    scope = "generator" if own else "electra"
    places = {
        "encoder/embeddings/token_embedding/table": "electra/embeddings/word_embeddings",
        "encoder/layer_1/feed_forward/inner/kernel": (
            "electra/encoder/layer_1/intermediate/dense/kernel"
        ),
        "replaced_tokens/transform/kernel": "discriminator_predictions/dense/kernel",
        "replaced_tokens/output/kernel": "discriminator_predictions/dense_1/kernel",
        "replaced_tokens/output/bias": "discriminator_predictions/dense_1/bias",
        "generator/encoder/layer_0/attention/output/bias": (
            "generator/encoder/layer_0/attention/output/dense/bias"
        ),
        "generator/encoder/layer_1/feed_forward_norm/scale": (
            "generator/encoder/layer_1/output/LayerNorm/gamma"
        ),
        "generator/masked_lm/transform/bias": "generator_predictions/dense/bias",
        "generator/masked_lm/norm/offset": "generator_predictions/LayerNorm/beta",
        "generator/masked_lm/output_bias": "generator_predictions/output_bias",
    }
    if own:
        table = "generator/encoder/embeddings/position_embedding/table"
        places[table] = f"{scope}/embeddings/position_embeddings"
    else:
        places["generator/encoder/embeddings/projection/kernel"] = (
            "generator/embeddings_project/kernel"
        )
    for path, name in places.items():
        np.testing.assert_array_equal(variables[path], tensors[name], err_msg=path)
    # Each tensor has one place: query, key and value are one here.
    assert len(variables) == len(tensors) - 4 * 2 * 2


def test_a_discriminator_of_the_release_comes_in_alone(release):
    tensors = {
        name: array for name, array in release_tensors().items() if not name.startswith("generator")
    }
    save(release, {**tensors, "task/kernel": np.zeros(3, np.float32)}, "electra_tiny")
    converted = tf1.read(release)
    assert [objective.type for objective in converted.config.objectives] == ["replaced_tokens"]
    assert converted.leftover == ["task/kernel"]


def test_a_release_that_is_not_whole_or_has_other_heads_is_refused(release):
    tensors = release_tensors(hidden_size=96)
    save(release, tensors, "electra_tiny")
    with pytest.raises(
        UserError, match="the hidden size 96 is not a multiple of 64, the size of a"
    ):
        tf1.read(release)
    del tensors["electra/embeddings/position_embeddings"]
    save(release, tensors, "electra_tiny")
    with pytest.raises(UserError, match="lacks the tensor electra/embeddings/position_embeddings"):
        tf1.read(release)
