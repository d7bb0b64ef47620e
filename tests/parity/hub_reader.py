"""Reads folders in the layout of the hub by ONNX Runtime and `tokenizers`: PARENT NAME ...

PARENT has `rows.json`, texts or pairs of texts, with the choices of a row together. Writes
`NAME.npz` beside each folder, with the outputs of all rows, and of their tokens without padding.
Nothing else that reads models is imported.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

SIZE = 6  # of a batch
CHOICES = 3
WIDER = 8  # rows are padded to a multiple of this length


def answers(folder: Path, rows: list) -> dict[str, np.ndarray]:
    config, settings, tokens = (
        json.loads((folder / f"{name}.json").read_text("utf-8"))
        for name in ("config", "tokenizer_config", "special_tokens_map")
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(settings["model_max_length"])
    tokenizer.enable_padding(
        pad_id=config["pad_token_id"], pad_token=tokens["pad_token"], pad_to_multiple_of=WIDER
    )
    session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"))
    asked = session.get_inputs()
    outputs = {output.name: output.shape for output in session.get_outputs()}
    found: dict[str, list] = {name: [] for name in outputs}
    for start in range(0, len(rows), SIZE):
        batch = rows[start : start + SIZE]
        encoded = tokenizer.encode_batch([tuple(r) if isinstance(r, list) else r for r in batch])
        fields = {
            "input_ids": [row.ids for row in encoded],
            "attention_mask": [row.attention_mask for row in encoded],
            "token_type_ids": [row.type_ids for row in encoded],
        }
        given = {each.name: np.array(fields[each.name], np.int64) for each in asked}
        mask = given["attention_mask"].astype(bool)
        if len(asked[0].shape) == 3:
            given = {name: ids.reshape(-1, CHOICES, ids.shape[1]) for name, ids in given.items()}
        for name, values in zip(outputs, session.run(list(outputs), given), strict=True):
            of_tokens = "sequence_length" in outputs[name]
            found[name].append(values[mask] if of_tokens else values)
    return {name: np.concatenate(values) for name, values in found.items()}


def main() -> None:
    parent = Path(sys.argv[1])
    rows = json.loads((parent / "rows.json").read_text("utf-8"))
    for name in sys.argv[2:]:
        np.savez(parent / f"{name}.npz", **answers(parent / name, rows))
    loaded = {module.partition(".")[0] for module in sys.modules}
    others = loaded & {"tensorflow", "keras", "torch", "transformers", "official"}
    assert not others, others


main()
