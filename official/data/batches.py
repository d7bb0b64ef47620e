"""Turns the records of a batch into its tensors: parses them, and has field makers make the fields.

Shapes: B examples of a replica's batch, T tokens with padding.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from official.data.fields import Batch, Examples, FieldMaker
from official.shards import parsing
from official.utils import seeding


@dataclasses.dataclass(frozen=True)
class BatchBuilder:
    """A function from the records of a batch to its tensors.

    Attributes:
      features: the features of an example.
      limits: what the numbers of examples are limited to.
      seed: the seed of the run.
      length: T, unless the records have a length of their own.
      makers: what makes the fields, in this order. A maker may change fields of those before it.
    """

    features: frozenset[str]
    limits: parsing.Limits
    seed: int
    length: int
    makers: Sequence[FieldMaker]

    def __post_init__(self):
        known = self.features
        for maker in self.makers:
            if missing := maker.needs - known:
                name = type(maker).__name__
                raise ValueError(f"{name} needs {', '.join(sorted(missing))}, which nothing gives")
            known |= maker.gives

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields of a batch."""
        return frozenset().union(*(maker.gives for maker in self.makers))

    def __call__(self, rows: Mapping[str, tf.Tensor], size: int) -> Batch:
        """Builds the batch of one replica.

        Args:
          rows: `record`, `index` and `epoch` [B], `length` if rows have a length of their own, and
            `first` of a stream; see `official.data.example_order` and `official.data.row_groups`.
          size: B.
        """
        records = tf.ensure_shape(rows["record"], [size])
        examples = Examples(
            parsed=parsing.parse(records, self.features, self.limits),
            size=size,
            length=rows["length"][0] if "length" in rows else self.length,
            index=tf.ensure_shape(rows["index"], [size]),
            seeds=seeding.row_seeds(self.seed, rows["epoch"], rows["index"]),
            first=rows.get("first"),
        )
        for maker in self.makers:
            examples.parsed.update(maker.prepare(examples))
        batch: Batch = {}
        for maker in self.makers:
            batch |= maker.make(examples, batch)
        return batch
