"""What mypy is told of Keras: the members of its layers, so that those of ours are checked.

Keras has no annotations of its own that mypy can follow. What is not declared here is of the type
Any.
"""

from collections.abc import Sequence
from typing import Any, Self

class Variable(Any):
    """Tensor and holder of a value: what its members give depends on the backend."""

class KerasTensor(Any): ...

class DTypePolicy:
    """The dtypes of a layer."""

    name: str
    compute_dtype: str
    variable_dtype: str
    def __init__(self, name: str | None = None) -> None: ...

class Layer:
    """The base class of layers. A member that is not here is one of the subclass."""

    name: str
    path: str
    built: bool
    trainable: bool
    supports_masking: bool
    activity_regularizer: Any
    dtype_policy: Any
    losses: list[Any]
    metrics: list[Any]
    variables: list[Variable]
    trainable_variables: list[Variable]
    non_trainable_variables: list[Variable]
    weights: list[Variable]
    trainable_weights: list[Variable]
    non_trainable_weights: list[Variable]
    @property
    def dtype(self) -> str: ...
    @property
    def compute_dtype(self) -> str: ...
    @property
    def variable_dtype(self) -> str: ...
    def __init__(
        self,
        *,
        activity_regularizer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def build(self, input_shape: Any = None) -> None: ...
    def add_weight(
        self,
        shape: Sequence[int] | None = None,
        initializer: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable: ...
    def _flatten_layers(self, recursive: bool = True, include_self: bool = True) -> list[Layer]: ...
    def add_loss(self, loss: Any) -> None: ...
    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any: ...
    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any: ...
    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any: ...
    def count_params(self) -> int: ...
    def get_config(self) -> dict[str, Any]: ...
    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self: ...
    def get_weights(self) -> list[Any]: ...
    def set_weights(self, weights: Sequence[Any]) -> None: ...

def __getattr__(name: str) -> Any: ...
