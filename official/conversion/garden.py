"""Reads checkpoints of the TensorFlow Model Garden (TF2): BERT, ALBERT and ELECTRA.

They are made by `tf.train.Checkpoint`, with the encoder under `encoder` or `model`, and the heads
of `BertPretrainerV2` or `ElectraPretrainer` under `model` and `masked_lm`. A variable is named
after the first path on which the writer found it, so variables are located by the graph of objects
in the checkpoint. Sizes follow from shapes. The folder also has `vocab.txt` or a SentencePiece
model, and for an ALBERT, whose layers share their variables, `albert_config.json`.

The Garden's `gelu` is the tanh form. If a classification head has a pooler, that pooler is read;
the encoder's pooler, which may be untrained, is left out.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from official.conversion import albert, bert, converted_model, electra, generators, tf1
from official.conversion.mapping import LazyTensors
from official.conversion.system import System
from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_VALUE = "VARIABLE_VALUE"
_LAYER = re.compile(r"layer_with_weights-(\d+)")
_ENCODERS = ("encoder", "encoder_network", "discriminator_network", "bert")
_ROOTS = ("model", "pretrainer")
_OTHERS = re.compile(r"^(save_counter|global_step|optimizer)\b|/\.OPTIMIZER_SLOT/|^_CHECKPOINT")
# {BERT's name of a tensor within a layer: the Garden's path within a block}.
_ATTENTION = {
    "attention.self.query": "_query_dense",
    "attention.self.key": "_key_dense",
    "attention.self.value": "_value_dense",
    "attention.output.dense": "_output_dense",
}
_BLOCK = {
    "attention.output.LayerNorm": "_attention_layer_norm",
    "intermediate.dense": "_intermediate_dense",
    "output.dense": "_output_dense",
    "output.LayerNorm": "_output_layer_norm",
}
# The same for ALBERT.
_ALBERT = {
    "attention.self.": "attention.",
    "attention.output.dense": "attention.dense",
    "attention.output.LayerNorm": "attention.LayerNorm",
    "intermediate.dense": "ffn",
    "output.dense": "ffn_output",
    "output.LayerNorm": "full_layer_layer_norm",
}


def read(folder: str | os.PathLike) -> converted_model.Converted:
    """Reads a folder with a checkpoint of the Model Garden.

    Raises:
      UserError: a file is missing or broken, or the checkpoint holds another model.
    """
    folder = paths.path(folder)
    checkpoint = tf1.Checkpoint(folder)
    objects = _Objects(checkpoint)
    encoder = objects.encoder()
    whole = next((node for name in _ROOTS if (node := objects.child(0, name))), 0)
    generator = objects.child(whole, "generator_network")
    main = _network(folder, objects, encoder, whole, generator is not None)
    if generator is None:
        return _named(main, objects)
    small = _network(folder, objects, generator, whole, True, generates=True)
    joined = generators.join(main, small, f"{checkpoint.source}: generator")
    return _named(joined, objects)


def _named(converted: converted_model.Converted, objects: "_Objects") -> converted_model.Converted:
    """Returns the model with the names of unread variables as `leftover`."""
    left = sorted(name for name in objects.unread() if not _OTHERS.search(name))
    return dataclasses.replace(converted, leftover=(*converted.leftover, *left))


class _Objects:
    """The graph of objects of a checkpoint."""

    def __init__(self, checkpoint: tf1.Checkpoint):
        self.checkpoint = checkpoint
        if tf1.OBJECTS not in checkpoint:
            raise UserError(
                f"{checkpoint.source} is not a checkpoint of TF2's objects. For a TF1 "
                "release, use --source=tf1"
            )
        try:
            data = checkpoint[tf1.OBJECTS]
            graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(bytes(data))
        except (DecodeError, TypeError) as error:
            raise UserError(
                f"{checkpoint.source}: the graph of objects is damaged: {error}"
            ) from None
        self._nodes = graph.nodes
        self._read: set[str] = set()

    def child(self, node: int, *names: str) -> int | None:
        """Returns the object at a path from another object, or None."""
        for name in names:
            ids = (c.node_id for c in self._nodes[node].children if c.local_name == name)
            node = next(ids, -1)
            if not 0 <= node < len(self._nodes):
                return None
        return node

    def layers(self, node: int) -> list[int]:
        """Returns the layers with weights of a functional model, in order."""
        layers = {
            int(match[1]): child.node_id
            for child in self._nodes[node].children
            if (match := _LAYER.fullmatch(child.local_name))
            and 0 <= child.node_id < len(self._nodes)
        }
        return [layers[number] for number in sorted(layers)]

    def encoder(self) -> int:
        """Returns the encoder: a functional model with layers."""
        tops = [0, *(node for name in _ROOTS if (node := self.child(0, name)) is not None)]
        nodes = [
            n for top in tops for name in _ENCODERS if (n := self.child(top, name)) is not None
        ]
        for node in (*nodes, *tops[1:]):
            if len(self.layers(node)) > 4:
                return node
        children = ", ".join(c.local_name for c in self._nodes[0].children) if self._nodes else ""
        raise UserError(
            f"{self.checkpoint.source} has no encoder of the Model Garden under "
            f"{', '.join(_ENCODERS)}; its objects are {children[:200] or 'none'}"
        )

    def key(self, node: int | None, name: str = "") -> str | None:
        """Returns the name in the checkpoint of an object's variable `name`."""
        node = self.child(node, name) if name and node is not None else node
        if node is None:
            return None
        keys = (a.checkpoint_key for a in self._nodes[node].attributes if a.name == _VALUE)
        key = next(keys, None)
        return key if key in self.checkpoint else None

    def value(self, key: str) -> np.ndarray:
        """Reads a variable."""
        self._read.add(key)
        return self.checkpoint[key]

    def unread(self) -> list[str]:
        """Returns the names of the variables that were not read."""
        return [name for name in self.checkpoint if name not in self._read]


