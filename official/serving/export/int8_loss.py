"""How far the integers of an export move the answers of a model.

An export in int8 answers some texts, and the model answers them in float32. The share of an output
that is moved is |i - f| / |f|, the norms of all its numbers for all texts. Of vectors of length 1
with the cosine c, it is the square root of 2 (1 - c): the cosine 0.995 is 10%.

Shapes: T tokens, K choices.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official.serving.signatures.inputs import ServingContext, Signature
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError

LARGEST = 0.25  # of the share
# Of several lengths and languages, with names and numbers.
TEXTS = (
    "Good.",
    "The food was cold and nobody cared.",
    "How do I reset my password?",
    "Alan Turing was born in London on 23 June 1912, and studied at Cambridge.",
    "The company said that its revenue rose by 4.5 percent to $1.3 billion in the third quarter.",
    "Two dogs are running through a field of tall grass while a child watches from the gate.",
    "Der Zug nach Hamburg fährt heute nicht.",
    "La réunion aura lieu demain à dix heures.",
    "Он живёт в старом доме у реки.",
    "今天天气很好，我们去公园吧。",
)
_LENGTH = 32
_FIELDS = ("token_ids", "padding_mask", "segment_ids")

Arrays = Mapping[str, np.ndarray]


def share(
    context: ServingContext,
    function: Signature,
    rounded: Callable[[dict[str, np.ndarray]], Arrays],
    fields: Mapping[str, str],
) -> float:
    """Returns the share of the output that int8 moves most.

    Args:
      context: the model.
      function: its signature in float32, of rows [B, T] or of their choices [B, K, T].
      rounded: computes in int8 the outputs of the signature, by name, of its inputs.
      fields: the fields of a batch by the names of inputs.

    Raises:
      UserError: it is more than `LARGEST`.
    """
    specs = function.input_signature
    exact: dict[str, list[np.ndarray]] = {}
    moved: dict[str, list[np.ndarray]] = {}
    # A row of its own for each text has no padding; the texts are the choices of one row.
    for group in [TEXTS] if len(specs[0].shape) == 3 else [(text,) for text in TEXTS]:
        batch = _batch(context, group)
        given = {spec.name: _input(batch[fields[spec.name]], spec) for spec in specs}
        right = function(*map(tf.constant, given.values()))
        for name, found in rounded(given).items():
            value = right[name]
            if value.dtype.is_floating:
                exact.setdefault(name, []).append(np.ravel(value))
                moved.setdefault(name, []).append(np.ravel(found) - np.ravel(value))
    shares = {
        name: float(np.linalg.norm(np.concatenate(moved[name])) / _size(values))
        for name, values in exact.items()
    }
    name = max(shares, key=lambda name: shares[name])
    if not shares[name] <= LARGEST:
        raise UserError(
            f"--precision=int8: the output {name} is moved by {shares[name]:.0%} of its size for "
            f"{len(TEXTS)} texts, and at most {LARGEST:.0%} is exported: give --precision=float32, "
            "or --precision=bfloat16 with --format=saved_model"
        )
    return shares[name]


def _size(values: list[np.ndarray]) -> float:
    return float(np.linalg.norm(np.concatenate(values))) or 1.0


def _batch(context: ServingContext, texts: tuple[str, ...]) -> dict[str, Any]:
    length = min(context.max_length, _LENGTH)
    encoder = context.config.encoder
    layout = encoder.text_layout if context.head is None else encoder.layout
    batch = pack_texts([tf.constant(texts)], context.tokenizer, length, layout)
    return {name: np.asarray(batch[name]) for name in _FIELDS}


def _input(value: np.ndarray, spec: tf.TensorSpec) -> np.ndarray:
    """Returns rows [B, T] in the form of an input."""
    size = spec.shape[-1] or value.shape[1]
    value = np.pad(value, [(0, 0), (0, size - value.shape[1])])
    return value.reshape((-1,) * (len(spec.shape) == 3) + value.shape[-2:]).astype(
        spec.dtype.as_numpy_dtype
    )
