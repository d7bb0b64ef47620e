"""A disk that loses what was not synced when the power goes.

In the processes under test, `install` takes note of what is synced: the content of each file and
the entries of each folder. `Disk.cut` then leaves below a folder what a disk may have:

* a file has its synced content and perhaps some of what was written later; one that was never
  synced is empty, cut or whole;
* a folder has its synced entries; each entry that was made, renamed or removed later is there or
  not. A rename within a folder has happened or has not.

A process may be told to kill its whole group before the n-th of the calls that change names or
sync, which all processes count together.
"""

import functools
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Of the environment: the folder under test, the record of what is synced, n.
ROOT, STORE, LIMIT = "POWER_ROOT", "POWER_STORE", "POWER_LIMIT"
_NAMING = ("mkdir", "remove", "rename", "replace", "rmdir", "unlink")
_SITE = f"import {__name__}\n{__name__}.install()\n"

Entries = dict[str, tuple[int, bool]]  # name → its inode, and whether it is a folder


class Disk:
    """What is synced of a folder.

    Args:
      root: the folder.
      store: a folder beside it, for the record.
    """

    def __init__(self, root: Path, store: Path):
        self._root, self._store = root, store
        self._events = store / "events"

    def environment(self, limit: int = 0) -> dict[str, str]:
        """Returns the environment of processes under test; a limit of 0 kills nothing."""
        site = self._store / "site"
        site.mkdir(parents=True, exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE)  # which every Python imports
        code = str(Path(__file__).parents[2])
        before = os.environ.get("PYTHONPATH", "")
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(site), code, before))),
            ROOT: str(self._root),
            STORE: str(self._store),
            LIMIT: str(limit),
        }

    @property
    def events(self) -> int:
        """The number of calls that were counted since the last `begin`."""
        return self._events.stat().st_size if self._events.exists() else 0

    def begin(self) -> None:
        """Makes all that is there durable, and counts from 0."""
        for name in ("files", "folders"):
            shutil.rmtree(self._store / name, ignore_errors=True)
            (self._store / name).mkdir(parents=True)
        self._events.unlink(missing_ok=True)
        for folder, _, files in os.walk(self._root):
            self.synced(Path(folder))
            for name in files:
                self.synced(Path(folder, name))

    def synced(self, path: Path) -> None:
        """Takes note that a file or a folder is synced."""
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            record = self._store / "folders" / str(found.st_ino)
            temporary = record.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(_entries(path)))
        else:
            record = self._store / "files" / str(found.st_ino)
            temporary = record.with_suffix(f".{os.getpid()}")
            shutil.copyfile(path, temporary)
            if not record.exists():
                os.link(path, record.with_suffix(".link"))  # keeps the number of the inode
        _REPLACE(temporary, record)

    def forget_folder(self, path: Path) -> None:
        """Takes note that a folder is new, and may have the inode of one that is gone."""
        (self._store / "folders" / str(path.stat().st_ino)).unlink(missing_ok=True)

    def count(self, limit: int) -> None:
        """Counts a call, before it is made; at the limit, kills the group of the process."""
        descriptor = os.open(self._events, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b".")
        number = os.fstat(descriptor).st_size
        os.close(descriptor)
        if limit and number >= limit:
            os.killpg(0, signal.SIGKILL)

    def cut(self, rng: np.random.Generator) -> None:
        """Leaves what a disk may have after a power cut; no process may be left."""
        self._cut_folder(self._root, self._root.stat().st_ino, rng)
        self.begin()

    def _cut_folder(self, path: Path, inode: int, rng: np.random.Generator) -> None:
        now, synced = _entries(path), self._synced_entries(inode)
        kept = _choose(now, synced, rng)
        for number, _ in now.values():
            name = next(name for name, entry in now.items() if entry[0] == number)
            os.rename(path / name, path / f".cut-{number}")
        for name, (number, is_folder) in kept.items():
            alive = path / f".cut-{number}"
            # (A file system gives the number of what was removed to something new.)
            if alive.exists() and alive.is_dir() == is_folder:
                os.rename(alive, path / name)
            elif is_folder:
                (path / name).mkdir()
            else:
                (path / name).write_bytes(self._synced_content(number) or b"")
        for left in path.glob(".cut-*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for name, (number, is_folder) in kept.items():
            if is_folder:
                self._cut_folder(path / name, number, rng)
            else:
                self._cut_file(path / name, number, rng)

    def _cut_file(self, path: Path, inode: int, rng: np.random.Generator) -> None:
        content, synced = path.read_bytes(), self._synced_content(inode)
        if content == synced:
            return
        if synced is not None and not content.startswith(synced):
            left = synced if rng.random() < 0.5 else content  # It was written again in place.
        else:
            least, size = len(synced or b""), len(content)
            left = content[: rng.choice([least, rng.integers(least, size + 1), size])]
        if left != content:
            path.write_bytes(left)

    def _synced_entries(self, inode: int) -> Entries:
        record = self._store / "folders" / str(inode)
        found = json.loads(record.read_text()) if record.exists() else {}
        return {name: tuple(entry) for name, entry in found.items()}

    def _synced_content(self, inode: int) -> bytes | None:
        record = self._store / "files" / str(inode)
        return record.read_bytes() if record.exists() else None


def _entries(path: Path) -> Entries:
    with os.scandir(path) as found:
        return {e.name: (e.inode(), e.is_dir(follow_symlinks=False)) for e in found}


def _choose(now: Entries, synced: Entries, rng: np.random.Generator) -> Entries:
    """Returns the entries that a folder has after a power cut.

    Names that have had the same inode change together, as in a rename.
    """
    kept = {name: entry for name, entry in now.items() if synced.get(name) == entry}
    changed = sorted((now.keys() | synced.keys()) - kept.keys())
    inodes = [{e[name][0] for e in (now, synced) if name in e} for name in changed]
    while changed:
        group, own = {changed[0]}, inodes[0]
        while more := {n for n, i in zip(changed, inodes, strict=True) if i & own} - group:
            group |= more
            own = own.union(*(i for n, i in zip(changed, inodes, strict=True) if n in more))
        state = now if rng.random() < 0.5 else synced
        kept |= {name: state[name] for name in group if name in state}
        left = [(n, i) for n, i in zip(changed, inodes, strict=True) if n not in group]
        changed, inodes = [n for n, _ in left], [i for _, i in left]
    return kept


_REPLACE = os.replace


def install() -> None:
    """Takes note of what this process syncs, if the environment names a disk."""
    if STORE not in os.environ:
        return
    root, limit = os.environ[ROOT], int(os.environ[LIMIT])
    disk = Disk(Path(root), Path(os.environ[STORE]))

    def under_test(path: Any) -> bool:
        return os.path.abspath(os.fsdecode(path)).startswith(f"{root}{os.sep}")

    def fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        if path == root or under_test(path):
            disk.count(limit)
            disk.synced(Path(path))

    def counted(call: Callable, path: Any, *args: Any, **kwargs: Any) -> Any:
        # (A name that is relative to an open folder is one of a tree that is being removed.)
        ours = kwargs.get("dir_fd") is None and under_test(path)
        if ours:
            disk.count(limit)
        result = call(path, *args, **kwargs)
        if ours and call.__name__ == "mkdir":
            disk.forget_folder(Path(os.fsdecode(path)))
        return result

    os.fsync = os.fdatasync = fsync
    for name in _NAMING:
        setattr(os, name, functools.partial(counted, getattr(os, name)))
