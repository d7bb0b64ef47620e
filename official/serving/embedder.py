"""Contextual representations: vectors of texts and of their tokens, from any layer of an encoder.

Shapes: B batch, T tokens of the longest text in it, K tokens of a text, D hidden, L layers.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.tokenizers.packing import num_specials, pack
from official.utils import atomic
from official.utils.errors import UserError

POOLINGS = ("mean", "first", "last", "pooled")
_AT_ONCE = 2048  # texts of a file among which those of like length are computed together
_SECONDS_BETWEEN_REPORTS = 5


class TokenVectors(NamedTuple):
    """The tokens of a text, special ones left out.

    Attributes:
      pieces: K of them, as the vocabulary has them.
      starts: int32 [K], the first character of each token in the text.
      ends: int32 [K], behind its last one: `text[start:end]` is what the token stands for.
      vectors: float32 [K, D].
    """

    pieces: list[str]
    starts: np.ndarray
    ends: np.ndarray
    vectors: np.ndarray


class Embedder:
    """An encoder and its tokenizer as functions from texts to vectors.

    Args:
      config: of the run that made the model.
      tokenizer: text to ids and back.
      model: with its weights.
      max_length: longer texts are cut to this many tokens, special tokens counted.

    Attributes:
      cut: how many texts were longer than that so far.
    """

    def __init__(
        self,
        config: configs.Config,
        tokenizer: tokenizers.Tokenizer,
        model: Model,
        max_length: int,
    ):
        self.config = config
        self.tokenizer = tokenizer
        self.model = model
        self.max_length = max_length
        self.cut = 0
        self._graphs: dict[int, Callable] = {}

    def texts(
        self, texts: Sequence[str], pooling: str = "mean", layer: int = -1, batch_size: int = 32
    ) -> np.ndarray:
        """Gives each text a vector: see `official.serving.loaded_model.LoadedModel.encode`.

        Returns:
          float32 [number of texts, D], in the order of `texts`.

        Raises:
          UserError: a single text instead of a list, a pooling or a layer that is not there.
        """
        if pooling not in POOLINGS:
            raise UserError(f"pooling: {pooling!r} is not one of {', '.join(POOLINGS)}")
        graph = self._graph(layer)
        if pooling == "pooled" and not self.config.encoder.pooler:
            raise UserError("pooling: this encoder has no pooler: take mean")
        if pooling == "pooled" and layer not in (-1, self.config.encoder.num_layers):
            raise UserError(f"pooling: pooled is of the last layer, not of layer {layer}")
        _check_texts(texts, batch_size)
        sequences = self.tokenizer.encode(list(texts))
        vectors = np.zeros((len(sequences), self.config.encoder.hidden_size), np.float32)
        for rows, outputs in self._batches(graph, sequences, batch_size):
            vectors[rows] = _pooled(outputs, pooling)
        return vectors

    def tokens(
        self, texts: Sequence[str], layer: int = -1, batch_size: int = 32
    ) -> list[TokenVectors]:
        """Gives each token of each text a vector: see `loaded_model.LoadedModel.tokens`.

        Raises:
          UserError: a single text instead of a list, or a layer that is not there.
        """
        graph = self._graph(layer)
        _check_texts(texts, batch_size)
        spelled = self.tokenizer.encode_with_offsets(list(texts))
        sequences = [ids for ids, _, _ in spelled]
        found: list[TokenVectors | None] = [None] * len(sequences)
        before = 1 if self.config.encoder.layout == "cls_first" else 0  # special tokens
        specials = num_specials(1, self.tokenizer)
        for rows, outputs in self._batches(graph, sequences, batch_size):
            real = outputs["padding_mask"]  # [B, T]
            for row, states, first, count in zip(
                rows, outputs["states"], real.argmax(axis=1) + before, real.sum(axis=1), strict=True
            ):
                ids, starts, ends = (part[: count - specials] for part in spelled[row])
                found[row] = TokenVectors(
                    [self.tokenizer.pieces[i] for i in ids],
                    starts,
                    ends,
                    states[first : first + len(ids)].astype(np.float32),
                )
        return found

    def _batches(
        self, graph: Callable, sequences: Sequence[np.ndarray], batch_size: int
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Computes texts of like length together: their numbers, and what comes out."""
        lengths = np.array([len(ids) for ids in sequences], int)
        self.cut += int(np.sum(lengths + num_specials(1, self.tokenizer) > self.max_length))
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(sequences), batch_size):
            rows = order[start : start + batch_size]
            chosen = [sequences[row] for row in rows]
            ids = tf.RaggedTensor.from_row_lengths(
                np.concatenate(chosen).astype(np.int32), lengths[rows]
            )
            yield rows, {name: value.numpy() for name, value in graph(ids).items()}

    def _graph(self, layer: int) -> Callable[[tf.RaggedTensor], dict[str, tf.Tensor]]:
        """The graph from ids to the states of a layer, `states`; made once for each layer."""
        layers = self.config.encoder.num_layers
        if not -layers - 1 <= layer <= layers:
            raise UserError(
                f"layer: {layer} is not there: 0 are the embeddings, 1 to {layers} the layers, -1 "
                "is the last one"
            )
        layer %= layers + 1
        if layer in self._graphs:
            return self._graphs[layer]

        def outputs(ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            batch = pack([ids], self.tokenizer, self.max_length, self.config.encoder.layout)
            encoded = self.model.encode(batch, output_all=layer < layers)
            states = encoded["sequence_output"]
            if layer < layers:
                states = encoded["hidden_states"][layer]
            found = {"states": states, "padding_mask": batch["padding_mask"]}
            if "pooled_output" in encoded and layer == layers:
                found["pooled_output"] = encoded["pooled_output"]
            return found

        signature = [tf.RaggedTensorSpec([None, None], tf.int32)]
        self._graphs[layer] = tf.function(outputs, input_signature=signature, autograph=False)
        return self._graphs[layer]


def _pooled(outputs: dict[str, np.ndarray], pooling: str) -> np.ndarray:
    """One vector for each row: [B, D]."""
    if pooling == "pooled":
        return outputs["pooled_output"]
    states, real = outputs["states"], outputs["padding_mask"]  # [B, T, D], [B, T]
    if pooling == "mean":
        return np.einsum("btd,bt->bd", states, real / real.sum(axis=1, keepdims=True))
    columns = real.argmax(axis=1)
    if pooling == "last":
        columns = real.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
    return states[np.arange(len(states)), columns]


def _check_texts(texts: Sequence[str], batch_size: int) -> None:
    if isinstance(texts, str | bytes):
        raise UserError("give a list of texts, such as [text]")
    if batch_size < 1:
        raise UserError(f"batch_size: {batch_size} is less than 1")


def write(
    embedder: Embedder,
    texts: Sequence[str],
    output: str | os.PathLike,
    *,
    pooling: str = "mean",
    layer: int = -1,
    tokens: bool = False,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the vectors of texts to a file, which appears when it is whole.

    Args:
      embedder: what computes them.
      texts: in the order of the file.
      output: `.npy`, float32 [number of texts, D]; or `.jsonl`, an object with `text` and `vector`
        for each, or with `text` and `tokens`, a list of objects with `piece`, `start`, `end` and
        `vector`.
      pooling: as for `Embedder.texts`; not for tokens.
      layer: as for `Embedder.texts`.
      tokens: whether vectors of tokens are wanted.
      report: takes lines of progress and the summary.

    Raises:
      UserError: another file ending, or tokens as `.npy`.
    """
    check_output(output, tokens)
    began = said = time.monotonic()
    form = Path(output).suffix
    with atomic.file(output, "wb" if form == ".npy" else "w") as stream:
        if form == ".npy":
            shape = (len(texts), embedder.config.encoder.hidden_size)
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            if tokens:
                _write_tokens(stream, some, embedder.tokens(some, layer))
            elif form == ".npy":
                stream.write(embedder.texts(some, pooling, layer).astype("<f4").tobytes())
            else:
                for text, vector in zip(some, embedder.texts(some, pooling, layer), strict=True):
                    _write_line(stream, {"text": text, "vector": vector})
            now, done = time.monotonic(), start + len(some)
            if now - said > _SECONDS_BETWEEN_REPORTS and done < len(texts):
                rate = done / (now - began)
                left = (len(texts) - done) / rate
                report(f"{done:,} of {len(texts):,} texts, {rate:,.0f} texts/s, {left:,.0f} s left")
                said = now
    seconds = time.monotonic() - began
    report(
        f"{output}: {len(texts):,} texts, {seconds:.1f} s ({len(texts) / seconds:,.0f} texts/s); "
        f"{embedder.cut:,} cut at {embedder.max_length} tokens"
    )


def check_output(output: str | os.PathLike, tokens: bool) -> None:
    """Refuses a file that `write` does not write."""
    if Path(output).suffix not in (".npy", ".jsonl"):
        raise UserError(f"{output}: vectors are written as .npy or .jsonl: name such a file")
    if tokens and Path(output).suffix == ".npy":
        raise UserError(
            f"{output}: texts have different numbers of tokens, which one array does not hold: "
            "name a .jsonl file"
        )


def _write_tokens(stream: IO, texts: Sequence[str], found: Sequence[TokenVectors]) -> None:
    for text, (pieces, starts, ends, vectors) in zip(texts, found, strict=True):
        places = zip(pieces, starts.tolist(), ends.tolist(), vectors, strict=True)
        listed = [
            {"piece": piece, "start": start, "end": end, "vector": vector}
            for piece, start, end, vector in places
        ]
        _write_line(stream, {"text": text, "tokens": listed})


def _write_line(stream: IO, line: dict) -> None:
    # By way of text: the shortest that gives the same float32 again.
    numbers = lambda vector: [float(str(value)) for value in vector]  # noqa: E731
    stream.write(json.dumps(line, ensure_ascii=False, default=numbers) + "\n")
