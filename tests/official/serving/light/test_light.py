"""Vectors by LiteRT without TensorFlow, beside those of the model that TensorFlow loads."""

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import official
from official.saving import checkpoints, embedding_settings
from official.saving.embedding_settings import EmbeddingSettings
from official.serving import loaded_model
from official.serving.export import int8_loss, litert
from official.serving.light import folder as files
from official.serving.light import writing
from official.serving.light.embedder import LightEmbedder
from official.serving.light_model import LightModel
from official.tokenizers import pair_packing
from official.utils import json_files, strict
from official.utils.errors import UserError
from tests.commands import run
from tests.official.serving.test_predictor import BERT, XLNET, load

PROMPTS = {"query": "the cat: ", "document": ""}
TEXTS = ["the cat sat", "a dog", "", "mat under on tree dogs and cats ran the " * 3, "Dogs, Cats!"]


def write(folder, encoder=BERT, **settings):
    """Writes a model folder with settings of vectors, and returns the model of TensorFlow."""
    load(folder, encoder=encoder)
    values = strict.to_dict(EmbeddingSettings(**settings))
    json_files.write_record(embedding_settings.file(folder), values)
    return loaded_model.load(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder from which LiteRT's vectors have been made once."""
    folder = tmp_path_factory.mktemp("light") / "model"
    write(folder, pooling=("mean", "first"), prompts=PROMPTS, normalize=True)
    assert isinstance(official.load(folder, runtime="litert"), LightModel)
    return folder


def test_vectors_and_searches_are_those_of_the_model(folder):
    plain, light = loaded_model.load(folder), official.load(folder, runtime="litert")
    for options in ({}, {"prompt": "query"}, {"max_length": 7, "batch_size": 2}):
        wanted = plain.encode(TEXTS, **options)
        assert wanted.shape == (5, 2 * BERT["hidden_size"])
        np.testing.assert_allclose(light.encode(TEXTS, **options), wanted, rtol=0, atol=1e-5)
    assert light.vectors.cut == plain.embedder.cut > 0 and light.max_length == plain.max_length
    queries, documents = TEXTS[:2], TEXTS[2:]
    for name, found in zip(
        ("numbers", "scores"), light.search(queries, documents, top_k=2), strict=True
    ):
        wanted = dict(zip(("numbers", "scores"), plain.search(queries, documents, 2), strict=True))
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-5)
    # Half of a surrogate pair is no character.
    halves = ["the cat \ud83d sat"]
    np.testing.assert_allclose(light.encode(halves), plain.encode(halves), rtol=0, atol=1e-5)


