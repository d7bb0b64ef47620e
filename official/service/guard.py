"""What stands before the application: the key, the size of a body, and the time that it takes."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def failure(status: int, message: str, kind: str, **headers: str) -> JSONResponse:
    """Returns the response to a request that is refused, of the same form for all."""
    return JSONResponse({"error": {"message": message, "type": kind}}, status, headers)


class Guard:
    """An ASGI application that hands whole bodies to another one.

    Args:
      app: the application.
      max_bytes: the size of the largest body.
      seconds: how long a body may take to arrive.
      count: is called with the path and the status of each response.
      key: what requests have in `Authorization: Bearer KEY`, but those of `/health`; None = any
        request is answered.
    """

    def __init__(
        self,
        app: App,
        max_bytes: int,
        seconds: float,
        count: Callable[[str, int], None],
        key: str | None = None,
    ):
        self._app, self._max_bytes, self._seconds, self._count = app, max_bytes, seconds, count
        self._authorization = None if key is None else b"Bearer " + key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._count(scope["path"], message["status"])
            await send(message)

        refusal = self._refused(scope)
        if refusal is None:
            refusal, receive = await self._read(receive)
        await (refusal or self._app)(scope, receive, counted)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        """Returns the answer to a request whose headers are enough to refuse it."""
        headers = dict(scope["headers"])
        if self._authorization is not None and scope["path"] != "/health":
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._authorization):
                message = "the key is missing or wrong: send Authorization: Bearer KEY"
                return failure(401, message, "authentication", **{"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_bytes:
            return self._too_large()
        return None

    async def _read(self, receive: Receive) -> tuple[JSONResponse | None, Receive]:
        """Returns a refusal, or None and what gives the application the whole body."""
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self._seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._max_bytes:
                        return self._too_large(), receive
        except TimeoutError:
            text = f"the body did not arrive within {self._seconds:g} seconds"
            return failure(408, text, "timeout", Connection="close"), receive
        whole = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> MutableMapping[str, Any]:
            return whole.pop() if whole else await receive()

        return None, replay

    def _too_large(self) -> JSONResponse:
        message = (
            f"the body has more than {self._max_bytes:,} bytes: send several requests, or start "
            "the server with a larger --max_bytes"
        )
        return failure(413, message, "too_large", Connection="close")
