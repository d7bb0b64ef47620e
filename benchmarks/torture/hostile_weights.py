"""Hostile files of weights: what a file of torch, and an HDF5 file of ELMo's release, can hold."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors.numpy
from h5py import h5d, h5p, h5s, h5t, h5z

from benchmarks.torture.foreign_files import (
    SAFETENSORS,
    TORCH,
    old_torch,
    pickle_of,
    pickled_text,
    take_weights,
    to_torch,
    torch_archive,
)
from benchmarks.torture.hostile_folders import (
    DEEP,
    HUGE,
    NESTED,
    TRACE,
    Case,
    changed,
    cut,
    holds,
    linked,
    pickled,
    pipe,
    sparse,
)

_WEIGHTS, _OPTIONS = "weights.hdf5", "options.json"
_BIAS = "CNN_proj/b_proj"  # 16 numbers
_MANY = 10_000


def _weights(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / SAFETENSORS)


def _pickle(
    content: bytes | Callable[[Path], bytes], write: Callable[..., None] = torch_archive
) -> Callable[[Path], None]:
    """Puts another pickle into the file."""

    def spoil(folder: Path) -> None:
        to_torch(folder, write, pickle=content(folder) if callable(content) else content)

    return spoil


def _changed(write: Callable[..., None] = torch_archive, **changes: Any) -> Callable[[Path], None]:
    """Changes what the pickle says of the token table."""
    return _pickle(lambda folder: pickle_of(_weights(folder), **changes), write)


def _system(folder: Path) -> bytes:
    command = pickled_text(f"touch {folder.parent / TRACE}")
    return b"\x80\x02cposix\nsystem\n(" + command + b"tR."


def _hidden(folder: Path) -> bytes:
    """A good state, with a call in one of its attributes."""
    code = pickled_text(f"open({str(folder.parent / TRACE)!r}, 'w')")
    call = b"cbuiltins\nexec\n(" + code + b"tR"
    return pickle_of(_weights(folder))[:-1] + b"}" + pickled_text("_metadata") + call + b"sb."


def _truncated(write: Callable[..., None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        to_torch(folder, write)
        cut(folder / TORCH, 2, 3)

    return spoil


def _two_of_a_name(folder: Path) -> None:
    to_torch(folder)
    with zipfile.ZipFile(folder / TORCH, "a") as file:
        file.writestr("archive/data.pkl", pickle_of({}))


def _many_members(folder: Path) -> None:
    take_weights(folder)
    with zipfile.ZipFile(folder / TORCH, "w") as file:
        for number in range(60_000):
            file.writestr(f"archive/data/{number:0>40}", b"")


_LAUGHS = b"\x80\x02(tq\x00" + b"".join(b"h%c" % i * 2 + b"\x86q%c" % (i + 1) for i in range(90))
TORCH_FILES: dict[str, Callable[[Path], None]] = {
    "a call of os.system": _pickle(_system),
    "a call of os.system, in the old format": _pickle(_system, old_torch),
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
    "a state of itself": _pickle(b"\x80\x02}q\x00" + pickled_text("model") + b"h\x00s."),
    "a shape of 2^62 rows": _changed(shape=(1 << 61, 32)),
    "a shape of strides 0": _changed(shape=(HUGE, 32), strides=(0, 0)),
    "a shape whose product wraps": _changed(shape=(150 + (1 << 59), 32)),
    "a negative shape": _changed(shape=(-150, -32)),
    "negative strides": _changed(strides=(-32, -1)),
    "strides out of the storage": _changed(strides=(64, 1)),
    "an offset of 2^60": _changed(offset=1 << 60),
    "a negative offset": _changed(offset=-4),
    "a storage of 2^40 numbers": _changed(size=HUGE),
    "a storage of 2^40 numbers, in the old format": _changed(old_torch, size=HUGE),
    "a storage of few numbers": _changed(size=5),
    "a storage of text": _changed(storage="StringStorage"),
    "a storage of integers": _changed(storage="IntStorage"),
    "a file cut in half": _truncated(torch_archive),
    "a file cut in half, in the old format": _truncated(old_torch),
    "compressed members": lambda f: to_torch(f, compression=zipfile.ZIP_DEFLATED),
    "a missing storage": lambda f: to_torch(f, leave_out="3"),
    "two members of one name": _two_of_a_name,
    "60,000 members": _many_members,
}


def _spoiled(spoil: Callable[[Path], Any]) -> Callable[[Path], None]:
    def result(folder: Path) -> None:
        to_torch(folder)
        spoil(folder)

    return result


TORCH_CASES = [
    *(Case(f"{TORCH}: {name}", "hf", "hf", spoil) for name, spoil in TORCH_FILES.items()),
    Case(f"{TORCH} of a TiB", "hf", "hf", _spoiled(sparse(TORCH))),
    Case(f"{TORCH} is a pipe", "hf", "hf",
                 _spoiled(pipe(TORCH))),
    Case("a file of torch", "hf", "hf", to_torch, harmless=True),
    Case("a file of torch, in the old format", "hf", "hf",
                 lambda f: to_torch(f, old_torch), harmless=True),
    Case("a pickle named model.pth", "hf", "hf",
                 lambda f: (take_weights(f), pickled("model.pth")(f))),
]  # fmt: skip


def _file(change: Callable[[h5py.File], Any]) -> Callable[[Path], None]:
    """Changes the HDF5 file."""

    def spoil(folder: Path) -> None:
        with h5py.File(folder / _WEIGHTS, "r+") as file:
            change(file)

    return spoil


def _without(file: h5py.File, name: str = _BIAS) -> tuple[int, ...]:
    """Removes a data set, and returns its shape."""
    shape = file[name].shape
    del file[name]
    return shape


def _instead(name: str = _BIAS, **options: Any) -> Callable[[Path], None]:
    """Puts another data set in the place of one."""

    def change(file: h5py.File) -> None:
        shape = _without(file, name)
        file.create_dataset(name, **{"shape": shape, "dtype": "f4", **options})

    return _file(change)


def _secret(folder: Path) -> Path:
    """A file of the user's, outside of the folder, whose bytes are numbers."""
    path = folder.parent / "secret"
    path.write_bytes(np.full(16, 0.5, np.float32).tobytes())
    return path


