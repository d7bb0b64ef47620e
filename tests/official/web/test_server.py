"""The page over HTTP: what it shows, what it escapes, and what it refuses."""

import html
import re
import socket

import pytest

import official
from official.utils.errors import UserError
from tests.official.web import models

pytest.importorskip("flask", reason="Flask (requirements-dev.txt) is not installed")

from official.web import server  # noqa: E402

SCRIPT = "<script>document.title = 'run'</script>"
ESCAPED = "&lt;script&gt;document.title = &#39;run&#39;&lt;/script&gt;"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "run/masked": official.load(models.masked_lm(folder / "masked")),
        "run/<b>labels</b>": models.head("multi_label", folder / "labels"),
    }


@pytest.fixture(scope="module")
def client(loaded):
    return server.make_app(loaded).test_client()


def tabs(text):
    return re.findall(r'<a href="/(\w+)"', text)


def buttons(text):
    return re.findall(r'<button name="model" value="([^"]*)"', text)


def test_the_page_has_the_tabs_and_models_that_can_do_it(client):
    assert client.get("/").location == "/fill_mask"
    text = client.get("/fill_mask").text
    assert tabs(text) == ["fill_mask", "classify", *models.ENCODER]
    assert buttons(text) == ["run/masked"]
    assert "The capital of France is [MASK]." in text
    assert len(buttons(client.get("/compare").text)) == 2
    for address in ("/tag", "/other"):
        assert client.get(address).status_code == 404
    assert client.post("/fill_mask", data={"model": "run/<b>labels</b>"}).status_code == 404
    assert client.post("/fill_mask", data={"model": "other"}).status_code == 404


def test_models_have_the_shortest_names_that_differ():
    names = {
        "run/a/bert": "a/bert", "run/b/bert": "b/bert", "run/tags/": "tags", "gs://x/y/z": "z",
        "package:minilm": "package:minilm", ".": ".", "/": "/", "a/b/c/d": "b/c/d",
        "a/x/c/d": "x/c/d", "/w/q": "w/q", "q": "q",
    }  # fmt: skip
    assert server.short_names(names) == names
    assert server.short_names(["/long/path/of/a/model"]) == {"/long/path/of/a/model": "model"}


def test_a_button_has_the_name_the_path_and_the_encoder_of_a_model(client):
    [button] = re.findall(r"<button .*</button>", client.get("/fill_mask").text)
    assert 'title="run/masked"' in button and 'accesskey="1"' in button
    assert re.sub("<.*?>", "", button) == "masked transformer"
    text = client.post("/fill_mask", data={"text": "[MASK]"}).text
    assert '<span title="run/masked">masked</span></h2>' in text


def test_each_tab_says_what_it_does(client):
    for name in tabs(client.get("/fill_mask").text):
        about = server.TABS[name].about
        assert f'<p class="about">{about}</p>' in client.get(f"/{name}").text
        assert 1 <= about.count(".") <= 2 and about.endswith(".")


def test_a_link_fills_in_the_example_of_the_model(client):
    form = {"texts": "a\nb", "model": "run/<b>labels</b>"}
    text = client.post("/compare", data=form).text
    assert ">\na\nb</textarea>" in text
    [link] = re.findall(r'href="([^"]*)">Fill in the example</a>', text)
    text = client.get(html.unescape(link)).text
    assert "A kitten naps on a rug." in text and "Results" not in text
    assert html.unescape(re.findall(r'href="([^"]*)">Fill in', text)[0]) == html.unescape(link)
    assert client.get("/fill_mask?model=run/<b>labels</b>").status_code == 404


def test_numbers_are_shaded_by_their_size(client, loaded):
    texts = ["a cat", "a dog", "the mat"]
    form = {"texts": "\n".join(texts), "model": "run/masked"}
    found = re.findall(r'<td class="w(\d+)">(.*?)</td>', client.post("/compare", data=form).text)
    vectors = loaded["run/masked"].encode(texts, normalize=True)
    cosines = (vectors @ vectors.T).ravel()
    assert [number for _, number in found] == [f"{c:.2f}" for c in cosines]
    assert [int(shade) for shade, _ in found] == [max(0, round(10 * c)) for c in cosines.tolist()]


