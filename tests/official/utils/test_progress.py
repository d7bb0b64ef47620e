"""Lines of progress: the rate and the time left."""

import pytest

from official.utils import progress
from official.utils.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """The time, which tests set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_have_the_rate_and_the_time_left(clock):
    lines = []
    done = Progress(30_000, lines.append, "test: ", "examples")
    clock[0] += 4.9
    done(1)
    assert lines == []
    clock[0] += 3.1
    done(1999, lambda seconds: f", {seconds:.0f} s")
    assert lines == ["test: 2,000 of 30,000 examples (7%), 250 examples/s, 8 s, 0:01:52 left"]
    clock[0] += 4
    done(1)
    assert len(lines) == 1
    clock[0] += 9_988
    done(2_999)
    assert lines[1].endswith("5,000 of 30,000 examples (17%), 0.5 examples/s, 13:53:20 left")
    done(1_000_000)  # rows that fill the last batch
    done.finish(", that is all")
    assert lines[2] == "test: 30,000 of 30,000 examples (100%), 3 examples/s, that is all"


def test_bytes_are_shown_in_mb_and_an_unknown_whole_has_no_time_left(clock):
    lines = []
    done, rows = Progress(8_000_000, lines.append), Progress(None, lines.append, "a: ", "rows")
    clock[0] += 10
    done(2_000_000)
    rows(3000)
    assert lines == [
        "2.0 of 8.0 MB (25%), 0.2 MB/s, 0:00:30 left",
        "a: 3,000 rows so far, 300 rows/s",
    ]


def test_nothing_is_reported_to_nobody(clock):
    done = Progress(0, None, unit="texts")
    clock[0] += 10
    done(1)
    done.finish()
