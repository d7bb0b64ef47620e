"""Files and folders of a file system whose every N-th call fails, before or after its work."""

import hashlib

import pytest
import tensorflow as tf

from official.utils import atomic, checksums, gfile, paths
from official.utils.errors import UserError
from tests import flaky


@pytest.fixture
def root(tmp_path, monkeypatch):
    """`flaky://`, and the local folder that has its files."""
    flaky.use_here(tmp_path, monkeypatch, every=7)
    return paths.path("flaky://files")


def data(number):
    return hashlib.sha256(b"%d" % number).digest() * number


def test_files_are_whole_whatever_fails(root, tmp_path):
    there = tmp_path / "files"
    for number in range(60):
        path = root / f"{number % 20}"
        path.write_bytes(data(number))
        assert path.read_bytes() == data(number) == (there / path.name).read_bytes()
        assert path.stat().st_size == len(data(number)) and path.is_file() and path.exists()
        assert not (root / "none").exists() and root.is_dir()
    assert [path.name for path in root.iterdir()] == sorted(map(str, range(20)))
    for number in range(20):
        (root / f"{number}").rename(root / f"new-{number}")
    assert len(list(root.glob("new-*"))) == 20 and not (root / "3").exists()
    for number in range(20):
        (root / f"new-{number}").unlink(missing_ok=True)
    assert list(there.iterdir()) == [] and list(root.iterdir()) == []


def test_a_file_that_is_being_written_is_not_there(root, tmp_path):
    with (root / "file").open("wb") as stream:
        stream.write(data(5))
        stream.flush()
        assert not (tmp_path / "files").exists()
    assert (tmp_path / "files" / "file").read_bytes() == data(5)
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["file"]


def test_reading_goes_on_at_its_place(root, monkeypatch):
    content = data(200_000)  # longer than buffers
    monkeypatch.setenv("FLAKY_EVERY", "0")
    (root / "long").write_bytes(content)
    monkeypatch.setenv("FLAKY_EVERY", "5")
    with (root / "long").open("rb") as stream:
        assert stream.read(10) == content[:10]
        assert stream.seek(3_000_001) and stream.read(5) == content[3_000_001:][:5]
        assert stream.seek(0) == 0 and stream.read() == content
    assert checksums.hash_file(root / "long") == checksums.hash_bytes(content)


@pytest.mark.parametrize("in_place", [False, True])
def test_folders(root, tmp_path, in_place):
    for number in range(6):
        with atomic.folder(root / f"{number}", "last", in_place) as folder:
            for name in ("a", "b", "last"):
                (folder / name).write_bytes(data(number))
        names = sorted(path.name for path in (tmp_path / "files" / f"{number}").iterdir())
        assert names == ["a", "b", "last"]
        with pytest.raises(UserError, match="is there already: name another folder"):
            with atomic.folder(root / f"{number}", "last"):
                pass
        atomic.remove(root / f"{number}", "last")
        assert not (tmp_path / "files" / f"{number}").exists()


def test_nothing_is_appended_and_no_folder_is_renamed(root):
    for number in range(10):
        atomic.append(root / "log", f"line {number}\n")
    assert (root / "log").read_text() == "".join(f"line {number}\n" for number in range(10))
    with pytest.raises(UserError, match="flaky://files2: Unimplemented: folders cannot be renamed"):
        root.rename("flaky://files2")


def test_a_file_system_that_fails_always(root, monkeypatch, capsys):
    monkeypatch.setenv("FLAKY_EVERY", "1")
    with pytest.raises(
        UserError, match="flaky://files/a: .*Unavailable: flaky://files/a; flaky op"
    ):
        (root / "a").read_bytes()
    assert "warning: flaky://files/a: Unavailable: flaky://files/a; " in capsys.readouterr().err


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


def test_words_of_a_failed_graph_are_not_the_place_of_its_operation():
    """As TensorFlow 2.21 words it when the network to another worker is cut."""
    message = (
        "Graph execution error:\n\nDetected at node allgather defined at (most recent call last):\n"
        '  File "<string>", line 1, in <module>\n\n  File "strategies.py", line 293, in gathered\n'
        "\nCollective ops is aborted by: Deadline Exceeded\n"
        "RPC: /tensorflow.CoordinationService/Heartbeat\n\t [[{{node allgather}}]] [Op:__inference]"
    )
    error = tf.errors.DeadlineExceededError(None, None, message)
    wanted = "DeadlineExceeded: Collective ops is aborted by: Deadline Exceeded"
    assert gfile.words(error) == wanted
