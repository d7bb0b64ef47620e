"""Reads shard folders as batches for training, evaluation and prediction.

The order and the masks are functions of (seed, epoch, number of the example). A run that resumes
therefore reads the same batches, with any number of workers. `Order` chooses which rows each batch
has: in training, of a stream, or in one pass.

Shapes: B examples of a replica's batch, C sequences of an example, T tokens with padding, n rows.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.registry import objective_fields
from official.corruption.vocabulary import Vocabulary
from official.data import checks, fields, teacher_outputs
from official.data.batch_groups import Arrangement, BatchGroups
from official.data.fields import BatchBuilder
from official.data.order import Corpora, Files, Lanes, OnePass, RowOrder
from official.data.row_groups import Folder, RowGroups
from official.data.shards import Shards
from official.shards import layer_states, manifest, parsing, shard_folder
from official.tasks import Description
from official.utils import gfile
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official.data.mixture import Mixture

_DERIVED = {"target_ids": frozenset({"target_mask"})}  # fields that come with a target


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
        folders: str | os.PathLike | Sequence[str | os.PathLike] | Shards,
        config: configs.Config,
        split: str = "train",
        training: bool = False,
        numbered: bool = False,
        verify: bool | None = None,
        shares: Sequence[float] = (),
    ):
        """Opens the shards and checks that they suit the config.

        Args:
          folders: one folder or several, whose examples are numbered in this order; or the shards
            of the split, which are open already.
          config: the config of the run. Its seed, segments, corruption and recipe are used, and the
            layout that its encoder expects; without an encoder, a task is read as it was written.
          split: the split to read.
          training: True = batches without end, shuffled unless they are a stream; False = one
            pass in order.
          numbered: whether batches have the numbers of their examples, `example_number` [B].
          verify: whether to compare every byte of the shards now. If not, only their sizes are
            compared now, and each record with its checksum (CRC-32C) when it is read. None = not in
            training, so that a run starts soon.
          shares: in training, the share that each folder has of every batch, up to a factor; see
            `official.data.order`. Empty = the examples of all folders are shuffled together.

        Raises:
          UserError: a folder or split does not exist, a shard has changed since it was written, or
            the folders do not fit one another or the config.
        """
        shards = folders
        if not isinstance(shards, Shards):
            shards = Shards.open(shards, split, deep=not training if verify is None else verify)
        checks.shards(shards, config, training, shares)
        self._shards = shards
        self.config, self.split, self.training = config, split, training
        self.folder, self.manifest = shards.folder, shards.manifest
        self.tokenizer, self.rows = shards.tokenizer, shards.rows
        self.max_length, self.num_examples = shards.max_length, shards.num_examples
        self.fingerprint = manifest.fingerprint(shards.manifests, split, shares)
        self._teachers = teacher_outputs.read(
            config, split, self.fingerprint, self.num_examples, training
        )
        self._states = None
        if states := config.recipe.layer_states:
            self._states = layer_states.read(states, split, self.fingerprint, required=training)
        self._heads = {
            name: objective.needs() for objective in config.objectives if (name := objective.task)
        }
        self._build_batch = BatchBuilder(
            shards.features,
            shards.limits,
            config.seed,
            self.max_length,
            makers=self._field_makers(numbered),
        )
        self._order = Order(
            shards.files,
            config.seed,
            training,
            shares,
            shards.rows,
            self._bounds(),
            sequences=bool(shards.sequences),
            distinct=config.recipe.distinct_texts,
            limits=shards.limits,
        )

    def _bounds(self) -> list[int]:
        """Returns the lengths that batches are padded to; empty = always `max_length`.

        The length of a text in windows is that of all of them: batches have texts of as many.
        """
        bounds = self.config.recipe.bucket_lengths
        shorter = [bound for bound in bounds if bound < self.max_length]
        whole = [self.max_length * (i + 1) for i in range(self._shards.windows or 1)]
        return [*shorter, *whole] if bounds else []

    def _field_makers(self, numbered: bool) -> list[fields.FieldMaker]:
        """Returns what makes the fields of a batch; a maker may change fields of those before it.

        Args:
          numbered: whether batches have the numbers of their examples.
        """
        shards, config = self._shards, self.config
        features, task = shards.features, shards.task
        corruption = config.corruption
        # The shards of a task suit every encoder: its layout is applied when they are read.
        layout = "cls_first"
        if self.manifest.kind == "task" and config.encoder is not None:
            # Texts have the layout in which serving computes their vectors.
            served = task is not None and task.kind == "embedding"
            layout = config.encoder.text_layout if served else config.encoder.layout
        windows = "context_start" in features
        numbers = features - fields.LISTS - ({"context_start"} if windows else set())
        apart = any(objective.texts_apart for objective in config.objectives)
        tokens = fields.Tokens(self.tokenizer, layout, windows, shards.sequences, apart)
        if shards.windows:
            tokens = fields.WindowTokens(self.tokenizer, layout, most=shards.windows)
        makers: list[fields.FieldMaker] = [tokens, fields.Numbers(numbers)]
        if "part_lengths" in features:
            makers.append(fields.SharedRows(self.tokenizer, shards.parts))
        if task is not None and task.max_target_length:
            makers.append(fields.Targets(task.max_target_length, "target_ids" in features))
        if "text_hashes" in features and shards.sequences:
            makers.append(fields.TextHashes(shards.sequences))
        if "grades" in features and shards.sequences:
            makers.append(fields.Grades(shards.sequences))
        if "teacher_scores" in features and shards.sequences:
            makers.append(fields.TeacherScores(shards.sequences))
        if "label_flags" in features:
            makers.append(fields.LabelFlags(shards.limits.labels))
        if tags := features & set(fields.TAG_FEATURES):
            makers.append(fields.Tags(tags, layout))
        if "backward_word_bytes" in features:
            makers.append(fields.Sentences(self.tokenizer))
        elif "word_bytes" in features:
            makers.append(fields.WordCharacters(self.tokenizer, shards.sequences))
        if self._heads:
            known = frozenset().union(*(maker.gives for maker in makers))
            makers.append(fields.Heads(self._heads, self.task_name, known))
        if any("row_seeds" in objective.needs() for objective in config.objectives):
            makers.append(fields.RowSeeds())
        if self._teachers is not None:
            makers.append(fields.TeacherLogits(tf.constant(self._teachers.outputs)))
        if numbered:
            makers.append(fields.ExampleNumbers())
        if self._states is not None:
            makers.append(fields.LayerStates(self._states))
        predictions = shards.listed_predictions(corruption)
        if predictions or corruption is not None:
            counts = shards.token_counts()
            vocabulary = Vocabulary.from_tokenizer(self.tokenizer, counts, corruption)
            if predictions:
                parts = 0 if shards.static_masks else shards.parts
                makers.append(fields.ListedMasks(predictions, corruption, vocabulary, parts))
            elif corruption is not None:
                makers.append(fields.DrawnMasks(corruption, vocabulary))
        return makers

    def check(
        self, config: configs.ResolvedConfig, replicas: int = 1, predicting: bool = False
    ) -> None:
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
        available = self.fields
        for name in manifest.TARGETS & set(self.manifest.features) if predicting else ():
            available |= _DERIVED.get(name, frozenset()) | {name}
        heads = self._heads
        if predicting:
            available |= frozenset().union(*heads.values())
        if heads and self.task_name not in heads:
            raise UserError(
                f"{self.folder}: its task is {self.task_name}, and the model has heads for "
                f"{', '.join(heads)}: name shards of these"
            )
        available |= objective_fields(config.objectives)
        if not self.training:
            available |= frozenset().union(*(o.optional() for o in config.objectives))
        checks.objectives(self._shards, available, config)
        if self.training:
            shard_folder.check_memory(self.folder, config, self.manifest)
        checks.positions(self.folder, self._shards.longest_sequence, config)
        if self._teachers is not None:
            self._teachers.check(config)
        if self._states is not None:
            self._states.check(config.encoder.num_states, config.encoder.hidden_size)

    def check_unchanged(self) -> None:
        """Checks, after one pass, that its examples were those of the manifest.

        Raises:
          UserError: a shard has changed while it was read.
        """
        self._shards = self._shards.unchanged()

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
                "model folder with --init, or remove recipe.layer_states"
            )

    @property
    def corpora(self) -> list[tuple[str, float]]:
        """The data that goes through epochs separately: fingerprints and shares of each batch.

        Folders with shares are separate; without shares, all folders are one.
        """
        shares = self._order.shares
        if not shares:
            return [(self.fingerprint, 1.0)]
        prints = [manifest.fingerprint([each], self.split) for each in self._shards.manifests]
        return [(name, share / sum(shares)) for name, share in zip(prints, shares, strict=True)]

    def go_ahead(self, examples: Sequence[float]) -> None:
        """Skips examples of each of `corpora` with a share that were read before.

        Args:
          examples: the number of examples that each has been read beyond its share of the batches.
        """
        self._order = dataclasses.replace(self._order, ahead=tuple(examples))

    @property
    def task(self) -> Description:
        """The task of the examples; UserError if they are for pretraining."""
        return self.manifest.task_of(self.folder)

    @property
    def task_name(self) -> str | None:
        """The name of the task; None for pretraining."""
        return self.task.name if self.manifest.task else None

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
        r·batch_size/R on. Of a stream, and in training without buckets and distinct texts, a worker
        reads its own rows only. Otherwise every worker reads all rows.

        In training, all shapes are static and the batches have no end; with
        `recipe.distinct_texts`, rows that count for nothing have `example_weights` of 0 (see
        `official.data.batch_groups`). Otherwise the batches are
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
          has several sequences, the first three are [B, C, T] (see `official.data.fields`), and
          so is text_mask, bool, which is False at special tokens and padding.

        Raises:
          UserError: a batch cannot be split among the replicas.
        """
        replicas = workers * replicas_per_worker
        self._check_shares(batch_size, replicas)
        share = batch_size // replicas
        if end_step is None:
            end_step = self.config.recipe.total_steps(self.num_examples)
        # No function of it needs AutoGraph, which would convert them all at the start of a command.
        order = tf.autograph.experimental.do_not_convert(self._order.dataset)
        rows = order(batch_size, start_step, workers, worker, replicas_per_worker, end_step)
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


