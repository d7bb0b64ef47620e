"""Computes vectors of texts and of their tokens from any layer of an encoder.

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

from official.serving.text_model import TextModel
from official.tokenizers.characters import Characters
from official.tokenizers.packed_words import pack_words
from official.tokenizers.packing import num_specials, pack
from official.utils import atomic
from official.utils.errors import UserError

ALL = "all"  # in place of the number of a layer
POOLINGS = ("mean", "first", "last", "pooled")
CHUNK = 2048  # texts of a file that are sorted by length together
_SECONDS_BETWEEN_REPORTS = 5


class TokenVectors(NamedTuple):
    """The tokens of a text without special tokens.

    Attributes:
      pieces: the K vocabulary entries.
      starts: int32 [K], the position of the first character of each token in the text.
      ends: int32 [K], the position after the last character: `text[start:end]` is the token.
      vectors: float32 [K, D], or [K, L + 1, D] for all layers.
    """

    pieces: list[str]
    starts: np.ndarray
    ends: np.ndarray
    vectors: np.ndarray


class Embedder:
    """Computes vectors with the encoder of a model.

    Args:
      source: the model and its tokenizer.

    Attributes:
      cut: the number of texts so far that were longer than `max_length`.
    """

    def __init__(self, source: TextModel):
        self.config = source.config
        self.tokenizer = source.tokenizer
        self.model = source.model
        self.max_length = source.max_length
        self.cut = 0
        self._graphs: dict[int | str, Callable] = {}

    def texts(
        self,
        texts: Sequence[str],
        pooling: str = "mean",
        layer: int | str = -1,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Computes a vector for each text: see `loaded_model.LoadedModel.encode`.

        Returns:
          float32 [number of texts, D], in the order of `texts`; with the layer 'all' [number of
          texts, L + 1, D].

        Raises:
          UserError: a single text is given instead of a list, or the pooling or the layer does not
            exist.
        """
        if pooling not in POOLINGS:
            raise UserError(f"pooling: {pooling!r} is not one of {', '.join(POOLINGS)}")
        graph = self._graph(layer)
        if pooling == "pooled" and not self.config.encoder.pooler:
            raise UserError("pooling: this encoder has no pooler: take mean")
        if pooling == "pooled" and layer not in (-1, self._num_layers):
            raise UserError(f"pooling: pooled is of the last layer, not of layer {layer}")
        _check_texts(texts, batch_size)
        sequences = self._sequences(list(texts))
        vectors = np.zeros((len(sequences), *self.shape(layer)), np.float32)
        for rows, outputs in self._batches(graph, sequences, batch_size):
            vectors[rows] = _pooled(outputs, pooling)
        return vectors

    @property
    def _num_layers(self) -> int:
        """L."""
        return self.config.encoder.num_states - 1

    def shape(self, layer: int | str) -> tuple[int, ...]:
        """Returns the shape of a vector: (D,), or (L + 1, D) for the layer 'all'."""
        size = self.config.encoder.hidden_size
        return (self._num_layers + 1, size) if layer == ALL else (size,)

    def tokens(
        self, texts: Sequence[str], layer: int | str = -1, batch_size: int = 32
    ) -> list[TokenVectors]:
        """Computes a vector for each token of each text: see `loaded_model.LoadedModel.tokens`.

        Raises:
          UserError: a single text is given instead of a list, or the layer does not exist.
        """
        graph = self._graph(layer)
        _check_texts(texts, batch_size)
        encoded = self.tokenizer.encode_with_offsets(list(texts))
        sequences = [ids for ids, _, _ in encoded]
        if self._reads_words:
            sequences = self._sequences(list(texts))
        results: list[TokenVectors | None] = [None] * len(sequences)
        before = 1 if self.config.encoder.layout == "cls_first" else 0  # special tokens
        specials = num_specials(1, self.tokenizer)
        for rows, outputs in self._batches(graph, sequences, batch_size):
            real = outputs["padding_mask"]  # [B, T]
            for row, states, first, count in zip(
                rows, outputs["states"], real.argmax(axis=1) + before, real.sum(axis=1), strict=True
            ):
                ids, starts, ends = (part[: count - specials] for part in encoded[row])
                results[row] = TokenVectors(
                    [self.tokenizer.pieces[i] for i in ids],
                    starts,
                    ends,
                    states[first : first + len(ids)].astype(np.float32),
                )
        return results

    @property
    def _reads_words(self) -> bool:
        """Whether the encoder reads the characters of words, and not ids alone."""
        return isinstance(self.tokenizer, Characters)

    def _sequences(self, texts: list[str]) -> list[np.ndarray]:
        """Returns the ids of each text, or its words in UTF-8 if the encoder reads these."""
        if not self._reads_words:
            return self.tokenizer.encode(texts)
        _, splits, words = self.tokenizer.encode_words(texts)
        return [words[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]

    def _batches(
        self, graph: Callable, sequences: Sequence[np.ndarray], batch_size: int
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields batches of texts of similar length: the indices of the texts and the outputs."""
        lengths = np.array([len(ids) for ids in sequences], int)
        self.cut += int(np.sum(lengths + num_specials(1, self.tokenizer) > self.max_length))
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(sequences), batch_size):
            rows = order[start : start + batch_size]
            chosen = [sequences[row] for row in rows]
            values = np.concatenate(chosen)
            if self._reads_words:
                values = tf.constant(values.tolist(), tf.string)
            else:
                values = values.astype(np.int32)
            tokens = tf.RaggedTensor.from_row_lengths(values, lengths[rows])
            yield rows, {name: value.numpy() for name, value in graph(tokens).items()}

    def _graph(self, layer: int | str) -> Callable[[tf.RaggedTensor], dict[str, tf.Tensor]]:
        """Returns the graph from tokens to the `states` of a layer, which is made once."""
        layers = self._num_layers
        if layer != ALL:
            if not -layers - 1 <= layer <= layers:
                raise UserError(
                    f"layer: {layer} is not there: 0 are the embeddings, 1 to {layers} the layers, "
                    "-1 is the last one"
                )
            layer %= layers + 1
        if layer in self._graphs:
            return self._graphs[layer]

        pack_all = pack_words if self._reads_words else pack

        def outputs(tokens: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            layout = self.config.encoder.layout
            batch = pack_all([tokens], self.tokenizer, self.max_length, layout)
            encoded = self.model.encode(batch, output_all=layer != layers)
            states = encoded["sequence_output"]
            if layer == ALL:
                states = tf.stack(encoded["hidden_states"], axis=2)  # [B, T, L + 1, D]
            elif layer < layers:
                states = encoded["hidden_states"][layer]
            tensors = {"states": states, "padding_mask": batch["padding_mask"]}
            if "pooled_output" in encoded and layer == layers:
                tensors["pooled_output"] = encoded["pooled_output"]
            return tensors

        dtype = tf.string if self._reads_words else tf.int32
        signature = [tf.RaggedTensorSpec([None, None], dtype)]
        self._graphs[layer] = tf.function(outputs, input_signature=signature, autograph=False)
        return self._graphs[layer]


def _pooled(outputs: dict[str, np.ndarray], pooling: str) -> np.ndarray:
    """Returns a vector for each row, [B, D], or [B, L + 1, D] for all layers."""
    if pooling == "pooled":
        return outputs["pooled_output"]
    states, real = outputs["states"], outputs["padding_mask"]  # [B, T, ...], [B, T]
    if pooling == "mean":
        return np.einsum("bt...,bt->b...", states, real / real.sum(axis=1, keepdims=True))
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
    layer: int | str = -1,
    tokens: bool = False,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the vectors of texts to a file. The file appears when it is complete.

    Args:
      embedder: computes the vectors.
      texts: the texts in the order of the file.
      output: `.npy`: float32 [number of texts, D], or [number of texts, L + 1, D] for the layer
        'all'. `.jsonl`: an object for each text, with `text`
        and `vector`, or with `text` and `tokens`, a list of objects with `piece`, `start`, `end`
        and `vector`.
      pooling: as for `Embedder.texts`; ignored for tokens.
      layer: as for `Embedder.texts`.
      tokens: whether to write vectors of tokens instead of texts.
      report: takes the lines of progress and the summary.

    Raises:
      UserError: the file has another suffix, or is `.npy` for tokens.
    """
    check_output(output, tokens)
    start_time = last_report = time.monotonic()
    suffix = Path(output).suffix
    with atomic.file(output, "wb" if suffix == ".npy" else "w") as stream:
        if suffix == ".npy":
            shape = (len(texts), *embedder.shape(layer))
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            if tokens:
                _write_tokens(stream, chunk, embedder.tokens(chunk, layer))
            elif suffix == ".npy":
                stream.write(embedder.texts(chunk, pooling, layer).astype("<f4").tobytes())
            else:
                for text, vector in zip(chunk, embedder.texts(chunk, pooling, layer), strict=True):
                    _write_line(stream, {"text": text, "vector": vector})
            now, done = time.monotonic(), start + len(chunk)
            if now - last_report > _SECONDS_BETWEEN_REPORTS and done < len(texts):
                rate = done / (now - start_time)
                left = (len(texts) - done) / rate
                report(f"{done:,} of {len(texts):,} texts, {rate:,.0f} texts/s, {left:,.0f} s left")
                last_report = now
    seconds = time.monotonic() - start_time
    report(
        f"{output}: {len(texts):,} texts, {seconds:.1f} s ({len(texts) / seconds:,.0f} texts/s); "
        f"{embedder.cut:,} cut at {embedder.max_length} tokens"
    )


def check_output(output: str | os.PathLike, tokens: bool) -> None:
    """Refuses a file that `write` cannot write."""
    if Path(output).suffix not in (".npy", ".jsonl"):
        raise UserError(f"{output}: vectors are written as .npy or .jsonl: name such a file")
    if tokens and Path(output).suffix == ".npy":
        raise UserError(
            f"{output}: texts have different numbers of tokens, which one array does not hold: "
            "name a .jsonl file"
        )


def _write_tokens(
    stream: IO[str], texts: Sequence[str], token_vectors: Sequence[TokenVectors]
) -> None:
    for text, (pieces, starts, ends, vectors) in zip(texts, token_vectors, strict=True):
        tokens = zip(pieces, starts.tolist(), ends.tolist(), vectors, strict=True)
        objects = [
            {"piece": piece, "start": start, "end": end, "vector": vector}
            for piece, start, end, vector in tokens
        ]
        _write_line(stream, {"text": text, "tokens": objects})


def _write_line(stream: IO[str], line: dict[str, object]) -> None:
    def numbers(vectors: np.ndarray) -> list:
        # Through `str`, which gives the shortest number that is the same float32.
        return [float(str(x)) for x in vectors] if vectors.ndim == 1 else list(vectors)

    stream.write(json.dumps(line, ensure_ascii=False, default=numbers) + "\n")