class _Tensors(LazyTensors):
    """The variables with the names and shapes of transformers."""

    def __init__(self, objects: _Objects):
        self.source = objects.checkpoint.source
        self._objects = objects
        self._index: dict[str, tuple[str, int]] = {}

    def add(self, name: str, node: int | None, inner: str = "", ins: int = 1) -> bool:
        """Adds a variable if it exists; `ins` is the number of input axes of a kernel."""
        key = self._objects.key(node, inner)
        if key is not None:
            self._index[name] = (key, ins if inner == "kernel" else 0)
        return key is not None

    def linear(self, name: str, node: int | None, ins: int = 1) -> bool:
        """Adds the kernel and the bias of a layer."""
        self.add(f"{name}.bias", node, "bias")
        return self.add(f"{name}.weight", node, "kernel", ins)

    def norm(self, name: str, node: int | None) -> None:
        """Adds a norm."""
        self.add(f"{name}.weight", node, "gamma")
        self.add(f"{name}.bias", node, "beta")

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a variable in the checkpoint.

        Raises:
          UserError: there is no such variable.
        """
        if name not in self._index:
            raise UserError(f"{self.source} has no variable for {name}: the file is incomplete")
        return self._objects.checkpoint[self._index[name][0]].shape

    def __getitem__(self, name: str) -> np.ndarray:
        key, ins = self._index[name]
        value = self._objects.value(key)
        if ins and value.ndim > ins:
            rows = int(np.prod(value.shape[:ins]))
            return value.reshape(rows, -1).T
        joined = value.ndim == 2 and name.endswith((".query.bias", ".key.bias", ".value.bias"))
        return value.reshape(-1) if joined else value


def _network(
    folder: AnyPath,
    objects: _Objects,
    encoder: int,
    whole: int,
    of_electra: bool,
    generates: bool = False,
) -> converted_model.Converted:
    """Reads one encoder with its heads.

    Args:
      folder: the folder.
      objects: the objects of the checkpoint.
      encoder: the object of the encoder.
      whole: the object of the model with the heads.
      of_electra: whether the encoder is one of the two networks of an ELECTRA.
      generates: whether the encoder is the generator.
    """
    tensors = _Tensors(objects)
    layers = objects.layers(encoder)
    blocks = [n for n in layers if objects.child(n, "_attention_layer") is not None]
    after = [n for n in layers[4:] if n not in blocks and n > -1]
    first = layers.index(blocks[0]) if blocks else len(layers)
    projection = layers[4] if first == 5 else None
    pooler = next((n for n in after if layers.index(n) > first), None)
    described = _described(folder)
    shared = "num_hidden_layers" in described and described.get("model_type") == "albert"
    system = albert.SYSTEM if shared else bert.BERT
    if of_electra or (projection is not None and not shared):
        # The Garden's heads have the activation of the encoder.
        heads = {n: dataclasses.replace(h, erf_gelu=False) for n, h in electra.SYSTEM.heads.items()}
        system = dataclasses.replace(electra.SYSTEM, heads=heads)
    prefix = system.prefix
    tables = ("word", "position", "token_type")
    for name, node in zip(tables, layers, strict=False):
        tensors.add(f"{prefix}embeddings.{name}_embeddings.weight", node, "embeddings")
    tensors.norm(f"{prefix}embeddings.LayerNorm", layers[3])
    if projection is not None:
        own = "encoder.embedding_hidden_mapping_in" if shared else "embeddings_project"
        tensors.linear(prefix + own, projection)
    for number, block in enumerate(blocks):
        _add_block(tensors, objects, block, system, number)
    config = described | _sizes(tensors, system, len(blocks), described)
    _add_heads(tensors, objects, system, whole, pooler, generates)
    labels = f"{system.heads['classification'].rows[1].names[0]}"
    if labels in tensors:
        count = tensors.shape(labels)[0]
        config["id2label"] = {str(i): f"LABEL_{i}" for i in range(count)}
    source = objects.checkpoint.source
    return converted_model.read(folder, config, source, system, tensors)


def _described(folder: AnyPath) -> dict[str, Any]:
    """Returns the content of the config file beside the checkpoint; empty if there is none."""
    for kind in ("albert", "bert"):
        path = folder / f"{kind}_config.json"
        if path.exists():
            return {**json_files.read(path), "model_type": kind}
    return {}


def _add_block(
    tensors: _Tensors, objects: _Objects, block: int, system: System, number: int
) -> None:
    shared = system is albert.SYSTEM
    where = "encoder.albert_layer_groups.{}.albert_layers.0" if shared else "encoder.layer.{}"
    scope = system.prefix + where.format(number)

    def named(name: str) -> str:
        for old, new in _ALBERT.items() if shared else ():
            if name == old or (old.endswith(".") and name.startswith(old)):
                return f"{scope}.{name.replace(old, new, 1)}"
        return f"{scope}.{name}"

    for name, theirs in _ATTENTION.items():
        node = objects.child(block, "_attention_layer", theirs)
        tensors.linear(named(name), node, ins=2 if theirs == "_output_dense" else 1)
    for name, theirs in _BLOCK.items():
        add = tensors.norm if name.endswith("LayerNorm") else tensors.linear
        add(named(name), objects.child(block, theirs))


def _sizes(
    tensors: _Tensors, system: System, layers: int, described: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the keys of config.json that follow from the variables."""
    prefix, shared = system.prefix, system is albert.SYSTEM
    tables = [tensors.shape(f"{prefix}embeddings.{name}_embeddings.weight")
              for name in ("word", "position", "token_type")]  # fmt: skip
    block = "encoder.albert_layer_groups.0.albert_layers.0" if shared else "encoder.layer.0"
    query = "attention.query" if shared else "attention.self.query"
    inner = "ffn" if shared else "intermediate.dense"
    kernel = tensors.shape(f"{prefix}{block}.{query}.weight")
    activation = described.get("hidden_act", "gelu")
    sizes = {
        "model_type": system.model_type,
        "vocab_size": tables[0][0],
        "hidden_size": kernel[0],
        "num_attention_heads": kernel[1] if len(kernel) == 3 else 1,
        "intermediate_size": tensors.shape(f"{prefix}{block}.{inner}.weight")[1],
        "max_position_embeddings": tables[1][0],
        "type_vocab_size": tables[2][0],
        "hidden_act": "gelu_new" if activation == "gelu" else activation,
        "num_hidden_layers": described.get("num_hidden_layers", layers) if shared else layers,
    }
    if "embedding_size" in system.encoder.sizes:
        sizes["embedding_size"] = tables[0][1]
    if shared:
        sizes |= {"num_hidden_groups": layers, "inner_group_num": 1}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    rates |= {"initializer_range": 0.02}
    return {key: described.get(key, value) for key, value in rates.items()} | sizes


