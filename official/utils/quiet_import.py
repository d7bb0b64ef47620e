"""Imports TensorFlow in silence, and in about half the time.

Its notices about CUDA and oneDNN do not help the user, and no log level hides them. They are
printed if the import fails.

TensorFlow imports Keras, which imports scikit-learn and matplotlib if they are installed, and the
converter of LiteRT imports JAX, which changes the environment, for parts that no command uses. They
are hidden during the import, JAX unless it is Keras' backend, and so is Keras where there is no
network. The garbage collector, which walks again and again through the many objects that are made,
is paused.
"""

import contextlib
import gc
import importlib.abc
import importlib.util
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from typing import Any

_OPTIONAL = ("matplotlib", "sklearn")  # of Keras
_KERAS_LAYERS = "tensorflow_text.python.keras"  # importing these imports Keras


def install(keras: bool = True) -> None:
    """Changes the next import of tensorflow, or of keras if that comes first.

    Args:
      keras: whether Keras is imported with it, and with tensorflow_text.
    """
    if "tensorflow" in sys.modules or any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    hidden = _OPTIONAL if keras else (*_OPTIONAL, "keras")
    if os.environ.get("KERAS_BACKEND") != "jax":
        hidden = (*hidden, "jax")
    sys.meta_path.insert(0, _Finder(hidden))
    if not keras:
        sys.modules.setdefault(_KERAS_LAYERS, types.ModuleType(_KERAS_LAYERS))


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the import of tensorflow or keras, whichever comes first, to hide other packages."""

    def __init__(self, hidden: Sequence[str]):
        self._hidden = hidden

    def find_spec(self, name, path=None, target=None):
        if name not in ("tensorflow", "keras"):  # each imports the other
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            hidden = [each for each in self._hidden if each != name]

            def quietly(module: types.ModuleType) -> None:
                with _held_stderr(), _hidden(hidden), _collector_paused():
                    execute(module)

            spec.loader.exec_module = quietly  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _hidden(names: Sequence[str]) -> Iterator[None]:
    """Makes imports of these packages fail unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    nothing: Any = None  # not a module: an import of it fails
    sys.modules.update(dict.fromkeys(hidden, nothing))
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _held_stderr() -> Iterator[None]:
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
