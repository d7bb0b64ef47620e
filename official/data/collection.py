"""A test collection whose texts are batches: it measures the vectors of a model in training.

Shapes: B texts of a replica's batch, T tokens with padding.
"""

import dataclasses
import functools
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.data import checks
from official.data.fields import text_mask
from official.data.mixture import Data
from official.tasks import beir, text_files
from official.tokenizers.pair_packing import pack_texts
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.input_files import Inputs

BLOCK = 2048  # texts in memory
SEARCHED = ("sentence_embedding", "sparse_embedding")  # objectives with one vector of a text
QUERIES = "queries"  # what texts are, beside documents
_LENGTHS = (16, 32, 64, 128, 256)  # T of batches, and the largest one


@dataclasses.dataclass(frozen=True)
class Texts:
    """Some texts as batches, in one pass. Each of them is an example.

    Attributes:
      folder: where they are from, for messages.
      split: what they are, for messages.
      texts: the texts.
      tokenizer: the tokenizer.
      max_length: the largest number of tokens of a text, special tokens included.
      layout: as in `official.tokenizers.pair_packing`.
    """

    folder: str
    split: str
    texts: list[str]
    tokenizer: tokenizers.Tokenizer
    max_length: int
    layout: str

    @property
    def num_examples(self) -> int:
        """The number of texts."""
        return len(self.texts)

    def check_unchanged(self) -> None:
        """Does nothing: texts in memory do not change."""

    def dataset(
        self,
        batch_size: int,
        *,
        start_step: int = 0,
        workers: int = 1,
        worker: int = 0,
        replicas_per_worker: int = 1,
        one_length: bool = False,
    ) -> tf.data.Dataset:
        """Returns this worker's part of the batches; the arguments are those of `ShardDataset`.

        Texts of similar lengths are in a batch, which has one of few lengths.

        Returns:
          Dicts of the fields of `pack_texts` and of text_mask as [B, 1, T], example_weights float32
          [B], is_query bool [B], and number int64 [B], that of a text. In rows that fill a batch
          the weights are 0 and the numbers -1.
        """
        packed = pack_texts(
            [tf.constant(self.texts)], self.tokenizer, self.max_length, self.layout, pad=True
        )
        packed["text_mask"] = text_mask(
            packed["token_ids"], packed["padding_mask"], self.tokenizer.special_ids
        )
        arrays = {name: value.numpy() for name, value in packed.items()}
        lengths = arrays["padding_mask"].sum(axis=1)
        width = arrays["padding_mask"].shape[1]
        bounds = [] if one_length else [bound for bound in _LENGTHS if bound < width]
        replicas = workers * replicas_per_worker
        share = batch_size // replicas
        mine = slice(worker * replicas_per_worker, (worker + 1) * replicas_per_worker)
        parts = []
        for low, high in itertools.pairwise([-1, *bounds, width]):
            rows = np.flatnonzero((low < lengths) & (lengths <= high))
            filler = np.full(-len(rows) % batch_size, -1)
            all_numbers = np.concatenate([rows, filler]).reshape(-1, replicas, share)
            numbers = all_numbers[:, mine].reshape(-1, share)  # a row for each own replica
            # Padding is on the left where [CLS] is the last token.
            columns = slice(-high, None) if self.layout == "cls_last" else slice(high)
            fields = {name: array[numbers][:, :, None, columns] for name, array in arrays.items()}
            weights = (numbers >= 0).astype(np.float32)
            is_query = np.full(numbers.shape, self.split == QUERIES)
            fields |= {"number": numbers, "example_weights": weights, "is_query": is_query}
            parts.append(tf.data.Dataset.from_tensor_slices(fields))
        batches = functools.reduce(tf.data.Dataset.concatenate, parts)
        options = tf.data.Options()
        # The workers already have different rows.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.skip(start_step * replicas_per_worker).with_options(options)


class Collection:
    """A folder of BEIR that is searched with the vectors of a model.

    The texts have no prompts, as those of shards.

    Attributes:
      folder: the folder.
      split: the split of the queries.
      tokenizer: the tokenizer of the model.
      metrics: the names of the measures; the first one is the default of `recipe.best_metric`.
      qrels: query → document → grade.
      queries: the ids of the queries.
      documents: the ids of the documents.
      num_examples: the number of documents.
      fingerprint: a checksum of queries, judgments and documents.
    """

    metrics = beir.METRICS

    def __init__(
        self,
        folder: str | os.PathLike,
        config: configs.ResolvedConfig,
        tokenizer: tokenizers.Tokenizer,
        max_length: int,
        split: str = "validation",
    ):
        """Reads the folder; its documents are read again for each search.

        Args:
          folder: the folder.
          config: the config of the run.
          tokenizer: the tokenizer of the model.
          max_length: texts are cut to this number of tokens, special tokens included.
          split: the split of the queries.

        Raises:
          UserError: see `beir.read`; or the id of a document occurs twice.
        """
        judged = beir.read(folder, split)
        self._inputs = Inputs([judged.documents])
        self.folder, self.split, self.tokenizer = str(folder), split, tokenizer
        self.qrels = judged.qrels
        self.queries = list(judged.queries)
        self.documents: list[str] = []
        self._judged = judged
        self._max_length, self._layout = max_length, config.encoder.text_layout
        checksum = zlib.crc32(json.dumps([judged.queries, judged.qrels]).encode())
        for name, text in text_files.unique(judged.documents):
            self.documents.append(name)
            checksum = zlib.crc32(f"{name}\t{text}\n".encode(), checksum)
        self.num_examples = len(self.documents)
        self.fingerprint = f"{checksum:08x}"

    def check(self, config: configs.ResolvedConfig, replicas: int = 1) -> None:
        """Checks that a model can be measured by the search.

        Args:
          config: the resolved config of the run.
          replicas: the number of replicas on all workers together.

        Raises:
          UserError: the model learns no vectors of texts, a batch cannot be split among the
            replicas, or the recipe asks for what a search does not have.
        """
        recipe = config.recipe
        if not config.of_types(*SEARCHED):
            raise UserError(
                f"{self.folder}: a folder of BEIR is searched with the vectors of a model, and "
                "this one learns none: add the objective sentence_embedding, or name shards"
            )
        if recipe.best_metric and recipe.best_metric not in self.metrics:
            raise UserError(
                f"recipe.best_metric: {recipe.best_metric!r} is not measured by a search of "
                f"{self.folder}: choose one of {', '.join(self.metrics)}"
            )
        if recipe.eval_batches:
            raise UserError(
                f"recipe.eval_batches: {recipe.eval_batches}: not supported with {self.folder}, "
                "all of whose documents are searched: remove it"
            )
        checks.batch_parts(recipe.eval_batch_size or recipe.batch_size, replicas, 1)

    def texts_of_queries(self) -> Iterator[Texts]:
        """Yields the queries in blocks."""
        return self._blocks(QUERIES, iter(self._judged.queries.values()))

    def texts_of_documents(self) -> Iterator[Texts]:
        """Yields the documents in blocks.

        Raises:
          UserError: their file has changed.
        """
        read = text_files.texts_of(self._judged.documents)
        yield from self._blocks("documents", (text for _, text in read))
        self._inputs.check()

    def _blocks(self, what: str, texts: Iterator[str]) -> Iterator[Texts]:
        for block in batched(texts, BLOCK):
            yield Texts(self.folder, what, block, self.tokenizer, self._max_length, self._layout)


# The measures of a model in training.
Measured: TypeAlias = Data | Collection
