"""Reads several tasks as one data set: the task of each batch is drawn at random.

Tasks of text to text share the objective `seq2seq_lm`, and those of embeddings the objective
`sentence_embedding`. Of classifications and regressions, every head names its task (`objectives:
[{type: classification, task: rte}, ...]`) and reads the batch fields `rte/label` and
`rte/example_weights`, which are zeros in the batches of other tasks. These batches do not change
the head or its moments. The task of a step is a function of (seed, step), so a run that resumes
reads the same batches.

A task of N examples is drawn in proportion to `min(N, K)^(1 / T)`, with the limit K of
`recipe.task_limit` and the temperature T of `recipe.task_temperature` (Raffel et al., 2020, section
3.5.2). `recipe.task_sampling: equal` draws all tasks equally often. `annealed` takes
`min(N, K)^alpha`, where alpha falls from 1 to 0.2, so that the tasks are drawn almost equally often
at the end (Stickland and Murray, 2019; their release lowers alpha once per epoch, this program at
each step). Folders with shares (`--data=FOLDER=0.7,FOLDER=0.3`) are drawn by these.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.parts import LabelCounts
from official.data import ShardDataset, label_counts
from official.data.shards import Shards
from official.shards import manifest
from official.tasks import AVERAGE, Description, MixtureDescription
from official.utils import checksums, host_seeding, paths, seeding
from official.utils.errors import UserError

# A folder of shards, several folders, or several with a share each: the part of every batch that
# comes from a corpus, or the part of all batches that belong to a task.
Paths: TypeAlias = str | os.PathLike | Sequence[str | os.PathLike] | Mapping[Any, float]
_LOWEST = 0.2  # the last alpha of annealing


def parse(text: str) -> list[str] | dict[str, float]:
    """Returns the folders that `--data` names, with their shares if it has them.

    Args:
      text: `FOLDER`, `FOLDER,FOLDER` or `FOLDER=SHARE,FOLDER=SHARE`. The name of a single folder
        may contain a comma.

    Raises:
      UserError: a share is not a number, only some folders have shares, or a folder with a share is
        named twice.
    """
    if paths.path(text).exists():
        return [text]
    names = text.split(",")
    shares: dict[str, float] = {}
    for part in names:
        name, equals, share = part.rpartition("=")
        if paths.path(part).exists() or not equals:
            continue
        if name in shares:
            raise UserError(f"{text}: {name} is named twice: give it one share")
        try:
            shares[name] = float(share)
        except ValueError:
            raise UserError(
                f"{part}: {share!r} is not a number: give shares as FOLDER=0.7"
            ) from None
    if shares and len(shares) < len(names):
        raise UserError(f"{text}: give every folder a share, as FOLDER=0.7, or none")
    return shares or names


# The kinds of tasks that one model can learn together.
LEARNT_TOGETHER = ("classification", "regression", "text_to_text", "embedding")


class Mixture:
    """The data sets of several tasks, with the interface of a `ShardDataset`.

    Attributes:
      sources: the data set of each task.
      folder: all folders, for messages.
      manifest: the manifest of the first source, with a `MixtureDescription` as its task.
      tokenizer: the tokenizer of all sources.
      tasks: the task of each source, by name.
      num_examples: the number of examples of all sources.
      fingerprint: a checksum of the examples of all sources and their order.
      rows: None, because the examples are independent.
    """

    rows = None

    def __init__(
        self,
        sources: Sequence[ShardDataset],
        config: configs.Config,
        shares: Sequence[float] = (),
    ):
        """Checks that the sources can be mixed.

        Args:
          sources: data sets of the same split.
          config: the config, whose seed and recipe are used.
          shares: how often each source is drawn, up to a factor; empty = as the recipe says.

        Raises:
          UserError: two sources have the same task, or different tokenizers or lengths, or one has
            a task of a kind that is learned by itself, or tasks that share an objective are mixed
            with others.
        """
        self.sources = list(sources)
        first = self.sources[0]
        self.tasks = tasks = dict[str, Description]()
        for source in self.sources:
            task = source.task if source.manifest.task else None
            if task is not None and task.kind not in LEARNT_TOGETHER:
                raise UserError(
                    f"{source.folder}: a task of the kind {task.kind} is trained and scored by "
                    "itself: name its folder alone"
                )
            if task is not None and task.windows:
                raise UserError(
                    f"{source.folder}: texts in windows are trained and scored by themselves: name "
                    "this folder alone, or make it again without --windows"
                )
            if task is None or task.name in tasks:
                what = "no task" if task is None else f"the task {task.name} again"
                raise UserError(
                    f"{source.folder} is of {what}: name a folder for each task (of embeddings, "
                    "build_task_shards --task_name gives them names), or corpora for pretraining "
                    "alone"
                )
            tasks[task.name] = task
            for kind, ours, theirs in (
                ("tokenizer", first.tokenizer.fingerprint[:16], source.tokenizer.fingerprint[:16]),
                ("max_length", first.max_length, source.max_length),
                ("weights of rows", _weighs(first), _weighs(source)),
            ):
                if ours != theirs:
                    raise UserError(
                        f"{first.folder} and {source.folder} cannot be read together: {kind} "
                        f"{ours} in the first, {theirs} in the second; make both in the same way"
                    )
        self._shared = _share_objective(tasks, [source.folder for source in self.sources])
        _check_texts(self.sources)
        self.folder = ", ".join(source.folder for source in self.sources)
        self.manifest = dataclasses.replace(
            first.manifest, task=MixtureDescription((AVERAGE,), tasks)
        )
        self.tokenizer = first.tokenizer
        self.num_examples = sum(source.num_examples for source in self.sources)
        prints = ",".join(source.fingerprint for source in self.sources)
        recipe = config.recipe
        steps = recipe.total_steps(self.num_examples)
        if shares:
            prints += f",{list(map(float, shares))}"
            drawn = np.tile(np.asarray(shares, np.float64), (steps, 1))
        else:
            drawn = rates(
                [source.num_examples for source in self.sources],
                steps,
                recipe.task_sampling,
                recipe.task_limit,
                recipe.task_temperature,
            )
        self.fingerprint = checksums.hash_bytes(prints.encode())
        self._choices = choices(drawn, config.seed)

    def check_unchanged(self) -> None:
        """See `ShardDataset`."""
        for source in self.sources:
            source.check_unchanged()

    def check(
        self, config: configs.ResolvedConfig, replicas: int = 1, predicting: bool = False
    ) -> None:
        """Checks that every task has a head and every head a task, and then checks each source."""
        heads = {objective.task for objective in config.objectives}
        tasks = set(self.tasks)
        if self._shared:
            heads = tasks
        if not tasks <= heads or (heads != tasks and self.sources[0].training):
            raise UserError(
                f"{self.folder}: tasks {', '.join(sorted(tasks))}, and objectives for "
                f"{', '.join(sorted(heads - {''})) or 'none'}: give an objective for each, such as "
                f"`type: classification` with `task: {min(tasks - heads or tasks)}`"
            )
        for source in self.sources:
            source.check(config, replicas, predicting)

    def check_tokenizer(self, folder: str | os.PathLike) -> None:
        """See `ShardDataset.check_tokenizer`."""
        self.sources[0].check_tokenizer(folder)

    def check_encoder(self, checksum: str) -> None:
        """See `ShardDataset.check_encoder`."""
        for source in self.sources:
            source.check_encoder(checksum)

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
        """Returns this worker's part of the batches to the last step: see `ShardDataset`."""
        before = np.bincount(self._choices[:start_step], minlength=len(self.sources))
        ends = np.bincount(self._choices, minlength=len(self.sources))
        batches = [
            source.dataset(
                batch_size,
                start_step=int(start),
                workers=workers,
                worker=worker,
                replicas_per_worker=replicas_per_worker,
                one_length=one_length,
                end_step=int(end),
            )
            for source, start, end in zip(self.sources, before, ends, strict=True)
        ]
        shared = set.intersection(*(set(part.element_spec) for part in batches))
        length = max(task.max_target_length or 0 for task in self.tasks.values())
        batches = [part.map(lambda batch: _alike(batch, shared, length)) for part in batches]
        order = np.repeat(self._choices[start_step:], replicas_per_worker)
        return tf.data.Dataset.choose_from_datasets(
            batches, tf.data.Dataset.from_tensor_slices(order)
        )


