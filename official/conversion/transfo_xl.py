"""Transformer-XL: the names of its tensors in Hugging Face's files (reading only).

Its adaptive embeddings (clusters of rarer words with narrower tables, each with a projection)
become one table with the same embeddings. The adaptive softmax is not supported and is left out.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from official.config.encoders import TransformerXLConfig
from official.conversion.mapping import LazyTensors, Row, linear, norm
from official.conversion.system import EncoderKeys, System
from official.utils.errors import UserError

_TABLE = "transformer.word_emb.weight"
_CLUSTER = "transformer.word_emb.emb_layers.{}.weight"
_PROJECTION = "transformer.word_emb.emb_projs.{}"
_BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias"}


def encoder_rows(encoder: TransformerXLConfig) -> list[Row]:
    """Returns the rows of the table and the layers."""
    rows = [Row("encoder/embeddings/token_embedding/table", (_TABLE,))]
    for i in range(encoder.num_layers):
        ours, theirs = f"encoder/layer_{i}", f"transformer.layers.{i}"
        attention = f"{theirs}.dec_attn"
        for path, name in {
            "query_key_value": "qkv_net",
            "position_key": "r_net",
            "output": "o_net",
        }.items():
            kernel = (f"{attention}.{name}.weight",)
            rows.append(Row(f"{ours}/attention/{path}/kernel", kernel, transposed=True))
        rows += [
            *(
                Row(f"{ours}/attention/biases/{path}", (f"{attention}.{name}",))
                for path, name in _BIASES.items()
            ),
            *norm(f"{ours}/attention_norm", f"{attention}.layer_norm"),
            *linear(f"{ours}/feed_forward/inner", f"{theirs}.pos_ff.CoreNet.0"),
            *linear(f"{ours}/feed_forward/outer", f"{theirs}.pos_ff.CoreNet.3"),
            *norm(f"{ours}/feed_forward_norm", f"{theirs}.pos_ff.layer_norm"),
        ]
    return rows


def more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of our encoder that are computed from config.json."""
    return {
        "activation": "relu",
        "inner_dropout": config["dropout"],
        "clamp_length": max(config.get("clamp_len", -1), 0),
        "same_length": config.get("same_length", True),
    }


class OneTable(LazyTensors):
    """The tensors of a file, with the clusters of embeddings as one table."""

    def __init__(self, tensors: Mapping[str, np.ndarray], source: str | os.PathLike):
        """Wraps tensors whose names have the prefix `transformer.`, except those of heads."""
        self.source = source
        self._tensors = tensors
        self._clusters = 0
        while _CLUSTER.format(self._clusters) in tensors:
            self._clusters += 1
        made = {f(i) for i in range(self._clusters) for f in (_CLUSTER.format, _PROJECTION.format)}
        table = [_TABLE] if self._clusters else []
        self._index = dict.fromkeys([*table, *(name for name in tensors if name not in made)])

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor, or makes the table."""
        if name != _TABLE:
            return self._tensors[name]
        parts = []
        for i in range(self._clusters):
            part = self._tensors[_CLUSTER.format(i)]
            if (projection := _PROJECTION.format(i)) in self._tensors:
                part = self._projected(part, self._tensors[projection], projection)
            parts.append(part)
        if len({part.shape[1:] for part in parts}) > 1:
            raise UserError(f"{self.source}: the clusters of embeddings are of different sizes")
        return np.concatenate(parts)

    def _projected(self, part: np.ndarray, projection: np.ndarray, name: str) -> np.ndarray:
        if part.ndim != 2 or projection.ndim != 2 or projection.shape[1] != part.shape[1]:
            raise UserError(
                f"{self.source}: {name} has the shape {list(projection.shape)}, which does not "
                f"match embeddings of the shape {list(part.shape)}"
            )
        return part @ projection.T


SYSTEM = System(
    model_type="transfo-xl",
    encoder=EncoderKeys(
        title="a Transformer-XL",
        encoder_type=TransformerXLConfig,
        form={
            "segment_types": 0,
            "attention": "uni",
            "untie_biases": True,
            "scale_embeddings": True,
            "query_stream": False,
        },
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "num_layers": "n_layer",
            "num_heads": "n_head",
            "head_size": "d_head",
            "intermediate_size": "d_inner",
            "dropout": "dropout",
            "attention_dropout": "dropatt",
            "memory_length": "mem_len",
            "initializer_range": "init_std",
        },
        more_fields=more_fields,
        activation=None,
        epsilon="layer_norm_epsilon",
        only={"attn_type": 0, "untie_r": True, "pre_lnorm": False},
    ),
    prefix="transformer.",
    encoder_rows=encoder_rows,
    heads={},
    bare=("word_emb.", "layers.", "pos_emb."),
    tensors=OneTable,
    buffers=("transformer.pos_emb.inv_freq",),
)
