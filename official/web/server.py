"""Serves the page to this machine alone: forms in plain HTML, without scripts."""

import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import flask
from werkzeug import serving

from official.serving.loaded_model import LoadedModel
from official.utils import sockets
from official.utils.errors import UserError
from official.web import MAX_BYTES
from official.web.tabs import TABS

HOST = "127.0.0.1"
# A browser sends nothing elsewhere and runs no script, even if a text came into the page unescaped.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def listen(port: int) -> socket.socket:
    """Returns a socket that listens at a port of this machine; 0 = any free port.

    Raises:
      UserError: the port is in use, or not allowed.
    """
    return sockets.listen(HOST, port, f"--port={port}")


def short_names(folders: Iterable[str]) -> dict[str, str]:
    """Returns the last part of each path, or as many parts as no other path ends with."""
    parts = {folder: folder.rstrip("/").split("/") for folder in folders}

    def name(folder: str) -> str:
        own, others = parts[folder], [parts[other] for other in parts if other != folder]
        for number in range(1, len(own)):
            if all(other[-number:] != own[-number:] for other in others):
                return "/".join(own[-number:])
        return folder

    return {folder: name(folder) for folder in parts}


def make_app(models: Mapping[str, LoadedModel], max_bytes: int = MAX_BYTES) -> flask.Flask:
    """Makes the page.

    Args:
      models: the models by their folders. The page shows the ends of these paths.
      max_bytes: the size of the largest form that is read.
    """
    app = flask.Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = max_bytes
    # Parts of forms have a limit of their own, which may be lower.
    app.config["MAX_FORM_MEMORY_SIZE"] = max_bytes
    # Requests under another host name (DNS rebinding) are refused.
    app.config["TRUSTED_HOSTS"] = [HOST, "localhost"]
    able = {name: [key for key in models if tab.able(models[key])] for name, tab in TABS.items()}
    shown = {name: TABS[name] for name in TABS if able[name]}
    short = short_names(models)
    lock = threading.Lock()  # a model answers one request at a time

    @app.before_request
    def refuse_other_sites() -> None:
        origin = flask.request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != flask.request.host:
            flask.abort(403)

    @app.after_request
    def protect(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = _POLICY
        return response

    @app.errorhandler(413)
    def refuse_large_forms(_: Exception) -> Any:
        text = (
            f"The form has more than {max_bytes:,} bytes: shorten the text, or start the page with "
            "a larger --max_bytes."
        )
        return text, 413, {"Content-Type": "text/plain; charset=utf-8"}

    @app.get("/")
    def first() -> Any:
        return flask.redirect(flask.url_for("page", name=next(iter(shown))))

    @app.route("/<name>", methods=["GET", "POST"])
    def page(name: str) -> str:
        form = flask.request.form
        if name not in shown:
            flask.abort(404)
        # A link names the model whose example the form should have.
        model = flask.request.values.get("model", able[name][0])
        if model not in able[name]:
            flask.abort(404)
        results, error = [], ""
        if flask.request.method == "POST":
            try:
                with lock:
                    results = shown[name].results(models[model], form)
            except UserError as problem:
                error = str(problem)
        return flask.render_template(
            "page.html",
            tabs=shown,
            name=name,
            fields=shown[name].fields(models[model]),
            form=form,
            models={folder: models[folder] for folder in able[name]},
            short=short,
            model=model,
            results=results,
            error=error,
        )

    return app


class _Quiet(serving.WSGIRequestHandler):
    """Prints no line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Prints nothing."""


def make_server(app: flask.Flask, listener: socket.socket) -> serving.BaseWSGIServer:
    """Returns a server whose `serve_forever` answers requests until Ctrl-C, or `shutdown`."""
    # Threads, because a browser opens connections in advance, on which it sends nothing.
    return serving.make_server(
        HOST, 0, app, threaded=True, request_handler=_Quiet, fd=listener.fileno()
    )