def _external(folder: Path) -> None:
    place = (str(_secret(folder)), 0, 64)
    _instead(external=[place])(folder)


def _other(folder: Path) -> str:
    """The path of another HDF5 file, outside of the folder."""
    path = folder.parent / "other.hdf5"
    with h5py.File(path, "w") as file:
        file["numbers"] = np.full(16, 0.5, np.float32)
    return str(path)


def _virtual(folder: Path) -> None:
    other = _other(folder)

    def change(file: h5py.File) -> None:
        layout = h5py.VirtualLayout(_without(file), "f4")
        layout[:] = h5py.VirtualSource(other, "numbers", (16,))
        file.create_virtual_dataset(_BIAS, layout)

    _file(change)(folder)


def _external_link(folder: Path) -> None:
    other = _other(folder)

    def change(file: h5py.File) -> None:
        _without(file)
        file[_BIAS] = h5py.ExternalLink(other, "numbers")

    _file(change)(folder)


def _soft_link(file: h5py.File) -> None:
    _without(file)
    file[_BIAS] = h5py.SoftLink("/CNN_high_0/b_carry")


def _group_link(file: h5py.File) -> None:
    file.move("CNN_proj", "elsewhere")
    file["CNN_proj"] = h5py.SoftLink("/elsewhere")


def _filter(file: h5py.File) -> None:
    """Packs with a filter that is looked for among the plugins of the machine."""
    shape = _without(file)
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_chunk(shape)
    made.set_filter(32_123, h5z.FLAG_OPTIONAL)
    h5d.create(file.id, _BIAS.encode(), h5t.IEEE_F32LE, h5s.create_simple(shape), made)
    file[_BIAS][:] = 1.0


def _growing(folder: Path) -> None:
    """Options of a model of 1.2 GiB, and a file of all of its data sets; a chunk each is there."""
    rows, size = 1 << 14, 1 << 9
    _set("lstm", dim=rows, projection_dim=size)(folder)
    kernels = {"W_0": (2 * size, 4 * rows), "B": (4 * rows,), "W_P_0": (rows, size)}
    names = {
        f"RNN_{i}/RNN/MultiRNNCell/Cell{j}/LSTMCell/{name}": shape
        for i in (0, 1)
        for j in (0, 1)
        for name, shape in kernels.items()
    }

    def change(file: h5py.File) -> None:
        for name, shape in (names | {"CNN_proj/W_proj": (16, size), _BIAS: (size,)}).items():
            del file[name]
            chunk = tuple(min(n, 512) for n in shape)
            data = file.create_dataset(name, shape, "f4", chunks=chunk, compression=9)
            data[tuple(slice(0, n) for n in chunk)] = 1.0

    _file(change)(folder)


def _many(file: h5py.File) -> None:
    for i in range(_MANY):
        file.id.links.create_hard(f"x{i}".encode(), file.id, b"char_embed")


def _deep(file: h5py.File) -> None:
    group = file
    for _ in range(2000):
        group = group.create_group("a")


def _cycle(file: h5py.File) -> None:
    file["CNN/again"] = file["/"]


def _value(value: float, dtype: str = "f4") -> Callable[[Path], None]:
    return _instead(data=np.full(16, value, dtype), dtype=dtype)


