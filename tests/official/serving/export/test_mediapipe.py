"""A file in the layout of MediaPipe has the metadata and the files of its tasks.

The metadata is read here slot by slot, as its schema says. `tests/parity/test_mediapipe_parity.py`
loads such files with MediaPipe itself.
"""

import io
import json
import warnings
import zipfile

import flatbuffers.table
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

import official
from official.serving.export import mediapipe
from official.tokenizers.pair_packing import pack_texts
from official.utils import json_files
from official.utils.errors import UserError
from tests import commands
from tests.official.conversion import systems
from tests.official.serving.export.test_hub import EMBEDDING
from tests.official.serving.export.test_litert import CLASSIFICATION, LABELS
from tests.official.serving.test_predictor import BERT, TEXTS, constants, load

CLOSE = dict(rtol=0, atol=1e-5)


class Table:
    """A table of a flatbuffer, by the numbers of its slots."""

    def __init__(self, content, place):
        self._table = flatbuffers.table.Table(content, place)

    @classmethod
    def root(cls, content):
        return cls(content, int.from_bytes(content[:4], "little"))

    def _place(self, slot):
        offset = self._table.Offset(4 + 2 * slot)
        assert offset, f"no field {slot}"
        return offset + self._table.Pos

    def string(self, slot):
        return self._table.String(self._place(slot)).decode()

    def number(self, slot):
        return self._table.Bytes[self._place(slot)]

    def table(self, slot):
        return Table(self._table.Bytes, self._table.Indirect(self._place(slot)))

    def tables(self, slot):
        offset = self._table.Offset(4 + 2 * slot)
        start, count = self._table.Vector(offset), self._table.VectorLen(offset)
        places = (start + 4 * index for index in range(count))
        return [Table(self._table.Bytes, self._table.Indirect(place)) for place in places]


