"""The section `recipe.trainable` of a config: which weights of the encoder learn."""

import dataclasses

from official.utils.strict import at_least, omitted


@dataclasses.dataclass(frozen=True)
class Trainable:
    """What learns of the encoder; its other weights stay as they are. Heads always learn.

    Attributes:
      layers: the number of last layers that learn, with what comes after them (a final norm, the
        pooler); None = all.
      embeddings: whether the embeddings learn; None = they do, but not with `layers`.
    """

    layers: int | None = omitted()
    embeddings: bool | None = omitted()

    def __post_init__(self):
        at_least(self, 0, "layers")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are given."""
        fields = dataclasses.fields(self)
        return tuple(f.name for f in fields if getattr(self, f.name) is not None)

    @property
    def learns_embeddings(self) -> bool:
        """Whether the embeddings learn."""
        return self.layers is None if self.embeddings is None else self.embeddings