def each_batch(source: "ShardDataset | Mixture", batch_size: int) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the batches of one pass over a source in this process; see `gfile.each`.

    Raises:
      UserError: a batch cannot be read after several tries, or has examples that are damaged or out
        of range; or a shard has changed while it was read.
    """
    with parsing.reported(source.folder):
        yield from gfile.each(
            lambda start: source.dataset(batch_size, start_step=start), source.folder
        )
    source.check_unchanged()


@dataclasses.dataclass(frozen=True)
class Order:
    """The batches of a split; `dataset` reads a worker's part of them.

    Attributes:
      folders: the shards of each folder.
      seed: the seed of the order.
      training: True = batches without end, shuffled unless they are a stream; False = one pass in
        order.
      shares: in training, the share that each folder has of the batches; empty = the examples of
        all folders are shuffled together.
      rows: of a stream, the number of rows.
      bounds: the lengths that batches are padded to, in ascending order; empty = all have one
        length.
      sequences: whether an example has several sequences, each of which is padded to the length.
      distinct: whether no text stands twice in a batch of training.
      limits: what the numbers of examples are limited to; None = they are not checked.
      ahead: by how many examples each folder with a share is ahead of it; empty = 0.
    """

    folders: Sequence[Folder]
    seed: int
    training: bool
    shares: Sequence[float] = ()
    rows: int | None = None
    bounds: Sequence[int] = ()
    sequences: bool = False
    distinct: bool = False
    limits: parsing.Limits | None = None
    ahead: Sequence[float] = ()

    def dataset(
        self,
        batch_size: int,
        start: int,
        workers: int,
        worker: int,
        replicas_per_worker: int,
        end: int,
    ) -> tf.data.Dataset:
        """Returns an element for each replica of a worker in each batch.

        Args:
          batch_size: rows of a batch, over all replicas of all workers.
          start: the number of the first batch.
          workers: the number of workers.
          worker: the index of this worker.
          replicas_per_worker: the number of replicas of each worker.
          end: in training, the number of batches of the run.

        Returns:
          Rows; see `official.data.order`.
        """
        share = batch_size // (workers * replicas_per_worker)
        count = share * replicas_per_worker
        return self._rows(batch_size).dataset(start, worker * count, count, share, end)

    def _rows(self, batch_size: int) -> RowOrder:
        """Returns the order of the rows."""
        if self.rows is not None:
            return RowGroups(self.folders, self.rows, self.seed, repeat=self.training)
        if not self.training:
            return OnePass(self._files, batch_size, self._lengths, self.bounds)
        if self.shares:
            files = [folder.files for folder in self.folders]
            rows: Lanes | Corpora = Corpora(files, self.shares, self.seed, batch_size, self.ahead)
        else:
            rows = Lanes(self._files, self.seed, batch_size)
        if not self.bounds and not self.distinct:
            return rows
        texts = self._texts if self.distinct else None
        arrangement = Arrangement(self._lengths, self.bounds, texts)
        return BatchGroups(rows, arrangement, self.seed, batch_size, sum(self._files.counts))

    @property
    def _files(self) -> Files:
        """The shards of all folders."""
        return Files.joined([folder.files for folder in self.folders])

    def _texts(self, records: tf.Tensor) -> tf.Tensor:
        """Returns a hash of each text of examples: int32 [n, C]."""
        hashes = parsing.parse(records, ["text_hashes"], self.limits)["text_hashes"]
        return tf.reshape(hashes.flat_values, [tf.size(records), -1])

    def _lengths(self, records: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of examples, or of the longest sequence of each: int32 [n]."""
        if self.sequences:
            lengths = parsing.parse(records, ["sequence_lengths"], self.limits)["sequence_lengths"]
            return tf.reduce_max(lengths, axis=1)
        lengths = parsing.parse(records, ["segment_lengths"], self.limits)["segment_lengths"]
        return tf.reduce_sum(lengths, axis=1)
