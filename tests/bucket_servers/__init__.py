"""Servers of buckets on this machine, in an environment of their own, and one that fails."""

import contextlib
import http.client
import http.server
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.end_to_end.test_multi_worker import free_ports

SCHEMES = ("s3", "gcs", "az")
# Azurite's account, which is the same everywhere.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def program(name: str) -> Path:
    """A program that `make buckets` installs; skips the test if there is none."""
    folder = os.environ.get("GARDEN_BUCKETS", ROOT / ".parity" / "buckets")
    found = Path(folder, "node_modules/.bin" if name.startswith("azurite") else "bin", name)
    if not found.exists():
        message = f"no server of buckets ({found}): `make buckets` installs it"
        if os.environ.get("GARDEN_PARITY") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return found


def environment(scheme: str, port: int) -> dict[str, str]:
    """The variables by which the package of a scheme finds a server."""
    place = f"http://127.0.0.1:{port}"
    if scheme == "s3":
        return {
            "AWS_ENDPOINT_URL": place,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    if scheme == "az":
        blobs = f"BlobEndpoint={place}/{_ACCOUNT};AccountName={_ACCOUNT};AccountKey={_KEY};"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{blobs}"}
    # Without the second one, gcsfs asks Google for the kind of each bucket.
    return {"STORAGE_EMULATOR_HOST": place, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


@contextlib.contextmanager
def running(scheme: str) -> Iterator[int]:
    """Runs a server, which keeps all in memory; yields its port."""
    (port,) = free_ports(1)
    name, *options = {
        "s3": ["moto_server", "-H", "127.0.0.1", "-p", f"{port}"],
        "gcs": [
            "gcp-storage-emulator", "start", "--host=127.0.0.1", f"--port={port}", "--in-memory",
        ],
        "az": [
            "azurite-blob", "--blobHost=127.0.0.1", f"--blobPort={port}", "--inMemoryPersistence",
            "--silent", "--skipApiVersionCheck", "--disableTelemetry",
        ],
    }[scheme]  # fmt: skip
    process = subprocess.Popen(
        [program(name), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            assert process.poll() is None, f"{name} has ended with {process.returncode}"
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


class Failing:
    """A proxy before a server, whose every N-th request fails, before or after its work.

    Args:
      port: that of the server.
      every: N; 0 = none fails.

    Attributes:
      port: that of the proxy.
      requests: how many came.
      failed: how many of them failed.
    """

    def __init__(self, port: int, every: int):
        self.every, self.requests, self.failed = every, 0, 0
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                with contextlib.suppress(BrokenPipeError):  # the client has gone away
                    outer.answer(self, port)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = answer

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stops the proxy."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: http.server.BaseHTTPRequestHandler, port: int) -> None:
        """Hands a request on, or fails it: in turn with 503, with 503 after the work, and cut."""
        with self._lock:
            self.requests += 1
            kind = ""
            if self.every and self.requests % self.every == 0:
                kind = ("before", "after", "cut")[self.failed % 3]
                self.failed += 1
        body = _body(request)
        if kind != "before":
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            drop = ("connection", "transfer-encoding", "content-length", "expect")
            headers = {k: v for k, v in request.headers.items() if k.lower() not in drop}
            headers["Content-Length"] = str(len(body))
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
        if kind in ("before", "after"):
            request.send_response(503)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                request.send_header(name, value.replace(f":{port}", f":{self.port}"))
        length = answer.getheader("Content-Length") if request.command == "HEAD" else len(data)
        request.send_header("Content-Length", str(length or 0))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data[: len(data) // 2] if kind == "cut" else data)
        if kind == "cut":
            request.close_connection = True


def _body(request: http.server.BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        length = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(length)
        if len(body) < length:
            raise BrokenPipeError
        return body
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass
    return b"".join(parts)
