"""Files and folders of fsspec's `memory://`, and of packages that are missing or refuse."""

import os
import subprocess
import sys

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from official.utils import atomic, buckets, gfile, paths
from official.utils.errors import UserError
from tests import ROOT


@pytest.fixture
def root():
    """A folder of `memory://`."""
    folder = paths.path("memory://test_buckets/folder")
    yield folder
    paths.remove_tree(folder)


def test_files(root):
    path = root / "inner" / "file [1]*?.txt"  # fsspec takes some of these names for patterns
    assert not path.exists() and not path.is_file() and not root.exists()
    assert path.write_text("zwölf\nzwei\n") == 11
    assert path.read_bytes() == "zwölf\nzwei\n".encode() and path.read_text() == "zwölf\nzwei\n"
    assert path.exists() and path.is_file() and not path.is_dir() and path.stat().st_size == 12
    assert path.stat().st_mtime > 1.7e9
    with path.open("w") as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "zwölf\nzwei\n"  # until the file is closed
    assert path.read_text() == "new"
    path.rename(root / "other").rename(root / "third")
    assert (root / "third").read_text() == "new" and not path.exists()
    (root / "third").unlink()
    (root / "third").unlink(missing_ok=True)
    for missing in (path.open, path.read_bytes, path.stat, path.unlink):
        with pytest.raises(FileNotFoundError) as raised:
            missing()
        assert raised.value.filename == str(path)
    assert (root / "empty").write_bytes(b"") == 0 and (root / "empty").read_bytes() == b""


def test_folders(root):
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt"):
        (root / name).write_text(name)
    here = lambda found: [str(path).removeprefix(f"{root}/") for path in found]  # noqa: E731
    assert here(root.iterdir()) == ["a.txt", "b.txt", "sub"]
    assert here(root.glob("**/*.txt")) == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert (root / "sub").is_dir() and (root / "sub").exists() and list(root.glob("none/*")) == []
    root.mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        root.mkdir()
    paths.remove_tree(root)
    paths.remove_tree(root)
    assert not root.exists() and not (root / "a.txt").exists()
    with pytest.raises(FileNotFoundError):
        list(root.iterdir())


def test_reading_in_blocks(root, monkeypatch, tmp_path):
    data = os.urandom(3_000_001)
    (tmp_path / "local").write_bytes(data)
    paths.copy(tmp_path / "local", root / "file")
    paths.copy(root / "file", root / "copy")
    asked = []
    real = MemoryFileSystem.cat_file

    def cat_file(self, path, start=None, end=None):
        asked.append((start, end))
        return real(self, path, start, end)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    assert (root / "copy").read_bytes() == data and asked == [(0, 3_000_001)]
    monkeypatch.setattr(buckets, "_BLOCK", 1_000_000)
    with (root / "file").open("rb") as stream:
        assert stream.read(3) == data[:3] and stream.seek(-5, os.SEEK_END) == len(data) - 5
        assert stream.read() == data[-5:] and stream.read(1) == b""
        assert stream.seek(0) == 0 and stream.read() == data
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args, **options: b"cut")
    with pytest.raises(UserError, match=f"{root}/file: OSError: 3 of .* bytes came: check the pat"):
        (root / "file").read_bytes()


def test_a_stopped_writer_leaves_nothing(root, monkeypatch):
    (root / "file").write_text("old")

    def put_file(self, local, path):
        self.pipe_file(path, b"ha")
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)
    with pytest.raises(KeyboardInterrupt):
        (root / "file").write_text("half")
    assert (root / "file").read_text() == "old"
    assert [p.name for p in root.iterdir() if not p.name.startswith(gfile.PREFIX)] == ["file"]


