"""The section `recipe.trainable` of a config: the weights of the encoder that are trained."""

import dataclasses

from official.utils.strict import above, at_least, omitted, one_of

TARGETS = ("query", "key", "value", "output", "inner", "gate", "outer")


@dataclasses.dataclass(frozen=True)
class LoRA:
    """Low-rank updates of kernels (Hu et al., 2021): W + alpha / rank A B; A and B are trained.

    Attributes:
      rank: the number of columns of A and of rows of B.
      alpha: the numerator of the factor alpha / rank; None = the rank, so that the factor is 1.
      targets: the kernels, in every layer: `query`, `key`, `value` and `output` of attention,
        `inner`, `gate` and `outer` of the feed-forward network.
    """

    rank: int = 8
    alpha: float | None = None
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self):
        at_least(self, 1, "rank")
        if self.alpha is None:
            object.__setattr__(self, "alpha", float(self.rank))
        above(self, 0, "alpha")
        if not self.targets:
            raise ValueError("targets: names no kernel: give some, such as query and value")
        for target in self.targets:
            one_of("targets", target, TARGETS)

    @property
    def factor(self) -> float:
        """The factor of the product of A and B."""
        return (self.alpha or self.rank) / self.rank


@dataclasses.dataclass(frozen=True)
class Trainable:
    """The weights of the encoder that are trained. All others are frozen. Heads are always trained.

    Attributes:
      layers: the number of last layers that are trained, with a final norm and the pooler; None =
        all.
      embeddings: whether the embeddings are trained; None = yes, except if only `layers` is set.
      unfreeze_every: the number of steps after which one more layer is trained, from the last down,
        and then the embeddings. `layers` are trained from the start (Howard and Ruder, 2018,
        section 3.3).
      adapters: the bottleneck size of the adapters that every layer gets (`encoder.adapter_size`).
        Only the adapters, all norms and the pooler are trained.
      lora: low-rank updates. Only they and the pooler are trained.
    """

    layers: int | None = omitted()
    embeddings: bool | None = omitted()
    unfreeze_every: int | None = omitted()
    adapters: int | None = omitted()
    lora: LoRA | None = omitted()

    def __post_init__(self):
        at_least(self, 0, "layers")
        at_least(self, 1, "adapters", "unfreeze_every")
        if self.unfreeze_every is not None and self.layers is None:
            raise ValueError(
                "unfreeze_every: needs layers, the number of layers that are trained from the start"
            )
        for alone in sorted({"adapters", "lora"} & set(self.keys)):
            if others := [key for key in self.keys if key != alone]:
                raise ValueError(f"{alone}: not supported with {others[0]}; remove one of them")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are set."""
        fields = dataclasses.fields(self)
        return tuple(f.name for f in fields if getattr(self, f.name) is not None)

    @property
    def learns_embeddings(self) -> bool:
        """Whether the embeddings are trained."""
        if self.embeddings is not None:
            return self.embeddings
        return self.layers is None or self.unfreeze_every is not None
