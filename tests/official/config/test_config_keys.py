"""docs/config-keys.md has every key of every dataclass of configs, and what it is."""

import dataclasses
import importlib
import inspect
import pkgutil
import re

import pytest

from official import config as configs
from official.config import blocks
from official.tasks import Description
from official.utils.strict import Tagged
from tests import ROOT

MODULES = [
    importlib.import_module(f"official.config.{module.name}")
    for module in pkgutil.iter_modules(configs.__path__)
]
CLASSES = {
    cls
    for module in MODULES
    for cls in vars(module).values()
    if inspect.isclass(cls) and dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen
}
# Heads inherit from some that are not heads themselves, and no file has the parts of blocks.
READ = sorted(
    {cls for cls in CLASSES if not issubclass(cls, Tagged) or hasattr(cls, "type")}
    - {cls for cls in CLASSES if issubclass(cls, blocks.Part)}
    | {blocks.Disentangled, Description},
    key=lambda cls: cls.__qualname__,
)


def tables():
    """The rows of each table of the page, by key."""
    page = (ROOT / "docs" / "config-keys.md").read_text(encoding="utf-8")
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", section, re.MULTILINE)
        yield {key: cells for key, *cells in rows}


TABLES = list(tables())


@pytest.mark.parametrize("cls", READ, ids=lambda cls: cls.__name__)
def test_every_key_of_a_dataclass_is_on_the_page(cls):
    names = [field.name for field in dataclasses.fields(cls)]
    rows = next((table for table in TABLES if list(table) == names), None)
    assert rows is not None, f"{cls.__name__}: python -m docs.make_config_keys"
    assert all(len(meaning) > 1 for _, _, meaning in rows.values())
