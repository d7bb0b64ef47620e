"""Writes the pages of docs/ that are made from the code, or says which are out of date."""

import sys
from collections.abc import Mapping
from pathlib import Path


def update(pages: Mapping[Path, str], maker: str, check: bool) -> int:
    """Writes or checks pages.

    Args:
      pages: the text of each page by its path.
      maker: the module that makes them, for messages.
      check: whether to compare the pages and write nothing.

    Returns:
      The status of the process: 1 if a page is out of date.
    """
    if check:
        stale = [p for p in pages if not p.exists() or p.read_text(encoding="utf-8") != pages[p]]
        for path in stale:
            print(f"{path} is out of date: python -m {maker}", file=sys.stderr)
        return int(bool(stale))
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0
