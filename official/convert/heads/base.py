"""The base class of heads."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official.convert.mapping import Row
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Head:
    """A head, and the base class of the kinds of heads.

    Attributes:
      rows: its variables and their tensors; none where it is the token table.
      architecture: the class of transformers that has this head alone; None = there is none.
      erf_gelu: whether it has the erf form of GELU whatever the activation of the encoder is.
      name: the name of the head, by which messages call it.
      objective_type: the config of its objective.
      settings: fields of that config that tell heads with the same objective type apart.
      poolings: the values of the objective's `pooling` that the head can have.
      segments: whether a model with this head comes with `segments` in its config.
      corruption: whether a model with this head comes with `corruption` in its config.
    """

    rows: Sequence[Row] = ()
    architecture: str | None = None
    erf_gelu: bool = False

    name: ClassVar[str] = ""
    objective_type: ClassVar[type]
    settings: ClassVar[Mapping[str, Any]] = {}
    poolings: ClassVar[tuple[str, ...]] = ("pooled",)
    segments: ClassVar[bool] = False
    corruption: ClassVar[bool] = False

    @classmethod
    def describes(cls, objective: Any) -> bool:
        """Returns whether an objective has this kind of head."""
        same = (getattr(objective, key, None) == value for key, value in cls.settings.items())
        return isinstance(objective, cls.objective_type) and all(same)

    def rows_of(self, encoder: Any) -> Sequence[Row]:
        """Returns the rows of the head beside an encoder: its config may tie them to its own."""
        del encoder
        return self.rows

    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        """Returns whether a file has this head.

        Args:
          config: the parsed config.json.
          has_tensors: whether the file has a tensor of the head.
        """
        return has_tensors or (not self.rows and self._is_named(config))

    def _is_named(self, config: Mapping[str, Any]) -> bool:
        return self.architecture in (config.get("architectures") or ())

    def objective(self, config: Mapping[str, Any], dropout: Any) -> Any:
        """Returns the config of the objective.

        Args:
          config: the parsed config.json.
          dropout: the dropout rate of heads of tasks in `config`.

        Raises:
          ValueError: `config` has a value that the objective cannot have.
        """
        del config, dropout
        return self.objective_type(**self.settings)

    def check(self, objective: Any, encoder: Any, title: str) -> None:
        """Refuses an objective that a class of transformers does not have.

        Args:
          objective: the config of the objective.
          encoder: the config of the encoder.
          title: the name of the system, with its article.

        Raises:
          UserError: transformers pools in another way, reads the last layer alone, has no
            activation there, or reads in another direction.
        """
        if getattr(objective, "mix", None) is not None:
            raise UserError(
                f"objectives: {objective.type}.mix: {title} of transformers reads the last layer "
                "alone"
            )
        pooling = getattr(objective, "pooling", "pooled")
        if pooling not in self.poolings or (pooling != "pooled" and encoder.pooler):
            raise UserError(
                f"objectives: {objective.type}.pooling: {title} of "
                f"transformers has 'pooled', not {pooling!r}"
            )
        if getattr(objective, "activation", None) is not None:
            raise UserError(
                f"objectives: {objective.type}.activation: {title} of transformers has none"
            )
        if getattr(objective, "direction", "forward") != "forward":
            raise UserError(
                f"objectives: {objective.type}.direction: {title} of "
                f"transformers reads from left to right, not {objective.direction!r}"
            )

    def pooler_keys(self, objective: Any, encoder: Any) -> dict[str, Any]:
        """Returns the keys of config.json that say how the head pools."""
        del objective, encoder
        return {}

    def keys(self, objective: Any, dropout_key: str) -> dict[str, Any]:
        """Returns the other keys of config.json that describe the head.

        Args:
          objective: the config of the objective.
          dropout_key: the key of the dropout rate of heads of tasks.
        """
        del objective, dropout_key
        return {}
