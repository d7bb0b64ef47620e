"""Hostile folders of ELMo's release: what an HDF5 file and its options can hold."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

from benchmarks.torture import folders, spoiling

_WEIGHTS, _OPTIONS = "weights.hdf5", "options.json"
_BIAS = "CNN_proj/b_proj"  # 16 numbers
_MANY = 10_000


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


def _virtual(folder: Path) -> None:
    other = folder.parent / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["numbers"] = np.full(16, 0.5, np.float32)

    def change(file: h5py.File) -> None:
        layout = h5py.VirtualLayout(_without(file), "f4")
        layout[:] = h5py.VirtualSource(str(other), "numbers", (16,))
        file.create_virtual_dataset(_BIAS, layout)

    _file(change)(folder)


def _external_link(folder: Path) -> None:
    other = folder.parent / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["numbers"] = np.full(16, 0.5, np.float32)

    def change(file: h5py.File) -> None:
        _without(file)
        file[_BIAS] = h5py.ExternalLink(str(other), "numbers")

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


def _option(**values: Any) -> Callable[[Path], None]:
    return lambda folder: spoiling.change(folder / _OPTIONS, **values)


def _case(name: str, spoil: Callable[[Path], Any], harmless: bool = False) -> folders.Case:
    return folders.Case(name, "elmo", "elmo", spoil, harmless)


def _cut(folder: Path) -> None:
    path = folder / _WEIGHTS
    os.truncate(path, path.stat().st_size // 2)


def _noise(folder: Path) -> None:
    """Random bytes after the signature."""
    path = folder / _WEIGHTS
    content = path.read_bytes()
    noise = np.random.default_rng(0).bytes(len(content) - 8)
    path.write_bytes(content[:8] + noise)


CASES = [
    # Values that are elsewhere.
    _case("a data set in another file", _external),
    _case("a data set that is a view of another file", _virtual),
    _case("a link to another HDF5 file", _external_link),
    _case("a link to another data set", _file(_soft_link)),
    _case("a group that is a link", _file(_group_link)),
    _case("weights.hdf5 → /dev/zero", spoiling.linked(_WEIGHTS, "/dev/zero")),
    _case("weights.hdf5 is a pipe", spoiling.pipe(_WEIGHTS)),
    # Bombs.
    _case("a data set that was never written", _instead()),
    _case("chunks that were never written", _instead(chunks=(16,), compression=9)),
    _case("a chunk of 1 GiB", _instead(chunks=(1 << 28,), maxshape=(None,), compression=9)),
    _case("a GiB of chunks in a small file", _growing),
    _case("weights.hdf5 of a TiB", spoiling.sparse(_WEIGHTS), harmless=True),
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
    _case("weights.hdf5 cut in half", _cut),
    _case("weights.hdf5 of random bytes", _noise),
    _case("a pickle named weights.hdf5", spoiling.pickled(_WEIGHTS)),
    # Options.
    _case("options.json nested 100,000 deep", spoiling.holds(_OPTIONS, spoiling.NESTED)),
    _case("options.json of a TiB", spoiling.sparse(_OPTIONS)),
    _case("char_cnn is a list", _option(char_cnn=[1])),
    _case("lstm is null", _option(lstm=None)),
    _case("embedding is a number", _set("char_cnn", embedding=4)),
    _case("dim null of a character", _set("char_cnn", embedding={"dim": None})),
    _case("filters as text", _set("char_cnn", filters="12")),
    _case("filters of text", _set("char_cnn", filters=[["1", "8"], ["2", "8"]])),
    _case("filters of fractions", _set("char_cnn", filters=[[1.5, 8], [2, 8]])),
    _case("2^40 convolutions", _set("char_cnn", filters=[[1, spoiling.HUGE], [2, 8]])),
    _case("two groups of convolutions of one width", _set("char_cnn", filters=[[1, 8], [1, 8]])),
    _case("2^40 LSTMs", _set("lstm", n_layers=spoiling.HUGE)),
    _case("2^40 highway layers", _set("char_cnn", n_highway=spoiling.HUGE)),
    _case("2^40 cells", _set("lstm", dim=spoiling.HUGE)),
    _case("cells as text", _set("lstm", dim="64")),
    _case("cells true", _set("lstm", dim=True)),
    _case("a clip of text", _set("lstm", cell_clip="three")),
    _case("a clip of NaN", _set("lstm", proj_clip=float("nan"))),
    _case("an activation of 100,000 letters", _set("char_cnn", activation="a" * spoiling.DEEP)),
    # Vocabularies.
    _case("words.txt of a TiB", spoiling.sparse("words.txt")),
    _case("words.txt of zeros", spoiling.holds("words.txt", bytes(1000))),
]  # fmt: skip
