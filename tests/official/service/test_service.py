"""A model over HTTP: its answers are those of Python, and what it refuses does not touch others."""

import base64
import contextlib
import http.client
import json
import re
import socket
import threading
import time

import numpy as np
import pytest

from official.utils import sockets
from official.utils.errors import UserError
from tests.official.serving import test_predictor
from tests.official.web import models

pytest.importorskip("fastapi", reason="FastAPI (requirements-dev.txt) is not installed")
pytest.importorskip("uvicorn", reason="uvicorn (requirements-dev.txt) is not installed")

from official.service import server  # noqa: E402

TEXTS = ["the cat sat on the mat", "a dog", "", "the the the the the the the the the the the"]
LIMITS = server.Limits(
    batch_tokens=1000, wait=0.002, max_waiting=1000, max_texts=8, max_bytes=20_000,
    max_connections=50,
)  # fmt: skip


class Client:
    """Sends requests to a server of this process."""

    def __init__(self, port):
        self.port = port

    def send(self, path, body=None, headers=(), raw=None):
        """Returns the status and the content of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **dict(headers)}
        connection.request("GET" if data is None else "POST", path, data, given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        kind = response.headers["Content-Type"] or ""
        return response.status, json.loads(text) if "json" in kind else text

    def results(self, name, **body):
        status, content = self.send(f"/api/{name}", body)
        assert status == 200, content
        return content["results"]

    def refused(self, status, *arguments, **options):
        """Returns the message."""
        found, content = self.send(*arguments, **options)
        assert found == status, content
        assert set(content["error"]) == {"message", "type"}
        return content["error"]["message"]


@contextlib.contextmanager
def served(model, key=None, **limits):
    taken = server.dataclasses.replace(LIMITS, **limits)
    with (
        sockets.listen("127.0.0.1", 0, "--port=0") as listener,
        server.application(model, "tiny", taken, key) as app,
    ):
        served_http = server.http(app, taken.max_connections)
        thread = threading.Thread(target=served_http.run, args=([listener],))
        thread.start()
        try:
            yield Client(listener.getsockname()[1])
        finally:
            served_http.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    import official

    return official.load(models.masked_lm(tmp_path_factory.mktemp("masked") / "model"))


@pytest.fixture(scope="module")
def client(masked):
    with served(masked) as client:
        yield client


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def plain(value):
    """The JSON of what a method returns."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def alike(first, second):
    """Compares two contents of JSON, with numbers that may differ by rounding."""
    if isinstance(second, dict):
        assert set(first) == set(second)
        for name in second:
            alike(first[name], second[name])
    elif isinstance(second, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            alike(one, other)
    elif isinstance(second, float):
        assert first == pytest.approx(second, rel=1e-4, abs=1e-5)
    else:
        assert first == second


def test_vectors(client, masked):
    close(client.results("embed", texts=TEXTS), masked.encode(TEXTS))
    close(
        client.results("embed", texts=TEXTS, normalize=True),
        masked.encode(TEXTS, normalize=True),
    )
    close(
        client.results("embed", texts=TEXTS, normalize=True, size=3),
        masked.encode(TEXTS, normalize=True, size=3),
    )
    close(client.results("embed", texts=TEXTS, size=5), masked.encode(TEXTS, size=5))
    assert client.results("embed", texts=[]) == []
    message = client.refused(422, "/api/embed", {"texts": ["a"], "size": 1000})
    assert message == "size: 1000, and the vectors of this model have 12"
    message = client.refused(422, "/api/embed", {"texts": ["a"], "prompt": "query"})
    assert message.startswith("prompt: 'query' is not a prompt of this model")


def test_masks(client, masked):
    texts = ["the [MASK] sat", "[MASK] [MASK]"]
    actual = client.results("fill_mask", texts=texts, top_k=3)
    alike(actual, plain(masked.fill_mask(texts, 3)))
    assert len(actual[1]) == 2 and [len(mask) for mask in actual[1]] == [3, 3]
    targets = client.results("fill_mask", texts=texts[:1], targets=["cat", "dog"])[0][0]
    assert sorted(filling["word"] for filling in targets) == ["cat", "dog"]


def test_requests_of_many_clients_at_once(client, masked):
    """Those with an error get it, and the others their own results."""
    texts = [f"{' '.join(['the cat'] * (n % 5))} {n}" for n in range(40)]
    expected = masked.encode(texts)
    found = {}

    def ask(number):
        if number % 10 == 9:
            body = {"texts": [texts[number]], "prompt": "none"}
            found[number] = client.send("/api/embed", body)[0]
        else:
            found[number] = client.results("embed", texts=[texts[number]])[0]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.pop(n) for n in (9, 19, 29, 39)] == [422] * 4
    close([found[n] for n in sorted(found)], [expected[n] for n in sorted(found)])
    metrics = client.send("/metrics")[1]
    [requests] = re.findall(r"^garden_batch_requests_sum (\S+)", metrics, re.MULTILINE)
    [batches] = re.findall(r"^garden_batch_requests_count (\S+)", metrics, re.MULTILINE)
    assert float(batches) < float(requests)  # some shared a batch
    assert 'garden_requests_total{path="/api/embed",status="422"}' in metrics


