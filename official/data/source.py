"""Reads shard folders as batches for training, evaluation and prediction.

The order and the masks are functions of (seed, epoch, number of the example). A run that resumes
therefore reads the same batches, with any number of workers; see `official.data.lanes`.

Shapes: B examples of a replica's batch, C sequences of an example, T tokens with padding.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.registry import objective_fields
from official.corruption.vocabulary import Vocabulary, check_tokens
from official.data import checks, teacher_outputs
from official.data.batches import BatchBuilder
from official.data.example_order import Files
from official.data.order import Order
from official.data.row_groups import Folder
from official.shards import layer_states, manifest, parsing, shard_folder, stored_arrays
from official.utils import gfile, paths
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official.data.mixture import Mixture

_DERIVED = {"target_ids": {"target_mask"}}  # fields that come with a target


class ShardDataset:
    """Examples of one split of one or more shard folders.

    Attributes:
      folder: the folder, or several separated by commas, for messages.
      split: the name of the split, such as 'train', 'validation' or 'test'.
      manifest: the manifest of the (first) folder.
      tokenizer: the tokenizer that the examples were made with.
      num_examples: the number of examples in the split.
      fingerprint: a checksum of the examples and their order; see
        `official.shards.manifest.fingerprint`.
      max_length: T, the largest number of tokens in a row.
      rows: of a stream, the number of rows: row b of each batch continues row b of the batch
        before it. None = the examples are independent.
    """

    def __init__(
        self,
        folders: str | os.PathLike | Sequence[str | os.PathLike],
        config: configs.Config,
        split: str = "train",
        training: bool = False,
        numbered: bool = False,
        verify: bool | None = None,
        shares: Sequence[float] = (),
    ):
        """Reads the manifests and compares the shards of the split with them.

        Args:
          folders: one folder or several, whose examples are numbered in this order.
          config: the config of the run. Its seed, segments, corruption and recipe are used, and the
            layout that its encoder expects.
          split: the split to read.
          training: True = batches without end, shuffled unless they are a stream; False = one
            pass in order.
          numbered: whether batches have the numbers of their examples, `example_number` [B].
          verify: whether to compare every byte of the shards now. If not, only their sizes are
            compared now, and each record with its checksum (CRC-32C) when it is read. None = not in
            training, so that a run starts soon.
          shares: in training, the share that each folder has of every batch, up to a factor; see
            `official.data.lanes`. Empty = the examples of all folders are shuffled together.

        Raises:
          UserError: a folder or split does not exist, a shard has changed since it was written, or
            the folders do not fit one another or the config.
        """
        folders = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
        self.folder = ", ".join(map(str, folders))
        self.config = config
        self.split = split
        self.training = training
        manifests = [shard_folder.read(paths.path(path), split) for path in folders]
        for path in folders:
            shard_folder.verify(
                paths.path(path), split, deep=not training if verify is None else verify
            )
        self.manifest = manifests[0]
        self.max_length = max(m.max_length for m in manifests)
        self.num_examples = sum(s.records for m in manifests for s in m.split(split))
        self.fingerprint = manifest.fingerprint(manifests, split, shares)
        checks.folders(folders, manifests, training)
        self.tokenizer = shard_folder.load_tokenizer(paths.path(folders[0]), self.manifest)
        features = self.manifest.features_of(split)
        checks.packing(self.folder, features, config)
        checks.bare_rows(self.folder, self.manifest, config)
        self.rows = checks.stream_rows(self.folder, config, manifests)
        checks.shares(self.folder, self.manifest, shares, training, stream=self.rows is not None)
        self._longest_sequence = max(  # rows that several sequences share may be longer
            m.segments.max_length if m.segments else m.max_length for m in manifests
        )
        self._taught = teacher_outputs.read(
            config, split, self.fingerprint, self.num_examples, training
        )
        self._states = None
        if given := config.recipe.layer_states:
            self._states = layer_states.read(given, split, self.fingerprint, required=training)
        self._numbered = numbered
        counts = [
            stored_arrays.read_token_counts(*pair) for pair in zip(folders, manifests, strict=True)
        ]
        limits = parsing.Limits.of(self.folder, self.manifest, split, self.tokenizer.vocab_size)
        parts = max(m.segments.packing if m.segments else 1 for m in manifests)
        limits = dataclasses.replace(limits, tokens=self.max_length, parts=parts)
        self._build_batch = self._batch_builder(
            limits,
            parts=parts,
            token_counts=None if any(c is None for c in counts) else sum(counts),
        )
        self._order = Order(
            [
                Folder(Files.from_manifest(path, each, split), each.row_groups)
                for path, each in zip(folders, manifests, strict=True)
            ],
            config.seed,
            training,
            shares,
            self.rows,
            self._bounds(),
            sequences=bool(self._build_batch.sequences),
            limits=limits,
        )

    def _bounds(self) -> list[int]:
        """Returns the lengths that batches are padded to; empty = always `max_length`."""
        bounds = self.config.recipe.bucket_lengths
        shorter = [bound for bound in bounds if bound < self.max_length]
        return [*shorter, self.max_length] if bounds else []

    def _batch_builder(
        self, limits: parsing.Limits, parts: int, token_counts: np.ndarray | None
    ) -> BatchBuilder:
        """Returns the function from records to batches.

        Args:
          limits: what the numbers of examples are limited to.
          parts: the largest number of sequences that share a row.
          token_counts: the count of each vocabulary entry in the corpus; None = unknown.

        Raises:
          UserError: the config expects other examples than these.
        """
        config, task = self.config, self.manifest.task
        features = self.manifest.features_of(self.split)
        static = checks.static_masks(self.folder, self.manifest, features, config)
        if not static:
            checks.units(self.folder, features, config)
            check_tokens(config.corruption, self.tokenizer, f"the tokenizer of {self.folder}")
        # The shards of a task suit every encoder: its layout is applied when they are read.
        layout = "cls_first"
        if self.manifest.kind == "task":
            layout = getattr(config.encoder, "layout", layout)
        needs = [objective.needs() for objective in config.objectives]
        return BatchBuilder(
            tokenizer=self.tokenizer,
            vocabulary=Vocabulary.from_tokenizer(self.tokenizer, token_counts, config.corruption),
            corruption=config.corruption,
            seed=config.seed,
            features=features,
            limits=limits,
            max_length=self.max_length,
            layout=layout,
            parts=parts,
            sequences=(task and task.sequences or {}).get(self.split),
            predictions=self._listed_predictions(static, parts),
            draws=any("row_seeds" in fields for fields in needs),
            heads={
                name: fields
                for objective, fields in zip(config.objectives, needs, strict=True)
                if (name := getattr(objective, "task", ""))
            },
            task=self.task_name,
            taught=None if self._taught is None else tf.constant(self._taught.outputs),
            max_target_length=(task and task.max_target_length) or 0,
            states=self._states,
            numbered=self._numbered,
        )

    def check(self, config: configs.Config, replicas: int = 1, predicting: bool = False) -> None:
        """Checks that the data suits a model.

        Args:
          config: the resolved config, with the encoder and objectives of the model.
          replicas: the number of replicas on all workers together.
          predicting: whether labels and scores may be missing.

        Raises:
          UserError: a feature that an objective needs is missing, the examples are longer than the
            encoder's positions, or a batch cannot be split among the replicas.
        """
        recipe = config.recipe
        if self.training:
            self._check_shares(recipe.batch_size, replicas)
        else:
            self._check_shares(recipe.eval_batch_size or recipe.batch_size, replicas)
        fields = set(self.fields)
        for name in manifest.TARGETS & set(self.manifest.features) if predicting else ():
            fields |= {name} | _DERIVED.get(name, set())
        heads = self._build_batch.heads
        if predicting:
            fields |= frozenset().union(*heads.values())
        if heads and self.task_name not in heads:
            raise UserError(
                f"{self.folder}: its task is {self.task_name}, and the model has heads for "
                f"{', '.join(heads)}: name shards of these"
            )
        fields |= objective_fields(config.objectives)
        checks.objectives(self.folder, self.split, fields, config)
        if self.training:
            shard_folder.check_memory(self.folder, config, self.manifest)
        checks.positions(self.folder, self._longest_sequence, config)
        if self._taught is not None:
            self._taught.check(config)
        if self._states is not None:
            self._states.check(config.encoder.num_states, config.encoder.hidden_size)

    def check_encoder(self, checksum: str) -> None:
        """Checks that the states that batches have are those of an encoder.

        Args:
          checksum: that of the weights; see `official.evaluation.layer_states`.

        Raises:
          UserError: they are those of another one.
        """
        if self._states is not None and self._states.encoder != checksum:
            raise UserError(
                f"{self._states.folder}: these are the states of another encoder (weights "
                f"{self._states.encoder[:16]}…) than that of this run ({checksum[:16]}…): name its "
                "model folder with --init, or leave recipe.layer_states out"
            )

    def keep_earlier_order(self) -> None:
        """Reads the batches in the order of version 1 of `official.data.order`."""
        self._order = dataclasses.replace(self._order, version=1)

    @property
    def task_name(self) -> str | None:
        """The name of the task; None for pretraining."""
        return self.manifest.task.name if self.manifest.task else None

    def check_tokenizer(self, folder: str | os.PathLike) -> None:
        """Raises UserError if the data was not made with the tokenizer in a model's `folder`."""
        theirs = tokenizers.load(folder)
        if theirs.fingerprint != self.tokenizer.fingerprint:
            raise UserError(
                f"{self.folder} was made with another tokenizer "
                f"({self.tokenizer.fingerprint[:16]}…) than that of the model, {folder} "
                f"({theirs.fingerprint[:16]}…): make the shards again with --tokenizer={folder}"
            )

    @property
    def fields(self) -> frozenset[str]:
        """The names of a batch's fields."""
        return self._build_batch.fields

    def dataset(
        self,
        batch_size: int,
        *,
        start_step: int = 0,
        workers: int = 1,
        worker: int = 0,
        replicas_per_worker: int = 1,
        one_length: bool = False,
        end_step: int | None = None,
    ) -> tf.data.Dataset:
        """Returns this worker's part of the batches.

        Each batch becomes one element for each replica, in order; replica r of R has the rows from
        r·batch_size/R on. Of a stream, and in training without buckets, a worker reads its own rows
        only. Otherwise every worker reads all rows.

        In training, all shapes are static and the batches have no end. Otherwise the batches are
        one pass in order, and the rows that fill the last batch have `example_weights` (and
        `masked_weights`) of 0. With `recipe.bucket_lengths`, the examples of a batch have similar
        lengths, and only T differs between batches.

        Args:
          batch_size: examples of a batch, over all replicas of all workers.
          start_step: the number of batches to skip at the start.
          workers: the number of workers.
          worker: the index of this worker.
          replicas_per_worker: the number of replicas of each worker.
          one_length: whether all rows are padded to the largest length, also those of buckets.
          end_step: the number of batches of the run; None = that of the recipe.

        Returns:
          Dicts of token_ids and segment_ids int32 [B, T], padding_mask bool [B, T],
          example_weights float32 [B], the features of one number [B], the fields of the corruption,
          and, where rows have several parts, those of `official.data.shared_rows`. Where an example
          has several sequences, the first three are [B, C, T] (see `official.data.sequences`), and
          so is text_mask, bool, which is False at special tokens and padding.

        Raises:
          UserError: a batch cannot be split among the replicas.
        """
        replicas = workers * replicas_per_worker
        self._check_shares(batch_size, replicas)
        share = batch_size // replicas
        if end_step is None:
            end_step = self.config.recipe.total_steps(self.num_examples)
        rows = self._order.dataset(
            batch_size, start_step, workers, worker, replicas_per_worker, end_step
        )
        if one_length:
            rows = rows.map(lambda rows: {n: rows[n] for n in rows if n != "length"})
        batches = rows.map(
            tf.autograph.experimental.do_not_convert(lambda rows: self._build_batch(rows, share)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        if self.training:
            # The pipeline hides that there is no end. A strategy would then test for the end at
            # each step, and the number of rows would be unknown.
            batches = batches.apply(
                tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            )
        options = tf.data.Options()
        options.deterministic = True
        # The workers already have different rows; a strategy would also split the files.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _check_shares(self, batch_size: int, replicas: int) -> None:
        if self.rows is not None:
            shard_folder.check_batch(self.folder, self.rows, batch_size, self.training)
        accumulation = self.config.recipe.accumulation if self.training else 1
        checks.batch_parts(batch_size, replicas, accumulation)

    def _listed_predictions(self, static: bool, parts: int) -> int | None:
        """Returns the largest number of predictions of a row with listed masks; None without."""
        corruption = self.config.corruption
        if static:
            corruption = self.manifest.corruption
            if parts == 1:
                return corruption.max_predictions
        if corruption is None or parts == 1:
            return None
        return corruption.row_predictions(self.max_length, parts)


def each_batch(source: "ShardDataset | Mixture", batch_size: int) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the batches of a source in this process; see `gfile.each`.

    Raises:
      UserError: a batch cannot be read after several tries, or has examples that are damaged or out
        of range.
    """
    with parsing.reported(source.folder):
        yield from gfile.each(
            lambda start: source.dataset(batch_size, start_step=start), source.folder
        )
