"""Reads tensors of torch's files (`pytorch_model.bin`, `*.pth`) without running their code.

`torch.save` writes a pickle, which is a program: an unpickler calls any function that it names.
Here its opcodes are interpreted by a machine that makes only numbers, texts, lists, tuples,
dictionaries and descriptions of tensors, and that calls only the functions of `_FUNCTIONS`. The
offsets and sizes of a tensor are compared with its storage before any number is read.

There are two formats. Since torch 1.6 the file is a zip archive: `data.pkl`, and a member of bytes
for each storage. In the older format, several pickles are followed by the storages.
"""

import dataclasses
import io
import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import ml_dtypes
import numpy as np

from official.conversion.mapping import LazyTensors
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# Storage classes of torch and the types of their numbers, which are little-endian.
_STORAGES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
# The function by which torch writes 8-bit floats, and unsigned integers of more than 8 bits.
_SHORT_TENSOR = "torch._utils._rebuild_tensor_v3"
SHORT_FLOATS = (
    "floats of 8 bits and less are quantized weights with separate scales; write the weights as "
    "bfloat16 or float32 with the library that made them, and convert those"
)
_INNER = ("state_dict", "model_state_dict", "model", "module")

_MAX_PICKLE = 16 << 20  # bytes; about 200 for each tensor
_MAX_DIRECTORY = 4 << 20  # bytes of the list of members; about 80 for each member
_MAX_OPCODES = 1_000_000  # about 40 for each tensor
_MAX_AXES = 16
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # the first two pickles of the old format
_ERRORS = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
)


class TorchFile(LazyTensors):
    """The tensors of a file by name. Each is read when it is accessed."""

    _index: Mapping[str, "_Tensor"]

    def __init__(self, path: AnyPath):
        """Opens a file and reads which tensors it has.

        Raises:
          UserError: the file is damaged, or contains something other than tensors.
        """
        self.source = path
        paths.check_file(path, max_bytes=None)
        with self._naming(), paths.local_copy(path) as local:
            # the open file stays readable after the copy is removed
            self._stream = local.open("rb")
            self._size = local.stat().st_size
        try:
            with self._naming():
                self._read_storage, state = self._open()
                self._index = _tensors(state)
        except UserError:
            self.close()
            raise
        self._last: tuple[str, np.ndarray] | None = None

    def _open(self) -> tuple[Callable[["_Storage"], bytes], Any]:
        """Returns a function that reads the bytes of a storage, and the unpickled state."""
        if self._stream.read(4) == b"PK\x03\x04":
            archive = _Archive(self._stream, self._size)
            return archive.storage, archive.state()
        self._stream.seek(0)
        if _run(self._stream) != _MAGIC or _run(self._stream) != _PROTOCOL:
            raise ValueError("it is neither an archive of torch.save nor its older format")
        system = _run(self._stream)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise ValueError("its numbers are not little-endian")
        storages: dict[str, _Storage] = {}
        state = _run(self._stream, storages)
        keys = _run(self._stream)
        return _Rows(self._stream, self._size, storages, keys).storage, state

    def _naming(self) -> "_Naming":
        return _Naming(self.source)

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor; caches its storage, since the next tensor may share it."""
        tensor = self._index[name]
        storage = tensor.storage
        with self._naming():
            if self._last is None or self._last[0] != storage.key:
                data = np.frombuffer(self._read_storage(storage), storage.dtype)
                self._last = (storage.key, data)
            data = self._last[1][tensor.offset :]
            strides = tuple(step * storage.dtype.itemsize for step in tensor.strides)
            return np.lib.stride_tricks.as_strided(data, tensor.shape, strides, writeable=False)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        self._last = None


@dataclasses.dataclass(frozen=True)
class _Naming:
    """Converts errors of reading a file to a UserError that names the file."""

    path: str | os.PathLike

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        """Raises the UserError."""
        if isinstance(error, UserError):
            return
        if isinstance(error, _ERRORS):
            raise UserError(f"{self.path} cannot be read as a file of torch: {error}") from None


@dataclasses.dataclass(frozen=True)
class _Storage:
    """Numbers of one type in a file.

    Attributes:
      key: its name in the file.
      dtype: the type of its numbers.
      size: the number of its elements.
    """

    key: str
    dtype: np.dtype
    size: int

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage.

    Attributes:
      storage: the storage.
      offset: the index of its first number.
      shape: the shape.
      strides: the step in the storage along each axis, in numbers.
    """

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Name:
    """A function or class that a pickle names."""

    name: str


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> _Tensor:
    """Makes a tensor like `torch._utils._rebuild_tensor_v2`; checks that it fits its storage."""
    del rest  # the flag of gradients, and hooks
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")
    for numbers in ((offset,), shape, strides):
        if not isinstance(numbers, tuple) or not all(_is_count(number) for number in numbers):
            raise ValueError(f"a tensor of storage {storage.key} has sizes that are not numbers")
    if len(shape) != len(strides) or len(shape) > _MAX_AXES:
        raise ValueError(f"a tensor of storage {storage.key} has {len(shape)} axes")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    count = math.prod(shape)
    if count > storage.size or (count and last >= storage.size):
        raise ValueError(
            f"a tensor of shape {list(shape)} from {offset} on is larger than its storage "
            f"{storage.key} of {storage.size:,} numbers"
        )
    return _Tensor(storage, offset if count else 0, shape, strides)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _parameter(data: Any, *rest: Any) -> _Tensor:
    del rest
    if not isinstance(data, _Tensor):
        raise ValueError("a parameter is not a tensor")
    return data


