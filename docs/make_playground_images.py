"""Makes the pictures of docs/playground.md with a Chromium in PATH.

python -m docs.make_playground_images run/minilm
"""

import sys
import tempfile
from pathlib import Path

import official
from tests.official.web import browser

FOLDER = Path(__file__).with_name("images")
_WIDTH, _HEIGHT = 800, 1000
# Tabs whose examples are shown, and whether they are in the dark scheme.
_TABS = {"search": False, "compare": False, "attention": True}


def main(folder: str) -> None:
    """Writes a picture of each tab with the results of a model folder for its example."""
    models = {folder: official.load(folder)}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary,
        browser.of_page(models, Path(temporary)) as (chromium, address),
    ):
        for name, dark in _TABS.items():
            chromium.open(f"{address}/{name}")
            chromium.submit()
            chromium.show(_WIDTH, dark, _HEIGHT)
            chromium.run("scrollTo(0, 0)")
            (FOLDER / f"playground_{name}.png").write_bytes(chromium.screenshot())


if __name__ == "__main__":
    main(*sys.argv[1:])
