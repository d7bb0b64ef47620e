"""`garden serve`: its answers, its end, and what it refuses before it loads a model."""

import json
import re
import threading
import urllib.request

import numpy as np
import pytest

import official
from tests import commands
from tests.official.web import models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.masked_lm(tmp_path_factory.mktemp("models") / "masked")


@pytest.mark.slow
def test_a_server_answers_and_ends_when_what_is_begun_is_answered(folder):
    pytest.importorskip("fastapi", reason="FastAPI (requirements-dev.txt) is not installed")
    # A request waits long for others, so that SIGTERM comes while it does.
    command = commands.Command("official.commands.garden", "serve", folder, "--port=0",
                               "--wait_ms=3000")  # fmt: skip
    command.wait_for("(Ctrl-C ends)")
    [port] = re.findall(r"^http://127\.0\.0\.1:(\d+) \(Ctrl-C ends\)$", command.output(), re.M)
    found = []

    def ask():
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/embed",
            json.dumps({"texts": ["the cat"]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as response:
            found.append(json.load(response)["results"])

    thread = threading.Thread(target=ask)
    thread.start()
    metrics = f"http://127.0.0.1:{port}/metrics"
    while b"garden_waiting_texts 1.0" not in urllib.request.urlopen(metrics, timeout=300).read():
        pass
    assert f'"model_id":"{folder.name}"' in (
        urllib.request.urlopen(f"http://127.0.0.1:{port}/info", timeout=300).read().decode()
    )
    command.terminate()
    thread.join()
    assert command.wait() == 143
    expected = official.load(folder).encode(["the cat"])
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "name one model folder: garden serve MODEL"),
        (["one", "two"], "name one model folder: garden serve MODEL"),
        (
            ["one", "--host=0.0.0.0"],
            "--host=0.0.0.0: others than this machine can reach it: give --key_file=FILE or set "
            "GARDEN_API_KEY",
        ),
        (["one", "--key_file=missing.txt"], "--key_file=missing.txt: "),
        (["one", "--port=70000"], "--host=127.0.0.1 --port=70000: "),
        (["one", "--port=0"], "one: "),
    ],
)
def test_what_is_refused(options, message, tmp_path):
    done = commands.run("official.commands.garden", "serve", *options)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {message}"), done.stderr


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "a\nb"])
def test_a_key_that_no_request_could_send(key, tmp_path):
    path = tmp_path / "key"
    path.write_text(key)
    done = commands.run("official.commands.garden", "serve", "one", f"--key_file={path}")
    wanted = f"error: --key_file={path}: the key is not a word of visible ASCII characters\n"
    assert (done.returncode, done.stderr) == (2, wanted)
