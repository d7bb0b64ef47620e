"""The page in a Chromium: without a mouse, in both color schemes, and on a narrow screen."""

import io

import numpy as np
import pytest
from matplotlib.image import imread

import official
from tests.official.web import browser, colors, models

pytest.importorskip("flask", reason="Flask (requirements-dev.txt) is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(browser.find() is None, reason="there is no Chromium in PATH"),
]

NARROW, WIDE = 400, 800
# The colors of each element with a text, and of what is below it, the nearest first.
COLORS = """
[...document.querySelectorAll("body *")]
  .filter(e => e.checkVisibility() && (e.matches("input, select") ||
    [...e.childNodes].some(n => n.nodeType == Node.TEXT_NODE && n.data.trim())))
  .flatMap(e => {
    const below = [];
    for (let b = e; b; b = b.parentElement) below.push(getComputedStyle(b).backgroundColor);
    const parts = e.placeholder ? [null, "::placeholder"] : [null];
    return parts.map(part => [e.outerHTML, getComputedStyle(e, part).color, below]);
  })
"""
CONTROLS = "[...document.querySelectorAll('a, button, input, select, textarea, .wide')]"
FOCUS = f"{CONTROLS}.indexOf(document.activeElement)"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    sizes = {"no_answers": False, "doc_stride": 4, "max_query_length": 5}
    return {
        "run/masked": official.load(models.masked_lm(folder / "masked")),
        f"run/{'tags' * 30}": models.head("token_classification", folder / "tags"),
        "run/answers": models.head("span_answer", folder / "answers", **sizes),
    }


@pytest.fixture(scope="module")
def page(loaded, tmp_path_factory):
    with browser.of_page(loaded, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def test_without_a_mouse(page, loaded):
    chromium, address = page
    chromium.show(WIDE, dark=False)
    chromium.open(f"{address}/fill_mask")
    chromium.press("Tab")
    assert chromium.run("document.activeElement.className") == "skip"
    assert chromium.run("document.activeElement.getBoundingClientRect().left") >= 0
    chromium.press("Enter")
    chromium.press("Tab")
    assert chromium.run("document.activeElement.name") == "text"
    chromium.write("the cat. ")
    text = chromium.run("document.activeElement.value")
    assert "the cat. " in text and "[MASK]" in text
    while chromium.run("document.activeElement.name") != "model":
        chromium.press("Tab")
    chromium.press("Enter")
    chromium.wait_for_page()
    [[fillings]] = loaded["run/masked"].fill_mask([text])
    words = "[...document.querySelectorAll('tbody td:first-child')].map(e => e.textContent)"
    assert chromium.run(words) == [filling.word for filling in fillings]
    # A screen reader begins to read where the focus is.
    assert chromium.run("document.activeElement.id") == "results"
    chromium.press("Tab")
    assert chromium.run("document.activeElement.className") == "wide"


@pytest.mark.parametrize("tab", ["fill_mask", "tag", "attention"])
def test_every_control_is_reached_and_has_a_name(page, tab):
    chromium, address = page
    chromium.open(f"{address}/{tab}")
    chromium.submit()
    count, reached = chromium.run(f"{CONTROLS}.length"), set()
    for _ in range(count + 1):  # from the results to the end of the page, and from its beginning
        chromium.press("Tab")
        reached.add(chromium.run(FOCUS))
        style = "getComputedStyle(document.activeElement)"
        outline = chromium.run(f"{style}.outlineStyle + {style}.outlineWidth")
        assert outline == "solid3px" or chromium.run("document.activeElement.localName") == "body"
    assert reached - {-1} == {*range(count)}
    fields = "[...document.querySelectorAll('input, select, textarea')]"
    labels = chromium.run(f"{fields}.map(e => e.labels[0].textContent.trim())")
    assert len(labels) > 0 and all(labels)


@pytest.mark.parametrize("tab", ["fill_mask", "tag", "answer", "compare", "search", "attention"])
def test_schemes_and_widths(page, tab, tmp_path):
    chromium, address = page
    chromium.show(WIDE, dark=False)
    chromium.open(f"{address}/{tab}")
    # Words without blanks, which cannot be broken between them.
    text = {"tag": {"text": "The cat sat on a mat. " + "dog" * 40}}.get(tab, {})
    chromium.submit(**text)
    assert chromium.run("document.querySelector('.error')") is None
    lightness = {}
    for width in (WIDE, NARROW):
        for dark in (False, True):
            chromium.show(width, dark)
            assert chromium.run("innerWidth") == width
            assert chromium.run("document.documentElement.scrollWidth") <= width
            image = chromium.screenshot()
            (tmp_path / f"{tab}_{width}_{'dark' if dark else 'light'}.png").write_bytes(image)
            lightness[width, dark] = float(np.mean(imread(io.BytesIO(image))[..., :3]))
            found = chromium.run(COLORS)
            assert len(found) > 10
            for element, front, backs in found:
                back = (255, 255, 255)
                for layer in reversed(backs):
                    back = colors.over(*colors.read(layer), back)
                assert colors.contrast(colors.read(front)[0], back) >= 4.5, element
    assert all((value < 0.35) if dark else (value > 0.75) for (_, dark), value in lightness.items())
    if tab == "attention":  # in a box that scrolls
        boxes = "[...document.querySelectorAll('.wide')].map(e => e.scrollWidth > e.clientWidth)"
        assert any(chromium.run(boxes))
