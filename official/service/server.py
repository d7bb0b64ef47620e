"""Serves the application over HTTP, with uvicorn."""

import contextlib
import dataclasses
import ipaddress
from collections.abc import Iterator

import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware

from official.service.app import Metrics, Service
from official.service.guard import App, Guard
from official.service.joining import Joiner
from official.service.operations import Model
from official.utils import progress

# How long the body of a request may take to arrive, and a connection may be idle.
BODY_SECONDS, IDLE_SECONDS = 30.0, 30
# What is begun ends within this time after SIGTERM.
END_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes.

    Attributes:
      batch_tokens: see `Joiner`.
      wait: see `Joiner`, in seconds.
      max_waiting: the largest number of texts that wait.
      max_texts: the largest number of texts of a request.
      max_bytes: the size of the largest body.
      max_connections: the largest number of connections.
    """

    batch_tokens: int
    wait: float
    max_waiting: int
    max_texts: int
    max_bytes: int
    max_connections: int


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a host."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


@contextlib.contextmanager
def application(
    model: Model,
    name: str,
    limits: Limits,
    key: str | None = None,
    loopback: bool = True,
    report: progress.Report = progress.say,
) -> Iterator[App]:
    """Makes the application of a model, and ends its batches at last.

    Args:
      model: the model.
      name: what responses call it.
      limits: what it takes.
      key: see `Guard`.
      loopback: whether only requests to a name of this machine are answered. A page of another site
        that a browser on this machine shows could else send some (DNS rebinding).
      report: takes the lines that say that the graphs are being made.
    """
    metrics = Metrics()
    joiner = Joiner(limits.batch_tokens, limits.wait, limits.max_waiting, metrics.batch)
    try:
        service = Service(model, name, joiner, metrics, limits.max_texts)
        with progress.signs("making the graphs", report):
            service.try_all()
        app: App = service.app()
        if loopback:
            hosts = ["localhost", "127.0.0.1", "[::1]"]
            app = TrustedHostMiddleware(app, allowed_hosts=hosts, www_redirect=False)
        yield Guard(app, limits.max_bytes, BODY_SECONDS, service.count, key)
    finally:
        joiner.close()


def http(app: App, max_connections: int) -> uvicorn.Server:
    """Returns what answers requests until SIGTERM or Ctrl-C, and then those that are begun.

    Its method `run` gets the sockets.
    """
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        limit_concurrency=max_connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=END_SECONDS,
        server_header=False,
    )
    return uvicorn.Server(config)
