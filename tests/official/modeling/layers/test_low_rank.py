"""Low-rank updates of kernels, against kernels that are computed by hand."""

import numpy as np
import pytest

from official.config.trainable import LoRA
from official.modeling.layers import low_rank
from official.modeling.model import Model
from official.saving import named_arrays
from official.utils.errors import UserError
from tests import small

SIZES = {
    "vocab_size": 20, "hidden_size": 8, "num_layers": 2, "num_heads": 2, "intermediate_size": 12,
    "initializer_range": 0.3,
}  # fmt: skip
ENCODERS = {
    "transformer": {"type": "transformer", **SIZES},
    "albert": {"type": "transformer", **SIZES, "layer_groups": 1},
    "deberta": {
        "type": "transformer", **SIZES, "positions": "none", "segment_types": 0,
        "disentangled": {"buckets": 4, "max_distance": 6}, "convolution": {},
    },
    "modernbert": {
        "type": "transformer", **SIZES, "positions": "rotary", "gated": True, "use_bias": False,
        "local_attention": {"window": 2, "global_every": 2}, "norm": "pre", "segment_types": 0,
    },
    "grouped": {"type": "transformer", **SIZES, "num_heads": 4, "num_key_value_heads": 2},
    "transformer_xl": {
        "type": "transformer_xl",
        **SIZES,
        "memory_length": 3,
        "pooler": True,
        "pooled_position": "first",
    },
    "encoder_decoder": {"type": "encoder_decoder", **SIZES, "gated": True},
}  # fmt: skip
IDS = np.array([[2, 7, 9, 3, 0, 0], [2, 5, 6, 11, 12, 3]], np.int32)
MASK = IDS > 0
# The rows of the query stream, and a memory: keys that are projected with a part of the kernel.
QUERIES = {
    "permutation_mask": np.tril(np.ones((2, 6, 6), bool), -1),
    "query_positions": np.array([[1, 3], [4, 2]], np.int32),
    "memory": np.random.default_rng(0).normal(size=(2, 2, 3, 8)).astype(np.float32),
}


def make(name, lora=None):
    settings = small.config(
        segments=None,
        corruption=None,
        encoder=ENCODERS[name],
        objectives=[{"type": "classification", "num_labels": 2, "pooling": "first"}],
    )
    return Model(settings, lora=lora)


def encode(name, model):
    """All outputs of the encoder that depend on its kernels."""
    more = {"transformer": {"read_positions": np.array([[1, 2], [3, 4]], np.int32)}}
    more |= {"transformer_xl": QUERIES, "encoder_decoder": {"decoder_ids": IDS[:, ::-1]}}
    outputs = [model.encoder(IDS, padding_mask=MASK)]
    outputs.append(model.encoder(IDS, padding_mask=MASK, **more.get(name, {})))
    names = "sequence_output pooled_output query_output decoder_output".split()
    return [np.array(each[x]) for each in outputs for x in names if x in each]


def kernel_of(path):
    return f"{path.rsplit('/', 2)[0]}/kernel"


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("transformer", ["query", "value"]),
        ("transformer", ["key", "output", "inner", "outer"]),
        ("albert", ["query", "value"]),
        ("deberta", ["query", "key"]),  # which map the distances as well
        ("modernbert", ["query", "value", "gate"]),
        ("grouped", ["query", "value", "output"]),
        ("transformer_xl", ["query", "key", "value", "outer"]),
        ("encoder_decoder", ["query", "value", "gate"]),
    ],
)
def test_a_kernel_is_its_sum_with_the_update(name, targets):
    """W + alpha / r A B in the columns of each target, by loops over these columns."""
    lora = LoRA(rank=2, alpha=6.0, targets=tuple(targets))
    plain, model = make(name), make(name, lora)
    for expected, actual in zip(encode(name, plain), encode(name, model), strict=True):
        np.testing.assert_array_equal(actual, expected)  # B is 0

    variables, kernels = model.variables_by_path(), plain.variables_by_path()
    rng = np.random.default_rng(1)
    updates = [path for path in variables if low_rank.is_update(path)]
    for path in updates:
        variables[path].assign(rng.normal(size=variables[path].shape, scale=0.3))
    expected = {path: variable.numpy().astype(np.float64) for path, variable in kernels.items()}
    for path in updates:
        target = path.split("/lora_")[1].removesuffix("/a")
        if path.endswith("/b"):
            continue
        a, b = (variables[path[:-1] + x].numpy().astype(np.float64) for x in "ab")
        joined = path.split("/")[-3].split("_")
        place = joined.index(target) if len(joined) > 1 else 0
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                total = sum(a[i, k] * b[k, j] for k in range(2))
                expected[kernel_of(path)][i, place * b.shape[1] + j] += 3.0 * total
    for path, value in expected.items():
        kernels[path].assign(value)
    assert {path.split("/lora_")[1][:-2] for path in updates} == set(targets)
    for one, other in zip(encode(name, plain), encode(name, model), strict=True):
        assert np.abs(one).max() > 0.1
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)

    arrays = named_arrays.values(variables)
    merged = low_rank.merged(arrays, lora.factor)
    assert merged.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(merged[path], value, atol=1e-6, err_msg=path)


def test_the_number_of_weights_of_updates():
    """Of a target [I, O]: r (I + O), in each layer."""
    lora = LoRA(rank=3, targets=("query", "inner"))
    count = lambda model: sum(np.prod(v.shape) for v in model.variables)  # noqa: E731
    assert count(make("transformer", lora)) - count(make("transformer")) == 2 * 3 * (16 + 20)


def test_targets_that_an_encoder_lacks_are_named():
    with pytest.raises(UserError, match=r"lora.targets: gate: the encoder has no such kernel"):
        make("transformer", LoRA(targets=("query", "gate")))
