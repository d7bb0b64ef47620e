"""Workers wait for each other, and say for whom."""

import re
import socket
import threading

import pytest

from official.distribution import cluster
from official.distribution.cluster import Cluster
from official.utils import progress
from official.utils.errors import UserError
from tests.end_to_end.test_multi_worker import free_ports


def listener(address):
    """Listens at the port of an address, as the server of TensorFlow does."""
    port = int(address.rpartition(":")[2])
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


@pytest.fixture
def workers():
    """Addresses of three workers that nobody uses, one of them of IPv6 if there is any."""
    hosts = ["localhost", "127.0.0.1", "[::1]" if socket.has_dualstack_ipv6() else "localhost"]
    return [f"{host}:{port}" for host, port in zip(hosts, free_ports(3), strict=True)]


def test_workers_wait_until_all_have_been_started(workers, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_SIGNS", 0.6)
    lines, waited = [], [threading.Event() for _ in workers]

    def run(index):
        cluster.wait(Cluster(workers, index), lines.append if index == 0 else lambda line: None)
        with listener(workers[index]):
            waited[index].set()
            for each in waited:
                assert each.wait(30)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(3)]
    threads[0].start()
    threads[1].start()
    assert not waited[1].wait(1.5)
    threads[2].start()
    for thread, each in zip(threads, waited, strict=True):
        assert each.wait(30)
        thread.join()
    # The second worker answers while it waits for the third one.
    assert lines and not any(workers[1] in line for line in lines[1:])
    line = rf"waiting for {re.escape(workers[2])} \(Connection refused\): \d+ s so far"
    assert re.fullmatch(line, lines[-1])


def test_a_worker_alone_waits_for_nobody(workers):
    with listener(workers[1]):
        cluster.wait(Cluster([workers[1]], 0), pytest.fail)


def test_a_port_that_another_process_uses_is_said(workers):
    with listener(workers[0]):
        with pytest.raises(UserError, match=r"cannot use port \d+ of this machine \(Address alr"):
            cluster.wait(Cluster(workers, 0), pytest.fail)