def test_atomic_folders_and_appending(root):
    with atomic.folder(root / "a", "last") as folder:
        for name in ("x", "last", "y"):
            (folder / name).write_text(name)
    assert [p.name for p in (root / "a").iterdir()] == ["last", "x", "y"]
    with pytest.raises(UserError, match=f"{root}/a is there already: name another folder"):
        with atomic.folder(root / "a", "last"):
            pass
    with pytest.raises(RuntimeError), atomic.folder(root / "b", "last", in_place=True) as folder:
        (folder / "x").write_text("x")
        raise RuntimeError
    assert list((root / "b").iterdir()) == []
    atomic.append(root / "log", "one\n")
    atomic.append(root / "log", "two\n")
    assert (root / "log").read_text() == "one\ntwo\n"
    atomic.remove(root / "a", "last")
    assert not (root / "a").exists()


def test_a_missing_package_is_named(monkeypatch):
    def missing(*args, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    said = r"s3://without: what opens it is not installed \(Inst.*\): pip install 'enc.*\[s3\]'$"
    with pytest.raises(UserError, match=said):
        paths.path("s3://without/a").exists()


def test_without_fsspec():
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from official.utils import paths, errors\n"
        "try:\n"
        "    paths.path('memory://a/b').exists()\n"
        "except errors.UserError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install fsspec" in done.stdout


def test_what_is_refused(root):
    with pytest.raises(UserError, match=r"hf://datasets/a/b/c: hf:// is read only: name another"):
        paths.path("hf://datasets/a/b/c").write_text("x")
    with pytest.raises(UserError, match="the path has a password: remove it") as raised:
        paths.path("s3://key:secret@bucket/a").exists()
    assert "secret" not in str(raised.value) and "s3://…@bucket/a" in str(raised.value)


def test_an_error_names_the_path_and_no_signature(root, monkeypatch):
    def info(self, path):
        raise PermissionError("Forbidden: https://host/a?sig=secret&x=1 no\nauthorization: secret")

    monkeypatch.setattr(MemoryFileSystem, "info", info)
    said = f"{root}/a: PermissionError: Forbidden: https://host/a.… no: check the path, the netw"
    with pytest.raises(UserError, match=said) as raised:
        (root / "a").exists()
    assert "secret" not in str(raised.value)
    monkeypatch.undo()


def test_a_file_system_with_folders_and_renaming(monkeypatch, tmp_path):
    """What `hdfs://` is opened by, before a local folder; no HDFS is at hand."""
    arrow = pytest.importorskip("pyarrow.fs")
    from fsspec.implementations.arrow import ArrowFSWrapper

    local = arrow.SubTreeFileSystem(str(tmp_path), arrow.LocalFileSystem())
    monkeypatch.setattr(buckets, "_connected", lambda *_: ArrowFSWrapper(local))
    root = paths.path("hdfs://host:9000/root")
    for content in ("old", "new"):
        (root / "sub" / "file").write_text(content)
        assert (root / "sub" / "file").read_text() == content
    assert (tmp_path / "root/sub/file").read_text() == "new" and (root / "sub").is_dir()
    (root / "empty").mkdir()
    assert [p.name for p in root.iterdir()] == ["empty", "sub"] and (root / "empty").is_dir()
    assert [str(p) for p in root.rglob("f*")] == ["hdfs://host:9000/root/sub/file"]
    assert (root / "sub" / "file").stat().st_size == 3
    assert (root / "sub" / "file").stat().st_mtime > 1.7e9
    (root / "sub" / "file").rename(root / "other")
    (root / "other").unlink()
    with pytest.raises(FileNotFoundError):
        (root / "other").unlink()
    with atomic.folder(root / "a", "last") as folder:
        (folder / "last").write_text("x")
    assert [p.name for p in (root / "a").iterdir()] == ["last"]
    paths.remove_tree(root)
    assert not root.exists() and not list(tmp_path.iterdir())


def test_tensorflow_opens_the_others():
    names = ("s3", "gcs", "az", "abfs", "abfss", "hdfs", "hf", "memory")
    assert all(gfile.by_fsspec(f"{name}://a/b") for name in names)
    assert not any(gfile.by_fsspec(name) for name in ("gs://a/b", "ram://a", "/a/b", "flaky://a"))
