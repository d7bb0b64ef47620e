"""Folders of vectors: values, resumed runs, several processes, memory, and what is refused."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pyarrow import parquet

import official
from official.conversion import converted_model, huggingface
from official.serving import vector_pieces
from official.serving.vector_pieces import Options
from official.serving.vectors import vector_files
from official.utils import atomic
from official.utils.engines import Engine
from official.utils.errors import UserError
from tests import GOLDEN, ROOT, commands

WORDS = "the cat sat a dog ran cats and dogs tree mat under on".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    """A file of 23 texts with ids, and the texts."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, draw.integers(0, 30))) for _ in range(23)]
    lines = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "texts.jsonl", texts


def read(folder):
    files = sorted(folder.glob("vectors-*.npy"))
    ids = [line for file in sorted(folder.glob("ids-*.txt")) for line in file.open()]
    return np.concatenate([np.load(file) for file in files]), [line.rstrip("\n") for line in ids]


def test_pieces_have_the_vectors_and_ids_of_all_texts(folder, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "CHUNK", 4)
    path, given = texts
    options, said = Options(str(folder), pooling="mean,max", normalize=True, size=10), []
    vector_pieces.write(options, path, tmp_path / "out", report=said.append)
    names = [f"{kind}-0000{i}.{end}" for kind, end in (("ids", "txt"), ("vectors", "npy")) for i in
             range(3)]  # fmt: skip
    assert sorted(x.name for x in (tmp_path / "out").iterdir()) == ["_vectors.json", *names]
    vectors, ids = read(tmp_path / "out")
    assert ids == [f"d{i}" for i in range(23)] and vectors.dtype == np.float32
    model = official.load(folder)
    wanted = model.encode(given, pooling="mean,max", normalize=True)
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    record = json.loads((tmp_path / "out" / "_vectors.json").read_text())
    assert (record["texts"], record["pieces"], record["shape"]) == (23, 3, [24])
    assert said[-1].startswith(f"{tmp_path}/out: 23 texts in 3 pieces; 23 in ")
    cut = sum(len(ids) > 22 for ids in model.tokenizer.encode(given))
    assert said[-1].endswith(f", of which {cut} cut at 24 tokens") and cut
    with pytest.raises(
        UserError, match="out is complete: name another folder or remove it first, or --append"
    ):
        vector_pieces.write(options, path, tmp_path / "out")
    # The same as Parquet, which is read as one table.
    more = tmp_path / "more.tsv"
    more.write_text("e1\ta cat\n")
    options = dataclasses.replace(options, format="parquet")
    vector_pieces.write(options, path, tmp_path / "table", report=said.append)
    with pytest.raises(UserError, match="append: .*table has pieces of parquet: only npy gets"):
        other = dataclasses.replace(options, format="npy")
        vector_pieces.write(other, more, tmp_path / "table", append=True)
    table = parquet.read_table(tmp_path / "table")
    assert table["id"].to_pylist() == ids and table.num_rows == 23
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), wanted, atol=1e-5)
    everything = Options(str(folder), layer="all", size=23)
    vector_pieces.write(everything, path, tmp_path / "all", report=said.append)
    layers = read(tmp_path / "all")[0]
    np.testing.assert_allclose(layers, model.encode(given, layer="all"), atol=1e-5)
    with pytest.raises(UserError, match="pieces: parquet: not supported for all layers"):
        dataclasses.replace(everything, format="parquet")


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(folder, texts, tmp_path, monkeypatch):
    path, _ = texts
    options, said = Options(str(folder), size=5), []
    vector_pieces.write(options, path, tmp_path / "whole", report=said.append)
    written, real = [], vector_pieces.Writer.__call__

    def stop(self, piece):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(piece.number)
        return real(self, piece)

    with monkeypatch.context() as patched:
        patched.setattr(vector_pieces.Writer, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            vector_pieces.write(options, path, tmp_path / "out", report=said.append)
    (tmp_path / "out" / "vectors-00001.npy").unlink()
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("vectors-*")}
    assert list(before) and not (tmp_path / "out" / "_vectors.json").exists()
    for change, what in (
        ({"size": 4}, "piece_size"),
        ({"normalize": True}, "model_checksum, settings"),
        ({"layer": 1}, "layer"),
    ):
        with pytest.raises(UserError, match=rf"of another command \(other {what}"):
            other = dataclasses.replace(options, **change)
            vector_pieces.write(other, path, tmp_path / "out", report=said.append)
    vector_pieces.write(options, path, tmp_path / "out", report=said.append)
    assert "continuing an earlier run: 2 of 5 pieces are done" in said
    assert said[-1].startswith(f"{tmp_path}/out: 23 texts in 5 pieces; 13 in ")
    for name, written_at in before.items():
        assert (tmp_path / "out" / name).stat().st_mtime_ns == written_at
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("whole", "out"))
    assert [file.name for file in first] == [file.name for file in second]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    # Other texts belong to another folder, and other files are not touched.
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "mine").touch()
    with pytest.raises(UserError, match="begun is there already: name another folder"):
        vector_pieces.write(options, path, tmp_path / "begun")
    os.rename(tmp_path / "out" / "_vectors.json", tmp_path / "out" / "_plan.json")
    path.write_text(path.read_text().replace("cat", "dog", 1))
    with pytest.raises(UserError, match=r"other texts_checksum\)"):
        vector_pieces.write(options, path, tmp_path / "out")


