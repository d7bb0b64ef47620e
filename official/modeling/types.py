"""Type aliases for signatures. Docstrings give shapes and dtypes."""

from collections.abc import Mapping
from typing import Any, TypeAlias

# A tensor of the Keras backend, a symbolic tensor of Keras, or an array that becomes one. Backends
# have no type in common, and the network imports none of them.
Tensor: TypeAlias = Any
# A size that may be known only when a graph runs: an `int` or a scalar tensor.
Size: TypeAlias = int | Tensor
# The name of a dtype, or a Keras dtype policy.
DType: TypeAlias = Any
# Makes the values of a variable: a Keras initializer or its name.
Initializer: TypeAlias = Any
# The fields of a batch by name.
Batch: TypeAlias = Mapping[str, Tensor]
# The outputs of an encoder by name; some of them are tuples of tensors.
Encoded: TypeAlias = Mapping[str, Any]
