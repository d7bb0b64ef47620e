import pytest
import tensorflow as tf

from official.utils import gfile
from official.utils.errors import UserError


class Failing:
    """Batches 0 … 4, some of which fail several times before they can be read."""

    def __init__(self, failures, error=tf.errors.UnavailableError):
        self.failures = dict(failures)
        self.error = error
        self.starts = []

    def read(self, start):
        self.starts.append(start)
        for number in range(start, 5):
            if self.failures.get(number, 0):
                self.failures[number] -= 1
                raise self.error(None, None, f"flaky://a/{number}; gone\nlong")
            yield number


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(gfile.time, "sleep", found.append)
    return found


def test_each_batch_is_read_once(pauses):
    source = Failing({0: 1, 2: 2, 4: 1})
    assert list(gfile.each(source.read, "flaky://a")) == [0, 1, 2, 3, 4]
    assert source.starts == [0, 0, 2, 2, 4]
    expected = [0.1, 0.1, 0.4, 0.1]  # patience begins anew after a batch
    assert all(0.7 < a / b < 1.3 for a, b in zip(pauses, expected, strict=True))


def test_patience_ends(pauses):
    source = Failing({2: 100})
    batches = gfile.each(source.read, "flaky://a")
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(UserError, match="flaky://a: the file system fails.*able: flaky://a/2; gon"):
        next(batches)
    assert len(pauses) == 5 and source.starts == [0, *[2] * 5]


def test_other_errors_are_raised_at_once(pauses):
    source = Failing({1: 1}, tf.errors.DataLossError)
    with pytest.raises(tf.errors.DataLossError):
        list(gfile.each(source.read, "flaky://a"))
    assert not pauses
