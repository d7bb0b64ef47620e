"""Reads folders in the layout of the hub by ONNX Runtime and `tokenizers`: PARENT NAME ...

PARENT has `rows.json`, texts or pairs of texts. Writes `NAME.npz` beside each folder, with the
outputs that have one value for each row. Nothing else that reads models is imported.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

SIZE = 8  # of a batch
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
    asked = [given.name for given in session.get_inputs()]
    names = [output.name for output in session.get_outputs() if len(output.shape) == 2]
    found: dict[str, list] = {name: [] for name in names}
    for start in range(0, len(rows), SIZE):
        batch = rows[start : start + SIZE]
        encoded = tokenizer.encode_batch([tuple(r) if isinstance(r, list) else r for r in batch])
        fields = {
            "input_ids": [row.ids for row in encoded],
            "attention_mask": [row.attention_mask for row in encoded],
            "token_type_ids": [row.type_ids for row in encoded],
        }
        given = {name: np.array(fields[name], np.int64) for name in asked}
        for name, values in zip(names, session.run(names, given), strict=True):
            found[name].extend(values)
    return {name: np.stack(values) for name, values in found.items()}


def main() -> None:
    parent = Path(sys.argv[1])
    rows = json.loads((parent / "rows.json").read_text("utf-8"))
    for name in sys.argv[2:]:
        np.savez(parent / f"{name}.npz", **answers(parent / name, rows))
    loaded = {module.partition(".")[0] for module in sys.modules}
    others = loaded & {"tensorflow", "keras", "torch", "transformers", "official"}
    assert not others, others


main()
