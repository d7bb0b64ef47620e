"""The version of the code that makes shards, which changes with every line of it."""

import functools
import hashlib
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("tfrecords_tools", *(f"official/{name}" for name in (
    "config", "corruption", "shards", "tasks", "tokenizers", "utils",
)))  # fmt: skip
_LIBRARIES = ("numpy", "sentencepiece", "tensorflow")


@functools.cache
def digest() -> str:
    """Returns the SHA-256 of all sources that records depend on, and of the libraries' versions."""
    hashed = hashlib.sha256()
    for name in _LIBRARIES:
        hashed.update(f"{name} {_version(name)}\n".encode())
    for path in sources():
        hashed.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def sources() -> list[Path]:
    """Returns the source files."""
    return [path for name in _PACKAGES for path in sorted((_ROOT / name).rglob("*.py"))]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
