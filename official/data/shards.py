"""The shards of one split of one or more folders, opened: what is known of their examples.

Shapes: T tokens of the longest row, C sequences of an example, P predictions.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np

from official import tokenizers
from official.config.parts import CorruptionConfig
from official.data.fields import STATIC_MASKS
from official.data.order import Files
from official.data.row_groups import Folder
from official.shards import manifest, parsing, shard_folder, stored_arrays
from official.tasks import Description, MixtureDescription
from official.utils import paths
from official.utils.input_files import Inputs


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of a split; `open` reads what is known of them.

    Attributes:
      folders: the folders, whose examples are numbered in this order.
      split: the name of the split.
      manifests: the manifest of each folder.
      tokenizer: the tokenizer that the examples were made with.
      inputs: the files as they were before every byte was compared; none if it was not.
    """

    folders: Sequence[str | os.PathLike]
    split: str
    manifests: Sequence[manifest.Manifest]
    tokenizer: tokenizers.Tokenizer
    inputs: Inputs

    @classmethod
    def open(
        cls, folders: str | os.PathLike | Sequence[str | os.PathLike], split: str, deep: bool
    ) -> "Shards":
        """Reads the manifests and compares the shards with them.

        Args:
          folders: one folder or several.
          split: the name of the split.
          deep: whether to compare every byte, or only the sizes.

        Raises:
          UserError: a folder or split does not exist, or a shard has changed since it was written.
        """
        folders = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
        manifests = [shard_folder.read(paths.path(path), split) for path in folders]
        inputs = _verified(folders, split, manifests, deep)
        tokenizer = shard_folder.load_tokenizer(paths.path(folders[0]), manifests[0])
        return cls(folders, split, manifests, tokenizer, inputs)

    def unchanged(self) -> "Shards":
        """Returns the shards if they are those that were opened, after they are read.

        Files that were written again, as by a copy of the folder, are compared byte for byte.

        Raises:
          UserError: a shard has changed.
        """
        if not self.inputs.change():
            return self
        inputs = _verified(self.folders, self.split, self.manifests, deep=True)
        return dataclasses.replace(self, inputs=inputs)

    @property
    def folder(self) -> str:
        """All folders, for messages."""
        return ", ".join(map(str, self.folders))

    @property
    def manifest(self) -> manifest.Manifest:
        """The manifest of the first folder, whose features those of the others equal."""
        return self.manifests[0]

    @property
    def task(self) -> Description | None:
        """The task; None in pretraining."""
        task = self.manifest.task
        assert not isinstance(task, MixtureDescription), "shards are of one task"
        return task

    @property
    def features(self) -> frozenset[str]:
        """The features of an example."""
        return self.manifest.features_of(self.split)

    @property
    def static_masks(self) -> bool:
        """Whether the examples have static masks."""
        return STATIC_MASKS <= self.features

    @property
    def max_length(self) -> int:
        """T."""
        return max(each.max_length for each in self.manifests)

    @property
    def longest_sequence(self) -> int:
        """The tokens of the longest sequence; rows that several sequences share may be longer."""
        return max(m.segments.max_length if m.segments else m.max_length for m in self.manifests)

    @property
    def parts(self) -> int:
        """The largest number of sequences that share a row; 1 = rows are not shared."""
        return max(m.segments.packing if m.segments else 1 for m in self.manifests)

    @property
    def rows(self) -> int | None:
        """The number of rows of a stream; None = the examples are independent."""
        segments = self.manifest.segments
        return segments.rows if segments is not None and segments.format == "stream" else None

    @property
    def sequences(self) -> int | None:
        """C; None = an example is one sequence."""
        return (self.task and self.task.sequences or {}).get(self.split)

    @property
    def windows(self) -> int | None:
        """The largest number of windows of a text; None = an example is no text in windows."""
        return self.task.windows if self.task else None

    @property
    def num_examples(self) -> int:
        """The number of examples in the split."""
        return sum(shard.records for m in self.manifests for shard in m.split(self.split))

    @functools.cached_property
    def limits(self) -> parsing.Limits:
        """What the numbers of examples are limited to."""
        size = self.tokenizer.vocab_size
        limits = parsing.Limits.of(self.folder, self.manifest, self.split, size)
        return dataclasses.replace(limits, tokens=self.max_length, parts=self.parts)

    @property
    def files(self) -> list[Folder]:
        """The files of each folder."""
        return [
            Folder(Files.from_manifest(path, each, self.split), each.row_groups)
            for path, each in zip(self.folders, self.manifests, strict=True)
        ]

    def token_counts(self) -> np.ndarray | None:
        """Reads the count of each vocabulary entry in the corpora; None = unknown."""
        pairs = zip(self.folders, self.manifests, strict=True)
        counts = [stored_arrays.read_token_counts(*pair) for pair in pairs]
        known = [count for count in counts if count is not None]
        return np.sum(known, axis=0) if len(known) == len(counts) else None

    def listed_predictions(self, corruption: CorruptionConfig | None) -> int | None:
        """Returns P of a row whose masks are listed; None if they are not.

        Static masks are listed, and so are those of the sequences that share a row.

        Args:
          corruption: the corruption of the run.
        """
        if self.static_masks:
            corruption = self.manifest.corruption
        if corruption is None:
            return None
        if self.parts == 1:
            return corruption.max_predictions if self.static_masks else None
        return corruption.row_predictions(self.max_length, self.parts)


def _verified(
    folders: Sequence[str | os.PathLike],
    split: str,
    manifests: Sequence[manifest.Manifest],
    deep: bool,
) -> Inputs:
    """Compares the shards of a split with the manifests; see `Shards.inputs`."""
    both = zip(folders, manifests, strict=True)
    files = (paths.path(path) / shard.name for path, each in both for shard in each.split(split))
    inputs = Inputs(files if deep else ())
    for path in folders:
        shard_folder.verify(paths.path(path), split, deep=deep)
    return inputs
