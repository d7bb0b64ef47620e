import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from official.utils import gfile, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import RemotePath
from tests import ROOT


def test_a_local_path_is_that_of_pathlib(tmp_path):
    for name in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        assert paths.path(name) == tmp_path and isinstance(paths.path(name), Path)
        assert not paths.is_remote(name)
    assert paths.path("a/b:c") == Path("a/b:c")


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.path("~/voc") == tmp_path / "voc" and paths.path("~") == tmp_path
    assert paths.path("a/~") == Path("a/~")


def test_parts_of_a_uri():
    path = paths.path("gs://bucket/run/model.tar.gz")
    assert isinstance(path, RemotePath) and paths.is_remote("gs://bucket") and paths.is_remote(path)
    assert str(path) == os.fspath(path) == f"{path}" == "gs://bucket/run/model.tar.gz"
    assert (path.name, path.stem, path.suffix) == ("model.tar.gz", "model.tar", ".gz")
    assert str(path.parent) == "gs://bucket/run"
    assert list(map(str, path.parents)) == [
        "gs://bucket/run", "gs://bucket", "gs://",
    ]  # fmt: skip
    assert paths.path("gs://").parent == paths.path("gs://") and paths.path("gs://").name == ""
    assert paths.path("gs://") / "bucket" == paths.path("gs://bucket/")
    assert str(path.with_name("other")) == "gs://bucket/run/other"
    assert str(path.with_suffix(".zip")) == "gs://bucket/run/model.tar.zip"
    assert str(paths.path("gs://bucket/") / "a" / "b/c") == "gs://bucket/a/b/c"
    assert str(path.parent.joinpath("a", "b")) == "gs://bucket/run/a/b"
    assert paths.path("gs://bucket") / "/tmp/x" == Path("/tmp/x")
    assert path.parent / "s3://other/x" == RemotePath("s3://other/x")
    assert path.is_relative_to("gs://bucket/run") and not path.is_relative_to("gs://bucket/ru")
    assert paths.path("ram://a//b?c#d%20e/") == RemotePath("ram://a//b?c#d%20e")
    assert str(paths.path("hdfs://host:9000/a") / "b") == "hdfs://host:9000/a/b"


def test_remote_paths_are_values():
    path = paths.path("gs://bucket/a")
    assert pickle.loads(pickle.dumps(path)) == path and hash(path) == hash(paths.path(str(path)))
    assert path != "gs://bucket/a" and path != Path("gs://bucket/a")
    assert sorted([path / "c", path / "b"]) == [path / "b", path / "c"]


def test_a_uri_that_pathlib_has_changed_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="gs:/bucket/a: a pathlib.Path cannot be a URI: give it as"):
        paths.path(Path("gs://bucket/a"))
    monkeypatch.chdir(tmp_path)
    Path("gs:/bucket").mkdir(parents=True)
    assert paths.path(Path("gs:/bucket")) == Path("gs:/bucket")


def test_files(ram):
    path = ram / "folder" / "file"
    assert not path.exists() and not path.is_file() and not path.is_dir()
    assert path.write_text("zwölf\nzwei\n") == 11
    assert path.read_bytes() == "zwölf\nzwei\n".encode() and path.read_text() == "zwölf\nzwei\n"
    assert path.exists() and path.is_file() and not path.is_dir() and path.stat().st_size == 12
    with path.open(encoding="utf-8") as stream:
        assert list(stream) == ["zwölf\n", "zwei\n"]
    with path.open("w") as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "zwölf\nzwei\n"  # until the file is closed
    assert path.read_text() == "new"
    path.rename(ram / "other").rename(ram / "third")
    assert (ram / "third").read_text() == "new" and not path.exists()
    (ram / "third").unlink()
    (ram / "third").unlink(missing_ok=True)
    for missing in (path.open, path.read_bytes, path.stat, path.unlink):
        with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{path}'"):
            missing()
    with pytest.raises(ValueError, match="mode 'a': remote files are read or written as a whole"):
        path.open("a")


def test_a_file_without_a_folder():
    path = paths.path("ram://test_a_file.npy")
    assert path.suffix == ".npy" and path.write_bytes(b"1") == 1 and path.read_bytes() == b"1"
    path.unlink()


def test_reading_at_any_place(ram):
    data = bytes(range(256)) * 9000  # longer than all buffers
    (ram / "file").write_bytes(data)
    with (ram / "file").open("rb") as stream:
        assert stream.read(3) == data[:3] and stream.tell() == 3
        assert stream.seek(-5, os.SEEK_END) == len(data) - 5 and stream.read() == data[-5:]
        assert stream.seek(1_234_567) and stream.read(9) == data[1_234_567:][:9]
        assert stream.seek(1, os.SEEK_CUR) == 1_234_577 and stream.read(1) == data[1_234_577:][:1]
        assert stream.seek(0) == 0 and stream.read() == data and stream.read(1) == b""
        with pytest.raises(OSError, match="Invalid argument"):
            stream.raw.seek(-1)


