"""Vectors of texts and of their tokens from any layer of an encoder.

A bidirectional language model begins each text with a fresh state. ELMo's release keeps the state
of both directions from one batch to the next, so that its vectors depend on what was read before
(bilm-tf, `bilm/model.py`). `StateReader` does so from text to text.

Shapes: B batch, T tokens of the longest text in it, K tokens of a text, D hidden, L layers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official.config.late_interaction import LateInteractionConfig
from official.evaluation import max_sim
from official.evaluation.sparse_vectors import SparseVectors
from official.modeling.layers import kernels
from official.modeling.objectives import late_interaction
from official.modeling.objectives.sentence_embedding import Objective
from official.saving import embedding_settings, named_arrays, served_model, text_vectors
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.served_model import ServedModel
from official.serving.compute import first_call, length_groups, length_order, sparse_reader
from official.serving.export import int8_loss, litert
from official.serving.light import runs
from official.serving.light import writing as light_writing
from official.tokenizers.pair_packing import num_specials, pack, pack_words
from official.utils import given_texts
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report

# In place of the number of a layer: all of them; of ELMo, the mix of a head or the mean.
ALL, MIX = "all", "mix"
STATES = ("fresh", "carry")
STATIC_POSITIONS = 1 << 14  # of a batch of static vectors
# The numbers of the texts of a batch, and what is computed for them.
_Batches = Iterator[tuple[np.ndarray, dict[str, Any]]]


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


class StateReader:
    """Reads texts one after another, each from the state that the one before it left.

    Args:
      source: a model with an encoder of the type `bilm`. A text longer than its `max_length` is
        cut.

    Raises:
      UserError: the encoder has no state to carry.
    """

    def __init__(self, source: ServedModel):
        encoder, tokenizer = source.config.encoder, source.tokenizer
        if not (encoder.mixes_layers and tokenizer.reads_words):
            raise UserError(
                f"state: carry: not supported for {encoder.type}, only for bilm (ELMo); remove it"
            )
        head = text_vectors.head_of(source.model)
        count, _, size = encoder.memory_shape  # 2 L, C + P
        self._state = tf.zeros((1, count, 1, size))

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec(self._state.shape)],
            autograph=False,
        )
        def read(words, state):
            words = tf.RaggedTensor.from_row_lengths(words, [tf.size(words)])
            batch = pack_words([words], tokenizer, source.max_length, encoder.layout)
            encoded = source.model.encode({**batch, "memory": state}, output_all=True)
            states = tf.stack([x[0] for x in encoded["hidden_states"]], axis=1)
            mixed = text_vectors.mixed(encoded, head)[0]
            return tf.cast(states, tf.float32), mixed, encoded["memory"]

        self._read = read

    def __call__(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads a text.

        Args:
          words: its words in UTF-8.

        Returns:
          All layers, float32 [T, L + 1, D], and the vectors of `text_vectors.mixed`, float32
          [T, D]; the marks are included.
        """
        states, mixed, self._state = self._read(tf.constant(words.tolist(), tf.string), self._state)
        return states.numpy(), mixed.numpy()


