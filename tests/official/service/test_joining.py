"""Requests share batches, wait in turn, are refused, and do not touch one another."""

import threading
import time

import pytest

from official.service.joining import Busy, Joiner
from official.utils.errors import UserError


class Model:
    """Doubles numbers, when it is let to; keeps its batches."""

    def __init__(self, free=True):
        self.batches, self.free, self.entered = [], threading.Event(), threading.Event()
        if free:
            self.free.set()

    def __call__(self, items):
        self.batches.append(list(items))
        self.entered.set()
        assert self.free.wait(60)
        if -1 in items:
            raise UserError("no -1")
        if -2 in items:
            raise ZeroDivisionError
        return [2 * item for item in items]


@pytest.fixture
def joined():
    """Makes a joiner and its model, which is busy with the first request: [0]."""
    made = []

    def make(batch_tokens=100, most_waiting=100, **options):
        model = Model(free=False)
        joiner = Joiner(batch_tokens, 0.0, most_waiting, **options)
        first = joiner.submit("key", model, [0], [1])
        assert model.entered.wait(60)
        made.append((joiner, model))
        return joiner, model, first

    yield make
    for joiner, model in made:
        model.free.set()
        joiner.close()


def test_requests_that_wait_share_a_batch(joined):
    seen = []
    joiner, model, first = joined(observe=lambda *counts: seen.append(counts))
    futures = [joiner.submit("key", model, [n, 10 * n], [1, 1]) for n in (1, 2, 3)]
    other = joiner.submit("other", model, [7], [1])
    assert joiner.waiting == 7
    model.free.set()
    assert [future.result(60) for future in futures] == [[2, 20], [4, 40], [6, 60]]
    assert (first.result(60), other.result(60)) == ([0], [14])
    assert model.batches == [[0], [1, 10, 2, 20, 3, 30], [7]]
    assert seen == [(1, 1), (6, 3), (1, 1)] and joiner.waiting == 0


def test_a_request_without_items_has_no_batch(joined):
    joiner, model, _ = joined()
    assert joiner.submit("key", model, [], []).result(60) == []
    assert joiner.waiting == 0


def test_a_large_request_does_not_keep_others_waiting(joined):
    """It gets a batch, and then those that came later get theirs."""
    joiner, model, _ = joined(batch_tokens=4, most_waiting=1000)
    large = joiner.submit("key", model, list(range(10, 20)), [1] * 10)
    small = [joiner.submit("key", model, [n], [1]) for n in (1, 2)]
    model.free.set()
    assert large.result(60) == [2 * n for n in range(10, 20)]
    assert [future.result(60) for future in small] == [[2], [4]]
    assert model.batches == [[0], [10, 11, 12, 13], [1, 2, 14, 15], [16, 17, 18, 19]]


def test_a_batch_has_the_oldest_request_and_those_of_similar_length(joined):
    joiner, model, _ = joined(batch_tokens=30)
    sizes = [10, 90, 2, 12, 80, 11]
    futures = [joiner.submit("key", model, [n], [size]) for n, size in enumerate(sizes, 1)]
    model.free.set()
    assert [future.result(60) for future in futures] == [[2 * n] for n in range(1, 7)]
    assert model.batches == [[0], [1, 6, 4], [2], [3, 5]]


def test_an_item_that_is_longer_than_a_batch_has_one(joined):
    joiner, model, _ = joined(batch_tokens=4)
    joiner.submit("key", model, [1, 2], [100, 100])
    model.free.set()
    joiner.close()
    assert model.batches == [[0], [1], [2]]


@pytest.mark.parametrize("item, error", [(-1, UserError), (-2, ZeroDivisionError)])
def test_an_error_is_that_of_its_request_alone(joined, item, error):
    joiner, model, _ = joined(batch_tokens=4)
    good = joiner.submit("key", model, [1], [1])
    bad = joiner.submit("key", model, [item, 5, 6, 7, 8], [1] * 5)
    last = joiner.submit("key", model, [2], [1])
    model.free.set()
    assert (good.result(60), last.result(60)) == ([2], [4])
    with pytest.raises(error):
        bad.result(60)
    joiner.close()
    assert not any(8 in batch for batch in model.batches)  # what is left of it is not computed


def test_results_that_are_too_few_are_an_error():
    joiner = Joiner(10, 0.0, 10)
    with pytest.raises(RuntimeError, match="2 items have 1 results"):
        joiner.submit("key", lambda items: items[:1], [1, 2], [1, 1]).result(60)
    joiner.close()


def test_too_much_that_waits_is_refused(joined):
    joiner, model, _ = joined(most_waiting=3)
    joiner.submit("key", model, [1, 2, 3, 4], [1] * 4)  # nothing waits: any size is taken
    with pytest.raises(Busy, match="4 texts wait already"):
        joiner.submit("key", model, [5], [1])
    model.free.set()
    joiner.close()
    with pytest.raises(Busy, match="the server ends"):
        joiner.submit("key", model, [6], [1])
    assert model.batches == [[0], [1, 2, 3, 4]]


def test_a_client_that_has_left_is_not_computed(joined):
    joiner, model, _ = joined()
    left = joiner.submit("key", model, [1], [1])
    stayed = joiner.submit("key", model, [2], [1])
    assert left.cancel()
    model.free.set()
    assert stayed.result(60) == [4] and model.batches == [[0], [2]]


def test_a_lone_request_waits_for_others_and_a_full_batch_does_not():
    model = Model()
    joiner = Joiner(4, 0.5, 100)
    started = time.monotonic()
    futures = [joiner.submit("key", model, [n], [1]) for n in (1, 2)]
    assert [future.result(60) for future in futures] == [[2], [4]]
    assert time.monotonic() - started >= 0.5 and model.batches == [[1, 2]]
    joiner.close()

    joiner = Joiner(4, 600.0, 100)
    assert joiner.submit("key", model, [1, 2, 3, 4], [1] * 4).result(60) == [2, 4, 6, 8]
    waits = joiner.submit("key", model, [5], [1])
    joiner.close()  # which waits for nobody
    assert waits.result(0) == [10]