Data: TypeAlias = ShardDataset | Mixture


@dataclasses.dataclass(frozen=True)
class Opened:
    """A split of which only the manifests have been read, not the examples.

    Attributes:
      shards: the shards of each task, or those of all corpora together.
      shares: the share that each corpus has of a batch, or each task of the batches; empty = none
        is given.
    """

    shards: Sequence[Shards]
    shares: Sequence[float] = ()

    @property
    def folder(self) -> str:
        """All folders, for messages."""
        return ", ".join(shards.folder for shards in self.shards)

    @property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer that the examples were made with."""
        return self.shards[0].tokenizer

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The names of the classes of each task by its name."""
        return {task.name: task.labels for each in self.shards if (task := each.task)}

    def label_counts(self, task: str = "") -> LabelCounts:
        """Returns how often the labels of a task occur; see `label_counts.count`.

        Args:
          task: the name of the task; empty = the only one.
        """
        named = [each for each in self.shards if each.task and each.task.name == task]
        return label_counts.count((named or self.shards)[0])

    def read(self, config: configs.ResolvedConfig, training: bool = False) -> Data:
        """Returns the examples, which suit the segments, the corruption and the recipe of a config.

        Args:
          config: the config of the run.
          training: whether the examples are shuffled and repeated.

        Raises:
          UserError: the shards do not match the config, or one another.
        """
        split, several = self.shards[0].split, len(self.shards) > 1
        shares = () if several else self._corpus_shares(config.recipe, training)
        sources = [
            ShardDataset(shards, config, split, training, shares=shares) for shards in self.shards
        ]
        if not several:
            return sources[0]
        return Mixture(sources, config, self.shares if training else ())

    def _corpus_shares(self, recipe: configs.Recipe, training: bool) -> Sequence[float]:
        """Returns the share that each corpus has of a batch; empty = as its examples are shuffled.

        Without given shares, they follow from the sizes, as the recipe says.
        """
        shards = self.shards[0]
        if self.shares or not training or len(shards.folders) == 1:
            return self.shares
        if recipe.task_sampling == "annealed":
            raise UserError(
                "recipe.task_sampling: annealed is for tasks, not for corpora: take proportional"
            )
        settings = recipe.task_sampling, recipe.task_limit, recipe.task_temperature
        if settings == ("proportional", 0, 1.0):
            return ()
        sizes = [sum(s.records for s in m.split(shards.split)) for m in shards.manifests]
        shares = rates(sizes, 1, *settings)[0]
        # The last bits of powers differ between machines, and shares are part of the fingerprint.
        return tuple(np.maximum(np.round(shares / shares.sum(), 6), 1e-6))