HEADS = {
    "classification": ("classify", {"texts": TEXTS}),
    "multi_label": ("classify", {"texts": [["a cat", "a dog"], ["the mat", ""]]}),
    "regression": ("score", {"texts": TEXTS}),
    "ranking": ("rank", {"query": "the cat", "documents": TEXTS}),
    "token_classification": ("tag", {"texts": TEXTS}),
    "span_answer": ("answer", {"questions": ["who", "what"], "contexts": "the cat sat on the mat"}),
    "multiple_choice": (
        "choose",
        {
            "contexts": ["the cat", "a"],
            "questions": ["who", ""],
            "choices": [["a dog", "a cat", "the mat"], ["the", "mat"]],
        },
    ),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", HEADS)
def test_heads(tmp_path, kind):
    name, body = HEADS[kind]
    sizes = {"max_query_length": 4, "doc_stride": 4} if kind == "span_answer" else {}
    model = models.head(kind, tmp_path, **sizes)
    expected = plain(getattr(model, name)(*body.values()))
    with served(model) as client:
        alike(client.results(name, **body), expected)
        assert len(client.results(name, **{key: [] for key in body if key != "query"},
                                  **{key: "" for key in body if key == "query"})) == 0  # fmt: skip
        message = client.refused(404, "/api/generate", {"texts": []})
        assert message == (
            "POST /api/generate is not an address of this model, which answers POST /api/embed, "
            f"/api/{name}; /openapi.json describes all"
        )
        if kind == "ranking":
            raw = plain(model.rank(*body.values(), raw=True))
            alike(client.results(name, **body, raw=True), raw)
            close(expected, [1 / (1 + np.exp(-score)) for score in raw])
            check_rerank(client, body["documents"], raw)


def check_rerank(client, documents, scores):
    """The form of text-embeddings-inference: sorted, between 0 and 1."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    body = {"query": "the cat", "texts": documents}
    status, ranks = client.send("/rerank", {**body, "raw_scores": True, "return_text": True})
    assert status == 200 and [rank["index"] for rank in ranks] == order
    assert [rank["text"] for rank in ranks] == [documents[i] for i in order]
    close([rank["score"] for rank in ranks], [scores[i] for i in order])
    ranks = client.send("/rerank", body)[1]
    close([rank["score"] for rank in ranks], [1 / (1 + np.exp(-scores[i])) for i in order])
    assert set(ranks[0]) == {"index", "score"}


def test_static_vectors(tmp_path):
    """An empty text has zeros in each form, also where its vector is divided by its length."""
    import official
    from tests.official.serving.vectors.test_static_encoder import write

    model = official.load(write(tmp_path / "static"))
    expected = model.encode(TEXTS)
    with served(model) as client:
        close(client.results("embed", texts=TEXTS), expected)
        for path, body in (("/embed", {"inputs": TEXTS}), ("/v1/embeddings", {"input": TEXTS})):
            status, found = client.send(path, body)
            assert status == 200
            found = found if path == "/embed" else [one["embedding"] for one in found["data"]]
            close(found, expected)
            assert found[2] == [0.0] * len(expected[2])


def test_sparse_vectors(tmp_path):
    """In place of dense ones, which such a model has not learned."""
    import official
    from tests.official.serving.vectors import test_sparse

    folder = tmp_path / "sparse"
    test_sparse.write(folder, queries="table")
    model = official.load(folder)
    pieces = model.tokenizer.pieces
    with served(model) as client:
        assert client.send("/info")[1]["operations"] == ["embed_sparse"]
        for prompt in (None, "query"):
            vectors = model.encode(TEXTS, sparse=True, prompt=prompt)
            expected = [dict(words) for words in model.words(vectors)]
            found = client.results("embed_sparse", texts=TEXTS, prompt=prompt)
            for one, other in zip(found, expected, strict=True):
                assert list(one) == list(other) and one == pytest.approx(other, abs=1e-5)
            assert found[2] == {} and len(found[0]) > 2
            status, listed = client.send("/embed_sparse", {"inputs": TEXTS, "prompt_name": prompt})
            assert status == 200
            named = [{pieces[one["index"]]: one["value"] for one in each} for each in listed]
            for one, other in zip(named, expected, strict=True):
                assert one == pytest.approx(other, abs=1e-5)
        assert client.results("embed_sparse", texts=[]) == []
        message = client.refused(404, "/api/embed", {"texts": TEXTS})
        assert "which answers POST /api/embed_sparse; /openapi.json" in message
        client.refused(404, "/embed", {"inputs": TEXTS})
        message = client.refused(422, "/api/embed_sparse", {"texts": ["a"], "prompt": "other"})
        assert "not a prompt of this model" in message


def test_late_interaction_ranks(tmp_path):
    """An empty document is the last one, and its score a number."""
    import official
    from tests.official.conversion import test_multi_vector_encoders as late

    model = official.load(late.model(tmp_path / "late"))
    expected = model.rank("the cat", TEXTS).tolist()
    with served(model) as client:
        assert client.send("/info")[1]["operations"] == ["rank"]
        close(client.results("rank", query="the cat", documents=TEXTS), expected)
        assert np.argmin(expected) == 2
        check_rerank(client, TEXTS, np.array(expected))
        client.refused(404, "/api/embed", {"texts": TEXTS})


def test_several_labels_are_no_ranks(tmp_path):
    model = models.head("classification", tmp_path)
    with served(model) as client:
        for path, body in (
            ("/api/rank", {"query": "a", "documents": TEXTS}),
            ("/rerank", {"query": "a", "texts": TEXTS}),
        ):
            message = client.refused(404, path, body)
            assert "which answers POST /api/embed, /api/classify; /openapi.json" in message


@pytest.mark.slow
@pytest.mark.long
def test_labels_without_training(tmp_path):
    """Pairs of all requests share batches; an ordinary classification has no such address."""
    head = {"type": "classification", "labels": ["contradiction", "entailment"]}
    model = test_predictor.load(tmp_path, head)
    labels = ["a dog", "the mat", "a cat"]
    with served(model) as client:
        assert client.send("/info")[1]["operations"] == ["embed", "classify", "zero_shot"]
        for more in ({}, {"several": True}, {"hypothesis": "the {} sat"}):
            expected = plain(model.classify(TEXTS[:2], labels=labels, **more))
            alike(client.results("zero_shot", texts=TEXTS[:2], labels=labels, **more), expected)
        assert client.results("zero_shot", texts=[], labels=labels) == []
        # Each label of each text counts.
        client.refused(413, "/api/zero_shot", {"texts": TEXTS, "labels": labels})
        for body, message in (
            ({"labels": []}, "labels: there are none"),
            ({"labels": ["a", " "]}, "label 1 is empty"),
            ({"labels": ["a"], "hypothesis": "none"}, "the place of the label"),
        ):
            assert message in client.refused(422, "/api/zero_shot", {"texts": TEXTS[:2], **body})


@pytest.mark.slow
def test_an_export(tmp_path):
    """It has no vectors, and so no address of them."""
    import official
    from official.serving.exported_model import ExportedModel

    model = models.head("classification", tmp_path / "model")
    official.export(tmp_path / "model", tmp_path / "export")
    with served(ExportedModel(tmp_path / "export")) as client:
        alike(client.results("classify", texts=TEXTS), plain(model.classify(TEXTS)))
        assert client.send("/info")[1]["operations"] == ["classify"]
        for path in ("/api/embed", "/embed", "/v1/embeddings"):
            client.refused(404, path, {"input": "a"})


@pytest.mark.slow
@pytest.mark.long
def test_tasks_and_pairs(tmp_path):
    model = models.head("tasks", tmp_path)
    with served(model) as client:
        pairs = [["a cat", "a dog"], ["the mat", "the cat"]]
        for task in ("one", "two"):
            expected = plain(model.classify(pairs, task=task))
            alike(client.results("classify", texts=pairs, task=task), expected)
        assert "task" in client.refused(422, "/api/classify", {"texts": ["a"]})


@pytest.mark.slow
@pytest.mark.long
def test_generation(tmp_path):
    model = models.t5(tmp_path / "t5")
    with served(model) as client:
        texts = TEXTS[:3]
        assert client.results("generate", texts=texts) == [[x] for x in model.generate(texts)]
        short = model.generate(texts, task="short")
        assert client.results("generate", texts=texts, task="short") == [[x] for x in short]
        drawn = model.generate(texts, temperature=2.0, seed=3)
        body = {"texts": texts, "temperature": 2.0, "seed": 3}
        assert client.results("generate", **body) == [[x] for x in drawn]
        assert client.results("fill_mask", texts=["the <extra_id_0> cat"])


def test_the_form_of_openai(client, masked):
    expected = masked.encode(TEXTS[:2])
    status, content = client.send("/v1/embeddings", {"input": TEXTS[:2], "model": "any"})
    assert status == 200 and content["object"] == "list" and content["model"] == "tiny"
    close([each["embedding"] for each in content["data"]], expected)
    assert [each["index"] for each in content["data"]] == [0, 1]
    body = {"input": TEXTS[0], "encoding_format": "base64", "dimensions": 3, "user": "x"}
    [found] = client.send("/v1/embeddings", body)[1]["data"]
    close(np.frombuffer(base64.b64decode(found["embedding"]), "<f4"), expected[0][:3])
    assert [each["id"] for each in client.send("/v1/models")[1]["data"]] == ["tiny"]


def test_the_client_of_openai(client, masked):
    openai = pytest.importorskip("openai", reason="openai (requirements-dev.txt) is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{client.port}/v1", api_key="x") as theirs:
        found = theirs.embeddings.create(input=TEXTS, model="tiny")
        close([each.embedding for each in found.data], masked.encode(TEXTS))
        assert [model.id for model in theirs.models.list()] == ["tiny"]
        with pytest.raises(openai.UnprocessableEntityError, match="dimensions: "):
            theirs.embeddings.create(input=TEXTS, model="tiny", dimensions=0)


def test_the_client_of_text_embeddings_inference(client, masked):
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    theirs = hub.InferenceClient(f"http://127.0.0.1:{client.port}/embed")
    expected = masked.encode(TEXTS[:1], normalize=True)
    close(theirs.feature_extraction(TEXTS[0], normalize=True, truncate=True), expected)
    with pytest.raises(Exception, match="not a prompt of this model"):
        theirs.feature_extraction(TEXTS[0], prompt_name="other")


def test_what_text_embeddings_inference_does_not_cut(client):
    message = client.refused(422, "/embed", {"inputs": "a", "truncate": False})
    assert message == "truncate: Input should be True"


@pytest.mark.parametrize(
    "options, status, words",
    [
        ({"raw": b'{"texts": ["a'}, 422, "the body is not JSON from character 11 on"),
        ({"body": {"texts": "a"}}, 422, "texts: Input should be a valid list"),
        ({"body": {"text": ["a"]}}, 422, "text: Extra inputs are not permitted"),
        ({"body": {"texts": [1]}}, 422, "texts.0: Input should be a valid string"),
        ({"body": {"texts": ["a"] * 9}}, 413, "9 texts, and a request may have 8"),
        ({"raw": b" " * 20_001}, 413, "more than 20,000 bytes"),
        ({"body": {"texts": ["a"]}, "headers": {"Host": "example.org"}}, 400, "Invalid host"),
        (
            {"body": {"texts": ["a"]}, "headers": {"Content-Type": "text/plain"}},
            422,
            "body: ",
        ),
    ],
)
def test_what_is_refused(client, options, status, words):
    if status == 400:  # Starlette's own words
        assert client.send("/api/embed", **options) == (400, f"{words} header")
    else:
        assert words in client.refused(status, "/api/embed", **options)
    assert client.results("embed", texts=["a"])


def test_half_a_surrogate_is_a_character_that_is_not_known(client, masked):
    status, content = client.send("/api/embed", raw=b'{"texts": ["a \\ud83d"]}')
    assert status == 200
    close(content["results"], masked.encode(["a �"]))


def test_a_body_in_chunks_has_the_same_limit(client):
    """Nobody says how long it is before."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(
            b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(3):
            connection.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_slow_body_is_given_up(masked, monkeypatch):
    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)
    with served(masked) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
            connection.sendall(
                b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            assert client.results("embed", texts=["a"])  # others are answered meanwhile
            answer = b""
            while part := connection.recv(1000):
                answer += part
        assert answer.startswith(b"HTTP/1.1 408 ") and b"within 0.2 seconds" in answer


def test_the_key(masked):
    with served(masked, key="secret") as client:
        body = {"texts": ["a"]}
        assert "send Authorization: Bearer KEY" in client.refused(401, "/api/embed", body)
        for wrong in ("Bearer other", "secret", "Bearer secret2", "Bearer é"):
            headers = {"Authorization": wrong.encode("latin-1")}
            client.refused(401, "/api/embed", body, headers=headers)
        assert client.send("/api/embed", body, {"Authorization": "Bearer secret"})[0] == 200
        assert client.send("/health") == (200, {"status": "ok"})
        client.refused(401, "/metrics")


def test_too_many_waiting_texts_are_refused(masked):
    """While a batch is computed."""
    computes, go_on = threading.Event(), threading.Event()
    texts = masked.embedder.texts

    def slow(*arguments, **options):
        computes.set()
        assert go_on.wait(60)
        return texts(*arguments, **options)

    with served(masked, max_waiting=3) as client:
        masked.embedder.texts = slow
        try:
            statuses = []
            ask = lambda: statuses.append(client.send("/api/embed", {"texts": ["a", "b"]})[0])  # noqa: E731
            threads = [threading.Thread(target=ask) for _ in range(2)]
            threads[0].start()
            assert computes.wait(60)
            threads[1].start()
            while "garden_waiting_texts 2.0" not in client.send("/metrics")[1]:
                time.sleep(0.01)
            message = client.refused(503, "/api/embed", {"texts": ["a", "b"]})
            assert message == "2 texts wait already: try again later"
        finally:
            go_on.set()
            for thread in threads:
                thread.join()
            del masked.embedder.texts
        assert statuses == [200, 200]


def test_an_error_of_the_server_is_that_of_its_request(masked, monkeypatch):
    texts = masked.embedder.texts

    def fails(given, *arguments, **options):
        if "a dog" in given:
            raise ZeroDivisionError
        return texts(given, *arguments, **options)

    with served(masked) as client:
        monkeypatch.setattr(masked.embedder, "texts", fails)
        message = client.refused(500, "/api/embed", {"texts": ["a dog"]})
        assert message == "the server has failed; its output says how"
        assert client.results("embed", texts=["a cat"])


def test_no_number_is_null(client, masked, monkeypatch):
    """JSON has no NaN."""
    monkeypatch.setattr(masked.embedder, "texts", lambda texts, *_, **options: [[np.nan, 1.0]])
    assert client.results("embed", texts=["a"]) == [[None, 1.0]]


def test_the_description(client):
    """Of what this model answers, without scripts from elsewhere."""
    status, content = client.send("/openapi.json")
    assert status == 200
    posts = [path for path, methods in content["paths"].items() if "post" in methods]
    assert posts == ["/api/embed", "/api/fill_mask", "/v1/embeddings", "/embed"]
    results = content["components"]["schemas"]["FillMaskResults"]
    assert results["properties"]["results"]["items"]["items"]["items"] == {
        "$ref": "#/components/schemas/Filling"
    }
    assert client.send("/docs")[0] == 404 and client.send("/info")[1]["max_client_batch_size"] == 8


def test_a_port_in_use_and_others_that_are_none():
    with sockets.listen("127.0.0.1", 0, "") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}: address already in use: give another"):
            sockets.listen("127.0.0.1", port, f"--port={port}")
    with pytest.raises(UserError, match="--port=70000: "):
        sockets.listen("127.0.0.1", 70000, "--port=70000")
    with pytest.raises(UserError, match="--host=203.0.113.1: "):
        sockets.listen("203.0.113.1", 0, "--host=203.0.113.1")
    hosts = {"localhost": True, "127.0.0.2": True, "::1": True, "0.0.0.0": False, "x.org": False}
    assert {host: server.is_loopback(host) for host in hosts} == hosts
