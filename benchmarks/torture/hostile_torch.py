"""Files of torch, written here without torch, and hostile ones."""

import io
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.torture import folders
from benchmarks.torture.spoiling import DEEP, HUGE, TRACE, pickled, pipe, sparse

FILE = "pytorch_model.bin"
_TABLE = "bert.embeddings.word_embeddings.weight"
_ORDERED = b"ccollections\nOrderedDict\n)R"


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _int(value: int) -> bytes:
    if 0 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def _tuple(items: Any) -> bytes:
    return b"(" + b"".join(map(_int, items)) + b"t"


def pickle_of(tensors: Mapping[str, np.ndarray], **changes: Any) -> bytes:
    """The pickle of a state of float32 tensors, each with a storage of its own.

    Args:
      tensors: the tensors.
      **changes: of the table: its `offset`, `shape`, `strides`, `size` and `storage` class.
    """
    parts = [b"\x80\x02", _ORDERED, b"("]
    for key, (name, array) in enumerate(tensors.items()):
        strides = tuple(step // array.itemsize for step in array.strides)
        entry = {"offset": 0, "shape": array.shape, "strides": strides, "size": array.size}
        entry |= {"storage": "FloatStorage"} | (changes if name == _TABLE else {})
        parts += [
            _text(name),
            b"ctorch._utils\n_rebuild_tensor_v2\n((",
            _text("storage"),
            f"ctorch\n{entry['storage']}\n".encode(),
            *(_text(str(key)), _text("cpu"), _int(entry["size"]), b"tQ", _int(entry["offset"])),
            *(_tuple(entry["shape"]), _tuple(entry["strides"]), b"\x89", _ORDERED, b"tR"),
        ]
    return b"".join([*parts, b"u."])


def archive(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    pickle: bytes | None = None,
    compression: int = zipfile.ZIP_STORED,
    leave_out: str = "",
) -> None:
    """Writes the format of torch since 1.6."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickle_of(tensors) if pickle is None else pickle)
        file.writestr("archive/byteorder", "little")
        for key, array in enumerate(tensors.values()):
            if str(key) != leave_out:
                file.writestr(f"archive/data/{key}", array.tobytes())
        file.writestr("archive/version", "3\n")


def old(path: Path, tensors: Mapping[str, np.ndarray], pickle: bytes | None = None) -> None:
    """Writes the format before."""
    stream = io.BytesIO()
    stream.write(b"\x80\x02" + _int(0x1950A86A20F9469CFC6C) + b".")
    stream.write(b"\x80\x02" + _int(1001) + b".")
    stream.write(b"\x80\x02}" + _text("little_endian") + b"\x88s.")
    stream.write(pickle_of(tensors) if pickle is None else pickle)
    keys = b"".join(_text(str(key)) for key in range(len(tensors)))
    stream.write(b"\x80\x02](" + keys + b"e.")
    for array in tensors.values():
        stream.write(struct.pack("<q", array.size) + array.tobytes())
    path.write_bytes(stream.getvalue())


def convert(folder: Path, write: Callable[..., None] = archive, **options: Any) -> None:
    """Puts a file of torch in the place of model.safetensors."""
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write(folder / FILE, tensors, **options)


def _changed(write: Callable[..., None] = archive, **changes: Any) -> Callable[[Path], None]:
    """Changes what the pickle says of the token table."""

    def spoil(folder: Path) -> None:
        tensors = safetensors.numpy.load_file(folder / "model.safetensors")
        convert(folder, write, pickle=pickle_of(tensors, **changes))

    return spoil


def _pickle(
    content: bytes | Callable[[Path], bytes], write: Callable[..., None] = archive
) -> Callable[[Path], None]:
    """Puts another pickle into the file."""

    def spoil(folder: Path) -> None:
        convert(folder, write, pickle=content(folder) if callable(content) else content)

    return spoil


def _system(folder: Path) -> bytes:
    command = _text(f"touch {folder.parent / TRACE}")
    return b"\x80\x02cposix\nsystem\n(" + command + b"tR."


def _hidden(folder: Path) -> bytes:
    """A good state, with a call in one of its attributes."""
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    call = b"cbuiltins\nexec\n(" + _text(f"open({str(folder.parent / TRACE)!r}, 'w')") + b"tR"
    return pickle_of(tensors)[:-1] + b"}" + _text("_metadata") + call + b"sb."


def _truncated(write: Callable[..., None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        convert(folder, write)
        os.truncate(folder / FILE, (folder / FILE).stat().st_size * 2 // 3)

    return spoil


def _two_of_a_name(folder: Path) -> None:
    convert(folder)
    with zipfile.ZipFile(folder / FILE, "a") as file:
        file.writestr("archive/data.pkl", pickle_of({}))


def _many_members(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / FILE, "w") as file:
        for number in range(60_000):
            file.writestr(f"archive/data/{number:0>40}", b"")


_LAUGHS = b"\x80\x02(tq\x00" + b"".join(b"h%c" % i * 2 + b"\x86q%c" % (i + 1) for i in range(90))
_CASES: dict[str, Callable[[Path], None]] = {
    "a call of os.system": _pickle(_system),
    "a call of os.system, in the old format": _pickle(_system, old),
    "a call hidden in an attribute": _pickle(_hidden),
    "a persistent id that is a call": _pickle(lambda f: _system(f)[:-1] + b"Q."),
    "a global of the interpreter": _pickle(b"\x80\x04\x8c\x02os\x8c\x06system\x93."),
    "an extension code": _pickle(b"\x80\x02\x82\x01."),
    "an instance": _pickle(b"\x80\x02(ios\nsystem\n."),
    "texts that double 90 times": _pickle(_LAUGHS + b"}h\x5aNs."),
    "a name that doubles 90 times": _pickle(_LAUGHS + b"h\x5a\x8c\x01a\x93."),
    "a storage that doubles 90 times": _pickle(_LAUGHS + b"h\x5aQ."),
    "tuples nested 100,000 deep": _pickle(b"\x80\x02)" + b"\x85" * DEEP + b"."),
    "tuples nested 100,000 deep as a key": _pickle(b"\x80\x02})" + b"\x85" * DEEP + b"Ns."),
    "four million opcodes": _pickle(b"\x80\x02" + b"N" * (4 << 20) + b"."),
    "lists without end": _pickle(b"\x80\x02(" + b"]q\x00" * (3 << 20) + b"t."),
    "a text of 2^40 bytes": _pickle(b"\x80\x04\x8d" + struct.pack("<Q", HUGE) + b"a."),
    "a number of 2^31 digits": _pickle(b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"a."),
    "a pickle that ends early": _pickle(b"\x80\x02}("),
    "a pickle that takes what is not there": _pickle(b"\x80\x020."),
    "an empty state": _pickle(b"\x80\x02}."),
    "no state": _pickle(b"\x80\x02K\x05."),
    "a state of itself": _pickle(b"\x80\x02}q\x00" + _text("model") + b"h\x00s."),
    "a shape of 2^62 rows": _changed(shape=(1 << 61, 32)),
    "a shape of strides 0": _changed(shape=(HUGE, 32), strides=(0, 0)),
    "a shape whose product wraps": _changed(shape=(150 + (1 << 59), 32)),
    "a negative shape": _changed(shape=(-150, -32)),
    "negative strides": _changed(strides=(-32, -1)),
    "strides out of the storage": _changed(strides=(64, 1)),
    "an offset of 2^60": _changed(offset=1 << 60),
    "a negative offset": _changed(offset=-4),
    "a storage of 2^40 numbers": _changed(size=HUGE),
    "a storage of 2^40 numbers, in the old format": _changed(old, size=HUGE),
    "a storage of few numbers": _changed(size=5),
    "a storage of text": _changed(storage="StringStorage"),
    "a storage of integers": _changed(storage="IntStorage"),
    "a file cut in half": _truncated(archive),
    "a file cut in half, in the old format": _truncated(old),
    "compressed members": lambda f: convert(f, compression=zipfile.ZIP_DEFLATED),
    "a missing storage": lambda f: convert(f, leave_out="3"),
    "two members of one name": _two_of_a_name,
    "60,000 members": _many_members,
}


def _spoiled(spoil: Callable[[Path], Any]) -> Callable[[Path], None]:
    def result(folder: Path) -> None:
        convert(folder)
        spoil(folder)

    return result


CASES = [
    *(folders.Case(f"{FILE}: {name}", "hf", "hf", spoil) for name, spoil in _CASES.items()),
    folders.Case(f"{FILE} of a TiB", "hf", "hf", _spoiled(sparse(FILE))),
    folders.Case(f"{FILE} is a pipe", "hf", "hf",
                 _spoiled(pipe(FILE))),
    folders.Case("a file of torch", "hf", "hf", convert, harmless=True),
    folders.Case("a file of torch, in the old format", "hf", "hf",
                 lambda f: convert(f, old), harmless=True),
    folders.Case("a pickle named model.pth", "hf", "hf",
                 lambda f: ((f / "model.safetensors").unlink(), pickled("model.pth")(f))),
]  # fmt: skip
