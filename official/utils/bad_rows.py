"""Rows of files that cannot be used: the one place where they raise an error or are counted."""

import collections
from collections.abc import Collection

from official.utils.errors import UserError
from official.utils.paths import AnyPath


class Unusable(Exception):
    """A row that cannot be used; its arguments are those of `BadRows.__call__`."""


class BadRows:
    """Handles rows that cannot be used: raises an error, or counts them as left out.

    Attributes:
      counts: the number of rows left out, by reason.
    """

    def __init__(self, skip: bool = False, known: Collection[str] = ()):
        """Skips no bad rows, all of them if `skip`, or those whose reason is in `known`."""
        self.skip = skip
        self.known = known
        self.counts: collections.Counter[str] = collections.Counter()

    def __call__(self, reason: str, message: str) -> None:
        """Counts a bad row.

        Args:
          reason: the reason in a few words, under which the row is counted.
          message: the place of the row, what is wrong, and what to do.

        Raises:
          UserError: with `message`, unless bad rows are skipped.
        """
        if not self.skip and reason not in self.known:
            raise UserError(f"{message}; --skip_bad_rows leaves such rows out")
        self.counts[reason] += 1

    def __str__(self) -> str:
        """Returns the counts as text."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.counts.items()))


def location(path: AnyPath, line: int | str) -> str:
    """Returns the location of a row for a message: a line of a file, or a file of a folder."""
    return f"{path}/{line}" if isinstance(line, str) else f"{path}, line {line}"