def _size(shape: Any) -> tuple:
    if not isinstance(shape, tuple):
        raise ValueError("a size is not a tuple")
    return shape


# The functions and classes that a file may name, and their replacements.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda: {},
    "torch._utils._rebuild_tensor": _rebuild,
    "torch._utils._rebuild_tensor_v2": _rebuild,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _size,
}
_NAMES = {*_FUNCTIONS, *(f"torch.{name}" for name in _STORAGES)}

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = frozenset(
    "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "SHORT_BINSTRING BINSTRING".split()
)
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))
_GET = frozenset(("BINGET", "LONG_BINGET", "GET"))


class _Pickle:
    """The bytes of a pickle; raises ValueError after `_MAX_PICKLE` bytes."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self._left = stream, _MAX_PICKLE

    def _count(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left <= 0:
            raise ValueError(f"its pickle has more than {_MAX_PICKLE:,} bytes")
        return data

    def read(self, size: int) -> bytes:
        return self._count(self._stream.read(min(size, self._left)))

    def readline(self) -> bytes:
        return self._count(self._stream.readline(self._left))

    def tell(self) -> int:
        return self._stream.tell()


def _run(stream: IO[bytes], storages: dict[str, _Storage] | None = None) -> Any:
    """Interprets the pickle at the position of a stream, and leaves the stream at its end.

    Args:
      stream: the stream.
      storages: takes the storages that the pickle names; None = it may name none.

    Raises:
      ValueError: the pickle has an opcode or names a function that files of tensors do not have.
      LookupError: the pickle is damaged.
      TypeError: the pickle is damaged.
    """
    return _Machine(storages).run(_Pickle(stream))


class _Machine:
    """Interprets a pickle. Each opcode makes or moves a few values, so memory is bounded."""

    def __init__(self, storages: dict[str, _Storage] | None):
        self._storages = storages
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, pickle: _Pickle) -> Any:
        # genops needs only these two methods
        opcodes = pickletools.genops(pickle)  # type: ignore[arg-type]
        for number, (opcode, argument, _) in enumerate(opcodes):
            if number > _MAX_OPCODES:
                raise ValueError(f"its pickle has more than {_MAX_OPCODES:,} opcodes")
            if opcode.name == "STOP":
                break
            self._step(opcode.name, argument)
        return self._stack.pop()

    def _step(self, name: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        if name in _PUT:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _GET:
            stack.append(memo[argument])
        elif name in _NUMBERS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[name])))
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._marked()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._marked()
            self._set(self._top(dict), items)
        elif name == "GLOBAL":
            stack.append(_named(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            stack.append(_named(".".join(_texts(self._pop(2)))))
        elif name == "BINPERSID":
            stack.append(self._storage(*self._pop(1)))
        elif name == "REDUCE":
            self._call(*self._pop(2))
        elif name == "BUILD":
            self._pop(1)  # attributes of a dictionary, such as the versions of layers
            self._top(dict)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(
                f"its pickle has the opcode {name}, which files of tensors do not have"
            )

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) - (self._marks[-1] if self._marks else 0) < count:
            raise IndexError("its pickle pops an empty stack")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return items

    def _marked(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _top(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise TypeError(f"its pickle has another value where a {kind.__name__} must be")
        return self._stack[-1]

    def _set(self, target: dict, items: list[Any]) -> None:
        keys = items[::2]
        if len(items) % 2 or not all(type(key) in (str, int) for key in keys):
            raise TypeError("a dictionary has keys that are neither text nor numbers")
        target.update(zip(keys, items[1::2], strict=True))

    def _call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            raise TypeError("its pickle calls a value that is not a function")
        if function.name not in _FUNCTIONS:
            raise ValueError(f"its pickle calls {function.name}")
        self._stack.append(_FUNCTIONS[function.name](*arguments))

    def _storage(self, identity: Any) -> _Storage:
        """Makes the storage of a persistent id: kind, class, key, device, size."""
        if self._storages is None or type(identity) is not tuple or len(identity) < 5:
            raise ValueError("its pickle refers to an object outside the file")
        kind, of_class, key, _, size, *view = identity
        if kind != "storage" or type(key) is not str or not _is_count(size) or any(view):
            raise ValueError("its pickle names an unknown storage")
        name = of_class.name.rpartition(".")[2] if isinstance(of_class, _Name) else ""
        if name not in _STORAGES:
            raise ValueError(f"storage {key[:50]} has numbers of an unknown type")
        storage = _Storage(key, _STORAGES[name], size)
        if self._storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {key[:50]} occurs twice, with different sizes")
        return storage


def _texts(values: list[Any]) -> list[str]:
    # Nested values could take unbounded time to compare or print.
    if not all(type(value) is str for value in values):
        raise TypeError("its pickle has a name that is not a text")
    return values


def _named(name: str) -> _Name:
    if name == _SHORT_TENSOR:
        raise ValueError(f"it has tensors of the newest types: {SHORT_FLOATS}")
    if name not in _NAMES:
        raise ValueError(
            f"its pickle names {name[:100]}, which is not a tensor: only tensors are read, as "
            "torch.save(model.state_dict(), FILE) writes them"
        )
    return _Name(name)


class _Archive:
    """The zip archive of torch since 1.6."""

    def __init__(self, stream: IO[bytes], size: int):
        self._size = size
        bounded = _Bounded(stream, _MAX_DIRECTORY)
        self._zip = zipfile.ZipFile(bounded)
        bounded.limit = None
        members = self._zip.infolist()
        self._members = {info.filename: info for info in members}
        pickles = [name for name in self._members if name.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1 or len(self._members) != len(members):
            raise ValueError("it is a zip archive, but not one of torch.save")
        self._root = pickles[0].removesuffix("data.pkl")

    def _read(self, name: str, most: int) -> bytes:
        info = self._members.get(self._root + name)
        if info is None:
            raise ValueError(f"the member {name[:50]} is missing: the file is incomplete")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"the member {name[:50]} is compressed, which torch never does")
        if info.file_size > min(most, self._size):
            raise ValueError(f"the member {name[:50]} has {info.file_size:,} bytes, of {most:,}")
        return self._zip.read(info)  # checks the CRC of the member

    def state(self) -> Any:
        """Returns the unpickled state."""
        if self._root + "byteorder" in self._members and self._read("byteorder", 8) != b"little":
            raise ValueError("its numbers are not little-endian")
        return _run(io.BytesIO(self._read("data.pkl", _MAX_PICKLE)), {})

    def storage(self, storage: _Storage) -> bytes:
        """Reads a storage."""
        data = self._read(f"data/{storage.key}", storage.bytes)
        if len(data) != storage.bytes:
            raise ValueError(
                f"storage {storage.key} has {len(data):,} bytes, but its pickle says "
                f"{storage.bytes:,}"
            )
        return data


class _Bounded:
    """A stream that never reads more than `limit` bytes at once."""

    def __init__(self, stream: IO[bytes], limit: int | None):
        self._stream, self.limit = stream, limit

    def read(self, size: int = -1) -> bytes:
        if self.limit is not None and not 0 <= size <= self.limit:
            size = self.limit + 1
            if len(data := self._stream.read(size)) == size:
                raise ValueError(f"its list of members has more than {self.limit:,} bytes")
            return data
        return self._stream.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Rows:
    """The storages of the old format, in sequence: the number of elements, then their bytes."""

    def __init__(self, stream: IO[bytes], size: int, storages: dict[str, _Storage], keys: Any):
        if type(keys) is not list or sorted(_texts(keys)) != sorted(storages):
            raise ValueError("its list of storages does not match its tensors")
        self._stream = stream
        self._starts = {}
        place = stream.tell()
        for key in keys:
            storage = storages[key]
            stream.seek(place)
            (count,) = struct.unpack("<q", stream.read(8))
            self._starts[key] = place + 8
            place += 8 + storage.bytes
            if count != storage.size or place > size:
                raise ValueError(
                    f"storage {key} has {count:,} numbers, its pickle says {storage.size:,}, and "
                    f"the file has {size:,} bytes: the file is incomplete"
                )

    def storage(self, storage: _Storage) -> bytes:
        """Reads a storage."""
        self._stream.seek(self._starts[storage.key])
        return self._stream.read(storage.bytes)


def _tensors(state: Any) -> dict[str, _Tensor]:
    """Returns the tensors of a state dict, or of the model in a training checkpoint, by name."""
    inner = [state, *(state.get(key) for key in _INNER)] if type(state) is dict else []
    for part in inner:
        if type(part) is dict:
            tensors = {key: value for key, value in part.items() if isinstance(value, _Tensor)}
            if tensors and all(type(key) is str for key in tensors):
                return tensors
    raise ValueError("it has no tensors by name, as torch.save(model.state_dict(), FILE) writes")