def test_other_libraries_read_and_write_streams(ram):
    with (ram / "file.gz").open("wb") as stream, gzip.open(stream, "wb") as packed:
        packed.write(b"text")
    with (ram / "file.gz").open("rb") as stream, gzip.open(stream, "rb") as packed:
        assert packed.read() == b"text"
    (ram / "a.json").write_text('{"a": 1}')
    assert json_files.read(ram / "a.json") == {"a": 1}
    with pytest.raises(UserError, match=f"{ram}/b.json is missing: look"):
        paths.read_bytes(ram / "b.json", advice="look")
    with pytest.raises(UserError, match=f"{ram}/a.json has 8 bytes, where at most 7"):
        paths.read_bytes(ram / "a.json", max_bytes=7)


def test_folders(ram):
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "e"):
        (ram / name).write_text(name)
    here = lambda found: [str(path).removeprefix(f"{ram}/") for path in found]  # noqa: E731
    assert here(ram.iterdir()) == ["a.txt", "b.txt", "e", "sub"]
    assert here(ram.glob("*.txt")) == ["a.txt", "b.txt"]
    assert here(ram.glob("*/*.txt")) == ["sub/c.txt"]
    assert here(ram.glob("sub/deep/*")) == ["sub/deep/d.txt"]
    assert here(ram.glob("**/*.txt")) == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert here(ram.rglob("d*")) == ["sub/deep", "sub/deep/d.txt"]
    assert here(ram.glob("e")) == ["e"] and here(ram.glob("nothing")) == []
    assert list((ram / "none").glob("*")) == []
    assert (ram / "sub").is_dir() and not (ram / "sub").is_file() and (ram / "sub").exists()
    (ram / "new").mkdir()
    (ram / "new").mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        (ram / "new").mkdir()
    paths.remove_tree(ram)
    paths.remove_tree(ram)
    assert not ram.exists() and not (ram / "a.txt").exists()
    with pytest.raises(FileNotFoundError):
        list(ram.iterdir())


def test_copies(ram, tmp_path):
    data = os.urandom(5 << 20)
    (tmp_path / "a").write_bytes(data)
    paths.copy(tmp_path / "a", ram / "a")
    paths.copy(ram / "a", ram / "b")
    paths.copy(ram / "b", tmp_path / "b")
    assert (ram / "a").read_bytes() == (ram / "b").read_bytes() == data
    assert (tmp_path / "b").read_bytes() == data
    with paths.local_copy(ram / "a") as local:
        assert local.name == "a" and local.read_bytes() == data
    assert not local.exists()
    with paths.local_copy(tmp_path / "a") as local:
        assert local == tmp_path / "a"
    assert local.exists()
    paths.remove_tree(tmp_path / "nothing")


class Failing:
    """TensorFlow whose file functions fail before they work."""

    def __init__(self, monkeypatch):
        self.pauses = []
        self.left = 0
        self.error = tf.errors.UnavailableError(None, None, "overloaded\nmore")
        monkeypatch.setattr(gfile.time, "sleep", self.pauses.append)
        for name in ("GFile", "exists", "stat", "rename", "remove", "listdir"):
            monkeypatch.setattr(tf.io.gfile, name, self.wrap(getattr(tf.io.gfile, name)))

    def wrap(self, function):
        def wrapped(*args, **options):
            if self.left:
                self.left -= 1
                raise self.error
            return function(*args, **options)

        return wrapped


@pytest.fixture
def failing(monkeypatch):
    return Failing(monkeypatch)


def test_errors_that_pass_are_waited_for_longer_and_longer(ram, failing):
    (ram / "file").write_text("text")
    for work in (
        lambda: (ram / "file").read_text(),
        lambda: (ram / "file").write_text("text"),
        lambda: (ram / "file").stat(),
        lambda: list(ram.iterdir()),
        lambda: (ram / "file").rename(ram / "other").rename(ram / "file"),
        lambda: (ram / "file").unlink(),
    ):
        failing.left = 3
        work()
    assert failing.left == 0 and len(failing.pauses) == 18
    expected = [0.1, 0.4, 1.6] * 6
    assert all(0.7 < a / b < 1.3 for a, b in zip(failing.pauses, expected, strict=True))


@pytest.mark.parametrize("kind", ["DeadlineExceeded", "Aborted", "Internal", "Unknown"])
def test_these_errors_pass_too(ram, failing, kind):
    failing.error = getattr(tf.errors, f"{kind}Error")(None, None, "later")
    failing.left = 1
    assert not (ram / "file").exists() and len(failing.pauses) == 1


def test_an_error_that_stays_is_said_in_words(ram, failing, capsys):
    (ram / "file").write_text("text")
    failing.left = 100
    with pytest.raises(UserError, match=f"^{ram}/file: .* again, for 34 s.*navailable: overloaded"):
        (ram / "file").read_text()
    assert "warning: ram://" in capsys.readouterr().err and 100 - failing.left == 6
    failing.error = tf.errors.PermissionDeniedError(None, None, "no key")
    with pytest.raises(
        UserError, match=f"{ram}/file: PermissionDenied: no key: check the path, the"
    ):
        (ram / "file").read_text()
    assert 100 - failing.left == 7  # at once


