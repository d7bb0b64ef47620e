"""Stored vectors: against a search without them, grown, killed, in bounded memory, and refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import official
from official.conversion import converted_model, huggingface
from official.evaluation.nearest_vectors import Best
from official.saving.embedding_settings import EmbeddingSettings
from official.serving import DTYPES, vector_pieces
from official.serving.vector_pieces import Options
from official.serving.vectors import search, smaller, stored
from official.serving.vectors.indexes import dense
from official.serving.vectors.indexes.dense import Dense
from official.serving.vectors.stored import Stored
from official.tasks import trec
from official.utils import json_files
from official.utils.errors import UserError
from tests import GOLDEN, ROOT, commands

WORDS = "the cat sat a dog ran cats and dogs tree mat under on".split()
QUERIES = {"q1": "a cat sat", "q2": "the tree", "q3": "dogs and dogs ran"}


def dense_index(size, **more):
    settings = {"similarity": "cosine", "normalize": True}
    return Dense({"shape": [size], "settings": settings, "dtype": "float32", "scale": None, **more})


def texts_of(start, stop, path):
    """Writes texts with ids to a file, and returns them."""
    texts = {}
    for i in range(start, stop):
        draw = np.random.default_rng(i)
        texts[f"d{i}"] = " ".join(draw.choice(WORDS, draw.integers(1, 9)))
    lines = [json.dumps({"_id": i, "text": text}) for i, text in texts.items()]
    path.write_text("\n".join(lines) + "\n")
    return list(texts.values())


def said_by(call, *given):
    with pytest.raises(UserError) as caught:
        call(*given)
    return str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return official.load(folder)


@pytest.fixture(scope="module")
def vectors(folder, tmp_path_factory):
    """A folder of the vectors of 23 texts in 3 pieces, and the file of the texts."""
    place = tmp_path_factory.mktemp("vectors")
    texts_of(0, 23, place / "texts.jsonl")
    write(folder, place / "texts.jsonl", place / "out")
    return place / "out", place / "texts.jsonl"


def write(folder, texts, output, append=False, **options):
    options = {"normalize": True, "size": 10, **options}
    vector_pieces.write(Options(str(folder), **options), texts, output, report=len, append=append)


def changed(vectors, tmp_path, **entries):
    """Copies a folder, and changes entries of its manifest."""
    shutil.copytree(vectors, tmp_path / "changed", dirs_exist_ok=True)
    path = tmp_path / "changed" / stored.FILE
    record = json_files.read_record(vectors / stored.FILE, {})
    json_files.write_record(path, {**record, **entries})
    return path.parent


def test_pieces_do_not_change_a_digit():
    """Blocks are those of a search in one table, whatever the pieces are."""
    draw = np.random.default_rng(0)
    table, queries = (draw.standard_normal((n, 48)).astype(np.float32) for n in (9000, 30))
    table[5000:5020] = table[20]  # ties
    for cuts in ([], [1, 17, 4000, 4001, 8999], range(0, 9000, 700)):
        index = dense_index(48)
        for part in np.split(table, cuts):
            index.add(index.pack(part, [""] * len(part)))
        best = Best(queries, 100, "cosine")
        for start in range(0, len(table), dense.BLOCK):
            best.add(table[start : start + dense.BLOCK])
        found = index.search(queries, 100)
        np.testing.assert_array_equal(found.numbers, best.found.numbers)
        np.testing.assert_array_equal(found.scores, best.found.scores)
    everything = queries @ table.T
    np.testing.assert_array_equal(
        found.numbers, np.argsort(-everything, axis=1, kind="stable")[:, :100]
    )


def test_numbers_of_each_type():
    given = np.float32([[0.1, -0.5, 0.9, 0, -1, 1, 1, -1, 0.2, 0.2], [0.3, 2] + [0] * 8])
    packed = {}
    for name in DTYPES:
        index = dense_index(10, dtype=name, scale=dense.scale_of(given[:1]))
        packed[name] = index.pack(given, ["a", "b"])["vectors"]
    assert tuple(dense.TYPES) == DTYPES
    np.testing.assert_array_equal(packed["float32"], given)
    np.testing.assert_array_equal(packed["float16"], given.astype(np.float16))
    # 127 steps for the largest number of the sample, to the nearest; greater ones are cut.
    steps = [[13, -64, 114, 0, -127, 127, 127, -127, 25, 25], [38, 127] + [0] * 8]
    np.testing.assert_array_equal(packed["int8"], np.int8(steps))
    # Bits as sentence-transformers packs them (ubinary); 0 counts as negative.
    assert packed["bits"].tolist() == [[166, 192], [192, 0]]
    # The nearest of 8 bits, and of two that are as near the even one.
    for number, nearest in (
        (1 + 3 / 512, 1 + 1 / 128),
        (1 + 1 / 256, 1),
        (1 + 3 / 256, 1 + 1 / 64),
    ):
        index = dense_index(1, dtype="bfloat16")
        index.add(index.pack(np.float32([[number]]), ["a"]))
        assert index.search(np.float32([[1]]), 1).scores[0, 0] == np.float32(nearest)
    assert said_by(dense_index(1, dtype="float16").pack, np.float32([[1e6]]), ["a"]).endswith(
        "the text 'a' has numbers that are infinite or no numbers: take another --dtype"
    )
    settings = {"similarity": "dot", "normalize": False}
    assert said_by(lambda: dense_index(9, dtype="bits", settings=settings)) == (
        "dtype: bits: they have no lengths: take --normalize or another --dtype"
    )


@pytest.mark.parametrize(("dtype", "least"), [("float16", 1), ("bfloat16", 0.98), ("int8", 0.98),
                                              ("bits", 0.32)])  # fmt: skip
def test_a_query_keeps_its_numbers(dtype, least):
    """Scores are products with the numbers that are kept; the best of 2,000 random vectors.

    sentence-transformers finds 0.73 (int8) and 0.16 (bits) of the ten nearest, or 0.94 and 0.23 if
    it scores twenty of them anew.
    """
    draw = np.random.default_rng(0)
    table, queries = (draw.standard_normal((n, 64)).astype(np.float32) for n in (2000, 50))
    table, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (table, queries))
    index = dense_index(64, dtype=dtype, scale=dense.scale_of(table))
    rows = index.pack(table, [""] * 2000)["vectors"]
    for part in np.split(rows, [700, 701]):
        index.add({"vectors": part})
    kept = {
        "float16": lambda: rows.astype(np.float32),
        "bfloat16": lambda: rows.view(ml_dtypes.bfloat16).astype(np.float32),
        "int8": lambda: rows * np.float32(np.abs(table).max() / 127),
        "bits": lambda: np.where(table > 0, 1, -1).astype(np.float32) / 8,
    }[dtype]()
    found = index.search(queries, 10)
    expected = queries @ kept.T
    np.testing.assert_allclose(
        found.scores, np.sort(expected, axis=1)[:, : -10 - 1 : -1], rtol=1e-5, atol=1e-6
    )
    nearest = np.argsort(-(queries @ table.T), axis=1)[:, :10]
    shared = [len(set(a) & set(b)) for a, b in zip(found.numbers, nearest, strict=True)]
    assert np.mean(shared) / 10 >= least


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vector_of_zeros_is_no_match(dtype):
    """That of an empty text comes last, also where other documents have scores below 0."""
    table = np.float32([[1, -1, -1, 1], [0, 0, 0, 0], [-1, -1, 1, -1], [0, 0, 0, 0]]) / 2
    index = dense_index(4, dtype=dtype, scale=dense.scale_of(table))
    index.add(index.pack(table, "abcd"))
    found = index.search(np.float32([[0.5, -0.5, -0.5, 0.5], [-0.5, -0.5, -0.5, -0.5]]), 4)
    np.testing.assert_array_equal(found.numbers, [[0, 2, 1, 3], [2, 0, 1, 3]])
    np.testing.assert_allclose(
        found.scores, [[1, -0.5, -np.inf, -np.inf], [0.5, 0, -np.inf, -np.inf]], atol=1e-2
    )


def test_a_sample_without_numbers_has_the_scale_of_normalized_vectors():
    """The first texts may be empty: the next ones keep their numbers."""
    for sample in (np.zeros((3, 4), np.float32), np.zeros((0, 4), np.float32)):
        assert dense.scale_of(sample) == 1 / 127
    index = dense_index(2, dtype="int8", scale=dense.scale_of(np.zeros((3, 2), np.float32)))
    index.add(index.pack(np.float32([[0.6, -0.8]]), ["a"]))
    found = index.search(np.float32([[0.6, -0.8]]), 1)
    np.testing.assert_allclose(found.scores, [[1]], atol=0.01)


def test_memory_is_that_of_a_block(tmp_path, monkeypatch):
    """100,000 vectors of 64 numbers are a file of 26 MB; a block of scores has 0.8 MB.

    Two threads have the memory of two blocks where they happen to need it at the same time.
    """
    table = np.lib.format.open_memmap(
        tmp_path / "t.npy", mode="w+", dtype=np.float32, shape=(100_000, 64)
    )
    table[:] = np.random.default_rng(0).standard_normal(table.shape)
    table.flush()
    mapped = np.load(tmp_path / "t.npy", mmap_mode="r")

    def peak(count, threads):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(threads)))
        index = dense_index(64)
        index.add({"vectors": mapped[:count]})
        tracemalloc.start()
        found = index.search(np.asarray(mapped[:100]), 10)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (found.numbers[:, 0] == np.arange(100)).all()
        return memory

    assert peak(100_000, threads=1) < 1.05 * peak(10_000, threads=1) < 8e6
    assert peak(100_000, threads=2) < 8e6


def test_a_search_of_stored_vectors_finds_what_one_of_texts_finds(model, vectors, tmp_path):
    place, file = vectors
    record = json.loads((place / stored.FILE).read_text())
    assert [record[key] for key in ("kind", "texts", "pieces", "shape")] == ["dense", 23, 3, [12]]
    assert set(record["checksums"]) == {x.name for x in place.iterdir()} - {stored.FILE}
    texts = texts_of(0, 23, tmp_path / "again.jsonl")
    wanted = model.search(list(QUERIES.values()), texts, top_k=7)
    numbers, scores = model.search(list(QUERIES.values()), top_k=7, vectors=place)
    np.testing.assert_array_equal(numbers, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], atol=1e-6)
    opened = search.opened(model.embedder, place)
    for source, name in ((opened, "stored.run"), (file, "texts.run")):
        ids = search.write(model.embedder, QUERIES, source, tmp_path / name, 7, "x")
        assert ids == [f"d{i}" for i in range(23)]
    runs = [trec.read_run(tmp_path / name) for name in ("stored.run", "texts.run")]
    for query, found in runs[0].items():
        assert list(found) == list(runs[1][query])
        assert found == pytest.approx(runs[1][query], abs=1e-6)


def test_a_folder_from_before_has_no_kind_and_no_checksums(model, vectors, tmp_path):
    place, _ = vectors
    record = json_files.read_record(place / stored.FILE, {})
    old = changed(place, tmp_path)
    kept = {k: v for k, v in record.items() if k not in ("kind", "checksums", "tokenizer")}
    json_files.write_record(old / stored.FILE, kept)
    for found, wanted in zip(
        *(model.search(["a cat"], vectors=x) for x in (old, place)), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_appended_texts_are_found_as_if_they_had_been_there(folder, model, vectors, tmp_path):
    place, out = vectors[0], tmp_path / "out"
    shutil.copytree(place, out)
    before = {x.name: x.stat().st_mtime_ns for x in out.iterdir() if x.name != stored.FILE}
    assert model.search(["a dog"], vectors=out)[0].shape == (1, 10)
    more = texts_of(23, 40, tmp_path / "more.jsonl")
    write(folder, tmp_path / "more.jsonl", out, append=True, size=8)
    for name, written in before.items():
        assert (out / name).stat().st_mtime_ns == written
    whole = Stored(out)
    assert whole.ids == [f"d{i}" for i in range(40)]
    whole.check()
    given = list(QUERIES.values())
    texts = texts_of(0, 23, tmp_path / "first.jsonl") + more
    wanted = model.search(given, texts, top_k=40)
    found = model.search(given, top_k=40, vectors=out)  # the same model sees the new manifest
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-6)
    np.testing.assert_array_equal(found[0][:, :5], wanted[0][:, :5])
    # Other vectors are not appended, nor are texts that are there.
    assert said_by(write, folder, tmp_path / "more.jsonl", out, True).endswith(
        "has a text with the id 'd23': append other texts, with ids of their own (.tsv or .jsonl)"
    )
    texts_of(40, 50, tmp_path / "other.jsonl")
    said = said_by(lambda: write(folder, tmp_path / "other.jsonl", out, True, pooling="max"))
    assert said == (
        f"{out} has other vectors (other settings, model_checksum): append with what made them"
    )
    said = said_by(write, folder, tmp_path / "other.jsonl", tmp_path / "none", True)
    assert "none has no _vectors.json: name a folder that --mode=embed --pieces=npy has" in said
    said = said_by(lambda: write(folder, vectors[1], out, True, format="parquet"))
    assert said == "append: not supported with pieces: parquet, only npy"


def test_an_append_beside_another_one_is_refused(folder, vectors, tmp_path, monkeypatch):
    """From its beginning on: when the first one ends, no piece of it is lost."""
    out, started = tmp_path / "out", []
    shutil.copytree(vectors[0], out)
    for name, start in (("more", 23), ("other", 40)):
        texts_of(start, start + 9, tmp_path / f"{name}.jsonl")
    real = vector_pieces.Writer.__init__

    def with_another(self, *given):
        real(self, *given)
        if not started:  # the model of the first command is loaded, and nothing is written
            started.append(self)
            said = said_by(write, folder, tmp_path / "other.jsonl", out, True)
            assert said == (
                f"{out} is being written by another command: wait for its end, or name another "
                "output"
            )

    monkeypatch.setattr(vector_pieces.Writer, "__init__", with_another)
    write(folder, tmp_path / "more.jsonl", out, append=True)
    write(folder, tmp_path / "other.jsonl", out, append=True)
    whole = Stored(out)
    whole.check()
    assert started and whole.ids == [f"d{i}" for i in (*range(32), *range(40, 49))]
    # A folder without the file has lost a piece.
    (out / "ids-00000.txt").unlink()
    texts_of(60, 61, tmp_path / "last.jsonl")
    said = said_by(write, folder, tmp_path / "last.jsonl", out, True)
    assert said == (
        f"{out}/ids-00000.txt: missing: copy the folder again, or embed the texts again"
    )


def test_types_of_numbers_in_folders(folder, model, vectors, tmp_path):
    """Of any number of processes one scale; it stays when texts are appended."""
    place, file = vectors
    table = np.concatenate([np.load(x) for x in sorted(place.glob("vectors-*"))])
    asked, out = model.encode(["a cat"], normalize=True), tmp_path / "int8"
    write(folder, file, out, dtype="int8")
    scale = json.loads((out / stored.FILE).read_text())["scale"]
    assert scale == pytest.approx(np.abs(table).max() / 127, rel=1e-5)
    texts_of(23, 30, tmp_path / "more.jsonl")
    write(folder, tmp_path / "more.jsonl", out, append=True, dtype="int8")
    record = json.loads((out / stored.FILE).read_text())
    assert record["scale"] == scale and record["dtype"] == "int8"
    numbers, scores = model.search(["a cat"], vectors=out, top_k=30)
    kept = np.float32(np.rint(table / np.float32(scale)) * np.float32(scale))
    first = np.argsort(numbers[0])[:23]
    np.testing.assert_allclose(scores[0, first], (asked @ kept.T)[0], atol=2e-2 * scale * 127)
    said = said_by(lambda: write(folder, file, out, append=True))
    assert "has a text with the id 'd0'" in said
    texts_of(50, 52, tmp_path / "more.jsonl")
    said = said_by(lambda: write(folder, tmp_path / "more.jsonl", out, append=True))
    assert said == f"{out} has other vectors (other dtype): append with what made them"
    for options in ({"format": "parquet"}, {"layer": "all"}):
        with pytest.raises(UserError, match="dtype: int8: is for --pieces=npy and one layer"):
            Options(str(folder), dtype="int8", **options)


@pytest.fixture(scope="module")
def smaller_ones(vectors, tmp_path_factory):
    """The vectors of `vectors` in smaller numbers, by their types."""
    place = tmp_path_factory.mktemp("smaller")
    for dtype in DTYPES[1:]:
        smaller.write(vectors[0], place / dtype, dtype)
    return {dtype: place / dtype for dtype in DTYPES[1:]}


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_smaller_numbers_are_those_of_the_texts(folder, vectors, smaller_ones, tmp_path, dtype):
    """A folder that is made of another one is what the texts give."""
    write(folder, vectors[1], tmp_path / "out", dtype=dtype)
    record, made = (
        json.loads((x / stored.FILE).read_text()) for x in (tmp_path / "out", smaller_ones[dtype])
    )
    scales = [each.pop("scale") or 0 for each in (made, record)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-6) and bool(scales[0]) == (dtype == "int8")
    assert made["checksums"].keys() == record["checksums"].keys()
    for number in range(3):
        name = f"vectors-0000{number}.npy"
        mine, theirs = (np.load(x / name) for x in (smaller_ones[dtype], tmp_path / "out"))
        assert mine.dtype == theirs.dtype
        if dtype == "float16":
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
        elif dtype == "bits":
            np.testing.assert_array_equal(mine, theirs)
        else:  # a step where batches of texts round otherwise
            apart = np.abs(mine.astype(int) - theirs.astype(int))
            assert apart.max() <= 1 and np.mean(apart > 0) < 0.02
    for each in (record, made):
        each.pop("checksums"), each.pop("checksum")
    assert made == record
    texts_of(23, 30, tmp_path / "more.jsonl")
    shutil.copytree(smaller_ones[dtype], tmp_path / "grown")
    write(folder, tmp_path / "more.jsonl", tmp_path / "grown", append=True, dtype=dtype)
    assert Stored(tmp_path / "grown").ids == [f"d{i}" for i in range(30)]


def test_the_best_are_compared_again(folder, model, vectors, smaller_ones, tmp_path, monkeypatch):
    place, bits = vectors[0], smaller_ones["bits"]
    asked = list(QUERIES.values())
    wanted = model.search(asked, vectors=place, top_k=23)
    numbers, scores = model.search(asked, vectors=bits, rescore=place, top_k=3)  # of 23 texts all
    np.testing.assert_array_equal(numbers, wanted[0][:, :3])
    np.testing.assert_allclose(scores, wanted[1][:, :3], atol=1e-6)
    with monkeypatch.context() as patched:
        patched.setattr(search, "CANDIDATES", 2)
        numbers, scores = model.search(asked, vectors=bits, rescore=place, top_k=4)
        first, _ = model.search(asked, vectors=bits, top_k=8)
        for row, of_all in enumerate(wanted[0]):
            best = [number for number in of_all if number in first[row]][:4]
            assert numbers[row].tolist() == best
    assert model.search([], vectors=bits, rescore=place, top_k=4)[0].shape == (0, 4)
    opened = search.opened(model.embedder, bits, place)
    search.write(model.embedder, QUERIES, opened, tmp_path / "again.run", 3, "x")
    run = trec.read_run(tmp_path / "again.run")
    assert [list(found) for found in run.values()] == [
        [f"d{i}" for i in row] for row in wanted[0][:, :3]
    ]
    # Other texts, and vectors that are not made smaller.
    shutil.copytree(bits, tmp_path / "grown")
    texts_of(23, 25, tmp_path / "more.jsonl")
    write(folder, tmp_path / "more.jsonl", tmp_path / "grown", append=True, dtype="bits")
    said = said_by(search.opened, model.embedder, tmp_path / "grown", place)
    assert said == (
        f"{place}: its texts or its pieces are not those of {tmp_path}/grown: make one of the "
        "other (official.commands.smaller_vectors)"
    )
    said = said_by(smaller.write, smaller_ones["int8"], tmp_path / "x", "bits")
    assert said == (
        f"{smaller_ones['int8']}: its numbers are int8: name the folder of float32 that they were "
        "made of, or embed the texts again"
    )
    write(folder, vectors[1], tmp_path / "long", normalize=False)
    said = said_by(smaller.write, tmp_path / "long", tmp_path / "x", "bits")
    assert said.startswith("dtype: bits: they have no lengths")
    said = said_by(smaller.write, place, bits, "bits")
    assert "bits is there already: name another folder" in said
    with pytest.raises(UserError, match="rescore: is for stored vectors: give vectors, or remove"):
        model.search(asked, ["a"], rescore=place)
    copy = changed(place, tmp_path)
    (copy / "vectors-00001.npy").write_bytes((place / "vectors-00000.npy").read_bytes())
    assert "has changed since it was" in said_by(smaller.write, copy, tmp_path / "x", "int8")
    assert not (tmp_path / "x").exists()


def test_an_append_that_stops_leaves_the_folder_whole(
    folder, model, vectors, tmp_path, monkeypatch
):
    place, out = vectors[0], tmp_path / "out"
    shutil.copytree(place, out)
    manifest, asked = (out / stored.FILE).read_bytes(), model.encode(list(QUERIES.values()))
    wanted = Stored(place).index.search(asked, 23)
    texts_of(23, 60, tmp_path / "more.jsonl")
    real = vector_pieces.Writer.__call__

    def stop(self, piece):
        if piece.number == 5:
            raise KeyboardInterrupt
        return real(self, piece)

    given = folder, tmp_path / "more.jsonl", out, True
    with monkeypatch.context() as patched:
        patched.setattr(vector_pieces.Writer, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            write(*given)
    assert (out / "vectors-00004.npy").exists() and (out / "_plan.json").exists()
    assert (out / stored.FILE).read_bytes() == manifest
    for found, whole in zip(Stored(out).index.search(asked, 23), wanted, strict=True):
        np.testing.assert_array_equal(found, whole)
    # Another append waits for the end of this one, which goes on.
    texts_of(70, 80, tmp_path / "other.jsonl")
    said = said_by(write, folder, tmp_path / "other.jsonl", out, True)
    assert "has vectors of another command (other texts, texts_checksum): end it by giving" in said
    kept = (out / "vectors-00004.npy").stat().st_mtime_ns
    write(*given)
    assert (out / "vectors-00004.npy").stat().st_mtime_ns == kept
    assert not (out / "_plan.json").exists()
    assert Stored(out).ids == [f"d{i}" for i in range(60)]
    # It was killed after the manifest and before its plan was removed: nothing is left to do.
    plan = {"first_piece": 3, "texts": 37}
    json_files.write_record(out / "_plan.json", plan)
    write(folder, tmp_path / "other.jsonl", out, True)
    assert Stored(out).ids == [f"d{i}" for i in (*range(60), *range(70, 80))]
    # The plan was removed by hand: pieces without a manifest are made again.
    (out / "vectors-00008.npy").write_bytes(b"other")
    texts_of(80, 85, tmp_path / "last.jsonl")
    write(folder, tmp_path / "last.jsonl", out, True)
    Stored(out).check()
    assert Stored(out).index.count == 75


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_append_leaves_the_folder_whole(folder, model, tmp_path):
    """Of several processes, wherever they are."""
    draw = np.random.default_rng(0)
    for name, start, count in (("first", 0, 2_000), ("more", 2_000, 40_000)):
        lines = [f"d{start + i}\t{' '.join(draw.choice(WORDS, 12))}\n" for i in range(count)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    out = tmp_path / "out"
    options = [
        "official.main", "--mode=embed", f"--model_dir={folder}", f"--output={out}",
        "--pieces=npy", "--piece_size=1000", "--normalize",
    ]  # fmt: skip
    commands.run(*options, f"--texts={tmp_path}/first.tsv", status=0)
    asked = model.encode(["a cat"])
    wanted = Stored(out).index.search(asked, 100)
    options += [f"--texts={tmp_path}/more.tsv", "--append", "--workers=2"]
    run = subprocess.Popen(
        [sys.executable, "-m", *options], cwd=ROOT, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    while run.poll() is None and len(list(out.glob("vectors-*.npy"))) < 5:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert 5 <= len(list(out.glob("vectors-*.npy"))) < 42
    Stored(out).check()
    for found, whole in zip(Stored(out).index.search(asked, 100), wanted, strict=True):
        np.testing.assert_array_equal(found, whole)
    done = commands.run(*options, status=0)
    assert "continuing an earlier run" in done.stdout
    whole = Stored(out)
    whole.check()
    assert whole.ids == [f"d{i}" for i in range(42_000)]
    assert len(list(out.iterdir())) == 85


def test_vectors_that_do_not_suit_are_refused(model, vectors, tmp_path):
    place, _ = vectors
    record = json_files.read_record(place / stored.FILE, {})

    def of(**entries):
        return said_by(search.opened, model.embedder, changed(place, tmp_path, **entries))

    other = "search with what made them, or embed the texts again"
    assert f"its vectors have 7 numbers, and those of this model have 12: {other}" in of(shape=[7])
    settings = {**record["settings"], "normalize": False}
    assert of(settings=settings).endswith(
        "normalize of its vectors is False, and True in this search: embed the texts again, with "
        "--normalize or --nonormalize"
    )
    settings = {**record["settings"], "pooling": ["max"]}
    assert "pooling of its vectors is ['max'], and ['mean'] in this search" in of(settings=settings)
    assert "layer of its vectors is 1, and -1 in this search" in of(layer=1)
    for key in ("model_checksum", "tokenizer"):
        assert of(**{key: "0" * 64}).endswith(
            f"its vectors are of another model, checkpoint, precision or runtime than this one: "
            f"{other}"
        )
    assert "kind: 'tree' is not one of dense, tokens, sparse" in of(kind="tree")
    assert "the files have 23 vectors, and _vectors.json says 22" in of(texts=22)
    assert "only one vector of a text in .npy files is searched" in of(format="parquet")
    assert "only one vector of a text in .npy files is searched" in of(shape=[3, 12])
    # Documents have a prompt, and the vectors have none.
    settings = EmbeddingSettings(normalize=True, prompts={"query": "", "passage": "a cat "})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model.embedder, "settings", settings)
        kept = {**record["settings"], "prompts": dict(settings.prompts)}
        assert of(settings=kept).endswith(
            "prompt of its vectors is '', and 'a cat ' in this search: embed the texts again with "
            "the --prompt_name of documents"
        )


def test_damaged_files_are_refused(model, vectors, tmp_path):
    place, _ = vectors
    again = "copy the folder again, or embed the texts again"
    for name, change, message in (
        ("vectors-00001.npy", lambda x: x[:-5] + b"\x01" + x[-4:], "has changed since it was"),
        ("ids-00002.txt", lambda x: x.replace(b"d21", b"d20"), "has changed since it was"),
        ("vectors-00001.npy", lambda x: x[:-5], "damaged (mmap length is greater than file size"),
        ("vectors-00001.npy", lambda x: b"no array", "damaged ("),
        ("vectors-00001.npy", None, "vectors-00001.npy: missing"),
        (stored.FILE, lambda x: x.replace(b"23", b"22"), "damaged (it is not as it was written"),
        (stored.FILE, None, "has no _vectors.json"),
    ):
        copy = changed(place, tmp_path)
        if change:
            (copy / name).write_bytes(change((copy / name).read_bytes()))
        else:
            (copy / name).unlink()
        said = said_by(lambda: model.search(["a"], vectors=copy))  # noqa: B023
        assert message in said and (again in said or name == stored.FILE), said
        shutil.rmtree(copy)
    # A pickle is never read.
    copy = changed(place, tmp_path)
    np.save(copy / "vectors-00001.npy", np.array([{}], object), allow_pickle=True)
    assert "damaged (" in said_by(Stored, copy)
    # Without checksums an id that stands there twice is found.
    copy = changed(place, tmp_path, checksums={})
    shutil.copy(place / "vectors-00001.npy", copy)
    (copy / "ids-00002.txt").write_text("d20\nd20\nd22\n")
    assert "the id 'd20' occurs twice" in said_by(lambda: Stored(copy).ids)
    (copy / "ids-00002.txt").write_text("d20\n")
    assert "21 ids of 23 vectors" in said_by(lambda: Stored(copy).ids)


def test_vectors_that_are_no_numbers_are_not_written(folder, vectors, tmp_path, monkeypatch):
    from official.serving.vectors.embedder import Embedder

    real = Embedder.texts

    def broken(self, texts, *given, **named):
        found = real(self, texts, *given, **named)
        found[3, 5] = np.nan
        return found

    monkeypatch.setattr(Embedder, "texts", broken)
    assert said_by(write, folder, vectors[1], tmp_path / "out") == (
        "the vector of the text 'd3' has numbers that are infinite or no numbers: take another "
        "checkpoint or --precision"
    )
    assert not list((tmp_path / "out").glob("*-0*"))


@pytest.mark.slow
def test_command(folder, vectors, tmp_path):
    place, file = vectors
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\t{t}\n" for q, t in QUERIES.items()))
    options = ["official.main", "--mode=search", f"--model_dir={folder}", "--top_k=5"]
    options += [f"--queries={tmp_path}/queries.tsv"]
    for name, more in (("a", f"--texts={file}"), ("b", f"--vectors={place}")):
        done = commands.run(*options, more, f"--output={tmp_path}/{name}.run", status=0)
        assert "3 queries, 23 documents" in done.stdout
    first, second = (trec.read_run(tmp_path / f"{name}.run") for name in "ab")
    assert {q: list(x) for q, x in first.items()} == {q: list(x) for q, x in second.items()}
    given = [*options, f"--vectors={place}", f"--output={tmp_path}/c.run"]
    for flag, value in (("texts", file), ("rerank", f"{tmp_path}/a.run")):
        done = commands.run(*given, f"--{flag}={value}", status=2)
        assert f"give either --{flag} or --vectors" in done.stderr
    done = commands.run(*given, "--max_length=8", status=2)
    assert "max_length of its vectors is None, and 8 in this search" in done.stderr
    small = "official.commands.smaller_vectors", f"--vectors={place}", f"--output={tmp_path}/bits"
    done = commands.run(*small, "--dtype=bits", status=0)
    assert f"{tmp_path}/bits: 23 texts in 3 pieces, bits" in done.stdout
    output = f"--output={tmp_path}/d.run"
    commands.run(*options, f"--vectors={tmp_path}/bits", f"--rescore={place}", output, status=0)
    third = trec.read_run(tmp_path / "d.run")
    assert {q: list(x) for q, x in third.items()} == {q: list(x) for q, x in first.items()}
    done = commands.run(*options, f"--texts={file}", f"--rescore={place}", output, status=2)
    assert "--rescore: is for --vectors: give it" in done.stderr
    done = commands.run(
        "official.main", "--mode=embed", f"--model_dir={folder}", f"--texts={file}",
        f"--output={tmp_path}/x.npy", "--append", status=2,
    )  # fmt: skip
    assert "--append: is for a folder of --pieces: give it" in done.stderr
