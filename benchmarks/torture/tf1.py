"""A model folder of ours as a folder of the TF1 release of BERT."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.convert import bert, mapping
from official.saving import model_folder


def write(model_dir: Path, folder: Path) -> None:
    """Writes bert_config.json, vocab.txt and `bert_model.ckpt` into a folder."""
    config, tokenizer, model = model_folder.restore(model_dir, "last")
    system = bert.BERT.of_release()
    heads = ["masked_lm", "next_sentence"]
    variables = {path: np.asarray(value) for path, value in model.variables_by_path().items()}
    tensors = mapping.take_out(system.rows(config.encoder, heads), variables)
    described = bert.BERT.huggingface_config(config, heads)
    keys = [*bert.BERT.encoder.sizes.values(), "hidden_act"]
    described = {key: described[key] for key in keys} | {"hidden_act": "gelu"}
    (folder / "bert_config.json").write_text(json.dumps(described, indent=2) + "\n")
    tokenizer.save(folder)
    (folder / "tokenizer_config.json").unlink()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )
