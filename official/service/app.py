"""The application: the addresses of a model, and what each answers."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import fastapi
import prometheus_client
from fastapi.exceptions import RequestValidationError
from pydantic import create_model
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from official.service import operations
from official.service.compatible import (
    OpenAIEmbeddings,
    TEIEmbed,
    TEIEmbedSparse,
    TEIRerank,
)
from official.service.guard import failure
from official.service.joining import Busy, Joiner
from official.service.operations import Embed, EmbedSparse, Model, Operation, Rank
from official.utils.errors import UserError

_JSON = "application/json"
_REFUSALS: dict[int | str, dict[str, Any]] = {
    413: {"description": "Too many texts, or too long a body."},
    422: {"description": "The body is not valid, or the model refuses it."},
    503: {"description": "Too many texts wait."},
}
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """What `/metrics` says, in the text format of Prometheus."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)

        def made(kind: Callable, name: str, about: str, *labels: str, **options: Any) -> Any:
            return kind(f"garden_{name}", about, labels, registry=self.registry, **options)

        counter, histogram = prometheus_client.Counter, prometheus_client.Histogram
        self.requests = made(counter, "requests", "Requests.", "path", "status")
        self.texts = made(counter, "texts", "Texts, pairs and questions.", "path")
        self.seconds = made(histogram, "request_seconds", "Until the response is made.", "path")
        self.batch_texts = made(histogram, "batch_texts", "Texts of a batch.", buckets=_BATCHES)
        self.batch_requests = made(
            histogram, "batch_requests", "Requests that share a batch.", buckets=_BATCHES
        )
        self.waiting = made(prometheus_client.Gauge, "waiting_texts", "Texts that wait.")

    def batch(self, texts: int, requests: int) -> None:
        """Counts a batch."""
        self.batch_texts.observe(texts)
        self.batch_requests.observe(requests)


class Service:
    """Answers the requests to a model.

    Args:
      model: the model.
      name: what responses call it.
      joiner: computes the batches.
      metrics: counts requests.
      max_texts: the largest number of texts of a request.
    """

    def __init__(self, model: Model, name: str, joiner: Joiner, metrics: Metrics, max_texts: int):
        self.model, self.name, self.metrics = model, name, metrics
        self._joiner, self._max_texts = joiner, max_texts
        self._paths: set[str] = set()
        self._operations = [op for op in operations.OPERATIONS if op.served(model)]

    def try_all(self) -> None:
        """Calls all methods, so that their graphs are made before the first request."""
        self.model.embedder.repeatable = True
        for operation in self._operations:
            for request in 2 * operation.examples(self.model):
                # The first call may be without the graph.
                request.finish(self.model, request.run(self.model, request.items()))

    def count(self, path: str, status: int) -> None:
        """Counts a response. Any text may be the path of a request."""
        known = path if path in self._paths else "other"
        self.metrics.requests.labels(known, status).inc()

    def app(self) -> fastapi.FastAPI:
        """Makes the application."""
        app = fastapi.FastAPI(
            title=f"encoder-garden: {self.name}",
            description="Texts that are too long are cut, as `official.load` does it.",
            docs_url=None,  # these pages load scripts from elsewhere
            redoc_url=None,
        )
        for operation in self._operations:
            self._post(app, f"/api/{operation.NAME}", operation, self._results, operation.RESULT)
        if Embed in self._operations:
            self._post(app, "/v1/embeddings", OpenAIEmbeddings, self._openai)
            self._post(app, "/embed", TEIEmbed, self._tei_embed)
        if EmbedSparse in self._operations:
            self._post(app, "/embed_sparse", TEIEmbedSparse, self._tei_embed_sparse)
        if Rank in self._operations:
            self._post(app, "/rerank", TEIRerank, self._tei_rerank)
        for path, about in (("/v1/models", self._models), ("/info", self._info)):
            app.get(path)(about)
        app.get("/health")(_health)
        app.get("/metrics", response_class=fastapi.responses.PlainTextResponse)(self._metrics)
        self._paths = {getattr(route, "path", "") for route in app.routes}
        app.exception_handler(RequestValidationError)(_not_valid)
        app.exception_handler(HTTPException)(self._refused)
        app.exception_handler(Exception)(_broken)
        return app

    def _post(
        self,
        app: fastapi.FastAPI,
        path: str,
        body: type,
        respond: Callable[[Any], Awaitable[Any]],
        result: Any = None,
    ) -> None:
        """Adds an address. `result` is the type of each of the `results` of its response."""

        async def answer(request: body) -> fastapi.Response:  # type: ignore[valid-type]
            started = time.monotonic()
            response = await self._guarded(respond, request)
            self.metrics.seconds.labels(path).observe(time.monotonic() - started)
            return response

        described: Any = None
        if result is not None:
            described = create_model(f"{body.__name__}Results", results=(list[result], ...))
        first, _, rest = inspect.cleandoc(body.__doc__ or "").partition("\n")
        app.post(
            path,
            name=path,
            summary=first,
            description=rest,
            responses={**_REFUSALS, 200: {"model": described}},
        )(answer)

    async def _guarded(
        self, respond: Callable[[Any], Awaitable[Any]], request: Any
    ) -> fastapi.Response:
        """Returns the response to a request, or to what is wrong with it."""
        try:
            content = await respond(request)
        except _TooMany as error:
            return failure(413, str(error), "too_large")
        except UserError as error:
            return failure(422, str(error), "invalid_request")
        except Busy as error:
            return failure(503, f"{error}: try again later", "overloaded", **{"Retry-After": "1"})
        # JSON has no NaN.
        return fastapi.Response(to_json(content, inf_nan_mode="null"), media_type=_JSON)

    async def _computed(self, request: Operation, path: str) -> Sequence[Any]:
        """Returns the results of a request, from batches that it shares with others."""
        items = request.items()
        if len(items) > self._max_texts:
            raise _TooMany(
                f"{len(items):,} texts, and a request may have {self._max_texts:,}: send several, "
                "or start the server with a larger --max_texts"
            )
        self.metrics.texts.labels(path).inc(len(items))
        future = self._joiner.submit(
            (type(request), request.settings()),
            lambda joined: request.run(self.model, joined),
            items,
            [operations.size(item) for item in items],
        )
        return await asyncio.wrap_future(future)

    async def _results(self, request: Operation) -> Mapping[str, Any]:
        results = await self._computed(request, f"/api/{request.NAME}")
        return {"results": request.finish(self.model, results)}

    async def _openai(self, request: OpenAIEmbeddings) -> Any:
        embed = request.operation()
        vectors = embed.vectors(self.model, await self._computed(embed, "/v1/embeddings"))
        return request.response(vectors, self.name, sum(map(operations.size, embed.texts)))

    async def _tei_embed(self, request: TEIEmbed) -> Any:
        embed = request.operation()
        return embed.finish(self.model, await self._computed(embed, "/embed"))

    async def _tei_embed_sparse(self, request: TEIEmbedSparse) -> Any:
        return request.response(await self._computed(request.operation(), "/embed_sparse"))

    async def _tei_rerank(self, request: TEIRerank) -> Any:
        rank = Rank(query=request.query, documents=request.texts, raw=True)
        return request.response(await self._computed(rank, "/rerank"))

    async def _models(self) -> dict[str, Any]:
        """The model, as OpenAI's API lists it."""
        model = {"id": self.name, "object": "model", "created": 0, "owned_by": "encoder-garden"}
        return {"object": "list", "data": [model]}

    async def _info(self) -> dict[str, Any]:
        """The model and the limits, as text-embeddings-inference says them."""
        return {
            "model_id": self.name,
            "model_dtype": "float32",  # of vectors and scores; weights may have another type
            "max_input_length": getattr(self.model, "max_length", None),  # an export has it inside
            "max_client_batch_size": self._max_texts,
            "operations": [operation.NAME for operation in self._operations],
        }

    async def _metrics(self) -> fastapi.Response:
        """Counters in the text format of Prometheus."""
        self.metrics.waiting.set(self._joiner.waiting)
        text = prometheus_client.generate_latest(self.metrics.registry)
        return fastapi.Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def _refused(self, request: fastapi.Request, error: HTTPException) -> fastapi.Response:
        """Says which addresses there are, if this one is not among them."""
        if error.status_code != 404:
            return failure(error.status_code, str(error.detail), "invalid_request")
        names = [f"/api/{operation.NAME}" for operation in self._operations]
        message = (
            f"{request.method} {request.url.path} is not an address of this model, which answers "
            f"POST {', '.join(names)}; /openapi.json describes all"
        )
        return failure(404, message, "not_found")


class _TooMany(Exception):
    """A request has too many texts."""


async def _health() -> dict[str, str]:
    """Whether requests are answered."""
    return {"status": "ok"}


async def _broken(request: fastapi.Request, error: Exception) -> fastapi.Response:
    """Answers a request that ended with an error of the server, which prints it."""
    del request, error
    return failure(500, "the server has failed; its output says how", "server_error")


async def _not_valid(request: fastapi.Request, error: Exception) -> fastapi.Response:
    """Says what is wrong with a body: the field, and why."""
    del request
    assert isinstance(error, RequestValidationError)
    parts = []
    for one in error.errors()[:5]:
        place = ".".join(str(step) for step in one["loc"][1:])
        if one["type"] == "json_invalid":
            parts.append(f"the body is not JSON from character {place} on")
        else:
            parts.append(f"{place or 'body'}: {one['msg']}")
    return failure(422, "; ".join(parts), "invalid_request")