def test_the_next_process_needs_no_tensorflow(folder):
    """Its vectors have the bits of the first one's."""
    code = (
        "import sys, official, numpy as np\n"
        f"model = official.load({str(folder)!r}, runtime='litert')\n"
        f"vectors = model.encode({TEXTS[:3]!r})\n"
        "model.search(['the cat'], ['a dog', 'a cat'])\n"
        "print([m for m in ('tensorflow', 'keras') if m in sys.modules])\n"
        "print(vectors.tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, vectors = done.stdout.splitlines()
    assert heavy == "[]"
    assert vectors == official.load(folder, runtime="litert").encode(TEXTS[:3]).tobytes().hex()


COMMAND = """
import sys

from official.commands import garden

try:
    garden.run()
except SystemExit as end:
    assert not end.code
print([m for m in ("tensorflow", "keras") if m in sys.modules])
"""


@pytest.mark.slow
def test_commands_need_no_tensorflow(folder, tmp_path):
    """They write what they write with TensorFlow, by the flags for vectors of texts too."""
    (tmp_path / "texts.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    (tmp_path / "queries.tsv").write_text("q1\tthe cat\nq2\tdogs ran\n")
    model, texts = f"--model_dir={folder}", f"--texts={tmp_path / 'texts.tsv'}"
    asked = f"--queries={tmp_path / 'queries.tsv'}"
    commands = [
        ["embed", model, texts, "--output={}/all.npy"],
        ["embed", model, texts, "--output={}/short.jsonl", "--max_length=7", "--prompt_name=query"],
        ["search", model, texts, asked, "--output={}/found.run", "--top_k=3"],
    ]
    found = {}
    for name in ("plain", "light"):
        (tmp_path / name).mkdir()
        for words in commands:
            placed = [word.format(tmp_path / name) for word in words]
            if name == "plain":
                run("official.commands.garden", *placed, status=0)
                continue
            light = [sys.executable, "-c", COMMAND, *placed, "--runtime=litert"]
            done = subprocess.run(light, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1] == "[]"
        short = (tmp_path / name / "short.jsonl").read_text().splitlines()
        found[name] = (
            np.load(tmp_path / name / "all.npy"),
            np.array([json.loads(line)["vector"] for line in short]),
            [line.split() for line in (tmp_path / name / "found.run").read_text().splitlines()],
        )
    for wanted, light in zip(found["plain"][:2], found["light"][:2], strict=True):
        np.testing.assert_allclose(light, wanted, rtol=0, atol=1e-5)
    runs = [found[name][2] for name in ("plain", "light")]
    scores = [np.array([float(row.pop(4)) for row in run]) for run in runs]
    assert runs[0] == runs[1] and len(runs[0]) == 6  # and the name of the model
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_what_needs_more_is_done_by_tensorflow(folder):
    plain, light = loaded_model.load(folder), official.load(folder, runtime="litert")
    for options in ({"pooling": "max"}, {"layer": 1}, {"normalize": False}):
        wanted = plain.encode(TEXTS, **options)
        np.testing.assert_allclose(light.encode(TEXTS, **options), wanted, rtol=0, atol=1e-5)
    assert [each.pieces for each in light.tokens(TEXTS)] == [
        each.pieces for each in plain.tokens(TEXTS)
    ]
    assert light.methods == plain.methods
    with pytest.raises(AttributeError):
        light._no_such_attribute  # noqa: B018  (is not asked of the other model)


def test_an_export_is_loaded_without_the_model_folder(folder, tmp_path, monkeypatch):
    litert.export(folder, tmp_path / "lite")
    light = official.load(tmp_path / "lite")
    wanted = loaded_model.load(folder).encode(TEXTS)
    np.testing.assert_allclose(light.encode(TEXTS), wanted, rtol=0, atol=1e-5)
    for call in (lambda: light.classify(TEXTS), lambda: light.encode(TEXTS, pooling="max")):
        with pytest.raises(UserError, match="lite: an export for LiteRT has the vectors of t"):
            call()
    for options in ({"precision": "int8"}, {"checkpoint": "last"}, {"runtime": "onnx"}):
        with pytest.raises(UserError, match="is an export for LiteRT, which has its own weights"):
            official.load(tmp_path / "lite", **options)
    monkeypatch.setattr(files, "missing_packages", lambda: ["tokenizers"])
    with pytest.raises(UserError, match="LiteRT needs tokenizers: pip install ai-edge-litert tok"):
        official.load(tmp_path / "lite")


def test_other_settings_and_weights_are_converted_again(folder, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    paths = [files.cached(model, checkpoints.digest(model), "float32")]
    assert files.is_light(paths[0]) and len(list((model / "litert").iterdir())) == 1
    paths.append(files.cached(model, "another SHA-256", "float32"))
    paths.append(files.cached(model, checkpoints.digest(model), "int8"))
    settings = EmbeddingSettings(pooling=("max",))
    json_files.write_record(embedding_settings.file(model), strict.to_dict(settings))
    paths.append(files.cached(model, checkpoints.digest(model), "float32"))
    assert len(set(paths)) == 4
    found = official.load(model, runtime="litert").encode(TEXTS)
    wanted = loaded_model.load(model).encode(TEXTS)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert len(list((model / "litert").iterdir())) == 2


@pytest.mark.parametrize("encoder", [BERT, XLNET], ids=["bert", "xlnet"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_are_those_of_the_packing(tmp_path, encoder, side):
    """XLNet's have the padding before them, and [CLS] at the end."""
    model = load(tmp_path / "model", encoder=encoder)
    tokenizer = model.tokenizer
    if side == "left":
        tokenizer = tokenizer.with_pairs(dataclasses.replace(tokenizer.pairs, cut_side="left"))
    layout = model.config.encoder.text_layout
    sequences = [np.arange(5, 5 + count, dtype=np.int32) for count in (3, 0, 8, 1)]
    for length in (20, 7):
        ragged = tf.ragged.constant([ids.tolist() for ids in sequences], tf.int32)
        wanted = pair_packing.pack([ragged], tokenizer, length, layout)
        found = writing.rows(tokenizer, layout).batch(sequences, length)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)
            assert found[name].dtype == value.dtype.as_numpy_dtype


def test_damaged_files_are_refused(folder, tmp_path):
    cached = files.cached(folder, checkpoints.digest(folder), "float32")
    for name in (files.MODEL, files.TOKENIZER):
        damaged = tmp_path / name
        shutil.copytree(cached, damaged)
        content = bytearray((damaged / name).read_bytes())
        content[len(content) // 2] ^= 1
        (damaged / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}: damaged .its SHA-256 is not the one in"):
            LightEmbedder(damaged)
        (damaged / name).unlink()
        with pytest.raises(UserError, match=f"{name}: missing"):
            LightEmbedder(damaged)
    (tmp_path / files.MODEL / files.TEXTS).write_text("{}")
    with pytest.raises(UserError, match="texts.json: signature: missing"):
        LightEmbedder(tmp_path / files.MODEL)


def test_another_tokenizer_is_refused(folder, tmp_path):
    """A version of the package that splits in another way would give other vectors in silence."""
    shutil.copytree(files.cached(folder, checkpoints.digest(folder), "float32"), tmp_path / "a")
    about = files.read(tmp_path / "a")
    tokenizer = json.loads((tmp_path / "a" / files.TOKENIZER).read_text())
    tokenizer["normalizer"] = None  # keeps capitals
    (tmp_path / "a" / files.TOKENIZER).write_text(json.dumps(tokenizer))
    files.write(tmp_path / "a", about)
    with pytest.raises(UserError, match="the package tokenizers splits '.*' in another way"):
        LightEmbedder(tmp_path / "a")


def test_arguments_are_checked(folder):
    light = official.load(folder, runtime="litert")
    for call, message in (
        (lambda: light.encode("one text"), r"give a list of texts, such as \[text\]"),
        (lambda: light.encode(["a"], prompt="title"), "prompt: 'title' is not a prompt of this"),
        (lambda: light.encode(["a"], max_length=2), "max_length: 2 is not from 3 to 16"),
        (lambda: light.encode(["a"], batch_size=0), "batch_size: 0 is less than 1"),
        (lambda: light.encode(["a", None]), "texts: text 1 is not a string: None"),
        (lambda: light.search(["a"], ["b"], top_k=0), "top_k: 0 is less than 1"),
        (lambda: light.search("a", ["b"]), "queries: give a list"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    assert light.encode([]).shape == (0, 2 * BERT["hidden_size"])


def test_models_that_need_more_are_loaded_whole(tmp_path, monkeypatch):
    """Tokens of prompts that are not pooled; missing packages; folders that cannot be written."""
    write(tmp_path / "model", prompts=PROMPTS, include_prompt=False)
    loaded = official.load(tmp_path / "model", runtime="litert")
    assert isinstance(loaded, loaded_model.LoadedModel)
    assert not list((tmp_path / "model").glob("litert/*"))
    monkeypatch.setattr(files, "missing_packages", lambda: ["tokenizers"])
    write(tmp_path / "other")
    loaded = official.load(tmp_path / "other", runtime="litert")
    assert isinstance(loaded, loaded_model.LoadedModel)
    assert not (tmp_path / "other" / "litert").exists()


def test_an_export_is_no_whole_model(folder):
    """Wherever one is needed, the message says what to load."""
    official.load(folder, runtime="litert")
    cached = files.cached(folder, checkpoints.digest(folder), "float32")
    for whole in (loaded_model.load, lambda path: official.load(path).whole):
        with pytest.raises(UserError, match="an export for LiteRT .* load the model folder"):
            whole(cached)


def test_the_examples_are_texts_of_several_languages():
    """Their ids are what the package is held to."""
    assert len(int8_loss.TEXTS) == 10 and sum(text.isascii() for text in int8_loss.TEXTS) == 6
