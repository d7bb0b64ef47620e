"""A function of a higher layer that a lower one calls; `official/__init__.py` sets it."""

from collections.abc import Callable
from typing import Any


def _unset(*arguments: Any, **options: Any) -> Any:
    raise RuntimeError("import official has not run")


convert: Callable[..., str] = _unset
"""`official.convert`, by which `package:NAME` becomes a model folder."""