def open_shards(data: Paths, split: str, deep: bool = True) -> Opened:
    """Reads the manifests of a split, and compares its shards with them.

    Args:
      data: a folder of shards; several of different tasks, which become a mixture; or several
        corpora for pretraining, also with the share that each has of a batch.
      split: the name of the split.
      deep: whether to compare every byte, or only the sizes.

    Raises:
      UserError: a folder or split does not exist, or a shard has changed since it was written.
    """
    shares: tuple[float, ...] = ()
    if isinstance(data, Mapping):
        shares = tuple(data.values())
        if not _of_tasks(data):
            return Opened([Shards.open(list(data), split, deep)], shares)
    folders = [data] if isinstance(data, str | os.PathLike) else list(data)
    if len(folders) > 1 and all(manifest.read(folder).task is None for folder in folders):
        return Opened([Shards.open(folders, split, deep)])
    return Opened([Shards.open(folder, split, deep) for folder in folders], shares)


def _of_tasks(folders: Iterable[Any]) -> bool:
    """Returns whether folders with shares are of several tasks, and no corpora."""
    tasks = [manifest.read(folder).task for folder in folders]
    names = [name for task in tasks if task is not None for name in task.by_name]
    return None not in tasks and len(set(names)) > 1


def open_data(
    data: Paths,
    config: configs.ResolvedConfig,
    split: str,
    deep: bool = True,
) -> Data:
    """Opens the examples of a split for one pass in order: `open_shards`, then `Opened.read`."""
    return open_shards(data, split, deep).read(config)