def test_a_rename_that_was_done_before_it_failed(ram, monkeypatch):
    (ram / "a").write_text("text")
    real, calls = tf.io.gfile.rename, []
    monkeypatch.setattr(gfile.time, "sleep", lambda seconds: None)

    def rename(*args, **options):
        calls.append(args)
        real(*args, **options)
        raise tf.errors.DeadlineExceededError(None, None, "no answer")

    monkeypatch.setattr(tf.io.gfile, "rename", rename)
    (ram / "a").rename(ram / "b")
    assert len(calls) == 1 and (ram / "b").read_text() == "text"


def test_a_removal_that_was_done_before_it_failed(ram, monkeypatch):
    (ram / "a").write_text("text")
    real, calls = tf.io.gfile.remove, []
    monkeypatch.setattr(gfile.time, "sleep", lambda seconds: None)

    def remove(*args):
        calls.append(args)
        real(*args)
        raise tf.errors.UnavailableError(None, None, "no answer")

    monkeypatch.setattr(tf.io.gfile, "remove", remove)
    (ram / "a").unlink()
    assert len(calls) == 1 and not (ram / "a").exists()
    with pytest.raises(FileNotFoundError):
        (ram / "a").unlink()


def test_a_file_that_was_not_written_whole_is_refused(ram, monkeypatch):
    (ram / "a").write_text("old")
    cut = tf.io.gfile.GFile(f"{ram}/cut", "wb")
    cut.write(b"ab")
    cut.close()
    real = tf.io.gfile.stat
    monkeypatch.setattr(tf.io.gfile, "stat", lambda path: real(f"{ram}/cut"))
    with pytest.raises(UserError, match=f"{ram}/a: 2 of 3 bytes were written: write it again"):
        (ram / "a").write_text("new")
    assert (ram / "a").read_text() == "old"


def test_no_other_module_knows_file_systems():
    """Paths of users may be URIs everywhere: these modules alone have local paths of their own."""
    local = {
        "config/yaml_files", "distribution/numerics", "fine_tuning/__init__", "saving/run_lock",
        "keras_layers/text", "shards/layer_states", "training/reporting", "utils/atomic",
        "utils/model_packages", "utils/paths", "utils/process_memory",
    }  # fmt: skip
    folder = ROOT / "official"
    for file in folder.rglob("*.py"):
        name = file.relative_to(folder).with_suffix("").as_posix()
        text = file.read_text(encoding="utf-8")
        assert ("import Path" in text) == (name in local), name
        assert "io.gfile" not in text or name in ("utils/gfile", "utils/buckets", "utils/paths"), (
            name
        )
        assert "import fsspec" not in text and ("from fsspec" in text) == (name == "utils/buckets")


def test_an_unknown_file_system_is_said_in_words():
    said = "what://a/b: no file system what:// is known here, only .*gs://.*ram://.*s3://.*GARDEN_"
    with pytest.raises(UserError, match=said):
        paths.path("what://a/b").exists()


def test_local_paths_do_not_import_tensorflow(tmp_path):
    code = (
        "import sys; from official.utils import atomic, checksums, json_files, paths\n"
        f"folder = paths.path({str(tmp_path)!r})\n"
        "with atomic.folder(folder / 'a') as new, atomic.file(new / 'b') as out:\n"
        "    out.write('{}')\n"
        "json_files.read(folder / 'a' / 'b'), checksums.hash_file(folder / 'a' / 'b')\n"
        "paths.copy(folder / 'a' / 'b', folder / 'c'), atomic.remove(folder / 'a')\n"
        "remote = paths.path('gs://a/b') / 'c', paths.path('s3://a/b') / 'c'\n"
        "found = {'tensorflow', 'fsspec'} & set(sys.modules)\n"
        "print(found, sorted(p.name for p in folder.iterdir()))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set() ['c']\n"


def test_a_module_that_registers_a_file_system(tmp_path, monkeypatch):
    (tmp_path / "registers_mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(gfile.VARIABLE, "registers_mine")
    assert gfile._load_file_systems.__wrapped__() is tf and "registers_mine" in sys.modules
    for name in ("no_such_module", str(tmp_path / "none.so")):
        monkeypatch.setenv(gfile.VARIABLE, name)
        with pytest.raises(UserError, match=f"GARDEN_FILE_SYSTEMS: {name} cannot be loaded: "):
            gfile._load_file_systems.__wrapped__()


def test_folders_may_have_commas_in_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "seed=0,epochs=3", "seed=0,epochs=4"):
        (tmp_path / name).mkdir()
    assert paths.split_folders("run") == ["run"]
    names = ["seed=0,epochs=4", "run", "seed=0,epochs=3"]
    assert paths.split_folders(",".join(names)) == names
    with pytest.raises(UserError, match="^--model_dir: 'other' is not a folder$"):
        paths.split_folders("run,other")
    with pytest.raises(UserError, match="^--model_dir: 'run' is given twice$"):
        paths.split_folders("run,seed=0,epochs=3,run")
