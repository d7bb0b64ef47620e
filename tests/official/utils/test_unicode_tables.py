"""The sets of characters, beside the tables of Python, which has an earlier version of Unicode."""

import re
import unicodedata

import numpy as np
import pytest

from official.utils import character_sets
from official.utils import unicode_tables as tables
from tests import make_unicode_tables

# Characters that Python's version of Unicode has, and no category of which has changed since.
CATEGORIES = [unicodedata.category(chr(code)) for code in range(character_sets.CODES)]


def codes(name):
    table = np.zeros(character_sets.CODES, bool)
    character_sets.fill(table, name, True)
    return set(np.flatnonzero(table).tolist())


@pytest.mark.parametrize(
    "name, categories",
    [
        (tables.LETTERS, ("Lu", "Ll", "Lt", "Lm", "Lo")),
        (tables.DIGITS, ("Nd", "Nl", "No")),
        (tables.COMBINING, ("Mn", "Mc", "Me")),
        (tables.BLANKS, ("Zs", "Zl", "Zp", "Cc")),
        (tables.FORMATS, ("Cf",)),
    ],
)
def test_categories_are_those_of_python(name, categories):
    assigned = {code for code, category in enumerate(CATEGORIES) if category != "Cn"}
    expected = {code for code in assigned if CATEGORIES[code] in categories}
    assert codes(name) & assigned == expected


def test_marks():
    marks = {chr(code) for code in codes(tables.MARKS)}
    assert set("।،؛؟۔၊။។፣።։｡､、。，！？：；«»“”‘’「」…¿¡་།") <= marks
    assert not set("＃％＆＠٪‰׳॰a1$+\u200f") & marks
    stops = {chr(code) for code in codes(tables.STOPS)}
    assert set("।۔။។።།։。．؟！？") <= stops and not set("၊،…⁇、") & stops
    invisible = {chr(code) for code in codes(tables.INVISIBLE)}
    assert set("\u200e\u200f\ufeff\u200c\u200d\u00ad") <= invisible
    assert not set("\u200b\u0600\U000e0067") & invisible


def test_forms_of_a_set():
    letters = "41-43 61 1f600"
    assert list(character_sets.spans(letters)) == [(0x41, 0x43), (0x61, 0x61), (0x1F600, 0x1F600)]
    assert character_sets.inside_class(letters) == r"\x{41}-\x{43}\x{61}\x{1f600}"
    found = re.findall(f"[{character_sets.inside_python_class(letters)}]", "ABCDab😀😁")
    assert found == [*"ABCa😀"]
    assert codes(character_sets.minus(letters, "42", "61-62")) == {0x41, 0x43, 0x1F600}
    assert list(make_unicode_tables.ranges("CBAa😀")) == letters.split()


def test_the_module_is_what_its_generator_makes(capsys):
    pytest.importorskip("regex", reason="it has the properties of Unicode")
    if make_unicode_tables.version() != tables.VERSION:
        pytest.skip(f"regex has Unicode {make_unicode_tables.version()}, not {tables.VERSION}")
    assert make_unicode_tables.main(["--check"]) == 0
