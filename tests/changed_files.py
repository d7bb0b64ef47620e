"""Files that another program changes while a command reads them, at a given moment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.torture.changes import CHANGES
from official.utils.errors import UserError


class Openings:
    """Counts how often a file is opened, and changes it at one of these times.

    Attributes:
      count: how often it was opened.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path):
        self.count, self._path = 0, path
        self._at, self._change = 0, Path.unlink
        self._open = Path.open
        monkeypatch.setattr(Path, "open", lambda *given, **options: self._opened(*given, **options))

    def change(self, at: int, change: Callable[[Path], None]) -> None:
        """Changes the file when it is opened for the `at`-th time from now on."""
        self.count, self._at, self._change = 0, at, change

    def _opened(self, path: Path, mode: str = "r", *given, **options):
        stream = self._open(path, mode, *given, **options)
        if path == self._path and "r" in mode:
            self.count += 1
            if self.count == self._at:
                self._at = 0
                self._change(path)
        return stream


def refusals(
    monkeypatch: pytest.MonkeyPatch, path: Path, command: Callable[[], object]
) -> Iterator[str]:
    """Gives a command again and again, while its input changes in all ways and at several times.

    Args:
      monkeypatch: pytest's fixture.
      path: the file that changes.
      command: reads the file, and would write its output; it is called once with a file that stays.

    Yields:
      The name of the change, each time the command has refused the file by its name.
    """
    content = path.read_bytes()
    openings = Openings(monkeypatch, path)
    command()
    number = openings.count
    assert number
    for turn, (name, change) in enumerate(CHANGES.items()):
        at = 1 + turn * (number - 1) // (len(CHANGES) - 1)  # from the first time to the last
        openings.change(0, change)
        path.write_bytes(content)
        openings.change(at, change)
        with pytest.raises(UserError) as error:
            command()
            pytest.fail(f"{name} when it was opened for the {at}th of {number} times")
        words = "was removed while" if change is Path.unlink else "has changed while"
        assert str(error.value).startswith(f"{path} {words} it was read"), (name, error.value)
        yield name
    path.write_bytes(content)
