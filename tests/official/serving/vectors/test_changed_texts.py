"""Files of texts that change while their vectors are computed: refused by name, nothing left."""

import json

import numpy as np
import pytest

import official
from official.conversion import converted_model, huggingface
from official.serving import vector_pieces
from official.serving.vectors import search, vector_files
from official.tasks import text_files
from official.utils.errors import UserError
from tests import GOLDEN, changed_files

WORDS = "the cat sat a dog ran cats and dogs tree mat under on".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changed") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    """A file of 20 texts with ids."""
    draw = np.random.default_rng(0)
    rows = [{"_id": f"d{i}", "text": " ".join(draw.choice(WORDS, 9))} for i in range(20)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def command(request, folder, tmp_path):
    """Writes something for a file of texts; the second value is its output."""
    model = official.load(folder)
    output = (
        tmp_path
        / {"pieces": "pieces", "vectors": "vectors.npy", "search": "found.run"}[request.param]
    )

    def pieces(path):
        options = vector_pieces.Options(str(folder), size=5)
        vector_pieces.write(options, path, output, report=len)
        (output / vector_pieces.FILE).unlink()
        for file in output.iterdir():
            file.unlink()
        output.rmdir()

    def vectors(path):
        counted = text_files.Counted(path)
        rows = (text for _, text in counted)
        vector_files.write(model.embedder, rows, output, count=counted.count, report=len)
        output.unlink()

    def searched(path):
        search.write(model.embedder, {"q": "a cat"}, path, output, 3, "name")
        output.unlink()

    commands = {"pieces": pieces, "vectors": vectors, "search": searched}
    return commands[request.param], output


@pytest.mark.parametrize("command", ["pieces", "vectors", "search"], indirect=True)
def test_texts_that_change_are_refused(texts, command, monkeypatch):
    run, output = command
    for _ in changed_files.refusals(monkeypatch, texts, lambda: run(texts)):
        if output.is_dir():  # a later command may go on with the pieces that are there
            assert not (output / vector_pieces.FILE).exists()
            for file in output.iterdir():
                file.unlink()
            output.rmdir()
        assert not output.exists()


def test_pieces_are_those_of_the_texts_that_were_counted(folder, texts, tmp_path, monkeypatch):
    """A run is refused when its texts change; with the old texts in place the next one goes on."""
    content, options = texts.read_bytes(), vector_pieces.Options(str(folder), size=5)
    vector_pieces.write(options, texts, tmp_path / "whole", report=len)
    read = text_files.texts_of

    def changing(path):
        """Changes the file behind the 12th text of the second pass."""
        for number, row in enumerate(read(path)):
            yield row
            if passes and number == 11:
                texts.write_bytes(content.swapcase())
        passes.append(path)

    passes = []
    monkeypatch.setattr(text_files, "texts_of", changing)
    with pytest.raises(UserError, match=r"texts\.jsonl has changed while it was read"):
        vector_pieces.write(options, texts, tmp_path / "out", report=len)
    monkeypatch.undo()
    texts.write_bytes(content)
    lines = []
    vector_pieces.write(options, texts, tmp_path / "out", report=lines.append)
    assert lines[0] == "continuing an earlier run: 2 of 4 pieces are done"
    for number in range(4):
        name = f"vectors-0000{number}.npy"
        both = (np.load(tmp_path / output / name) for output in ("out", "whole"))
        np.testing.assert_allclose(*both, atol=1e-5)


def test_two_commands_for_one_folder(folder, texts, tmp_path, monkeypatch):
    """The second is refused while the first one writes, which then ends as alone."""
    options, output = vector_pieces.Options(str(folder), size=10), tmp_path / "out"
    pieces = vector_pieces._pieces

    def with_another(*given):
        monkeypatch.undo()
        with pytest.raises(UserError, match="out is being written by another command: wait for"):
            vector_pieces.write(options, texts, output, report=len)
        yield from pieces(*given)

    monkeypatch.setattr(vector_pieces, "_pieces", with_another)
    vector_pieces.write(options, texts, output, report=len)
    assert len(list(output.glob("vectors-*.npy"))) == 2
    assert not list(output.glob("_plan.json"))


def test_other_numbers_of_texts_are_refused(folder, texts, tmp_path):
    """Also where the file is as it was: `.npy` begins with the number of its rows."""
    counted = text_files.Counted(texts)
    counted.count += 1
    with pytest.raises(UserError, match="20 texts are read, where 21 were counted: check the disk"):
        list(counted)
    model = official.load(folder)
    with pytest.raises(UserError, match="there are 1 texts, and not 2 as expected"):
        vector_files.write(model.embedder, iter(["a cat"]), tmp_path / "v.npy", count=2)
    assert not (tmp_path / "v.npy").exists()
