"""Reads checkpoints of the TF1 releases of BERT, ALBERT, ELECTRA, XLNet and T5.

The folders contain:

* BERT: bert_config.json, vocab.txt, and `bert_model.ckpt.index` with its data file;
* ALBERT: albert_config.json, `30k-clean.model` and `model.ckpt-best.index`;
* XLNet: xlnet_config.json, spiece.model and `xlnet_model.ckpt.index`;
* ELECTRA: vocab.txt and one checkpoint of both networks, without a config file;
* T5: spiece.model and one checkpoint, without a config file.

A checkpoint of a fine-tuned model is read with the head of its task. It does not contain the names
of the classes, so they become LABEL_0, LABEL_1, ... They can be changed in config.yaml.
"""

import dataclasses
import glob
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import tensorflow as tf

from official.conversion import albert, bert, converted_model, electra, generators, t5, xlnet
from official.conversion.mapping import LazyTensors
from official.conversion.system import System
from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The config file of a release → its system.
RELEASES = {
    "bert_config.json": bert.BERT,
    "albert_config.json": albert.SYSTEM,
    "xlnet_config.json": xlnet.SYSTEM,
}

# The key of the graph of objects, which only checkpoints of TF2 have.
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Variables of optimizers: the Adam of the releases, and TensorFlow's.
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_PATTERN = "*?[\\"  # characters that make a path a pattern for TensorFlow
_PLAIN = "model.ckpt"  # the name of a copy of a checkpoint, or of a link to one
_SLOT = "_slot_"  # optimizer variables of Mesh TensorFlow
_COUNTERS = ("global_step", "beta1_power", "beta2_power")
# TensorFlow's reader raises some of its errors as Python exceptions.
_READ_ERRORS = (tf.errors.OpError, IndexError, ValueError, RuntimeError)


def read(folder: str | os.PathLike) -> converted_model.Converted:
    """Reads a folder of a release.

    Raises:
      UserError: a file is missing or broken, or the checkpoint holds another model.
    """
    folder = paths.path(folder)
    present = [name for name in RELEASES if (folder / name).exists()]
    if not present and list(folder.glob("*.index")):
        checkpoint = Checkpoint(folder)
        _refuse_objects(checkpoint)
        if any(name.startswith("electra/") for name in checkpoint):
            return _electra(folder, checkpoint)
        if "shared/embedding" in checkpoint:
            return _t5(folder, checkpoint)
    source = folder / (present or list(RELEASES))[0]
    config = json_files.read(source, "is this the folder of a TF1 checkpoint?")
    system = RELEASES[source.name].of_release()
    checkpoint = Checkpoint(folder)
    _refuse_objects(checkpoint)
    tensors: LazyTensors = checkpoint
    if system.model_type == "xlnet":
        one_head = xlnet.OneHead(checkpoint)
        config = xlnet.release_config(config, str(source)) | one_head.described()
        tensors = one_head
    return converted_model.read(folder, _labels(system, tensors) | config, source, system, tensors)


def _refuse_objects(tensors: "Checkpoint") -> None:
    """Refuses a checkpoint of TF2, which names variables by paths between objects."""
    if OBJECTS in tensors:
        raise UserError(f"{tensors.source} is a checkpoint of TF2's objects: use --source=garden")


def _labels(system: System, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the keys of the labels for config.json, one label for each output of the head."""
    _, bias = (row.names[0] for row in system.named(system.heads["classification"].rows))
    if bias not in tensors:
        return {}
    return {"id2label": {str(i): f"LABEL_{i}" for i in range(len(tensors[bias]))}}


def _electra(folder: AnyPath, tensors: "Checkpoint") -> converted_model.Converted:
    """Reads the discriminator and the generator of a checkpoint."""
    networks = {}
    for scope, system in electra.release(tensors).items():
        config = electra.release_config(tensors, scope, str(tensors.source))
        networks[scope] = converted_model.read(folder, config, tensors.source, system, tensors)
    main, small = networks["electra"], networks.get("generator")
    if small is None:
        return main
    joined = generators.join(main, small, f"{tensors.source}: generator")
    leftover = sorted(set(main.leftover) & set(small.leftover))
    return dataclasses.replace(joined, leftover=leftover)


def _t5(folder: AnyPath, tensors: "Checkpoint") -> converted_model.Converted:
    """Reads a T5."""
    system, config = t5.release(tensors)
    converted = converted_model.read(folder, config, tensors.source, system, tensors)
    leftover = [name for name in converted.leftover if name != t5.UNUSED]
    return dataclasses.replace(converted, leftover=leftover)


class Checkpoint(LazyTensors):
    """The weights of the only checkpoint of a folder, without the slots of the optimizer.

    Attributes:
      source: the path without `.index`.
    """

    source: AnyPath

    def __init__(self, folder: AnyPath):
        """Finds and opens the checkpoint."""
        prefixes = [str(path)[: -len(".index")] for path in folder.glob("*.index")]
        # The file `checkpoint` may contain the path of another machine.
        state = (folder / "checkpoint").is_file() and tf.train.get_checkpoint_state(str(folder))
        latest = PurePosixPath(state.model_checkpoint_path).name if state else ""
        if latest and str(folder / latest) in prefixes:
            prefixes = [str(folder / latest)]
        if not prefixes:
            raise UserError(f"{folder} has no checkpoint: expected a file *.ckpt.index")
        if len(prefixes) > 1:
            names = ", ".join(sorted(PurePosixPath(prefix).name for prefix in prefixes))
            raise UserError(f"{folder} has several checkpoints ({names}): keep only one")
        self.source = paths.path(prefixes[0])
        remote = paths.is_remote(folder)
        # TensorFlow reads the path as a pattern, and the pattern `run[1]` does not match a folder
        # `run[1]`.
        pattern = bool(set(_PATTERN) & set(str(self.source)))
        self._copies = tempfile.TemporaryDirectory() if remote or pattern else None
        for path in self._files(folder, ".*"):
            paths.check_file(path, max_bytes=None)
            if self._copies:
                named = path.name.replace(self.source.name, _PLAIN, 1)
                copy = os.path.join(self._copies.name, named)
                paths.copy(path, copy) if remote else os.symlink(os.path.abspath(path), copy)
        prefix = str(self.source)
        if self._copies:
            prefix = os.path.join(self._copies.name, _PLAIN)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except _READ_ERRORS as error:
            raise UserError(f"{self.source}: cannot be read: {error}") from None
        shapes = self._reader.get_variable_to_shape_map()
        dtypes = self._reader.get_variable_to_dtype_map()
        self._index = dict.fromkeys(
            name
            for name in shapes
            if not name.endswith(_SLOTS) and _SLOT not in name and name not in _COUNTERS
        )
        # The reader allocates memory for a tensor by its shape in the index, before it reads the
        # data.
        room = sum(path.stat().st_size for path in self._files(folder, ".data-*"))
        for name in sorted(self._index):
            if dtypes[name].is_floating and math.prod(shapes[name]) * dtypes[name].size > room:
                raise UserError(
                    f"{self.source}: {name} has the shape {tuple(shapes[name])} in the index, "
                    f"which is more than the {room:,} bytes of its data: copy the folder again"
                )

    def _files(self, folder: AnyPath, ending: str) -> Iterator[AnyPath]:
        return folder.glob(glob.escape(self.source.name) + ending)

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads one tensor."""
        try:
            return self._reader.get_tensor(name)
        except _READ_ERRORS as error:
            raise UserError(f"{self.source}: {name} cannot be read: {error}") from None