# The kinds whose tasks share one objective, and the flag that makes each.
_SHARING = {"text_to_text": "--text_to_text", "embedding": "--embed_as"}


def _share_objective(tasks: Mapping[str, Description], folders: Sequence[str]) -> bool:
    """Returns whether the tasks of all folders share one objective; refuses a mixture of both."""
    for kind, flag in _SHARING.items():
        pairs = zip(folders, tasks.values(), strict=True)
        others = [(folder, task.kind) for folder, task in pairs if task.kind != kind]
        if 0 < len(others) < len(tasks):
            folder, other = others[0]
            raise UserError(
                f"{folder} is of the kind {other}, and other folders are of the kind {kind}: make "
                f"all of them with {flag}, or none"
            )
        if not others:
            return True
    return False


def _weighs(source: ShardDataset) -> bool:
    """Returns whether the rows of a source have weights."""
    return "row_weight" in source.fields


def _check_texts(sources: Sequence[ShardDataset]) -> None:
    """Checks that the examples of all sources have as many texts, and all or none have scores."""
    first, *others = sources
    if not first.training:
        return
    for other in others:
        ours, theirs = (
            (source.task.sequences or {}).get(source.split) for source in (first, other)
        )
        if ours != theirs:
            raise UserError(
                f"{first.folder} has examples of {ours} texts, and {other.folder} of {theirs}: "
                "make all of one number, such as pairs"
            )
        if ("score" in first.fields) != ("score" in other.fields) and ours:
            raise UserError(
                f"{first.folder} and {other.folder}: only one has scores, and one loss does not "
                "take both"
            )


def _alike(batch: dict[str, tf.Tensor], names: set[str], length: int) -> dict[str, tf.Tensor]:
    """Returns the fields of a batch that all tasks have, with targets of one length [B, U]."""
    batch = {name: batch[name] for name in sorted(names)}
    for name in sorted({"target_ids", "target_mask"} & names):
        missing = length - batch[name].shape[1]
        batch[name] = tf.pad(batch[name], [[0, 0], [0, missing]])  # The padding is 0 and False.
    return batch


def rates(
    sizes: Sequence[int],
    steps: int,
    sampling: str = "proportional",
    limit: int = 0,
    temperature: float = 1.0,
) -> np.ndarray:
    """Returns how often each task is drawn at each step, up to a factor: [steps, tasks].

    Args:
      sizes: the number of examples of each task.
      steps: the number of training steps.
      sampling: `recipe.task_sampling`.
      limit: K; 0 = none.
      temperature: T.
    """
    progress = np.arange(steps) / max(1, steps - 1)  # [steps]
    alpha = {
        "proportional": np.full(steps, 1 / temperature),
        "equal": np.zeros(steps),
        "annealed": 1 - (1 - _LOWEST) * progress,
    }[sampling]
    return np.minimum(sizes, limit or np.inf) ** alpha[:, None]


def choices(shares: np.ndarray, seed: int) -> np.ndarray:
    """Draws the index of the task of each step: int64 [steps].

    Args:
      shares: how often each task is drawn at each step, up to a factor [steps, tasks].
      seed: the seed of the draws.
    """
    bounds = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    rng = host_seeding.numpy_rng(seed, seeding.Stream.TASK)
    return (rng.random(len(shares))[:, None] >= bounds[:, :-1]).sum(axis=1)