class Embedder:
    """Computes vectors with the encoder of a model.

    Args:
      source: the model and its tokenizer.
      lite: the precision in which LiteRT computes the vectors (`litert.PRECISIONS`); None =
        TensorFlow computes them.

    Attributes:
      settings: the settings of the vectors of texts.
      is_sparse: whether searches and files have sparse vectors; by default of a model that has
        learned them.
      cut: the number of texts so far that were longer than `max_length`.
      pool_factor: how many times fewer vectors documents have than tokens; see
        `compared_tokens`.
      repeatable: whether each batch has the same bits whenever it is computed. By default the first
        ones may differ by rounding: see `first_call`.

    Raises:
      UserError: LiteRT has no such precision, or the encoder is an ELMo.
    """

    def __init__(self, source: ServedModel, lite: str | None = None):
        self._source = source
        self.config = source.config
        self.tokenizer = source.tokenizer
        self.model = source.model
        self.max_length = source.max_length
        self.settings = source.embedding
        self.is_sparse = sparse_reader.is_sparse(source.model)
        self.cut = 0
        self.repeatable = False
        self.pool_factor = 1.0
        self._lite = lite
        self._graphs: dict[Hashable, Callable] = {}
        self._lites: dict[Hashable, litert.Function] = {}
        # The most positions of a batch, and of its padding. A GPU takes large batches best.
        self._positions, self._padding = math.inf, math.inf
        # To start a batch of static vectors takes most of its time, so it has any number of texts.
        self._by_positions = lite is None and self.config.encoder.pools_texts
        if lite is not None:
            self._positions = runs.POSITIONS
        elif self._by_positions:
            self._positions = self._padding = STATIC_POSITIONS
        elif not tf.config.list_physical_devices("GPU"):
            self._positions = length_groups.POSITIONS
            self._padding = length_groups.max_padding(self.config.encoder.hidden_size)
        self._split = first_call.split_with_offsets(source.tokenizer)
        if lite is not None:
            litert.check(lite)
            if self._is_elmo:
                raise UserError("--runtime=litert: not supported for bilm (ELMo); remove --runtime")

    def texts(
        self,
        texts: Sequence[str],
        settings: EmbeddingSettings | None = None,
        layer: int | str | None = None,
        batch_size: int = 32,
        state: str | StateReader = "fresh",
        prompt: str | None = None,
        report: Report | None = None,
    ) -> np.ndarray:
        """Computes a vector for each text: see `loaded_model.LoadedModel.encode`.

        A `state` that is a `StateReader` reads on from the texts that it has read.
        `settings` of None are those of the model.

        Returns:
          float32 [number of texts, D], in the order of `texts`; with the layer 'all' [number of
          texts, L + 1, D].

        Raises:
          UserError: as there.
        """
        settings = settings or self.settings
        layer = self._number(self.default_layer if layer is None else layer)
        self._check_settings(settings, layer)
        before = settings.prompt(prompt)
        reader = self._reader(state)
        given_texts.check_texts(texts, batch_size)
        sequences = self._sequences([before + text for text in texts])
        skipped = text_vectors.skipped(before, settings, self.config.encoder, self.tokenizer)
        max_length = settings.max_length or self.max_length
        vectors = np.zeros((len(sequences), *self.shape(layer, settings)), np.float32)
        batches: _Batches
        if reader is not None:
            each = self._in_order(reader, sequences, layer)
            batches = ((rows, self._vectors(read, settings, layer, skipped)) for rows, read in each)
        else:
            graph = self._graph(layer, max_length, settings, skipped)
            batches = self._batches(graph, sequences, batch_size, max_length)
        progress = Progress(len(sequences), report, unit="texts")
        for rows, outputs in batches:
            vectors[rows] = outputs["vectors"]
            progress(len(rows))
        return vectors

    def sparse(
        self,
        texts: Sequence[str],
        prompt: str | None = None,
        settings: EmbeddingSettings | None = None,
        batch_size: int = 32,
        report: Report | None = None,
    ) -> SparseVectors:
        """Computes a sparse vector for each text: see `loaded_model.LoadedModel.encode`.

        Raises:
          UserError: as there, or the model has no masked LM.
        """
        settings = settings or self.settings
        reader = sparse_reader.SparseReader(self._source, prompt, settings)
        if settings.max_length is not None:
            served_model.check_max_length(settings.max_length, self.config.encoder)
        given_texts.check_texts(texts, batch_size)
        sequences = self._sequences([reader.before + text for text in texts])
        max_length = settings.max_length or self.max_length

        def packed(tokens: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            return pack([tokens], self.tokenizer, max_length, self._layout)

        def computed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with kernels.using(gradients=False):
                return {"vectors": reader.vectors(batch)}

        key = ("sparse", max_length, reader.by_table, reader.before)
        graph = self._function(key, packed, computed)
        parts, numbers = [], [np.zeros(0, int)]
        progress = Progress(len(sequences), report, unit="texts")
        for rows, outputs in self._batches(graph, sequences, batch_size, max_length):
            parts.append(SparseVectors.of(outputs["vectors"], settings.max_active_dims))
            numbers.append(rows)
            progress(len(rows))
        order = np.argsort(np.concatenate(numbers))
        return SparseVectors.joined(parts, reader.size).rows(order)

    @property
    def sparse_size(self) -> int:
        """The size of a sparse vector.

        Raises:
          UserError: the model has none.
        """
        return sparse_reader.SparseReader(self._source).size

    def checksum(self, settings: EmbeddingSettings) -> str:
        """Returns the SHA-256 of all weights, of settings and of the precision."""
        arrays = named_arrays.values(self.model.variables_by_path())
        return named_arrays.digest(arrays, {**dataclasses.asdict(settings), "lite": self._lite})

    def _check_settings(self, settings: EmbeddingSettings, layer: int | str) -> None:
        """Raises UserError if the encoder does not have what the settings name."""
        if "pooled" in settings.pooling and not self.config.encoder.pooler:
            raise UserError("pooling: this encoder has no pooler: use mean")
        if "pooled" in settings.pooling and layer != self._num_layers:
            raise UserError(f"pooling: pooled: not supported for layer {layer}, only the last")
        if settings.max_length is not None:
            served_model.check_max_length(settings.max_length, self.config.encoder)

    def _vectors(
        self,
        outputs: Mapping[str, tf.Tensor],
        settings: EmbeddingSettings,
        layer: int | str,
        skipped: int = 0,
    ) -> dict[str, tf.Tensor]:
        """Returns the `vectors` of texts from their states, in a graph or eagerly.

        Args:
          outputs: `states` [B, T, ..., D], `padding_mask` [B, T] and, if there is a pooler,
            `pooled_output` [B, D].
          settings: the settings.
          layer: that of the states.
          skipped: the number of tokens of a row, with [CLS], that are not pooled.
        """
        real = tf.convert_to_tensor(outputs["padding_mask"])
        vectors = text_vectors.pooled(
            tf.convert_to_tensor(outputs["states"]),
            real,
            settings,
            text_vectors.counted(self.config.encoder, real, skipped),
            outputs.get("pooled_output"),
            self._head(layer),
        )
        return {"vectors": vectors}

    def _head(self, layer: int | str) -> Objective | None:
        """Returns the objective that learned the vectors of texts from the states of a layer."""
        head = text_vectors.head_of_texts(self.model)
        return head if layer == self._number(self.default_layer) else None

    @property
    def _first(self) -> int:
        """The number of special tokens before a text."""
        return 1 if self._layout == "cls_first" else 0

    @property
    def _layout(self) -> str:
        """The layout of the texts."""
        return self.config.encoder.text_layout

    @property
    def _is_elmo(self) -> bool:
        """Whether the encoder is ELMo's, whose vectors of texts are those of its TF-Hub module."""
        return self.config.encoder.mixes_layers

    @property
    def default_layer(self) -> int | str:
        """The layer of the vectors of texts that is read if none is given."""
        return MIX if self._is_elmo else -1

    def reader(self) -> StateReader:
        """Returns what reads texts with a carried state, which is fresh.

        Raises:
          UserError: the encoder has no state to carry.
        """
        return StateReader(self._source)

    def _reader(self, state: str | StateReader) -> StateReader | None:
        """Returns the reader of a carried state; None = each text begins with a fresh one."""
        if isinstance(state, StateReader):
            return state
        if state not in STATES:
            raise UserError(f"state: {state!r} is not one of {', '.join(STATES)}")
        return self.reader() if state == "carry" else None

    @property
    def _num_layers(self) -> int:
        """L."""
        return self.config.encoder.num_states - 1

    def shape(self, layer: int | str | None, settings: EmbeddingSettings) -> tuple[int, ...]:
        """Returns the shape of a vector: (D,), or (L + 1, D) for 'all'; None = the default."""
        layer = self.default_layer if layer is None else layer
        head = self._head(self._number(layer))
        size = text_vectors.size(self.config.encoder, settings, head)
        return (self._num_layers + 1, size) if layer == ALL else (size,)

    def tokens(
        self,
        texts: Sequence[str],
        layer: int | str | None = None,
        batch_size: int = 32,
        state: str | StateReader = "fresh",
    ) -> list[TokenVectors]:
        """Computes a vector for each token of each text: see `loaded_model.LoadedModel.tokens`.

        A `state` that is a `StateReader` reads on from the texts that it has read.

        Raises:
          UserError: a single text is given instead of a list, or the layer does not exist, or the
            encoder has no state to carry.
        """
        layer = self._number(-1 if layer is None else layer)
        graph = self._graph(layer, self.max_length)
        reader = self._reader(state)
        given_texts.check_texts(texts, batch_size)
        encoded = self.tokenizer.encode_with_offsets(list(texts), split=self._split)
        sequences = [ids for ids, _, _ in encoded]
        if self.tokenizer.reads_words:
            sequences = self._sequences(list(texts))
        results: dict[int, TokenVectors] = {}
        before = self._first
        specials = num_specials(1, self.tokenizer, self._layout)
        batches = self._batches(graph, sequences, batch_size, self.max_length)
        if reader is not None:
            batches = self._in_order(reader, sequences, layer)
        for rows, outputs in batches:
            real = outputs["padding_mask"]  # [B, T]
            for row, states, first, count in zip(
                rows, outputs["states"], real.argmax(axis=1) + before, real.sum(axis=1), strict=True
            ):
                kept = self.tokenizer.pairs.kept(len(encoded[row][0]), count - specials)
                ids, starts, ends = (part[kept] for part in encoded[row])
                results[row] = TokenVectors(
                    [self.tokenizer.pieces[i] for i in ids],
                    starts,
                    ends,
                    states[first : first + len(ids)].astype(np.float32),
                )
        return [results[row] for row in range(len(sequences))]

    @functools.cached_property
    def late(self) -> late_interaction.Objective:
        """The objective of the model that makes the vectors of tokens that are compared.

        Raises:
          UserError: the model has none.
        """
        if not self.has_late:
            raise UserError(
                "this model makes no vectors of tokens for a search: train it for the objective "
                "late_interaction"
            )
        return self.model.objective(LateInteractionConfig.type)

    @property
    def has_late(self) -> bool:
        """Whether the model has the objective `late_interaction`, by which texts are searched."""
        return self.model.objective(LateInteractionConfig.type) is not None

    def compared_tokens(
        self,
        texts: Sequence[str],
        kind: str,
        batch_size: int = 32,
        report: Report | None = None,
    ) -> list[np.ndarray]:
        """Computes the vectors of tokens: see `loaded_model.LoadedModel.token_vectors`.

        Documents have fewer of them if `pool_factor` is above 1.
        """
        head = self.late
        if kind not in embedding_settings.PROMPTS:
            raise UserError(f"kind: {kind!r} is not one of {', '.join(embedding_settings.PROMPTS)}")
        given_texts.check_texts(texts, batch_size)
        own = head.config.lengths[kind]
        limit = self.settings.max_length if kind == "document" else None
        max_length = min(x for x in (own, limit, self.max_length) if x is not None)
        before = head.config.text_before(kind, self.tokenizer)
        sequences = self.tokenizer.encode([(before or "") + text for text in texts])
        graph = self._late_graph(kind, max_length)
        results: dict[int, np.ndarray] = {}
        progress = Progress(len(sequences), report, unit="texts")
        for rows, outputs in self._batches(graph, sequences, batch_size, max_length):
            for row, vectors, scored in zip(
                rows, outputs["vectors"], outputs["scored"], strict=True
            ):
                results[row] = vectors[scored].astype(np.float32)
            progress(len(rows))
        found = [results[row] for row in range(len(sequences))]
        if kind == "query":
            return found
        return [max_sim.pooled(each, self.pool_factor) for each in found]

    def _late_graph(self, kind: str, max_length: int) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the function from tokens to `vectors` and `scored`, which is made once."""
        head = self.late
        prefixed = head.config.text_before(kind, self.tokenizer) is None

        def packed(tokens: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            batch = pack([tokens], self.tokenizer, max_length - prefixed, self._layout)
            is_query = tf.fill([tf.shape(batch["token_ids"])[0]], kind == "query")
            return {**head.rows(batch, is_query, prefixed)}

        def computed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with kernels.using(gradients=False):
                encoded = self.model.encode(batch)
                return {"vectors": head.unit_vectors(encoded["sequence_output"])}

        return self._function((kind, max_length), packed, computed, ("scored",))

    def pieces(self, ids: Sequence[int] | np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Computes a vector for each piece, which is alone in a row with the special tokens.

        Args:
          ids: the ids of the pieces.
          batch_size: the number of pieces in a batch.

        Returns:
          float32 [number of pieces, D]: the means over all states of the rows, those of special
          tokens too.
        """
        layer = self._number(self.default_layer)
        sequences = [np.array([i], np.int32) for i in ids]
        if self.tokenizer.reads_words:
            names = (self.tokenizer.pieces[i].encode() for i in ids)
            sequences = [np.array([name], object) for name in names]
        vectors = np.zeros((len(ids), self.config.encoder.hidden_size), np.float32)
        graph = self._graph(layer, self.max_length)
        for rows, outputs in self._batches(graph, sequences, batch_size, self.max_length):
            real = outputs["padding_mask"][..., None]  # [B, T, 1]
            total = np.sum(outputs["states"] * real, axis=1, dtype=np.float32)
            vectors[rows] = total / real.sum(axis=1)
        return vectors

    def _sequences(self, texts: list[str]) -> list[np.ndarray]:
        """Returns the ids of each text, or its words in UTF-8 if the encoder reads these."""
        if not self.tokenizer.reads_words:
            return self.tokenizer.encode(texts)
        _, splits, words = self.tokenizer.encode_words(texts)
        return [words[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]

    def _count_cut(self, sequences: Sequence[np.ndarray], max_length: int) -> np.ndarray:
        """Counts the texts that are cut, and returns the lengths of all."""
        lengths = np.array([len(ids) for ids in sequences], int)
        specials = num_specials(1, self.tokenizer, self._layout)
        self.cut += int(np.sum(lengths + specials > max_length))
        return lengths

    def _batches(
        self, graph: Callable, sequences: Sequence[np.ndarray], batch_size: int, max_length: int
    ) -> _Batches:
        """Yields batches of texts of similar length: the indices of the texts and the outputs."""
        lengths = self._count_cut(sequences, max_length)
        alone = len(sequences) <= batch_size and not self.repeatable

        def computed(rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            chosen = [sequences[row] for row in rows]
            values = np.concatenate(chosen)
            if self.tokenizer.reads_words:
                values = tf.constant(values.tolist(), tf.string)
            else:
                values = values.astype(np.int32)
            outputs = graph(values, lengths[rows], alone=alone)
            return rows, {name: np.asarray(value) for name, value in outputs.items()}

        groups = self._groups(lengths, batch_size, max_length)
        if self._lite is None:
            yield from map(computed, groups)
        else:
            yield from runs.in_threads(computed, groups, litert.num_threads())

    def _groups(
        self, lengths: np.ndarray, batch_size: int, max_length: int
    ) -> Iterator[np.ndarray]:
        """Yields the indices of the texts of each batch, the shortest texts first."""
        specials = num_specials(1, self.tokenizer, self._layout)
        most = None if self._by_positions else batch_size
        return length_order.groups(
            lengths + specials, max_length, most, self._positions, self._padding
        )

    def _in_order(
        self, reader: StateReader, sequences: Sequence[np.ndarray], layer: int | str
    ) -> _Batches:
        """Yields what `_batches` does for each text, with the state carried from text to text."""
        self._count_cut(sequences, self.max_length)
        for row, sequence in enumerate(sequences):
            states, mixed = reader(sequence)
            named = {ALL: states, MIX: mixed}
            chosen = named[layer] if isinstance(layer, str) else states[:, layer]
            real = np.ones((1, len(states)), bool)
            yield np.array([row]), {"states": chosen[None], "padding_mask": real}

    def _number(self, layer: int | str) -> int | str:
        """Returns the number of a layer from 0 on, or the name of several.

        Raises:
          UserError: the encoder does not have it.
        """
        layers = self._num_layers
        if layer == MIX and not self._is_elmo:
            raise UserError(
                f"layer: mix: not supported for {self.config.encoder.type}, only for bilm (ELMo)"
            )
        if isinstance(layer, str):
            if layer not in (ALL, MIX):
                raise UserError(
                    f"layer: {layer!r} is not a layer: give a number, {ALL!r} or {MIX!r}"
                )
            return layer
        if not -layers - 1 <= layer <= layers:
            raise UserError(
                f"layer: {layer} is out of range: 0 is the embeddings, 1 to {layers} are the "
                "layers, and -1 is the last one"
            )
        return layer % (layers + 1)

    def _graph(
        self,
        layer: int | str,
        max_length: int,
        settings: EmbeddingSettings | None = None,
        skipped: int = 0,
    ) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the function from tokens to the `states` of a layer, which is made once.

        It is called as `first_call.Function` is.
        With `settings` it returns the `vectors` of the texts instead; see `_vectors`.
        """
        layers = self._num_layers
        key = _key(layer, max_length, settings, skipped)
        head = text_vectors.head_of(self.model)

        def packed(tokens: tf.RaggedTensor) -> dict[str, tf.Tensor]:
            if self.tokenizer.reads_words:
                return pack_words([tokens], self.tokenizer, max_length, self._layout)
            return pack([tokens], self.tokenizer, max_length, self._layout)

        def computed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with kernels.using(gradients=False):
                encoded = self.model.encode(batch, output_all=layer != layers)
            states = encoded["sequence_output"]
            if layer == ALL:
                states = tf.stack(encoded["hidden_states"], axis=2)  # [B, T, L + 1, D]
            elif layer == MIX:
                states = text_vectors.mixed(encoded, head)
            elif isinstance(layer, int) and layer < layers:
                states = encoded["hidden_states"][layer]
            tensors = {"states": states, "padding_mask": batch["padding_mask"]}
            if "pooled_output" in encoded and layer == layers:
                tensors["pooled_output"] = encoded["pooled_output"]
            return tensors if settings is None else self._vectors(tensors, settings, layer, skipped)

        return self._function(key, packed, computed)

    def save_light(self, folder: AnyPath) -> str | None:
        """Writes what computes the vectors of texts without TensorFlow; see `light.writing.write`.

        The embedder computes by LiteRT.

        Args:
          folder: the folder, which exists.

        Returns:
          Why nothing was written, in words; None = it was.
        """
        if self.is_sparse or self.has_late:
            return "it compares other vectors than those of texts"
        layer, settings = self._number(self.default_layer), self.settings
        max_length = settings.max_length or self.max_length
        self._graph(layer, max_length, settings)
        function = self._lites[_key(layer, max_length, settings, 0)]
        (folder / litert.FILE).write_bytes(function.content)
        (size,) = self.shape(layer, settings)
        return light_writing.write(
            folder, self.tokenizer, self._layout, settings, max_length, size, litert.SIGNATURE,
            {name: name for name in length_groups.FIELDS}, int8_loss.TEXTS,
        )  # fmt: skip

    def _function(
        self,
        key: Hashable,
        packed: Callable[[tf.RaggedTensor], dict[str, tf.Tensor]],
        computed: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]],
        kept: tuple[str, ...] = (),
    ) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the function from tokens to what is computed, which is made once.

        It takes the tokens of all texts, one text after another, and their numbers, int64 [B].

        Args:
          key: what the function depends on.
          packed: makes a batch of tokens.
          computed: makes the outputs of a batch.
          kept: the fields of the batch that are outputs, too.
        """
        if key in self._graphs:
            return self._graphs[key]

        def fields(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: batch[name] for name in kept}

        # Two tensors: a RaggedTensor is checked on its way into a graph, as long as a text takes.
        def batch_of(values: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
            return packed(tf.RaggedTensor.from_row_lengths(values, lengths, validate=False))

        def outputs(values: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
            batch = batch_of(values, lengths)
            return computed(batch) | fields(batch)

        dtype = tf.string if self.tokenizer.reads_words else tf.int32
        signature = [tf.TensorSpec([None], dtype), tf.TensorSpec([None], tf.int64)]
        if self._lite is None:
            self._graphs[key] = first_call.Function.of(outputs, signature)
        else:
            variables = [variable.value for variable in self.model.variables_by_path().values()]
            function = litert.Function(computed, variables, self._lite)
            self._lites[key] = function
            rows = tf.function(batch_of, input_signature=signature, autograph=False)

            def by_litert(
                values: tf.Tensor, lengths: tf.Tensor, alone: bool
            ) -> dict[str, tf.Tensor]:
                del alone
                batch = rows(values, lengths)
                return function(batch) | fields(batch)

            self._graphs[key] = by_litert
        return self._graphs[key]


def _key(
    layer: int | str, max_length: int, settings: EmbeddingSettings | None, skipped: int
) -> Hashable:
    """Returns what a graph of states, or with `settings` of vectors, depends on."""
    pools = settings and (settings.pooling, settings.normalize, settings.size)
    return layer, max_length, pools, skipped
