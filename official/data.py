"""From shards to batches: check, read, corrupt, pad, share out over replicas, resume.

Order and masks are functions of (seed, epoch, number of the example), so a run that is killed goes
on with the same batches, on however many workers: see `official.records`.

Shapes: B examples of a replica's batch, T tokens with padding, S segments, P predictions.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from official import config as config_lib
from official import features, manifest, packed, records, seeding, sequences, streams, tokenizers
from official.corruption.vocabulary import Vocabulary, check_mask_token
from official.errors import UserError
from official.parts import objective_fields
from official.sections import PART_FIELDS
from official.tokenizers import packing, windows

# Features that list positions, and become a flag for each token where the corruption needs it.
_INNER = frozenset(features.LEXICONS)
# Features that become other fields of a batch; all the others are fields as they are.
_LISTS = _INNER | {
    "token_ids",
    "segment_lengths",
    "part_lengths",
    "sequence_lengths",
    "masked_positions",
    "masked_ids",
}
_STATIC_MASKS = frozenset({"masked_positions", "masked_ids"})
_TARGETS = frozenset({"label", "score", "answer", "answer_start", "answer_end"})


class Source:
    """The examples of one split of one or more shard folders.

    Attributes:
      folder: the folder, or several separated by commas, as messages name it.
      split: 'train', 'validation' or 'test'.
      manifest: of the (first) folder.
      tokenizer: that the examples were made with.
      num_examples: how many there are in the split.
      max_length: T, no row has more tokens.
      rows: of a stream, how many there are: row b of each batch goes on where row b of the batch
        before left off. None = the examples have nothing to do with one another.
    """

    def __init__(
        self,
        folders: str | os.PathLike | Sequence[str | os.PathLike],
        config: config_lib.Config,
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
        manifests = [_read(Path(path), split) for path in paths]
        self.manifest = manifests[0]
        self.max_length = max(m.max_length for m in manifests)
        shards = [
            (str(Path(path) / shard.name), shard.records)
            for path, found in zip(paths, manifests, strict=True)
            for shard in found.split(split)
        ]
        self._files = records.Files(*zip(*shards, strict=True))
        self.num_examples = sum(self._files.counts)
        for path, other in zip(paths[1:], manifests[1:], strict=True):
            _check_alike(paths[0], self.manifest, path, other)
        self.tokenizer = _load_tokenizer(Path(paths[0]), self.manifest)
        self._features = set(self.manifest.features)
        if split in (self.manifest.task or {}).get("unlabelled", ()):
            self._features -= _TARGETS
        # C, where an example has several sequences; None = it is one.
        self._sequences = (self.manifest.task or {}).get("sequences", {}).get(split)
        self._check_packing()
        self.rows = streams.rows(self.folder, config, manifests)
        made = [m.config.get("segments", {}) for m in manifests]
        self._parts = max(how.get("packing", 1) for how in made)  # of a row, at most
        self._longest = max(  # sequence; rows that sequences share may be longer
            how.get("max_length", m.max_length) for how, m in zip(made, manifests, strict=True)
        )
        self._static_masks = self._check_masks()
        # P where masks are listed for rows, as in shards: static ones, and those of parts.
        self._predictions = self._listed_predictions()
        self._check_units()
        if not self._static_masks:
            check_mask_token(config.corruption, self.tokenizer, f"the tokenizer of {self.folder}")
        counts = [manifest.token_counts(*pair) for pair in zip(paths, manifests, strict=True)]
        self._vocabulary = Vocabulary.of(
            self.tokenizer, None if any(c is None for c in counts) else sum(counts)
        )
        # Shards of a task are for every encoder, and laid out when they are read.
        layout = getattr(config.encoder, "layout", "cls_first")
        self._layout = layout if self.manifest.kind == "task" else "cls_first"
        # The heads of a model of several tasks, by the task each is for.
        self._heads = {
            task: config_lib.module_of(objective).needs(objective)
            for objective in config.objectives
            if (task := getattr(objective, "task", ""))
        }
        self._draws = any(
            "row_seeds" in config_lib.module_of(objective).needs(objective)
            for objective in config.objectives
        )

    def check(self, config: config_lib.Config, replicas: int = 1, predicting: bool = False) -> None:
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
        if predicting:
            fields |= frozenset().union(*self._heads.values())
        if self._heads and self.task_name not in self._heads:
            raise UserError(
                f"{self.folder}: its task is {self.task_name}, and the model has heads for "
                f"{', '.join(self._heads)}: name shards of these"
            )
        fields |= objective_fields(config.objectives)
        for objective in config.objectives:
            if lacking := sorted(config_lib.module_of(objective).needs(objective) - fields):
                raise UserError(
                    f"{self.folder}: the {self.split} split does not give {', '.join(lacking)}, "
                    f"which {config_lib.type_of(objective)} needs; it gives "
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
        return (self.manifest.task or {}).get("name")

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
        fields = {"token_ids", "segment_ids", "padding_mask", "example_weights"}
        fields |= self._features - _LISTS
        if "part_lengths" in self._features:
            fields |= PART_FIELDS
        if self._sequences:
            fields.add("text_mask")
        if _STATIC_MASKS <= self._features:
            fields |= _STATIC_MASKS | {"masked_weights"}
        if (corruption := self.config.corruption) is not None:
            fields |= config_lib.module_of(corruption).gives(corruption)
        if self._draws:
            fields.add("row_seeds")
        for task, names in self._heads.items():
            mine = task == self.task_name
            fields |= {n for n in names if not mine or n.removeprefix(f"{task}/") in fields}
        return frozenset(fields)

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
          and, where rows have several parts, what `official.packed` gives. Where an example has
          several sequences, the first three are [B, C, T] (`official.sequences`), and so is
          text_mask, bool: true where there is no special token.

        Raises:
          UserError: a batch that cannot be shared out.
        """
        replicas = workers * replicas_per_worker
        self._check_shares(batch_size, replicas)
        share = batch_size // replicas
        batches = self._batches(batch_size, start_step)
        if not self.training:
            batches = batches.map(lambda rows: records.filled(rows, batch_size))
        if replicas > 1:
            mine = slice(
                worker * replicas_per_worker * share, (worker + 1) * replicas_per_worker * share
            )
            batches = batches.map(lambda rows: {name: value[mine] for name, value in rows.items()})
            batches = batches.rebatch(share)
        batches = batches.map(
            tf.autograph.experimental.do_not_convert(lambda rows: self._batch(rows, share)),
            num_parallel_calls=tf.data.AUTOTUNE,
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
            rows = records.in_order(self._files)
            if self.training:
                rows = records.shuffled(self._files, seed, recipe.shuffle_buffer)
            bounds = [bound for bound in recipe.bucket_lengths if bound < self.max_length]
            bounds.append(self.max_length)
            lengths = _longest_sequences if self._sequences else _lengths
            return records.bucketed(rows, lengths, bounds, batch_size).skip(start_step)
        if self.training and self.rows is not None:
            return records.repeated(self._files, batch_size, start_step)
        if self.training:
            start = start_step * batch_size
            rows = records.shuffled(self._files, seed, recipe.shuffle_buffer, start)
            return rows.rebatch(batch_size)
        return records.in_order(self._files).rebatch(batch_size).skip(start_step)

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

    def _check_masks(self) -> bool:
        """Returns whether masks are static; refuses those that the config has otherwise."""
        static = _STATIC_MASKS <= self._features
        segments, corruption = self.config.segments, self.config.corruption
        if segments is not None and segments.static_masks != static:
            kind = "static masks" if static else "no static masks"
            raise UserError(
                f"{self.folder} has {kind}, and the config says segments.static_masks: "
                f"{str(segments.static_masks).lower()}: change the config, or make the shards "
                "again with it"
            )
        if not static:
            return False
        theirs = self.manifest.config["corruption"]["max_predictions"]
        ours = getattr(corruption, "max_predictions", theirs)
        if ours != theirs:
            raise UserError(
                f"{self.folder} was made with corruption.max_predictions: {theirs}, and the config "
                f"says {ours}: its masks are static, so take the same number"
            )
        return True

    def _listed_predictions(self) -> int | None:
        """Returns the most predictions of a row whose masks are listed; None if they are not."""
        corruption = self.config.corruption
        if self._static_masks:
            made_with = self.manifest.config["corruption"]
            if self._parts == 1:
                return made_with["max_predictions"]
            corruption = config_lib.corruption_of(made_with, self.folder)
        if corruption is None or self._parts == 1:
            return None
        most = config_lib.module_of(corruption).row_predictions
        return most(corruption, self.max_length, self._parts)

    def _check_units(self) -> None:
        """Refuses a corruption that needs features which the shards lack."""
        if (corruption := self.config.corruption) is None or self._static_masks:
            return
        for name in sorted(config_lib.module_of(corruption).needs(corruption) - self._features):
            raise UserError(
                f"{self.folder} has no {name}, which corruption.unit: {corruption.unit} is known "
                f"by: make the shards again, with the lexicon ({features.LEXICONS[name]}=FILE)"
            )

    def _check_packing(self) -> None:
        """Refuses rows of several examples where the config wants rows of one, and the opposite."""
        segments, parts = self.config.segments, "part_lengths" in self._features
        if segments is not None and (segments.packing > 1) != parts:
            kind = "several examples in a row" if parts else "one example in a row"
            raise UserError(
                f"{self.folder} has {kind}, and the config says segments.packing: "
                f"{segments.packing}: change the config, or make the shards again with it"
            )

    def _batch(self, rows: Mapping[str, tf.Tensor], size: int) -> dict[str, tf.Tensor]:
        """Parses, pads and corrupts the rows of one replica."""
        index = tf.ensure_shape(rows["index"], [size])
        parsed = features.parse(tf.ensure_shape(rows["record"], [size]), sorted(self._features))
        seeds = seeding.row_seeds(self.config.seed, rows["epoch"], rows["index"])
        corruption = self.config.corruption
        if corruption is not None and self._parts > 1 and not self._static_masks:
            needed = config_lib.module_of(corruption).needs(corruption)
            flags = {name: _flags(parsed[name], parsed["token_ids"]) for name in needed}
            parsed |= packed.corrupted(
                corruption, self._vocabulary, parsed, flags, seeds, self._parts
            )
        count = size  # of the rows of tokens; the shapes here say B
        if self._sequences:
            count *= self._sequences
            parsed |= sequences.apart(parsed, count)
        lengths = tf.cast(parsed["token_ids"].row_lengths(), tf.int32)  # [B]
        places = rows["places"][0] if "places" in rows else self.max_length
        columns = tf.range(places)
        padding_mask = columns < lengths[:, None]  # [B, T]
        ends = tf.cumsum(parsed["segment_lengths"].to_tensor(), axis=1)  # [B, S]
        segment_ids = tf.reduce_sum(
            tf.cast(columns >= ends[:, :, None], tf.int32), axis=1
        )  # [B, T]: how many segments have ended
        weights = tf.cast(index >= 0, tf.float32)  # [B]
        batch = {
            "token_ids": parsed["token_ids"].to_tensor(
                self.tokenizer.pad_id, shape=tf.stack([count, places])
            ),
            "segment_ids": tf.where(padding_mask, segment_ids, 0),
            "padding_mask": padding_mask,
        }
        if "context_start" in parsed:
            whole = {**batch, **{name: parsed[name] for name in windows.PLACES}}
            batch = windows.arrange_windows(whole, self.tokenizer, self._layout)
            parsed["context_start"] = batch.pop("context_start")
        else:
            batch = packing.arrange(batch, self.tokenizer, self._layout)
        if self._sequences:
            batch["text_mask"] = sequences.text_mask(
                batch["token_ids"], batch["padding_mask"], self.tokenizer.special_ids
            )
            batch = sequences.stacked(batch, size, self._sequences)
        batch["example_weights"] = weights
        batch |= {name: value for name, value in parsed.items() if name not in _LISTS}
        if "backward" in batch:
            batch["backward"] = batch["backward"] > 0
        if "part_lengths" in parsed:
            batch |= packed.fields(parsed, segment_ids, weights, self._parts)
        batch |= self._asked(batch)
        if self._draws:
            batch["row_seeds"] = seeding.pairs(seeds)
        if self._predictions:
            batch |= _listed_masks(parsed, size, self._predictions)
            if corruption is not None:
                follows = config_lib.module_of(corruption).follows
                batch |= follows(corruption, self._vocabulary, batch)
        elif corruption is not None:
            module = config_lib.module_of(corruption)
            shape = tf.stack([size, places])
            needed = {
                name: _flags(parsed[name], parsed["token_ids"]).to_tensor(shape=shape)
                for name in module.needs(corruption)
            }
            batch = module.corrupt(corruption, self._vocabulary, {**batch, **needed}, seeds)
            batch = {name: value for name, value in batch.items() if name not in needed}
        if "masked_weights" in batch:
            batch["masked_weights"] *= weights[:, None]
        return batch

    def _asked(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What the heads of several tasks read: the examples are of one task, zeros for others."""
        asked = {}
        for task, names in self._heads.items():
            for name in names:
                field = name.removeprefix(f"{task}/")
                if task != self.task_name:
                    kind = tf.int32 if field == "label" else tf.float32
                    asked[name] = tf.zeros_like(batch["example_weights"], kind)
                elif field in batch:
                    asked[name] = batch[field]
        return asked


def _read(folder: Path, split: str) -> manifest.Manifest:
    """Reads a manifest and verifies the shards of a split."""
    found = manifest.read(folder)
    if found.kind == "tf_models":
        raise UserError(
            f"{folder} was written with --format=tf_models, for other programs to read: make the "
            "shards again without it"
        )
    if not any(shard.records for shard in found.split(split)):
        others = sorted({shard.split for shard in found.shards if shard.records})
        raise UserError(
            f"{folder} has no examples of a {split} split; it has {', '.join(others) or 'none'}"
        )
    problems = manifest.verify(folder, deep=True, split=split)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{'; '.join(problems[:3])}{more}: copy the folder again from where it is whole, or "
            "make the shards again"
        )
    return found


def _check_alike(
    first: str | os.PathLike, a: manifest.Manifest, second: str | os.PathLike, b: manifest.Manifest
) -> None:
    """Refuses two folders whose examples cannot be in one batch."""
    for what, ours, theirs in (
        ("tokenizer", a.tokenizer_fingerprint, b.tokenizer_fingerprint),
        ("features", sorted(a.features), sorted(b.features)),
        ("static masks", a.config.get("corruption"), b.config.get("corruption")),
        ("labels", (a.task or {}).get("labels"), (b.task or {}).get("labels")),
    ):
        if ours != theirs:
            raise UserError(
                f"{first} and {second} cannot be read together: {what} {ours} in the first, "
                f"{theirs} in the second; make both in the same way"
            )


def _load_tokenizer(folder: Path, found: manifest.Manifest) -> "tokenizers.Tokenizer":
    path = folder / manifest.TOKENIZER_FOLDER
    tokenizer = tokenizers.load(path)
    if tokenizer.fingerprint != found.tokenizer_fingerprint:
        raise UserError(
            f"{path} is another tokenizer ({tokenizer.fingerprint[:16]}…) than the one that the "
            f"shards of {folder} were made with ({found.tokenizer_fingerprint[:16]}…): put that "
            "one back, or make the shards again"
        )
    return tokenizer


def _lengths(serialized: tf.Tensor) -> tf.Tensor:
    """Returns how many tokens examples have, int32 [B], from strings [B]."""
    return tf.reduce_sum(features.parse(serialized, ["segment_lengths"])["segment_lengths"], axis=1)


def _longest_sequences(serialized: tf.Tensor) -> tf.Tensor:
    """Returns how many tokens the longest sequence of examples has, int32 [B]."""
    found = features.parse(serialized, ["sequence_lengths"])["sequence_lengths"]
    return tf.reduce_max(found, axis=1)


def _flags(positions: tf.RaggedTensor, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Flags for each token, bool [B, None], that are true at the positions listed for its row."""
    starts = tf.gather(token_ids.row_starts(), positions.value_rowids())
    places = tf.cast(starts, tf.int32) + positions.flat_values
    flags = tf.scatter_nd(places[:, None], tf.ones_like(places), tf.shape(token_ids.flat_values))
    return token_ids.with_flat_values(flags > 0)


def _listed_masks(
    parsed: Mapping[str, tf.RaggedTensor], size: int, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Pads the masks listed for each row; arguments B and P."""
    counts = parsed["masked_positions"].row_lengths()
    shape = [size, max_predictions]
    return {
        "masked_positions": parsed["masked_positions"].to_tensor(shape=shape),
        "masked_ids": parsed["masked_ids"].to_tensor(shape=shape),
        "masked_weights": tf.sequence_mask(counts, max_predictions, tf.float32),
    }
