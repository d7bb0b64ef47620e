"""Trains small models under JAX on one of 8 virtual devices and split over all of them.

It prints {name of a model: {mesh: what was found}} as JSON, which `test_layouts.py` compares.
"""

import json
import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import jax
import keras
import numpy as np

import official.keras_layers as garden

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

# A vocabulary that 4 does not divide, and heads of which 2 and 4 devices have no whole number.
SIZES = {"vocab_size": 34, "hidden_size": 24, "num_layers": 1, "num_heads": 3}
SIZES |= {"intermediate_size": 40}
# Pre-norm, RoPE, a gate, grouped heads, and vectors of another size.
MODERN = {"norm": "pre", "norm_type": "rms", "positions": "rotary", "gated": True}
MODERN |= {"num_key_value_heads": 1, "embedding_size": 16, "use_bias": False}
CONFIGS = {
    "BERT": garden.TransformerConfig(**SIZES, max_positions=9, pooler=False),
    "modern": garden.TransformerConfig(**SIZES, **MODERN, pooler=False),
    "XLNet": garden.TransformerXLConfig(**SIZES, memory_length=0),
    "T5": garden.EncoderDecoderConfig(**SIZES),
    "ELMo": garden.BilmConfig(
        vocab_size=34, tokens="words", cell_size=16, projection_size=8, num_layers=1
    ),
}
KINDS = {
    "transformer": garden.TransformerEncoder,
    "transformer_xl": garden.TransformerXLEncoder,
    "encoder_decoder": garden.EncoderDecoder,
    "bilm": garden.BilmEncoder,
}
# {name: (shape, names of the axes, arguments of `layout_map`)}.
MESHES = {
    "2x4": ((2, 4), ("batch", "model"), {}),
    "4x2": ((4, 2), ("batch", "model"), {}),
    "2x4 fsdp": ((2, 4), ("batch", "model"), {"fsdp": True}),
    "8 fsdp": ((8,), ("batch",), {"model": None, "fsdp": True}),
}
CASES = [("BERT", mesh) for mesh in MESHES]
CASES += [("modern", "2x4 fsdp"), ("XLNet", "4x2"), ("T5", "2x4 fsdp")]
CASES += [("ELMo", "2x4 fsdp")]
LENGTH = 8


def data(config):
    """16 rows with padding at the end, at the start and on both sides, and labels of each token."""
    rng = np.random.default_rng(0)
    place = np.arange(LENGTH)
    first = np.array([0, 2, 1, 0] * 4)[:, None]
    last = np.array([8, 8, 6, 5] * 4)[:, None]
    fields = {
        "token_ids": rng.integers(0, 34, (16, LENGTH)).astype("int32"),
        "padding_mask": (first <= place) & (place < last),
    }
    if "decoder_ids" in config.batch_fields:
        fields["decoder_ids"] = rng.integers(0, 34, (16, LENGTH)).astype("int32")
    labels = rng.integers(0, 34, (16, LENGTH)).astype("int32")
    return fields, labels, fields["padding_mask"].astype("float32")


def train(config, seed=0):
    """Three epochs of two steps; returns losses, weights by path and the bytes on a device."""
    keras.utils.set_random_seed(1)
    fields, labels, weights = data(config)
    encoder = KINDS[config.type](config, seed=seed)
    inputs = {
        name: keras.Input((LENGTH,), dtype=str(x.dtype), name=name) for name, x in fields.items()
    }
    outputs = encoder(**inputs)
    states = outputs.get("decoder_output", outputs["sequence_output"])
    model = keras.Model(inputs, keras.layers.Dense(32, name="head")(states))
    model.compile(
        # With a small epsilon, updates would have the signs of gradients that are but rounding.
        keras.optimizers.AdamW(1e-2, epsilon=1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(
        fields, labels % 32, sample_weight=weights, batch_size=8, epochs=3, shuffle=False, verbose=0
    )
    return {
        "losses": history.history["loss"],
        "weights": {v.path: np.asarray(v.value).tolist() for v in model.weights},
        "encoder_bytes": on_device(encoder.weights),
        "optimizer_bytes": on_device(model.optimizer.variables),
        "devices": sorted({len(v.value.sharding.device_set) for v in encoder.weights}),
    }


def rows_of_states(config):
    """The axis over which the rows of computed states are split."""
    encoder = KINDS[config.type](config)
    fields, _, _ = data(config)
    fields = {
        name: keras.distribution.distribute_tensor(
            x, keras.distribution.distribution().get_data_layout(x.shape)
        )
        for name, x in fields.items()
    }
    states = jax.jit(lambda fields: encoder(**fields)["sequence_output"])(fields)
    return states.sharding.spec[0]


def on_device(variables):
    """The bytes of variables on the first device."""
    first = jax.devices()[0]
    return sum(
        shard.data.nbytes
        for variable in variables
        for shard in variable.value.addressable_shards
        if shard.device == first
    )


def train_split(config, mesh_name):
    """Like `train`, with the weights split over the devices."""
    shape, axes, options = MESHES[mesh_name]
    mesh = keras.distribution.DeviceMesh(shape, axes)
    layout = garden.layout_map(mesh, config, **options)
    parallel = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    with parallel.scope():
        found = train(config)
        if mesh_name == "8 fsdp":
            found["rows"] = rows_of_states(config)
    found["planned"] = 4 * garden.device_weights(mesh, config, **options).device
    return found


if __name__ == "__main__":
    result = {name: {"one device": train(config)} for name, config in CONFIGS.items()}
    result["BERT"]["another seed"] = train(CONFIGS["BERT"], seed=1)
    for name, mesh in CASES:
        result[name][mesh] = train_split(CONFIGS[name], mesh)
    print(json.dumps(result))
