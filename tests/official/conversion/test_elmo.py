"""ELMo's released files as a model folder, and back."""

import json
import shutil

import h5py
import numpy as np
import pytest

import official
from benchmarks.torture import foreign_files, hostile_weights
from official import tokenizers
from official.conversion import converted_model, elmo
from official.modeling.encoders.bilm import Encoder
from official.modeling.model import Model
from official.saving import model_folder, named_arrays
from official.utils import keras_private
from official.utils.errors import UserError
from tests import ROOT, commands, small

GOLDEN = ROOT / "tests" / "golden" / "elmo"
# The first sentence of each list: the recorded state is fresh there.
SENTENCES = [each[0] for each in json.loads((GOLDEN / "sentences.json").read_text())]
# How far vectors of fresh states are from those of carried states at most, in the sentence where it
# is least and where it is most, and the largest value.
FIGURES = (0.78, 0.79, 1.66)


def shapes(config):
    with keras_private.uninitialized_variables():
        encoder = Encoder(config)
        encoder.build()
    return {v.path: tuple(v.shape) for v in encoder.weights}


def test_files_out_and_in_are_the_same(tmp_path):
    config = elmo.read_options(GOLDEN / "options.json")
    weights = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes(config))
    assert sum(value.size for value in weights.values()) == 105_120
    elmo.write_release(config, weights, tmp_path)
    assert elmo.read_options(tmp_path / "options.json") == config
    again = elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))
    for path, value in weights.items():
        np.testing.assert_array_equal(again[path], value)
    with h5py.File(GOLDEN / "weights.hdf5") as theirs, h5py.File(tmp_path / "weights.hdf5") as ours:
        for _, name in elmo.names(config):
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_options_of_training_count_one_character_less(tmp_path):
    options = json.loads((GOLDEN / "options.json").read_text())
    options["char_cnn"]["n_characters"] = 261
    (tmp_path / "options.json").write_text(json.dumps(options))
    assert elmo.read_options(tmp_path / "options.json") == elmo.read_options(
        GOLDEN / "options.json"
    )


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("char_cnn", "n_characters", 263, "char_cnn.n_characters: 263, expected 261"),
        ("char_cnn", "max_characters_per_token", 30, "max_characters_per_token: 30, expected 50"),
        ("char_cnn", "activation", "swish", "activation: 'swish' is not one of"),
        ("lstm", "dim", None, "lstm.dim: missing"),
    ],
)
def test_bad_options(tmp_path, section, name, value, message):
    options = json.loads((GOLDEN / "options.json").read_text())
    options[section][name] = value
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(UserError, match=message):
        elmo.read_options(tmp_path / "options.json")


def test_every_disagreement_is_named(tmp_path):
    config = elmo.read_options(GOLDEN / "options.json")
    shutil.copy(GOLDEN / "weights.hdf5", tmp_path / "weights.hdf5")
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        del file["CNN_proj/b_proj"], file["CNN/W_cnn_1"]
        file["CNN/W_cnn_1"] = np.zeros((1, 2, 4, 9))
        file["more"] = np.zeros(3)
    with pytest.raises(UserError) as error:
        elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))
    lines = str(error.value).splitlines()
    assert lines[0].endswith("weights.hdf5: does not belong to these options:")
    assert lines[1:] == [
        "CNN/W_cnn_1: shape [1, 2, 4, 9], expected [1, 2, 4, 8]",
        "CNN_proj/b_proj: missing",
        "more: not expected",
    ]
    (tmp_path / "weights.hdf5").write_text("no")
    with pytest.raises(UserError, match="weights.hdf5: not an HDF5 file that can be read"):
        elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a data set in another file", "b_proj: its values are in another file"),
        ("a data set that is a view of another file", "b_proj: its values are in another file"),
        ("a link to another HDF5 file", "b_proj: a link to another file or group"),
        ("a link to another data set", "b_proj: a link to another file or group"),
        ("a group that is a link", "CNN_proj: a link to another file or group"),
        ("a data set that was never written", "b_proj: 64 bytes, but the file holds 0"),
        ("a chunk of 1 GiB", "b_proj: 1 chunks of 1,073,741,824 bytes for 64 bytes"),
        ("a GiB of chunks in a small file", "all data sets: 1,2"),
        ("10,000 names", "x1000: not expected\n(.*\n)*and 181 more"),
        ("a data set of integers", "b_proj: expected floating-point numbers of 2, 4 or 8 bytes"),
        ("a filter of a plugin", "b_proj: packed with filter 32123, expected one of gzip"),
        ("a number beyond float32", "b_proj contains NaN or infinity"),
    ],
)
def test_hostile_files(tmp_path, name, message):
    folder = tmp_path / "folder"
    folder.mkdir()
    foreign_files.write_elmo(folder)
    next(case for case in hostile_weights.ELMO_CASES if case.name == name).spoil(folder)
    config = elmo.read_options(folder / "options.json")
    with pytest.raises(UserError, match=message):
        elmo.read_weights(folder / "weights.hdf5", config, shapes(config))