def test_texts_are_shown_as_texts(client):
    """Of a form, a model's name, a label, and an error."""
    text = client.post("/classify", data={"text": SCRIPT, "second": SCRIPT}).text
    assert text.count(ESCAPED) == 2 and "<script" not in text
    assert "run/&lt;b&gt;labels&lt;/b&gt;" in text and '<td dir="auto">&lt;b&gt;</td>' in text
    assert "<b>" not in text
    text = client.post("/compare", data={"texts": f"{SCRIPT}\na cat", "model": "run/masked"}).text
    assert text.count(ESCAPED) == 2 and "<script" not in text
    text = client.post("/search", data={"query": "a", "documents": "b", "top_k": SCRIPT}).text
    [error] = re.findall(r'<p class="error" role="alert">(.*)</p>', text)
    assert error.startswith("Documents at most: &#34;&lt;script&gt;") and "<script" not in text


def test_results_are_those_of_the_model_that_is_named(client, loaded):
    for name, model in loaded.items():
        form = {"query": "a cat", "documents": "a dog\nthe cat sat", "model": name}
        text = client.post("/search", data=form).text
        [numbers], [scores] = model.search(["a cat"], ["a dog", "the cat sat"])
        shown = re.findall(r"</svg> (.*?)</td><td dir=\"auto\">(.*?)</td>", text)
        documents = [["a dog", "the cat sat"][i] for i in numbers]
        assert shown == [(f"{s:.4f}", d) for s, d in zip(scores, documents, strict=True)]


def test_errors_of_a_model_are_on_the_page(client):
    answer = client.post("/fill_mask", data={"text": "no mask", "top_k": "2"})
    [error] = re.findall(r'<p class="error" role="alert">(.*)</p>', answer.text)
    assert answer.status_code == 200 and "has no mask" in error
    assert ">\nno mask</textarea>" in answer.text and 'value="2"' in answer.text


def test_other_sites_get_nothing(client):
    assert client.get("/fill_mask", headers={"Host": "elsewhere.example:8600"}).status_code == 400
    assert client.get("/fill_mask", headers={"Host": "127.0.0.1:8600"}).status_code == 200
    data = {"text": "[MASK]"}
    for origin, status in (
        ("http://elsewhere.example", 403),
        ("null", 403),
        ("http://localhost:81", 403),
        ("http://localhost", 200),
    ):
        answer = client.post("/fill_mask", data=data, headers={"Origin": origin})
        assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    page = client.get("/fill_mask").text
    addresses = re.findall(r'(?:src|href|action)="([^"]*)"', page)
    assert addresses and all(a.startswith(("/", "#", "data:")) for a in addresses)
    assert client.get("/static/style.css").status_code == 200


def test_large_forms_are_refused(loaded):
    small = server.make_app(loaded, max_bytes=1_000).test_client()
    text = "[MASK] " + "a " * 300
    kinds = ("application/x-www-form-urlencoded", "multipart/form-data")
    for kind in kinds:
        answer = small.post("/fill_mask", data={"text": text}, content_type=kind)
        assert answer.status_code == 200 and "error" not in answer.text
        answer = small.post("/fill_mask", data={"text": text * 2}, content_type=kind)
        assert answer.status_code == 413
        assert "more than 1,000 bytes: shorten the text, or start" in answer.text
    # The parts of a form may be as large as a form.
    large = server.make_app(loaded).test_client()
    text = "[MASK] " + "a " * 300_000
    for kind in kinds:
        answer = large.post("/fill_mask", data={"text": text}, content_type=kind)
        assert answer.status_code == 200 and "error" not in answer.text


def test_a_port_in_use_is_said():
    with server.listen(0) as first:
        address, port = first.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(UserError) as error:
            server.listen(port)
    assert str(error.value) == (
        f"--port={port}: address already in use: give another port, or --port=0 for any free one"
    )
    with server.listen(port) as again, socket.create_connection(again.getsockname()):
        pass