def _set(section: str, **values: Any) -> Callable[[Path], None]:
    """Changes options."""

    def spoil(folder: Path) -> None:
        options = json.loads((folder / _OPTIONS).read_text())
        options[section] |= values
        (folder / _OPTIONS).write_text(json.dumps(options))

    return spoil


def _case(name: str, spoil: Callable[[Path], Any], harmless: bool = False) -> Case:
    return Case(name, "elmo", "elmo", spoil, harmless)


def _noise(folder: Path) -> None:
    """Random bytes after the signature."""
    path = folder / _WEIGHTS
    content = path.read_bytes()
    noise = np.random.default_rng(0).bytes(len(content) - 8)
    path.write_bytes(content[:8] + noise)


ELMO_CASES = [
    # Values that are elsewhere.
    _case("a data set in another file", _external),
    _case("a data set that is a view of another file", _virtual),
    _case("a link to another HDF5 file", _external_link),
    _case("a link to another data set", _file(_soft_link)),
    _case("a group that is a link", _file(_group_link)),
    _case("weights.hdf5 → /dev/zero", linked(_WEIGHTS, "/dev/zero")),
    _case("weights.hdf5 is a pipe", pipe(_WEIGHTS)),
    # Bombs.
    _case("a data set that was never written", _instead()),
    _case("chunks that were never written", _instead(chunks=(16,), compression=9)),
    _case("a chunk of 1 GiB", _instead(chunks=(1 << 28,), maxshape=(None,), compression=9)),
    _case("a GiB of chunks in a small file", _growing),
    _case("weights.hdf5 of a TiB", sparse(_WEIGHTS), harmless=True),
    _case("10,000 names", _file(_many)),
    _case("groups nested 2,000 deep", _file(_deep)),
    _case("a group that contains itself", _file(_cycle)),
    # Types and values.
    _case("a data set of integers", _instead(dtype="i4", data=np.ones(16, np.int32))),
    _case("a data set of text", _instead(dtype=h5py.string_dtype(), data=["a"] * 16)),
    _case("a data set of complex numbers", _instead(dtype="c8", data=np.ones(16, np.complex64))),
    _case("a data set of records", _instead(dtype=[("a", "f4")])),
    _case("a data set of references", _instead(dtype=h5py.ref_dtype)),
    _case("a data set of lists", _instead(dtype=h5py.vlen_dtype("f4"))),
    _case("a scalar", _instead(shape=(), data=1.0)),
    _case("a filter of a plugin", _file(_filter)),
    _case("a NaN in weights.hdf5", _value(float("nan"))),
    _case("a number beyond float32", _value(1e300, "f8")),
    _case("float64 in gzipped chunks",
          _instead(data=np.arange(16.0), dtype="f8", chunks=(8,), compression=9), harmless=True),
    # The format itself.
    _case("weights.hdf5 cut in half", lambda folder: cut(folder / _WEIGHTS, 1, 2)),
    _case("weights.hdf5 of random bytes", _noise),
    _case("a pickle named weights.hdf5", pickled(_WEIGHTS)),
    # Options.
    _case("options.json nested 100,000 deep", holds(_OPTIONS, NESTED)),
    _case("options.json of a TiB", sparse(_OPTIONS)),
    _case("char_cnn is a list", changed(_OPTIONS, char_cnn=[1])),
    _case("lstm is null", changed(_OPTIONS, lstm=None)),
    _case("embedding is a number", _set("char_cnn", embedding=4)),
    _case("dim null of a character", _set("char_cnn", embedding={"dim": None})),
    _case("filters as text", _set("char_cnn", filters="12")),
    _case("filters of text", _set("char_cnn", filters=[["1", "8"], ["2", "8"]])),
    _case("filters of fractions", _set("char_cnn", filters=[[1.5, 8], [2, 8]])),
    _case("2^40 convolutions", _set("char_cnn", filters=[[1, HUGE], [2, 8]])),
    _case("two groups of convolutions of one width", _set("char_cnn", filters=[[1, 8], [1, 8]])),
    _case("2^40 LSTMs", _set("lstm", n_layers=HUGE)),
    _case("2^40 highway layers", _set("char_cnn", n_highway=HUGE)),
    _case("2^40 cells", _set("lstm", dim=HUGE)),
    _case("cells as text", _set("lstm", dim="64")),
    _case("cells true", _set("lstm", dim=True)),
    _case("a clip of text", _set("lstm", cell_clip="three")),
    _case("a clip of NaN", _set("lstm", proj_clip=float("nan"))),
    _case("an activation of 100,000 letters", _set("char_cnn", activation="a" * DEEP)),
    # Vocabularies.
    _case("words.txt of a TiB", sparse("words.txt")),
    _case("words.txt of zeros", holds("words.txt", bytes(1000))),
]  # fmt: skip
