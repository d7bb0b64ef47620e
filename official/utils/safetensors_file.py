"""Reads safetensors files in little more memory than that of a tensor."""

import os

import numpy as np
import safetensors

_BLOCK = 64 << 20  # bytes


class SafetensorsFile:
    """The tensors of a safetensors file, each read when it is asked for.

    The library (safetensors 0.8.0) maps the file, and the pages of all tensors that were read count
    as memory of the process until the mapping ends. So the file is opened again after each 64 MiB.

    Attributes:
      names: the names of the tensors.
      metadata: strings by name.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens a local file, which must stay where it is until `close`.

        Raises:
          OSError: the file cannot be read.
          safetensors.SafetensorError: it is no such file, or not all of it.
        """
        self._path, self._read = path, 0
        self._handle = self._open()
        self.names = tuple(self._handle.keys())
        self.metadata: dict[str, str] = self._handle.metadata() or {}

    def tensor(self, name: str) -> np.ndarray:
        """Reads a tensor; numpy must have its type. The errors are those of the library."""
        if self._read >= _BLOCK:
            self._read = 0
            self._handle = self._open()
        array = self._handle.get_tensor(name)
        self._read += array.nbytes
        return array

    def stored_type(self, name: str) -> str:
        """Returns the type of a tensor as the format names it, such as `BF16`."""
        return str(self._handle.get_slice(name).get_dtype())

    def close(self) -> None:
        """Ends the mapping."""
        del self._handle

    def _open(self) -> safetensors.safe_open:
        return safetensors.safe_open(self._path, framework="np").__enter__()