def test_packed_weights_are_read(tmp_path):
    """Chunks, gzip and float64 say nothing against a file."""
    config = elmo.read_options(GOLDEN / "options.json")
    expected = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes(config))
    with h5py.File(GOLDEN / "weights.hdf5") as old, h5py.File(tmp_path / "new.hdf5", "w") as new:
        for _, name in elmo.names(config):
            values = np.asarray(old[name], np.float64)
            new.create_dataset(name, data=values, compression="gzip", shuffle=True)
    actual = elmo.read_weights(tmp_path / "new.hdf5", config, shapes(config))
    for path, value in expected.items():
        np.testing.assert_array_equal(actual[path], value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"char_cnn": []}, "options.json: char_cnn: expected an object"),
        ({"lstm": {"dim": "64"}}, "lstm.dim: expected a whole number, got '64'"),
        ({"char_cnn": {"embedding": 4}}, "char_cnn.embedding: expected an object"),
        ({"char_cnn": {"filters": [[1.5, 8]]}}, "char_cnn.filters.0.0: expected a whole number"),
        ({"char_cnn": {"filters": [[1, 8], [1, 8]]}}, "filters: width 1 is listed twice"),
    ],
)
def test_options_of_wrong_types(tmp_path, option, message):
    options = json.loads((GOLDEN / "options.json").read_text())
    for section, values in option.items():
        options[section] = {**options[section], **values} if values else values
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(UserError, match=message):
        elmo.read_options(tmp_path / "options.json")


@pytest.fixture
def release(tmp_path):
    """A folder with the names of a release, and a vocabulary beside it."""
    folder = tmp_path / "elmo_2x64_16"
    folder.mkdir()
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(GOLDEN / name, folder / f"elmo_2x64_16_{name}")
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nthe\nof\n")
    return folder


def transformer(tmp_path):
    """A model folder of another encoder."""
    config = small.config()
    weights = named_arrays.values(Model(config).variables_by_path())
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    model_folder.write_new(config, tokenizer, weights, tmp_path / "transformer")
    return tmp_path / "transformer"


def convert(source, output, vocabulary=None):
    converted_model.write(elmo.read(source, vocabulary), output)
    return output