def metadata(content):
    """The metadata in a model, as a `Table`."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    (buffer,) = (each.buffer for each in model.metadata if each.name == b"TFLITE_METADATA")
    described = bytes(model.buffers[buffer].data)
    assert described[4:8] == b"M001"
    return Table.root(described)


def interpreter(content):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert")
        made = tf.lite.Interpreter(model_content=content)
    made.allocate_tensors()
    return made


def answer(content, loaded, text):
    """What the model gives for a text."""
    names = [table.string(0) for table in metadata(content).tables(3)[0].tables(2)]
    run = interpreter(content)
    inputs = run.get_input_details()
    length = inputs[0]["shape"][1]
    batch = pack_texts(constants([text]), loaded.tokenizer, loaded.max_length, "cls_first")
    fields = {"ids": "token_ids", "mask": "padding_mask", "segment_ids": "segment_ids"}
    for name, given in zip(names, inputs, strict=True):
        row = np.asarray(batch[fields[name]], np.int32)
        assert given["dtype"] == np.int32 and given["shape"].tolist() == [1, length]
        run.set_tensor(given["index"], np.pad(row, [(0, 0), (0, length - row.shape[1])]))
    run.invoke()
    (output,) = run.get_output_details()
    return run.get_tensor(output["index"])[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_classes(tmp_path, kind):
    loaded = load(tmp_path / "model", {**CLASSIFICATION, "type": kind}, max_length=12)
    exported = official.export(
        tmp_path / "model", tmp_path / "lite", format="litert", layout="mediapipe"
    )
    file = tmp_path / "lite" / "model.tflite"
    assert exported == (str(file), "probabilities", 12, None)
    assert [path.name for path in (tmp_path / "lite").iterdir()] == ["model.tflite"]
    content = file.read_bytes()
    described = metadata(content)
    assert [described.string(slot) for slot in (0, 7)] == ["TextClassifier", "1.1.0"]
    (graph,) = described.tables(3)
    right = {"ids": "word_ids", "mask": "mask", "segment_ids": "type_ids"}
    places = zip(graph.tables(2), interpreter(content).get_input_details(), strict=True)
    for table, given in places:
        assert given["name"].endswith(f"input_{right.pop(table.string(0))}:0")
        assert table.table(3).number(0) == 1  # a feature
    assert not right
    (unit,) = graph.tables(5)
    assert unit.number(0) == 4  # BertTokenizerOptions
    (pieces,) = unit.table(1).tables(0)
    assert (pieces.string(0), pieces.number(2)) == ("vocab.txt", 5)
    (output,) = graph.tables(3)
    (labels,) = output.tables(6)
    assert (output.string(0), labels.string(0), labels.number(2)) == ("score", "labels.txt", 2)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["vocab.txt", "labels.txt"]
        assert archive.read("vocab.txt").decode().splitlines() == loaded.tokenizer.pieces
        assert archive.read("labels.txt").decode() == "".join(f"{label}\n" for label in LABELS)
    chances = [list(label.probabilities.values()) for label in loaded.classify(TEXTS)]
    assert np.ptp(chances, axis=0).min() > 0.01
    np.testing.assert_allclose([answer(content, loaded, text) for text in TEXTS], chances, **CLOSE)


@pytest.mark.slow
def test_vectors(tmp_path):
    loaded = load(tmp_path / "model", EMBEDDING)
    assert mediapipe.export(tmp_path / "model", tmp_path / "lite") == ("vectors", 16, None)
    content = (tmp_path / "lite" / "model.tflite").read_bytes()
    described = metadata(content)
    assert described.string(0) == "TextEmbedder"
    (output,) = described.tables(3)[0].tables(3)
    assert output.string(0) == "embedding"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["vocab.txt"]
    found = [answer(content, loaded, text) for text in TEXTS]
    np.testing.assert_allclose(found, loaded.encode(TEXTS), **CLOSE)
    mediapipe.export(tmp_path / "model", tmp_path / "again")
    assert (tmp_path / "again" / "model.tflite").read_bytes() == content


@pytest.mark.slow
def test_command(tmp_path):
    load(tmp_path / "model", CLASSIFICATION)
    options = [f"--model_dir={tmp_path}/model", f"--output={tmp_path}/lite", "--layout=mediapipe"]
    done = commands.run("official.export", *options, "--format=onnx", status=2)
    assert (
        "--layout=mediapipe: not supported for --format=onnx: give --format=litert" in done.stderr
    )
    options += ["--format=litert", "--max_length=7", "--precision=int8"]
    done = commands.run("official.export", *options, status=0)
    assert "int8 moves the outputs by " in done.stdout
    assert "lite/model.tflite: probabilities of rows of up to 7 tokens" in done.stdout


@pytest.mark.slow
def test_what_mediapipe_does_not_read_is_refused(tmp_path):
    classes = {"pair": False}
    for number, (objective, encoder, task, settings, message) in enumerate((
        ({"type": "regression"}, BERT, classes, {}, "no task for the head regression"),
        ({"type": "sparse_embedding"}, BERT, {}, {}, "no task for sparse vectors"),
        (CLASSIFICATION, BERT, {"pair": True}, {}, "one text, and this one reads pairs"),
        (CLASSIFICATION, BERT, classes, {"do_lower_case": False}, "vocabulary .* is cased"),
        (CLASSIFICATION, BERT, classes, {"truncation_side": "left"}, "other rows"),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        load(folder, objective, encoder=encoder, **task)
        file = folder / "tokenizer" / "tokenizer_config.json"
        before = {
            key: value for key, value in json_files.read(file).items() if key != "fingerprint"
        }
        file.write_text(json.dumps(before | settings))
        with pytest.raises(UserError, match=f"^--layout=mediapipe: .*{message}.*; remove --layout"):
            mediapipe.export(folder, tmp_path / "lite")
    config, parts, _ = systems.load("xlm-roberta_classification")
    systems.write(tmp_path / "model", config, parts["weight"])
    with pytest.raises(
        UserError, match="only WordPiece is packed, and this model has SentencePiece"
    ):
        mediapipe.export(tmp_path / "model", tmp_path / "lite")
    assert not (tmp_path / "lite").exists()
