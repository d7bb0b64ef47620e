"""The colors of the page can be told apart, in both schemes."""

import re

import pytest

from official.web import results
from tests import ROOT
from tests.official.web import colors

STYLE = (ROOT / "official" / "web" / "static" / "style.css").read_text()
MARKS = [f"c{i}" for i in range(results.COLORS)]
TEXTS = {  # what texts of a color are on
    "text": ["page", "panel", *MARKS],
    "muted": ["page"],
    "accent": ["page"],
    "on-accent": ["accent"],
    "error": ["panel"],
}
EDGES = {"edge": ["page"], "accent": ["page", "panel"]}  # of fields, and around what has the focus
SCHEMES = dict(
    zip(("light", "dark"), re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL), strict=True)
)


def scheme(name):
    found = re.findall(r"--([\w-]+): (.*?);", SCHEMES[name])
    return {key: colors.read(value)[0] for key, value in found}


def test_contrasts_are_those_of_wcag():
    assert colors.contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert colors.contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)
    assert colors.contrast((1, 2, 3), (1, 2, 3)) == 1
    assert colors.read("#ff8000") == ((255, 128, 0), 1)
    assert colors.read("rgba(29, 78, 216, 0.5)") == ((29, 78, 216), 0.5)
    assert colors.over((200, 0, 100), 0.25, (0, 100, 100)) == (50, 75, 100)


@pytest.mark.parametrize("name", SCHEMES)
def test_texts_and_edges_have_contrast(name):
    values = scheme(name)
    for pairs, least in ((TEXTS, 4.5), (EDGES, 3)):
        for front, backs in pairs.items():
            for back in backs:
                assert colors.contrast(values[front], values[back]) >= least, (front, back)
    # Every color is compared, but that of lines between rows, which say nothing.
    compared = {*TEXTS, *EDGES, *sum([*TEXTS.values(), *EDGES.values()], [])}
    assert {*values} == {*compared, "line", "shade"}


@pytest.mark.parametrize("name", SCHEMES)
def test_shades_grow_and_leave_numbers_legible(name):
    values = scheme(name)
    weights = re.findall(r"\.w(\d+) \{ --weight: (\d+)%; \}", STYLE)
    assert [int(number) for number, _ in weights] == [*range(results.SHADES + 1)]
    shades = [colors.over(values["shade"], int(w) / 100, values["page"]) for _, w in weights]
    contrasts = [colors.contrast(values["text"], shade) for shade in shades]
    assert contrasts == sorted(contrasts, reverse=True) and len({*contrasts}) == len(contrasts)
    assert contrasts[-1] >= 4.5


def test_schemes_have_the_same_names():
    assert scheme("light").keys() == scheme("dark").keys()
    assert "@media (prefers-color-scheme: dark)" in STYLE
    # Rules take their colors from the schemes, and each mark has one.
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,8}\b[^{]*;", rules)
    assert re.findall(r"\.(c\d) \{ background: var\(--(c\d)\); \}", rules) == [
        (mark, mark) for mark in MARKS
    ]
