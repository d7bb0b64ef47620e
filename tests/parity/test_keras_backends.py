"""The same layers give the same numbers under Keras' JAX and PyTorch backends.

One process a backend computes all encoders and objectives: outputs, losses, predictions, and with
dropout losses and gradients.
"""

import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import official
from official.config.encoders import (
    BilmConfig,
    Convolution,
    Disentangled,
    EncoderDecoderConfig,
    LocalAttention,
    TransformerXLConfig,
)
from official.config.registry import OBJECTIVES
from official.utils import strict
from tests.official.keras_layers import test_text
from tests.official.modeling.test_model import BATCH, ENCODER
from tests.parity import keras_backend

SIZES = {"vocab_size": 29, "hidden_size": 12, "num_layers": 2, "num_heads": 3}
SIZES |= {"intermediate_size": 20}
XL = TransformerXLConfig(**SIZES, memory_length=3, pooler=True)
ELMO = BilmConfig(
    vocab_size=29,
    num_layers=1,
    cell_size=5,
    projection_size=6,
    filters=((1, 3), (2, 4)),
    character_size=3,
)


def change(config, **changes):
    return dataclasses.replace(config, **changes)


CAUSAL = change(ENCODER, norm="pre", causal=True, pooled_position="last", activation="silu")


def of(kind, **options):
    return OBJECTIVES[kind](**options)


POOLED = (
    of("masked_lm"),
    of("sentence_pair"),
    of("classification", num_labels=3),
    of("regression"),
)
TAGS = of("token_classification", num_labels=3, crf=True, bilstm=5)
DEBERTA = change(
    ENCODER, num_layers=3, positions="none", segment_types=0, activation="gelu", pooler=False,
    disentangled=Disentangled(4, 6), convolution=Convolution(),
)  # fmt: skip
MODERN = change(
    ENCODER, num_layers=3, positions="rotary", local_attention=LocalAttention(2, 2), norm="pre",
    gated=True, activation="gelu", use_bias=False, norm_bias=False, norm_embeddings=True,
    first_norm=False, segment_types=0, pooler=False,
)  # fmt: skip
FORMS = {
    "BERT": (ENCODER, (*POOLED, TAGS)),
    "DeBERTa, v1": (
        change(ENCODER, disentangled=Disentangled(0, 5, own_projections=True)),
        (of("masked_lm", enhanced_mask_decoder=True),),
    ),
    "DeBERTa": (
        DEBERTA,
        (
            of("generator", num_layers=2, sharing="gdes", enhanced_mask_decoder=True),
            of("replaced_tokens", form="deberta"),
        ),
    ),
    "ModernBERT": (
        MODERN,
        (of("masked_lm"), of("classification", num_labels=3, pooling="mean", transform=True)),
    ),
    "ELECTRA, ALBERT": (
        change(ENCODER, layer_groups=1, embedding_size=6, activation="relu"),
        (of("generator", size=0.5, num_layers=1), of("replaced_tokens")),
    ),
    "GPT-2": (
        change(CAUSAL, adapter_size=4),
        (of("causal_lm"), of("classification", num_labels=3)),
    ),
    "XLNet": (XL, POOLED),
    "Transformer-XL": (
        change(
            XL,
            num_layers=1,
            attention="uni",
            clamp_length=2,
            untie_biases=False,
            query_stream=False,
            segment_types=0,
        ),
        POOLED,
    ),
    "T5": (EncoderDecoderConfig(**SIZES | {"num_layers": 1}), (of("seq2seq_lm", z_loss=1e-4),)),
    "ELMo": (change(ELMO, memory_length=0), (of("bilm", samples=7),)),
    "ELMo, sentences": (ELMO, (TAGS,)),
}


