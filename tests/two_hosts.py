"""Two network namespaces of Linux with a cable between them that delays, loses, and can be cut.

Each end of the cable is a TUN device, so what a process on one host sends to the other goes through
the kernel's own TCP, with its timers and its repetitions.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

ADDRESSES = ("10.77.0.1", "10.77.0.2")

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_TUN, _SET_INTERFACE = "/dev/net/tun", 0x400454CA  # TUNSETIFF
_PACKETS = 0x1001  # IFF_TUN | IFF_NO_PI: packets of IP and nothing before them
_PACKET_BYTES = 65536


def enter(namespace: str) -> None:
    """Moves this thread, and what it starts from now on, to a host: the path of its namespace."""
    with open(namespace) as file:
        _check(_LIBC.setns(file.fileno(), _NEW_NETWORK))


class Cable:
    """A cable between two hosts, and what went through it.

    Attributes:
      hosts: the namespace of each host, for `enter`.
      whole: whether packets arrive; False = cut.
      delay: seconds of one way.
      sent, lost: packets that came to the cable, and those of them that did not arrive.
    """

    def __init__(self, delay: float, loss: float, seed: int = 0):
        """Makes both hosts.

        Args:
          delay: seconds of one way.
          loss: the share of packets that do not arrive.
          seed: of the packets that are lost.

        Raises:
          OSError: this process may not make namespaces or TUN devices.
        """
        self.whole = True
        self.sent = self.lost = 0
        self.delay, self._loss, self._random = delay, loss, random.Random(seed)
        self._namespaces: list[int] = []
        self._ends: list[int] = []
        self._wake, self._closed = os.pipe()
        try:
            for address in ADDRESSES:
                self._make_host(address)
        except BaseException:
            self._close_files()
            raise
        self.hosts = [f"/proc/{os.getpid()}/fd/{number}" for number in self._namespaces]
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the cable; processes on its hosts lose their network."""
        os.write(self._closed, b"\n")
        self._thread.join()
        self._close_files()

    def _close_files(self) -> None:
        for number in (*self._ends, *self._namespaces, self._wake, self._closed):
            os.close(number)

    def _make_host(self, address: str) -> None:
        failures: list[BaseException] = []

        def make() -> None:
            try:
                _check(_LIBC.unshare(_NEW_NETWORK))
                self._namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
                self._ends.append(os.open(_TUN, os.O_RDWR))
                request = struct.pack("16sH22x", b"cable", _PACKETS)
                fcntl.ioctl(self._ends[-1], _SET_INTERFACE, request)
                for words in (
                    "link set lo up",
                    f"address add {address}/24 dev cable",
                    "link set cable up",
                ):
                    subprocess.run(["ip", *words.split()], check=True)
            except BaseException as error:
                failures.append(error)

        # A namespace is that of a thread: the others stay where they are.
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def _carry(self) -> None:
        """Reads packets, and writes each to the other end when it is due."""
        poll = select.poll()
        for number in (*self._ends, self._wake):
            poll.register(number, select.POLLIN)
        waiting: list[tuple[float, int, int, bytes]] = []
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, end, packet = heapq.heappop(waiting)
                self._arrive(end, packet)
            timeout = 1000 * (waiting[0][0] - now) if waiting else None
            for number, _ in poll.poll(timeout):
                if number == self._wake:
                    return
                packet = os.read(number, _PACKET_BYTES)
                self.sent += 1
                if self._random.random() < self._loss:
                    self.lost += 1
                    continue
                other = self._ends[1 - self._ends.index(number)]
                heapq.heappush(waiting, (time.monotonic() + self.delay, self.sent, other, packet))

    def _arrive(self, end: int, packet: bytes) -> None:
        if self.whole:
            os.write(end, packet)
        else:
            self.lost += 1


def _check(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