def test_vectors_are_those_of_the_release(release, tmp_path):
    outputs = np.load(GOLDEN / "outputs.npz")
    found = official.load(convert(release, tmp_path / "model")).tokens(SENTENCES)
    for number, each in enumerate(found):
        recorded = outputs[f"{number}_0"].transpose(1, 0, 2).reshape(-1, 32)
        np.testing.assert_allclose(each.vectors, recorded, atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_vectors_of_carried_states(release, tmp_path):
    """They are those of the release for each sentence of a list, and fresh states give others.

    docs/elmo.md has the figures.
    """
    lists = json.loads((GOLDEN / "sentences.json").read_text())
    outputs = np.load(GOLDEN / "outputs.npz")
    loaded = official.load(convert(release, tmp_path / "model"))
    apart, largest = [], 0.0
    for number, texts in enumerate(lists):
        carried, fresh = (loaded.tokens(texts, state=state) for state in ("carry", "fresh"))
        for place, (a, b) in enumerate(zip(carried, fresh, strict=True)):
            recorded = outputs[f"{number}_{place}"].transpose(1, 0, 2).reshape(-1, 32)
            np.testing.assert_allclose(a.vectors, recorded, atol=1e-5)
            largest = max(largest, np.abs(recorded).max())
            apart.append(np.abs(b.vectors - recorded).max() if place else 0.0)
    assert (min(x for x in apart if x), max(apart), largest) == pytest.approx(FIGURES, abs=0.005)
    layers = loaded.tokens(lists[0], layer="all", state="carry")
    for layer in (0, 1, -1):
        for a, b in zip(layers, loaded.tokens(lists[0], layer=layer, state="carry"), strict=True):
            np.testing.assert_array_equal(a.vectors[:, layer], b.vectors)


def test_states_of_other_encoders(tmp_path):
    loaded = official.load(transformer(tmp_path))
    with pytest.raises(UserError, match="state: carry: not supported for transformer, only for"):
        loaded.tokens(["ba"], state="carry")
    with pytest.raises(UserError, match="state: 'kept' is not one of fresh, carry"):
        loaded.tokens(["ba"], state="kept")


def test_out_and_in(release, tmp_path):
    model = convert(release, tmp_path / "model", release.parent / "vocabulary.txt")
    config, tokenizer, _ = model_folder.restore(model)
    assert config.name == "elmo_2x64_16" and config.objectives == ()
    assert config.encoder.vocab_size == 5 and tokenizer.pieces[3:] == ["the", "of"]
    assert elmo.write(model, tmp_path / "files", "best") == []
    options = json.loads((tmp_path / "files" / "options.json").read_text())
    assert options["lstm"] == {
        **json.loads((GOLDEN / "options.json").read_text())["lstm"], "use_skip_connections": False,
    }  # fmt: skip
    with (
        h5py.File(tmp_path / "files" / "weights.hdf5") as ours,
        h5py.File(GOLDEN / "weights.hdf5") as theirs,
    ):
        cell = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"
        np.testing.assert_array_equal(ours[cell], theirs[cell])
    # The vocabulary is beside them.
    again = elmo.read(tmp_path / "files")
    assert again.config.encoder == config.encoder
    assert list(again.tokenizer.pieces) == list(tokenizer.pieces)


@pytest.mark.slow
def test_commands(release, tmp_path):
    done = commands.run(
        "official.convert", "--source=elmo", f"--input={release}", f"--output={tmp_path}/model",
        f"--vocab={tmp_path}/vocabulary.txt", status=0,
    )  # fmt: skip
    assert done.stdout.splitlines()[0].endswith(" 105,120 parameters")
    done = commands.run(
        "official.convert", "--target=elmo", f"--input={tmp_path}/model",
        f"--output={tmp_path}/files", status=0,
    )  # fmt: skip
    assert done.stdout == f"wrote {tmp_path}/files\n"
    done = commands.run(
        "official.convert", "--source=hf", f"--input={release}", f"--output={tmp_path}/no",
        "--vocab=words.txt", status=2,
    )  # fmt: skip
    assert "--vocab: only supported with --source=elmo" in done.stderr


def test_weights_of_other_options_are_named(release):
    path = release / "elmo_2x64_16_options.json"
    options = json.loads(path.read_text())
    options["lstm"]["projection_dim"] += 1
    path.write_text(json.dumps(options))
    with pytest.raises(UserError) as error:
        elmo.read(release)
    lines = str(error.value).splitlines()
    assert lines[0].endswith("elmo_2x64_16_weights.hdf5: does not belong to these options:")
    size = options["lstm"]["projection_dim"]
    assert f"CNN_proj/b_proj: shape [{size - 1}], expected [{size}]" in lines
    assert len(lines) == 1 + 2 + 2 * 2 * 2  # of a cell: W_0 and W_P_0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "elmo_2x64_16_weights.hdf5").unlink(),
         "expected one file whose name ends in weights.hdf5, found none: --input is a folder"),
        (lambda folder: shutil.copy(GOLDEN / "options.json", folder / "options.json"),
         "ends in options.json, found elmo_2x64_16_options.json, options.json"),
    ],
)  # fmt: skip
def test_files_that_are_missing_or_too_many(release, change, message):
    change(release)
    with pytest.raises(UserError, match=message):
        elmo.read(release)


def test_a_released_vocabulary_has_its_marks_on_any_line(release, tmp_path):
    """Vectors do not depend on it: the marks of a sentence are characters."""
    path = tmp_path / "vocabulary.txt"
    path.write_text("the\nof\n!!!MAXTERMID\n<UNK>\n</S>\nand\n<S>\n")
    model = convert(release, tmp_path / "model", path)
    config, tokenizer, _ = model_folder.restore(model)
    assert list(tokenizer.pieces) == ["the", "of", "<UNK>", "</S>", "and", "<S>"]
    assert config.encoder.vocab_size == 6 and (tokenizer.cls_id, tokenizer.sep_id) == (5, 3)
    (found,) = official.load(model).tokens(SENTENCES[:1])
    recorded = np.load(GOLDEN / "outputs.npz")["0_0"].transpose(1, 0, 2).reshape(-1, 32)
    np.testing.assert_allclose(found.vectors, recorded, atol=1e-5)


def test_a_released_vocabulary_without_unk_gets_it_as_its_last_word(release, tmp_path, capsys):
    path = tmp_path / "vocabulary.txt"
    path.write_text("the\n</S>\n<S>\nof\n")
    tokenizer = elmo.read(release, path).tokenizer
    assert list(tokenizer.pieces) == ["the", "</S>", "<S>", "of", "<UNK>"]
    assert (
        f"{path} has no <UNK>: it becomes the last word, with the id 4" in capsys.readouterr().err
    )


def test_bad_vocabularies(release):
    with pytest.raises(UserError, match="no.txt is missing"):
        elmo.read(release, release.parent / "no.txt")
    words = release.parent / "words.txt"
    words.write_text("the\nof\n")
    with pytest.raises(UserError, match="words.txt lacks <S> </S> <UNK>: a vocabulary of words"):
        elmo.read(release, words)


def test_other_encoders_are_not_written(tmp_path):
    folder = transformer(tmp_path)
    with pytest.raises(
        UserError, match="encoder.type: transformer: --target=elmo supports only bilm"
    ):
        elmo.write(folder, tmp_path / "files", "best")
    assert not (tmp_path / "files").exists()