def batch_of(name, config):
    """With all that the encoder and the objectives read."""
    rng = np.random.default_rng(1)
    more = {"row_seeds": np.array([[1, 2], [-3, 4]], "int32")}
    for ids in ("target_ids", "backward_target_ids"):
        more[ids] = rng.integers(0, 29, (2, 8)).astype("int32")
    more["target_mask"] = np.arange(8) < np.array([[7], [4]])
    more["tag_ids"] = rng.integers(-1, 3, (2, 8)).astype("int32")
    more["word_ids"] = np.cumsum(more["tag_ids"] >= 0, axis=1).astype("int32") - 1
    if config.type == "transformer_xl":
        memory = rng.standard_normal((2, config.num_layers, config.memory_length, 12))
        more["memory"] = memory.astype("float32")
        more["memory_mask"] = np.array([[0, 1, 1], [1, 1, 1]], bool)
        more["backward"] = np.array([True, False])
        if config.query_stream:
            more["permutation_mask"] = rng.random((2, 8, 8)) < 0.5
    if config.type == "bilm":
        more["character_ids"] = rng.integers(0, 262, (2, 8, 6)).astype("int32")
        more["padding_mask"] = np.arange(8) < np.array([[6], [8]])
        if name == "ELMo":
            characters = rng.integers(0, 262, (2, 8, 6)).astype("int32")
            more["backward_character_ids"] = characters
    return BATCH | more


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A folder of the models and their batches, and what TensorFlow computes of each."""
    folder, found = tmp_path_factory.mktemp("backends"), {}
    for name, (encoder, objectives) in FORMS.items():
        rng, batch = np.random.default_rng(0), batch_of(name, encoder)
        config = {"encoder": encoder, "objectives": list(objectives)}
        config = json.loads(json.dumps(strict.to_dict(config)))
        shapes = keras_backend.shapes(config)
        variables = {path: 0.2 * rng.standard_normal(shape) for path, shape in shapes.items()}
        variables = {p: x + 1 if p.endswith("scale") else x for p, x in variables.items()}
        found[name] = keras_backend.results(keras_backend.build(config, variables), batch)
        np.savez(
            folder / f"{name}.npz",
            config=json.dumps(config),
            **{f"variable/{path}": x for path, x in variables.items()},
            **{f"batch/{field}": x for field, x in batch.items()},
        )
    return folder, found


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_outputs_losses_and_gradients(request, ours, backend):
    folder, found = ours
    environment = request.getfixturevalue({"torch": "hf", "jax": "jax"}[backend])
    environment.run(Path(__file__).parent / "keras_backend.py", backend, folder)
    for form, expected in found.items():
        with np.load(folder / backend / f"{form}.npz") as file:
            theirs = dict(file)
        assert theirs.keys() == expected.keys(), form
        for name, value in expected.items():
            scale = max(1.0, np.abs(value).max()) if "gradient" in name else 1.0
            message = f"{backend}, {form}: {name}"
            np.testing.assert_allclose(
                theirs[name], value, rtol=0, atol=1e-5 * scale, err_msg=message
            )


def test_the_page_of_keras_runs_under_jax(jax, tmp_path):
    folder = test_text.write(tmp_path / "run" / "pretrained")
    (tmp_path / "page.py").write_text(test_text.code()[1])
    printed = jax.run("jax_page.py", tmp_path)
    found = json.loads(printed.splitlines()[-1])
    # What JAX saved, TensorFlow loads.
    model = keras.models.load_model(tmp_path / "jax.keras")
    _, preprocess = official.keras_encoder(folder, max_length=16, pad=True)
    scores = model(preprocess(found["texts"]))
    np.testing.assert_allclose(scores, found["scores"], rtol=0, atol=1e-5)
    # A step of Adam moves a weight by its learning rate at most, and the first one by all of it.
    steps, rate = len(found["losses"]), 5e-5
    encoder, _ = official.keras_encoder(folder)
    moved = [
        np.abs(keras.ops.convert_to_numpy(new - old)).max()
        for new, old in zip(model.get_layer("encoder").weights, encoder.weights, strict=True)
    ]
    assert steps == 5 and rate * 0.9 < max(moved) < 1.5 * steps * rate