def _add_heads(
    tensors: _Tensors,
    objects: _Objects,
    system: System,
    whole: int,
    pooler: int | None,
    generates: bool,
) -> None:
    def head(*path: str) -> int | None:
        node = objects.child(whole, *path)
        return objects.child(0, *path) if node is None else node

    if system.model_type != "electra" or generates:
        masked = head("masked_lm")
        names = [row.names[0] for row in system.heads["masked_lm"].rows]
        if masked is not None:
            tensors.linear(names[0].removesuffix(".weight"), objects.child(masked, "dense"))
            tensors.norm(names[2].removesuffix(".weight"), objects.child(masked, "layer_norm"))
            tensors.add(names[4], masked, "output_bias.Sbias") or tensors.add(
                names[4], masked, "output_bias/bias"
            )
    if system.model_type == "electra":
        if not generates:
            scope = "discriminator_predictions"
            tensors.linear(f"{scope}.dense", head("discriminator_projection"))
            tensors.linear(f"{scope}.dense_prediction", head("discriminator_head"))
        return
    first = objects.child(whole, "classification_heads", "0")
    own = objects.child(first, "dense") if first is not None else None
    if own is None:
        own = objects.child(0, "next_sentence.pooler_dense")
    shared = system is albert.SYSTEM
    tensors.linear(f"{system.prefix}{system.pooler}", pooler if own is None else own)
    if first is not None:
        out = objects.child(first, "out_proj")
        key = objects.key(out, "bias")
        # A two-class head in a model with a masked LM is the head of pretraining.
        two = key is not None and objects.checkpoint[key].shape == (2,)
        pretrained = "sentence_order" if shared else "next_sentence"
        kind = pretrained if two and head("masked_lm") is not None else "classification"
        tensors.linear(system.heads[kind].rows[0].names[0].removesuffix(".weight"), out)
