"""Weights of a BERT as `tf_model.h5` of transformers' TensorFlow classes."""

from pathlib import Path

import h5py
import safetensors.numpy


def convert(folder: Path) -> None:
    """Puts a `tf_model.h5` in the place of model.safetensors."""
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, array in tensors.items():
            kernel = name.endswith(".weight") and array.ndim == 2 and "_embeddings" not in name
            path = name.replace(".", "/").replace("/layer/", "/layer_._") + ":0"
            if kernel:
                path = path.replace("/weight:0", "/kernel:0")
            group = name.partition(".")[0]
            file[f"{group}/{path}"] = array.T if kernel else array
