"""Makes tests/golden/fill_mask.json: how transformers fills masks, for `tests.fill_masks`.

For each folder of a model, each text and each of its masks there are the [token, word, probability]
of the five most probable tokens.

Run with the project's Python; transformers runs in the environment of `make parity`:
    .venv/bin/python -m tests.golden.make_fill_mask_golden
"""

import json
import tempfile
from pathlib import Path

from tests import GOLDEN, fill_masks
from tests.parity.conftest import Reference


def main() -> None:
    """Writes the file."""
    with tempfile.TemporaryDirectory() as parent:
        found = fill_masks.expected(Reference("hf"), Path(parent))
    best = {name: [[mask[:5] for mask in text] for text in rows] for name, rows in found.items()}
    (GOLDEN / "fill_mask.json").write_text(json.dumps(best, indent=1) + "\n")


if __name__ == "__main__":
    main()
