"""Generates the target of a text with an encoder-decoder: greedily, by draws, or by beam search.

The encoder reads a batch once, and its keys and values for the decoder are computed once. The whole
search is one graph with a key-value cache of static shape. The input of a text is its tokens and
the end token, as in T5 (Raffel et al. 2020, section 3.1); longer texts are cut, and the end token
stays. The output is cut at its first end token. The token table may have more rows than the
vocabulary has entries: such a row is decoded as an unknown token, as in T5.

Shapes: B batch, T length of the padded texts, N maximum number of new tokens, K beams, V
vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official.evaluation.generated_texts import decoded
from official.modeling import masks
from official.modeling.encoders.inputs import encode
from official.serving import beam_search, padding, requests, served_model, token_loop
from official.serving.generation_settings import Settings
from official.serving.served_model import ServedModel
from official.serving.token_loop import Processors
from official.utils.errors import UserError
from official.utils.progress import Progress, Report


class TextGenerator:
    """Generates texts from texts with a model.

    Attributes:
      model: the model.
      tokenizer: the tokenizer of the model.
      start_id: the token that the decoder reads first.
      end_id: the last token of an input and of an output.
      max_length: the maximum number of tokens of an input, with the end token.
    """

    def __init__(self, source: ServedModel):
        """Initializes a generator.

        Raises:
          UserError: the model has no objective `seq2seq_lm`.
        """
        heads = [o for o in source.model.objectives if o.config.type == "seq2seq_lm"]
        if not heads:
            raise UserError("this model cannot write: it has no seq2seq_lm objective")
        self._head = heads[0]
        self.model = source.model
        self.tokenizer = source.tokenizer
        self.start_id = self._head.config.start_id
        self.end_id = self.tokenizer.sep_id
        self.max_length = source.max_length
        self._graph = token_loop.in_place_graph(self.write)
        self._beam_graph = token_loop.in_place_graph(self.search)

    def texts(
        self,
        texts: Sequence[str],
        settings: Settings = Settings(),  # noqa: B008
        batch_size: int = 8,
        report: Report | None = None,
    ) -> list[str]:
        """Generates a text for each text.

        Args:
          texts: any number of texts. A text may be empty.
          settings: the settings of the search. The default temperature is 0.
          batch_size: the number of texts in a batch.
          report: is called with lines of progress; None = there are none.

        Returns:
          The generated texts, without the texts that were read; `num_return_sequences` for each
          text, one after another.

        Raises:
          UserError: a single text is given instead of a list, or the batch size is less than 1.
        """
        served_model.check_texts(texts, batch_size, "generate")
        encoded = self.tokenizer.encode(list(texts))
        rows = [[*ids[: self.max_length - 1], self.end_id] for ids in encoded]
        batches = padding.batches(
            rows, batch_size, self.max_length, self.tokenizer.pad_id, side="right"
        )
        progress, written = Progress(len(rows), report, unit="texts"), []
        for numbers, ids, mask in batches:
            new = self.ids(ids, mask, settings, numbers)
            written += [decoded(row, self.tokenizer) for row in new]
            progress(len(ids))
        return written

    def ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray,
        settings: Settings = Settings(),  # noqa: B008
        numbers: np.ndarray | None = None,
    ) -> np.ndarray:
        """Generates token ids.

        Args:
          token_ids: int [B, T].
          padding_mask: bool [B, T].
          settings: the settings of the search.
          numbers: the numbers of the texts, int [B]; None = 0, 1, ... The draws for a text depend
            on its number.

        Returns:
          int32 [B * num_return_sequences, N]. Padding follows `end_id`.
        """
        settings = settings.with_temperature(0.0)
        return requests.ids(
            self._graph,
            self._beam_graph,
            token_ids,
            padding_mask,
            settings,
            numbers,
            self.model.encoder.config.vocab_size,
        )

    def beams(
        self, token_ids: np.ndarray, padding_mask: np.ndarray, settings: Settings
    ) -> tuple[np.ndarray, np.ndarray]:
        """Searches with beams; arguments as in `ids`.

        Returns:
          The ids int32 [B, K, N], best first, and the scores float32 [B, K].
        """
        return requests.beams(self._beam_graph, token_ids, padding_mask, settings)

    def write(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        rules: Mapping[str, Any] | None = None,
        **draws: tf.Tensor,
    ) -> tf.Tensor:
        """Computes `ids` in a graph, greedily or with the arguments of `token_loop.choice`.

        `rules` are arguments of `Processors`; None = no rules.
        """
        own, cross, mask = self._read(token_ids, padding_mask, max_new_tokens)

        def read(token, i, own):
            return self._decoded(token, i + 1, own, cross, mask)

        start = tf.fill(tf.shape(token_ids)[:1], self.start_id)
        logits, own = self._decoded(start, 0, own, cross, mask)
        loop = token_loop.TokenLoop(
            max_new_tokens, self.end_id, self.tokenizer.pad_id, self._processors(start, rules)
        )
        return loop.run(token_loop.choice(max_new_tokens, **draws), read, logits, own)

    def search(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        num_beams: int,
        length_rule: str,
        length_penalty: float | tf.Tensor,
        early_stopping: bool | str | None = None,
        rules: Mapping[str, Any] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Searches with beams, in a graph: see `beam_search.search`; `rules` as in `write`.

        Returns:
          int32 [B, K, N], best first, and the scores float32 [B, K].
        """
        own, cross, mask = self._read(token_ids, padding_mask, max_new_tokens)
        own, cross, mask = tf.nest.map_structure(
            lambda x: tf.repeat(x, num_beams, axis=0), (own, cross, mask)
        )

        def step(tokens, i, own):
            logits, own = self._decoded(tokens, i, own, cross, mask)
            return tf.nn.log_softmax(logits), own

        start = tf.fill(tf.shape(token_ids)[:1], self.start_id)
        processors = self._processors(start, rules)
        beams = beam_search.Beams(
            num_beams,
            max_new_tokens,
            self.start_id,
            self.end_id,
            self.tokenizer.pad_id,
            length_penalty,
            length_rule,
            early_stopping,
            processors and processors.repeated(num_beams),
        )
        return beam_search.search(step, own, tf.shape(token_ids)[0], beams)

    def _processors(self, start: tf.Tensor, rules: Mapping[str, Any] | None) -> Processors | None:
        """Returns the rules of a search whose decoder reads the tokens `start` [B] first."""
        if not rules:
            return None
        return Processors(start[:, None], tf.zeros_like(start), self.end_id, **rules)

    def _read(self, token_ids, padding_mask, slots):
        """Encodes a batch; returns the decoder's empty cache, the encoder's keys, and the mask."""
        batch = {"token_ids": token_ids, "padding_mask": padding_mask}
        encoded = encode(self.model.encoder, batch)["sequence_output"]
        own, cross = self.model.encoder.empty_cache(encoded, slots)
        return own, cross, masks.padding(padding_mask)

    def _decoded(self, tokens, slot, own, cross, mask):
        """Reads tokens [B] at a slot; returns the logits of the next ones and the cache."""
        hidden, (own, _) = self.model.encoder.decode(tokens[:, None], (own, cross), slot, mask)
        return self._head.logits(hidden[:, 0], self.model.encoder), own
