"""From shards to batches: check, read, corrupt, pad, share out over replicas, resume.

Order and masks are functions of (seed, epoch, number of the example), so a run that is killed goes
on with the same batches, on however many workers: see `official.data.example_order`.

Shapes: B examples of a replica's batch, C sequences of an example, T tokens with padding.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.registry import objective_fields
from official.corruption.vocabulary import Vocabulary, check_mask_token
from official.data import checks, example_order, streams
from official.data.batches import BatchBuilder
from official.shards import features, folder, manifest, token_counts
from official.tasks import KINDS
from official.utils.errors import UserError

_TARGETS = frozenset(name for kind in KINDS.values() for name in kind.targets)


class ShardDataset:
    """The examples of one split of one or more shard folders.

    Attributes:
      folder: the folder, or several separated by commas, as messages name it.
      split: 'train', 'validation' or 'test'.
      manifest: of the (first) folder.
      tokenizer: that the examples were made with.
      num_examples: how many there are in the split.
      fingerprint: of the examples and their order; see `official.shards.manifest.fingerprint`.
      max_length: T, no row has more tokens.
      rows: of a stream, how many there are: row b of each batch goes on where row b of the batch
        before left off. None = the examples have nothing to do with one another.
    """

    def __init__(
        self,
        folders: str | os.PathLike | Sequence[str | os.PathLike],
        config: configs.Config,
        split: str = "train",
        training: bool = False,
    ):
        """Reads the manifests and checks every byte of the split.

        Args:
          folders: one folder or several, whose examples are then counted through.
          config: of which seed, segments, corruption and recipe are used here, and of the encoder
            how it wants the texts of a task laid out.
          split: of the examples.
          training: endless and shuffled (a stream's rows are not), or once and in order.

        Raises:
          UserError: no such folder or split, a shard that is not as it was written, folders that
            do not fit one another or the config.
        """
        paths = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
        self.folder = ", ".join(map(str, paths))
        self.config = config
        self.split = split
        self.training = training
        manifests = [folder.read(Path(path), split) for path in paths]
        self.manifest = manifests[0]
        self.max_length = max(m.max_length for m in manifests)
        shards = [
            (str(Path(path) / shard.name), shard.records)
            for path, found in zip(paths, manifests, strict=True)
            for shard in found.split(split)
        ]
        self._files = example_order.Files(*zip(*shards, strict=True))
        self.num_examples = sum(self._files.counts)
        self.fingerprint = manifest.fingerprint(manifests, split)
        self._check_folders(paths, manifests)
        self.tokenizer = folder.load_tokenizer(Path(paths[0]), self.manifest)
        features = self._features()
        checks.packing(self.folder, features, config)
        checks.blocks(self.folder, self.manifest, config)
        self.rows = streams.rows(self.folder, config, manifests)
        self._longest = max(  # sequence; rows that sequences share may be longer
            m.segments.max_length if m.segments else m.max_length for m in manifests
        )
        counts = [token_counts.read(*pair) for pair in zip(paths, manifests, strict=True)]
        self._build_batch = self._batch_builder(
            parts=max(m.segments.packing if m.segments else 1 for m in manifests),
            token_counts=None if any(c is None for c in counts) else sum(counts),
        )

    def _check_folders(
        self, paths: Sequence[str | os.PathLike], manifests: Sequence[manifest.Manifest]
    ) -> None:
        """Refuses folders that do not fit one another."""
        for path, other in zip(paths[1:], manifests[1:], strict=True):
            folder.check_alike(paths[0], self.manifest, path, other)
        task = self.manifest.task
        if len(paths) > 1 and not self.training and task and task.kind == "ranking":
            raise UserError(
                f"{self.folder}: candidates are listed in each folder for itself: evaluate and "
                "predict one ranking at a time"
            )

    def _features(self) -> frozenset[str]:
        """The features that the examples of the split have."""
        features = frozenset(self.manifest.features)
        task = self.manifest.task
        return features - _TARGETS if task and self.split in task.unlabelled else features

    def _batch_builder(self, parts: int, token_counts: np.ndarray | None) -> BatchBuilder:
        """Makes what builds batches, and refuses a config that asks for other examples.

        Args:
          parts: the largest number of sequences that share a row.
          token_counts: how often each token stands in the corpus; None = unknown.
        """
        config, task, features = self.config, self.manifest.task, self._features()
        static = checks.static_masks(self.folder, self.manifest, features, config)
        if not static:
            checks.units(self.folder, features, config)
            check_mask_token(config.corruption, self.tokenizer, f"the tokenizer of {self.folder}")
        # Shards of a task are for every encoder, and laid out when they are read.
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
        )

    def check(self, config: configs.Config, replicas: int = 1, predicting: bool = False) -> None:
        """Refuses what this data cannot give.

        Args:
          config: as resolved: its encoder and objectives are those of the model.
          replicas: over which a batch is shared out, on all workers together.
          predicting: whether the examples may lack the label or score.

        Raises:
          UserError: features that the objectives need, positions that the encoder lacks, or a
            batch that cannot be shared out.
        """
        recipe = config.recipe
        if self.training:
            self._check_shares(recipe.batch_size, replicas)
        else:
            self._check_shares(recipe.eval_batch_size or recipe.batch_size, replicas)
        fields = self.fields | (_TARGETS & set(self.manifest.features) if predicting else set())
        heads = self._build_batch.heads
        if predicting:
            fields |= frozenset().union(*heads.values())
        if heads and self.task_name not in heads:
            raise UserError(
                f"{self.folder}: its task is {self.task_name}, and the model has heads for "
                f"{', '.join(heads)}: name shards of these"
            )
        fields |= objective_fields(config.objectives)
        for objective in config.objectives:
            if lacking := sorted(objective.needs() - fields):
                raise UserError(
                    f"{self.folder}: the {self.split} split does not give {', '.join(lacking)}, "
                    f"which {objective.type} needs; it gives "
                    f"{', '.join(sorted(fields))}: name other shards, or other objectives"
                )
        if self.training:
            streams.check_memory(self.folder, config, self.manifest)
        positions = getattr(config.encoder, "max_positions", None)
        if positions and self._longest > positions:
            raise UserError(
                f"{self.folder}: examples have up to {self._longest} tokens, and the encoder has "
                f"positions for {positions} (encoder.max_positions): make the shards again with "
                f"max_length {positions} or less, or take an encoder with more positions"
            )

    @property
    def task_name(self) -> str | None:
        """Of the task that the examples are of; None in pretraining."""
        return self.manifest.task.name if self.manifest.task else None

    def check_tokenizer(self, folder: str | os.PathLike) -> None:
        """Refuses data made with another tokenizer than the one in `folder` (of a model)."""
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
    ) -> tf.data.Dataset:
        """Returns this worker's part of the batches.

        Every worker reads all records, and parses its own. For each batch it yields one element
        per replica, in order; replica r of R has the rows from r·batch_size/R on.

        In training every shape is static, and the batches have no end. Else the batches go once
        through the examples in order, and rows that fill up the last one have `example_weights`
        (and `masked_weights`) 0. With `recipe.bucket_lengths`, each batch has examples of about
        the same length, and only T differs between batches.

        Args:
          batch_size: examples of a batch over all replicas of all workers.
          start_step: how many batches to leave out at the start.
          workers: how many share the batches out.
          worker: which of them this one is.
          replicas_per_worker: how many elements a batch becomes on each.

        Returns:
          Dicts of token_ids and segment_ids int32 [B, T], padding_mask bool [B, T],
          example_weights float32 [B], the features of one number [B], what the corruption gives,
          and, where rows have several parts, what `official.data.packing` gives. Where an example
          has several sequences, the first three are [B, C, T] (`official.data.sequences`), and so
          is text_mask, bool: true where there is no special token.

        Raises:
          UserError: a batch that cannot be shared out.
        """
        replicas = workers * replicas_per_worker
        self._check_shares(batch_size, replicas)
        share = batch_size // replicas
        batches = self._batches(batch_size, start_step)
        if not self.training:
            batches = batches.map(lambda rows: example_order.filled(rows, batch_size))
        if replicas > 1:
            mine = slice(
                worker * replicas_per_worker * share, (worker + 1) * replicas_per_worker * share
            )
            batches = batches.map(lambda rows: {name: value[mine] for name, value in rows.items()})
            batches = batches.rebatch(share)
        batches = batches.map(
            tf.autograph.experimental.do_not_convert(lambda rows: self._build_batch(rows, share)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        if self.training:
            # Buckets hide that there is no end; a strategy would look out for one at each step, and
            # take the number of rows for unknown.
            batches = batches.apply(
                tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            )
        options = tf.data.Options()
        options.deterministic = True
        # Strategies would otherwise share the files out among workers, on top of the above.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _batches(self, batch_size: int, start_step: int) -> tf.data.Dataset:
        """Batches of rows, over all replicas; the last one may be short."""
        recipe, seed = self.config.recipe, self.config.seed
        if recipe.bucket_lengths:
            rows = example_order.in_order(self._files)
            if self.training:
                rows = example_order.shuffled(self._files, seed, recipe.shuffle_buffer)
            bounds = [bound for bound in recipe.bucket_lengths if bound < self.max_length]
            bounds.append(self.max_length)
            lengths = _longest_sequences if self._build_batch.sequences else _lengths
            return example_order.bucketed(rows, lengths, bounds, batch_size).skip(start_step)
        if self.training and self.rows is not None:
            return example_order.repeated(self._files, batch_size, start_step)
        if self.training:
            start = start_step * batch_size
            rows = example_order.shuffled(self._files, seed, recipe.shuffle_buffer, start)
            return rows.rebatch(batch_size)
        return example_order.in_order(self._files).rebatch(batch_size).skip(start_step)

    def _check_shares(self, batch_size: int, replicas: int) -> None:
        if self.rows is not None:
            streams.check_batch(self.folder, self.rows, batch_size, self.training)
        accumulation = self.config.recipe.accumulation if self.training else 1
        parts = replicas * accumulation
        if batch_size % parts:
            steps = f" × {accumulation} accumulation steps" if accumulation > 1 else ""
            below = batch_size - batch_size % parts
            near = f"{below} or {below + parts}" if below else f"{parts}"
            raise UserError(
                f"a batch of {batch_size} cannot be shared by {replicas} replicas{steps} = {parts} "
                f"parts: make it a multiple of {parts}, such as {near}"
            )

    def _listed_predictions(self, static: bool, parts: int) -> int | None:
        """Returns the most predictions of a row whose masks are listed; None if they are not."""
        corruption = self.config.corruption
        if static:
            corruption = self.manifest.corruption
            if parts == 1:
                return corruption.max_predictions
        if corruption is None or parts == 1:
            return None
        return corruption.row_predictions(self.max_length, parts)


def _lengths(serialized: tf.Tensor) -> tf.Tensor:
    """Returns how many tokens examples have, int32 [B], from strings [B]."""
    return tf.reduce_sum(features.parse(serialized, ["segment_lengths"])["segment_lengths"], axis=1)


def _longest_sequences(serialized: tf.Tensor) -> tf.Tensor:
    """Returns how many tokens the longest sequence of examples has, int32 [B]."""
    found = features.parse(serialized, ["sequence_lengths"])["sequence_lengths"]
    return tf.reduce_max(found, axis=1)
