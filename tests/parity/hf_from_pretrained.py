"""Loads a folder with transformers and answers: FOLDER CLASS INPUTS.npz OUTPUTS.npz TEXTS.json."""

import json
import sys

import numpy as np
import torch
import transformers


def main(folder, name, inputs, outputs, texts):
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info[kind], (kind, info[kind])
    batch = {key: torch.from_numpy(value) for key, value in np.load(inputs).items()}
    with torch.no_grad():
        actual = model.eval()(**batch)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(*json.load(open(texts)), padding=True, return_tensors="np")["input_ids"]
    arrays = {key: value.numpy() for key, value in actual.items()}
    labels = np.array([model.config.id2label[i] for i in range(model.config.num_labels)])
    np.savez(outputs, ids=ids, labels=labels, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
