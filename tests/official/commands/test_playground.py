"""The command, its page in a browser, and its messages."""

import re
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest

import official
from tests import ROOT, commands
from tests.official.web import browser, models

SCRIPT = "<script>document.title = 'run'</script><b>the</b> cat"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("models")
    models.head("token_classification", parent / "a,<b>tags<b>")
    return [models.masked_lm(parent / "masked"), parent / "a,<b>tags<b>"]


@pytest.fixture(scope="module")
def page(folders):
    """The address of the page of two models. Its command ends without a word after Ctrl-C."""
    pytest.importorskip("flask", reason="Flask (requirements-dev.txt) is not installed")
    names = ",".join(map(str, folders))
    command = commands.Command("official.commands.playground", f"--model_dir={names}", "--port=0")
    command.wait_for("(Ctrl-C ends)")
    [(address, port)] = re.findall(
        r"^(http://127\.0\.0\.1:(\d+)) \(Ctrl-C ends\)\n$", command.output()
    )
    yield address
    taken = commands.run(
        "official.commands.playground", f"--model_dir={folders[0]}", f"--port={port}"
    )
    command.interrupt()
    assert command.wait() == 0
    assert command.stderr.read_text() == "".join(f"loading {folder}\n" for folder in folders)
    assert (taken.returncode, taken.stdout) == (2, "")
    assert taken.stderr == (
        f"error: --port={port}: address already in use: give another port, or --port=0 for any "
        "free one\n"
    )


@pytest.mark.slow
def test_the_command_serves_the_answers_of_the_models(page, folders):
    form = urllib.parse.urlencode({"text": "the [MASK] sat", "top_k": 2}).encode()
    with urllib.request.urlopen(f"{page}/fill_mask", form, timeout=300) as answer:
        text = answer.read().decode()
    [[fillings]] = official.load(folders[0]).fill_mask(["the [MASK] sat"], top_k=2)
    cells = r'<tr><td dir="auto">(.*?)</td><td class="number"><svg .*?</svg> (.*?)</td>'
    rows = re.findall(cells, text)
    assert rows == [(f.word, f"{f.probability:.4f}") for f in fillings]


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="there is no Chromium in PATH")
def test_the_page_in_a_browser(page, folders, tmp_path):
    chromium = browser.Browser(browser.find(), tmp_path)
    try:
        chromium.open(page)
        assert chromium.run("location.pathname") == "/fill_mask"
        chromium.submit(text="the [MASK]\nsat", top_k="2")
        [[fillings]] = official.load(folders[0]).fill_mask(["the [MASK]\nsat"], top_k=2)
        words = "[...document.querySelectorAll('tbody td:first-child')].map(e => e.textContent)"
        assert chromium.run(words) == [filling.word for filling in fillings]
        bars = "[...document.querySelectorAll('.bar rect')].map(e => e.width.baseVal.value)"
        assert chromium.run(bars) == pytest.approx([f.probability for f in fillings], abs=1e-6)
        assert chromium.run("document.forms[0].text.value") == "the [MASK]\nsat"
        # A text with HTML stays a text, in the result too, and so does the name of a folder.
        chromium.run("[...document.querySelectorAll('nav a')].find(e => e.text == 'Tag').click()")
        chromium.wait_for_page()
        chromium.submit(text=SCRIPT)
        marked = "[...document.querySelector('.marked').querySelectorAll('small')]"
        chromium.run(f"{marked}.forEach(e => e.remove())")  # the labels
        assert chromium.run("document.querySelector('.marked').textContent") == SCRIPT
        assert chromium.run("document.forms[0].text.value") == SCRIPT
        assert chromium.run("document.querySelector('h2').textContent") == "Results of a,<b>tags<b>"
        assert chromium.run("document.querySelectorAll('main b, main i, script').length") == 0
        assert chromium.run("document.title") == "Tag · Encoder Garden"
        # The policy of the page refuses scripts that come into it all the same.
        chromium.run(
            "document.body.appendChild(Object.assign(document.createElement('script'), "
            "{textContent: 'document.title = 1'})).isConnected"
        )
        assert chromium.run("document.title") == "Tag · Encoder Garden"
        chromium.open(f"{page}/attention")
        chromium.submit(1, text="the cat")
        assert chromium.run("document.querySelector('img').naturalWidth") > 100
        assert chromium.run("getComputedStyle(document.querySelector('nav')).display") == "flex"
    finally:
        chromium.close()


def test_without_the_extra_the_command_says_what_is_missing(tmp_path):
    program = f"""
import sys
sys.modules["flask"] = None
sys.argv = ["playground", "--model_dir={tmp_path}"]
import official.commands.playground
official.commands.playground.run()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "error: flask is not installed: pip install 'encoder-garden[playground]'\n",
    )
