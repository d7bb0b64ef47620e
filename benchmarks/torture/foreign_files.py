"""Good files of other tools, written here without these tools.

ELMo's release with random weights; and a BERT of Hugging Face as `tf_model.h5` of TensorFlow's
classes, as a file of torch in both formats, and as a folder of the TF1 release.
"""

import dataclasses
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors.numpy
import tensorflow as tf

from official import config as configs
from official.config.encoders import BilmConfig
from official.conversion import bert, elmo, mapping
from official.saving import model_folder
from official.tokenizers import Characters
from official.tokenizers.word_characters import SPECIALS
from official.utils import host_seeding

SAFETENSORS, TORCH = "model.safetensors", "pytorch_model.bin"
TABLE = "bert.embeddings.word_embeddings.weight"  # the token table
_ORDERED = b"ccollections\nOrderedDict\n)R"


def write_elmo(folder: Path) -> None:
    """Writes the files of a tiny ELMo."""
    encoder = BilmConfig(
        vocab_size=5,
        character_size=4,
        filters=((1, 8), (2, 8)),
        highway_layers=1,
        cell_size=64,
        projection_size=16,
    )
    config = dataclasses.replace(configs.from_dict({"name": "elmo"}), encoder=encoder)
    rng = host_seeding.numpy_rng(0)
    shapes = model_folder.shapes(config)
    weights = {path: rng.normal(0, 0.1, shape) for path, shape in shapes.items()}
    elmo.write_release(encoder, weights, folder)
    Characters([*SPECIALS, "the", "of"]).save(folder)


def to_keras(folder: Path) -> None:
    """Puts a `tf_model.h5` in the place of model.safetensors."""
    tensors = take_weights(folder)
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, array in tensors.items():
            kernel = name.endswith(".weight") and array.ndim == 2 and "_embeddings" not in name
            path = name.replace(".", "/").replace("/layer/", "/layer_._") + ":0"
            if kernel:
                path = path.replace("/weight:0", "/kernel:0")
            group = name.partition(".")[0]
            file[f"{group}/{path}"] = array.T if kernel else array


def write_tf1(model_dir: Path, folder: Path) -> None:
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
    save_checkpoint(folder / "bert_model.ckpt", tensors)


def save_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint of TF1."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )


def take_weights(folder: Path) -> dict[str, np.ndarray]:
    """Reads and removes the model.safetensors of a folder."""
    tensors = safetensors.numpy.load_file(folder / SAFETENSORS)
    (folder / SAFETENSORS).unlink()
    return tensors


def pickle_of(tensors: Mapping[str, np.ndarray], **changes: Any) -> bytes:
    """The pickle of a state of float32 tensors, each with a storage of its own.

    Args:
      tensors: the tensors.
      **changes: of the table: its `offset`, `shape`, `strides`, `size` and `storage` class.
    """
    parts = [b"\x80\x02", _ORDERED, b"("]
    for key, (name, array) in enumerate(tensors.items()):
        strides = tuple(step // array.itemsize for step in array.strides)
        entry = {"offset": 0, "shape": array.shape, "strides": strides, "size": array.size}
        entry |= {"storage": "FloatStorage"} | (changes if name == TABLE else {})
        parts += [
            pickled_text(name),
            b"ctorch._utils\n_rebuild_tensor_v2\n((",
            pickled_text("storage"),
            f"ctorch\n{entry['storage']}\n".encode(),
            *(
                pickled_text(str(key)),
                pickled_text("cpu"),
                _number(entry["size"]),
                b"tQ",
                _number(entry["offset"]),
            ),
            *(_tuple(entry["shape"]), _tuple(entry["strides"]), b"\x89", _ORDERED, b"tR"),
        ]
    return b"".join([*parts, b"u."])


def torch_archive(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    pickle: bytes | None = None,
    compression: int = zipfile.ZIP_STORED,
    leave_out: str = "",
) -> None:
    """Writes the format of torch since 1.6."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickle_of(tensors) if pickle is None else pickle)
        file.writestr("archive/byteorder", "little")
        for key, array in enumerate(tensors.values()):
            if str(key) != leave_out:
                file.writestr(f"archive/data/{key}", array.tobytes())
        file.writestr("archive/version", "3\n")


def old_torch(path: Path, tensors: Mapping[str, np.ndarray], pickle: bytes | None = None) -> None:
    """Writes the format before."""
    stream = io.BytesIO()
    stream.write(b"\x80\x02" + _number(0x1950A86A20F9469CFC6C) + b".")
    stream.write(b"\x80\x02" + _number(1001) + b".")
    stream.write(b"\x80\x02}" + pickled_text("little_endian") + b"\x88s.")
    stream.write(pickle_of(tensors) if pickle is None else pickle)
    keys = b"".join(pickled_text(str(key)) for key in range(len(tensors)))
    stream.write(b"\x80\x02](" + keys + b"e.")
    for array in tensors.values():
        stream.write(struct.pack("<q", array.size) + array.tobytes())
    path.write_bytes(stream.getvalue())


def to_torch(folder: Path, write: Callable[..., None] = torch_archive, **options: Any) -> None:
    """Puts a file of torch in the place of model.safetensors."""
    write(folder / TORCH, take_weights(folder), **options)


def pickled_text(value: str) -> bytes:
    """The opcode of a text."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _number(value: int) -> bytes:
    if 0 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def _tuple(items: Any) -> bytes:
    return b"(" + b"".join(map(_number, items)) + b"t"