@pytest.mark.slow
def test_beam_writes_the_same_pieces(folder, texts, tmp_path, monkeypatch):
    """A worker loads the model once; what is there of an earlier run stays."""
    path, _ = texts
    options, said, made = Options(str(folder), size=5), [], []
    vector_pieces.write(options, path, tmp_path / "here", report=said.append)
    real = vector_pieces.Writer.__init__
    monkeypatch.setattr(
        vector_pieces.Writer, "__init__", lambda *given: (made.append(given), real(*given))[1]
    )
    vector_pieces.write(options, path, tmp_path / "beam", report=said.append, engine=Engine("beam"))
    assert len(made) == 2  # of this process and of the worker
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("here", "beam"))
    assert [file.name for file in first] == [file.name for file in second]
    assert read(tmp_path / "here")[1] == read(tmp_path / "beam")[1]
    np.testing.assert_allclose(read(tmp_path / "beam")[0], read(tmp_path / "here")[0], atol=1e-6)
    assert said[-1].split("; ")[0] == f"{tmp_path}/beam: 23 texts in 5 pieces"
    # A run that was killed has a plan, some pieces, and texts on their way to the workers.
    beam = tmp_path / "beam"
    (beam / "_vectors.json").rename(beam / "_plan.json")
    kept = (beam / "vectors-00001.npy").stat().st_mtime_ns
    for number in (0, 3):
        (beam / f"vectors-0000{number}.npy").unlink()
    (beam / ".runner" / "items").mkdir(parents=True)
    vector_pieces.write(options, path, beam, report=said.append, engine=Engine("beam"))
    assert "continuing an earlier run: 3 of 5 pieces are done" in said
    assert (beam / "vectors-00001.npy").stat().st_mtime_ns == kept
    assert sorted(file.name for file in beam.iterdir()) == [file.name for file in first]
    np.testing.assert_allclose(read(beam)[0], read(tmp_path / "here")[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.long
def test_processes_of_beam_write_the_same_pieces(folder, texts, tmp_path):
    """The command, whose workers are processes that Beam starts."""
    given = [
        "official.main", "--mode=embed", f"--model_dir={folder}", f"--texts={texts[0]}",
        "--pieces=parquet", "--piece_size=5", "--normalize",
    ]  # fmt: skip
    beam = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    for name, more in (("here", ["--workers=1"]), ("beam", ["--runner=beam", "--", *beam])):
        commands.run(*given, f"--output={tmp_path / name}", *more, status=0)
    here, there = (parquet.read_table(tmp_path / name) for name in ("here", "beam"))
    assert here["id"].to_pylist() == there["id"].to_pylist() and here.num_rows == 23
    one, other = (np.stack(table["vector"].to_numpy()) for table in (here, there))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_command_of_several_processes_goes_on(folder, tmp_path):
    """The pieces of the killed run stay, what it left half-written goes, and all are whole."""
    draw = np.random.default_rng(0)
    given = [" ".join(draw.choice(WORDS, 12)) for _ in range(40_000)]
    (tmp_path / "texts.txt").write_text("\n".join(given) + "\n")
    out = tmp_path / "out"
    options = [
        "official.main", "--mode=embed", f"--model_dir={folder}",
        f"--texts={tmp_path}/texts.txt", f"--output={out}", "--pieces=npy", "--piece_size=1000",
        "--workers=2",
    ]  # fmt: skip
    run = subprocess.Popen(
        [sys.executable, "-m", *options],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    while run.poll() is None and len(list(out.glob("vectors-*.npy"))) < 3:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    there = {file.name: file.stat().st_mtime_ns for file in out.glob("vectors-*.npy")}
    assert 3 <= len(there) < 40
    (out / f"{atomic.PREFIX}vectors-00039.npy-abcdefgh").write_bytes(b"half")
    done = commands.run(*options, status=0)
    assert f"continuing an earlier run: {len(there)} of 40 pieces are done" in done.stdout
    for name, written in there.items():
        assert (out / name).stat().st_mtime_ns == written
    assert len(list(out.iterdir())) == 81
    vectors, ids = read(out)
    assert ids == [str(i) for i in range(1, 40_001)]
    np.testing.assert_allclose(vectors[::97], official.load(folder).encode(given[::97]), atol=1e-5)


SCRIPT = """
import resource, sys
from official.serving import vector_pieces
from official.utils import quiet_import
quiet_import.install()
options = vector_pieces.Options(sys.argv[1], size=2000)
vector_pieces.write(options, sys.argv[2], sys.argv[3], report=len)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
vector_pieces.write(options, sys.argv[4], sys.argv[5], report=len)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.long
def test_memory_does_not_grow_with_the_file(folder, tmp_path):
    """The second file has 40 MB of text, eight times as much; its peak is that of the first."""
    line = " ".join(WORDS * 19)  # cut at 24 tokens
    for name, count in (("few", 5_000), ("many", 40_000)):
        (tmp_path / name).write_text(f"{line}\n" * count)
    given = [folder, tmp_path / "few", tmp_path / "a", tmp_path / "many", tmp_path / "b"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, given)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = map(int, done.stdout.split())  # KiB
    assert after - before < 15_000, (before, after)


def test_flags_that_do_not_go_together(tmp_path):
    options = [
        "official.main",
        "--mode=embed",
        "--model_dir=m",
        "--texts=t",
        f"--output={tmp_path}",
    ]
    for more, message in (
        (["--workers=2"], "--workers=2: the processes write --pieces: give it"),
        (["--pieces=npy", "--tokens"], "--tokens: not supported with --pieces; remove it"),
        (["--dtype=int8"], "--dtype: is for a folder of --pieces: give it"),
        (["--piece_size=9"], "--piece_size: is for a folder of --pieces: give it"),
        (["--runner=beam"], "--runner=beam: is for --mode=embed with --pieces; remove it"),
        (["--pieces=npy", "--runner=beam", "--workers=2"], "--workers: is for --runner=local"),
        (
            ["--pieces=npy", "--runner=beam", "--runtime=litert"],
            "--runner=beam: not supported with --runtime=litert: remove one of them",
        ),
        (["mine"], "unexpected argument 'mine': options are given as --name=value"),
    ):
        assert message in commands.run(*options, *more, status=2).stderr
