"""Makes tests/golden/xlnet: tiny XLNets and Transformer-XLs of transformers, and what they answer.

Each `NAME.npz` has `config` (the text of config.json), `weight/…` (as in model.safetensors), and
for each of the rows that are read one after the other, with the memory of those before, `N/batch/…`
(token_ids, segment_ids, padding_mask and, for two streams, permutation_mask, True = may attend, and
masked_positions), `N/content` [L + 1, B, T, D] with `N/query` [L + 1, B, P, D], `N/memory`
[L, B, M, D], and `N/answer/…`. Only the last row has padding, for transformers does not know which
slots of a memory are padding; one-way XLNet, whose mask it cannot join with that of several rows,
has none.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_xlnet_golden.py [FOLDER]
"""

import json
import os
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.deprecated import transfo_xl  # noqa: E402

LENGTH = 7
ROWS = 3
TARGETS = 3
SIZES = {"vocab_size": 61, "d_model": 18, "n_layer": 3, "n_head": 3, "d_inner": 23}
XLNET = {**SIZES, "initializer_range": 0.25, "mem_len": 5}
TRANSFO_XL = {**SIZES, "d_embed": 18, "d_head": 5, "init_std": 0.25, "proj_init_std": 0.25}
TRANSFO_XL |= {"mem_len": 5, "same_length": False}
LABELS = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}

# Name of the case: class, config, whether there are two streams, number of rows.
CASES = {
    "xlnet_lm": ("XLNetLMHeadModel", {**XLNET, "reuse_len": 4}, True, ROWS),
    "xlnet_backward": (
        "XLNetModel",
        {**XLNET, "bi_data": True, "clamp_len": 3, "ff_activation": "gelu_new"},
        True,
        ROWS,
    ),
    "xlnet_one_way": (
        "XLNetModel",
        {**XLNET, "attn_type": "uni", "mem_len": 9, "clamp_len": 6, "ff_activation": "relu"},
        False,
        ROWS,
    ),
    "xlnet_classification": (
        "XLNetForSequenceClassification",
        {**XLNET, **LABELS, "mem_len": None, "layer_norm_eps": 1e-6, "summary_last_dropout": 0.2},
        False,
        1,
    ),
    "xlnet_regression": (
        "XLNetForSequenceClassification",
        # A key that its network does not look at.
        {**XLNET, "num_labels": 1, "summary_type": "first", "untie_r": False},
        False,
        1,
    ),
    "transfo_xl_plain": (
        "TransfoXLModel",
        {**TRANSFO_XL, "cutoffs": [], "div_val": 1, "clamp_len": 6},
        False,
        ROWS,
    ),
    "transfo_xl_same_length": (
        "TransfoXLModel",
        {**TRANSFO_XL, "cutoffs": [], "div_val": 1, "clamp_len": 4, "same_length": True},
        False,
        ROWS,
    ),
    "transfo_xl_adaptive": (
        "TransfoXLLMHeadModel",
        {**TRANSFO_XL, "cutoffs": [20, 35], "div_val": 2, "clamp_len": -1},
        False,
        ROWS,
    ),
}


def type_as(tensor, other=None, dtype=None):
    """What Transformer-XL calls with a dtype, which torch's method of the name does not take."""
    return tensor.to(other.dtype if dtype is None else dtype)


def make_model(kind, sizes, seed):
    """A model whose biases and scales are random too."""
    torch.manual_seed(seed)
    cls = getattr(transformers if kind.startswith("XLNet") else transfo_xl, kind)
    model = cls(cls.config_class(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases of 0 and scales of 1 would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def padding(kind, config):
    """Which tokens of two examples are real, on both sides as long as nothing is pooled there."""
    real = np.ones((2, LENGTH), bool)
    if not kind.endswith("Classification"):
        real[0, 5:] = real[1, :3] = False
    elif config.summary_type == "last":
        real[0, :1] = real[1, :3] = False
    else:
        real[0, 5:] = real[1, 3:] = False
    return real


def make_batch(config, rng, two_streams, real):
    """Two examples."""
    batch = {"token_ids": rng.integers(5, config.vocab_size, real.shape).astype(np.int32)}
    if config.model_type == "xlnet":
        batch["segment_ids"] = rng.integers(0, 3, real.shape).astype(np.int32)
        if config.attn_type == "bi":
            batch["padding_mask"] = real
    if two_streams:
        batch["masked_positions"] = np.stack(
            [rng.permutation(np.flatnonzero(row))[:TARGETS] for row in real]
        ).astype(np.int32)
        rank = np.stack([rng.permutation(LENGTH) for _ in real])
        # What is no target comes first, as in pretraining: so no query has nothing to see.
        targets = np.zeros((2, LENGTH), bool)
        np.put_along_axis(targets, batch["masked_positions"], True, axis=1)
        rank = np.where(targets, rank, -1)
        batch["permutation_mask"] = (rank[:, None, :] < rank[:, :, None]) | ~targets[:, None, :]
    return batch


def inputs_of(batch):
    """The names and meanings of transformers."""
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids"}
    inputs = {names[key]: torch.from_numpy(batch[key]).long() for key in names if key in batch}
    if "padding_mask" in batch:
        inputs["attention_mask"] = torch.from_numpy(batch["padding_mask"]).float()
    if "permutation_mask" in batch:
        inputs["perm_mask"] = torch.from_numpy(~batch["permutation_mask"]).float()
        places = torch.from_numpy(batch["masked_positions"]).long()
        inputs["target_mapping"] = torch.nn.functional.one_hot(places, LENGTH).float()
    return inputs


def row(model, batch, memory, two_streams):
    """The outputs for one row of each example, and its memory."""
    inputs = inputs_of(batch) | {"mems": memory, "output_hidden_states": True}
    if model.config.model_type == "xlnet":
        inputs["use_mems"] = True
    with torch.no_grad():
        outputs = dict(model(**inputs))
    states = outputs.pop("hidden_states")
    memory = outputs.pop("mems")
    actual = {
        "content": torch.stack(states[:: 2 if two_streams else 1]).numpy(),
        "memory": torch.stack(memory).transpose(1, 2).numpy(),
    }
    if two_streams:
        actual["query"] = torch.stack(states[1::2]).numpy()
    outputs.pop("losses", None)
    return actual | {f"answer/{key}": value.numpy() for key, value in outputs.items()}, memory


def case(name, seed):
    """Everything that is compared."""
    kind, sizes, two_streams, count = CASES[name]
    model = make_model(kind, sizes, seed)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = safetensors.numpy.load_file(Path(folder) / "model.safetensors")
        config = json.loads((Path(folder) / "config.json").read_text())
    stored = {
        "config": np.array(json.dumps(config)),
        **{f"weight/{name}": array for name, array in weights.items()},
    }
    memory = None
    for i in range(count):
        real = np.ones((2, LENGTH), bool)
        if i + 1 == count and getattr(model.config, "attn_type", "uni") == "bi":
            real = padding(kind, model.config)
        batch = make_batch(model.config, rng, two_streams, real)
        actual, memory = row(model, batch, memory, two_streams)
        actual |= {f"batch/{key}": array for key, array in batch.items()}
        stored |= {f"{i}/{key}": array for key, array in actual.items()}
    return stored


def main():
    """Writes the files."""
    default = Path(__file__).parent / "xlnet"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.Tensor.type_as = type_as
    for name in CASES:
        seed = zlib.crc32(name.encode())  # the same whichever cases there are
        np.savez_compressed(folder / f"{name}.npz", **case(name, seed))


if __name__ == "__main__":
    main()
