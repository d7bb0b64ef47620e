"""Folders and rows from what `make_xlnet_golden.py` stored, and how they are compared."""

import json

import numpy as np

from official.modeling.encoders import inputs
from tests.official.conversion import systems

GOLDEN = systems.GOLDEN / "xlnet"
CLOSE = dict(rtol=0, atol=1e-5)


def load(name, folder=GOLDEN):
    """One case: its config, its weights, and its rows, each a dict with `batch` and `answer`."""
    weights, rows = {}, {}
    with np.load(folder / f"{name}.npz") as file:
        for key in file:
            first, _, rest = key.partition("/")
            if first == "weight":
                weights[rest] = file[key]
            elif rest:
                row = rows.setdefault(int(first), {"batch": {}, "answer": {}})
                kind, _, field = rest.partition("/")
                if field:
                    row[kind][field] = file[key]
                else:
                    row[kind] = file[key]
        return json.loads(str(file["config"])), weights, [rows[i] for i in sorted(rows)]


def memory_of(config, row):
    """Our memory before a row: theirs after the row before it, at the end of M slots."""
    if not config.memory_length:
        return {}
    shape = (2, config.num_layers, config.memory_length, config.hidden_size)
    memory, there = np.zeros(shape, np.float32), np.zeros((2, config.memory_length), bool)
    if row is not None:
        theirs = np.swapaxes(row["memory"], 0, 1)
        slots = min(theirs.shape[2], config.memory_length)
        memory[:, :, -slots:], there[:, -slots:] = theirs[:, :, -slots:], True
    elif not config.query_stream:
        there[:] = True  # Transformer-XL begins with zeros that it attends to.
    return {"memory": memory, "memory_mask": there}


def encode(encoder, rows, i, backward):
    """What the encoder makes of row `i`, with the memory that transformers had."""
    batch = rows[i]["batch"] | memory_of(encoder.config, rows[i - 1] if i else None)
    if backward:
        batch["backward"] = np.array([False, True])
    return inputs.encode(encoder, batch, output_all=True)


def compare(encoder, config, rows):
    """Asserts that all states and memories agree within 1e-5."""
    backward = config.get("bi_data", False)
    for i, row in enumerate(rows):
        encoded = encode(encoder, rows, i, backward)
        real = row["batch"].get("padding_mask", np.ones((2, 7), bool))
        content = np.stack(encoded["hidden_states"])
        assert content.shape == row["content"].shape
        np.testing.assert_allclose(content[:, real], row["content"][:, real], **CLOSE)
        if "query" in row:
            np.testing.assert_allclose(np.stack(encoded["query_states"]), row["query"], **CLOSE)
        if encoder.config.memory_length and real.all():
            slots = min(row["memory"].shape[2], encoder.config.memory_length)
            ours = np.swapaxes(encoded["memory"], 0, 1)[:, :, -slots:]
            np.testing.assert_allclose(ours, row["memory"][:, :, -slots:], **CLOSE)
        if "last_hidden_state" in row["answer"]:
            name = "query_output" if "query" in row else "sequence_output"
            there = slice(None) if "query" in row else real
            expected = row["answer"]["last_hidden_state"]
            np.testing.assert_allclose(encoded[name].numpy()[there], expected[there], **CLOSE)
    assert [row["batch"].get("padding_mask", np.ones(1)).all() for row in rows[:-1]].count(0) == 0


def write(folder, config, weights):
    """The folder of the model with a small vocabulary of its kind."""
    return systems.write(folder, config, weights)
