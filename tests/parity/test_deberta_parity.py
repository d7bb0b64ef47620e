"""DeBERTa v1 to v3 against transformers: states, gradients, rows with several texts, and ids."""

import io
import json
import re
import shutil

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from official import tokenizers
from official.conversion import converted_model, huggingface, mapping
from official.modeling import masks
from official.saving import model_folder
from tests import GOLDEN
from tests.official.conversion import systems
from tests.official.tokenizers.test_tokenizer_json import alone

NAMES = ("v3", "v2", "v1")


@pytest.fixture(scope="module")
def folders(hf, tmp_path_factory):
    """The models of transformers, and ours of each."""
    parent = tmp_path_factory.mktemp("deberta")
    hf.run("hf_deberta.py", parent)
    for name in (*NAMES, "released"):
        kind = json.loads((parent / name / "config.json").read_text())["model_type"]
        systems.write_vocabulary(parent / name, kind)
        if kind == "deberta-v2":  # with a piece for each row of the table, but for a few
            (parent / name / "spm.model").write_bytes(model_of(256))
        converted_model.write(huggingface.read(parent / name), parent / f"{name}-ours")
    return parent


def model_of(size):
    """DeBERTa's unigram model without the mask token, learned from the texts of a golden file."""
    golden = json.loads((GOLDEN / "tokenizer.json").read_text())
    texts = [row["text"] for row in golden["cased"]]
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 3), model_writer=data, vocab_size=size, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]", hard_vocab_limit=False, character_coverage=0.98, minloglevel=2,
    )  # fmt: skip
    return data.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_states_and_gradients_of_rows_padded_on_either_side(folders, name):
    config, _, model = model_folder.restore(folders / f"{name}-ours")
    batch = dict(np.load(folders / name / "batch.npz"))
    answers = dict(np.load(folders / name / "answers.npz"))
    real = batch["padding_mask"]
    paths = model.variables_by_path()
    variables = {p: v.value for p, v in paths.items() if p.startswith("encoder/")}
    with tf.GradientTape() as tape:
        tape.watch(list(variables.values()))
        mask = masks.padding(real)
        states = model.encoder(batch["token_ids"], attention_mask=mask)["sequence_output"]
        total = tf.reduce_sum(states * batch["factors"])
    theirs = answers.pop("states")
    np.testing.assert_allclose(states.numpy()[real], theirs[real], rtol=0, atol=1e-5)
    gradients = tape.gradient(total, list(variables.values()))
    gradients = {
        path: tf.convert_to_tensor(gradient).numpy()
        for path, gradient in zip(variables, gradients, strict=True)
    }
    system = huggingface.system_of(config)
    ours = mapping.take_out(system.rows(config.encoder, ()), gradients)
    assert {f"gradient/{key.removeprefix('deberta.')}" for key in ours} == answers.keys()
    for key, gradient in ours.items():
        expected = answers[f"gradient/{key.removeprefix('deberta.')}"]
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(gradient / scale, expected / scale, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_texts_that_share_a_row_have_the_states_of_transformers(folders, name):
    """The three texts one after the other in one row, each seeing only itself."""
    model = model_folder.restore(folders / f"{name}-ours")[2]
    batch = dict(np.load(folders / name / "batch.npz"))
    theirs = np.load(folders / name / "answers.npz")["states"]
    real = batch["padding_mask"]
    parts = np.repeat(np.arange(3), real.sum(axis=1))[None]
    ids = batch["token_ids"][real][None]
    positions = np.zeros_like(ids)  # nothing reads them, and the row is longer than a text may be
    encoded = model.encoder(ids, None, masks.parts(parts), positions=positions)
    np.testing.assert_allclose(encoded["sequence_output"][0], theirs[real], rtol=0, atol=1e-5)


def test_a_released_discriminator_and_its_generator(hf, folders):
    """Read from torch's files, written, and read again."""
    config, _, model = model_folder.restore(folders / "released-ours")
    generator, head = model.objectives
    settings = generator.config
    assert (settings.sharing, settings.num_layers, settings.size) == ("gdes", 2, 1.0)
    batch = dict(np.load(folders / "released" / "batch.npz"))
    answers = dict(np.load(folders / "released" / "answers.npz"))
    real = batch["padding_mask"]
    states = model.encode(batch)["sequence_output"]
    filled = generator.head.states(batch, generator.generator)
    logits = generator.head.logits(tf.reshape(filled, (-1, 24)), generator.generator)
    for name, actual in {
        "states": states,
        "replaced": head.logits(states),
        "filled": tf.reshape(logits, (*real.shape, -1)),
    }.items():
        expected = answers[name][real]
        np.testing.assert_allclose(actual.numpy()[real], expected, rtol=0, atol=3e-5, err_msg=name)
    huggingface.write(folders / "released-ours", folders / "released-out", "last")
    before = huggingface.read(folders / "released")
    after = huggingface.read(folders / "released-out")
    assert before.leftover == [] and after.config.objectives == before.config.objectives
    assert config.objectives == before.config.objectives
    assert after.variables.keys() == before.variables.keys()
    for path, array in before.variables.items():
        assert after.variables[path].tobytes() == array.tobytes(), path
    shutil.copy(folders / "released" / "batch.npz", folders / "released-out")
    hf.run("hf_deberta.py", "again", folders / "released-out")
    theirs = np.load(folders / "released-out" / "again.npz")["states"]
    np.testing.assert_array_equal(theirs[real], answers["states"][real])


def by_class(folder, name):
    """Makes transformers 4 read a written vocabulary by a class, with its own fast tokenizer."""
    (folder / "tokenizer.json").unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": name}))


def test_ids_of_a_sentencepiece_model_without_the_mask_token(hf, folders):
    golden = json.loads((GOLDEN / "tokenizer.json").read_text())
    texts = [row["text"] for row in golden["cased"]]
    texts += ["", " ", "two  blanks", "a\ttab and\na line", "Straße ﬁne ½ Ω 日本", " first"]
    # Of a long run of one character, pieces with equal scores may be chosen in another order.
    texts = [text for text in texts if not re.search(r"(\S)\1{4}", text)]
    huggingface.write(folders / "v3-ours", folders / "written", "last")
    (folders / "written" / "texts.json").write_text(json.dumps(texts))
    by_class(folders / "written", "DebertaV2Tokenizer")
    hf.run("hf_deberta.py", "tokenizer", folders / "written")
    ids = json.loads((folders / "written" / "ids.json").read_text())
    ours = model_folder.restore(folders / "v3-ours")[1]
    assert [row.tolist() for row in ours.encode(texts, special=True)] == ids["plain"]
    pairs = [[ours.cls_id, *row, ours.sep_id, *row, ours.sep_id] for row in ids["plain"]]
    assert pairs == ids["pairs"]
    pieces = len(sentencepiece.SentencePieceProcessor(model_proto=model_of(256)))
    assert ours.mask_id == ids["mask"] == pieces
    assert (ours.pad_id, ours.cls_id, ours.sep_id, ours.unk_id) == (0, 1, 2, 3)
    before, after = (folders / name / "spm.model" for name in ("v3", "written"))
    assert after.read_bytes() == before.read_bytes()
    (folders / "written" / "fast" / "spm.model").unlink()
    fast = tokenizers.load(folders / "written" / "fast")
    for text, row, theirs in zip(texts, fast.encode(texts, special=True), ids["fast"], strict=True):
        # Of two marks on a letter, `tokenizers` drops the one that is not composed with it.
        known = alone(text) or "a\u0300\u0301" in text
        assert row.tolist() == theirs or known, text


def test_ids_of_a_byte_vocabulary(hf, folders):
    """Of v1: from `vocab.json` with `merges.txt`, and from `tokenizer.json`."""
    texts = [row["text"] for row in json.loads((GOLDEN / "tokenizer.json").read_text())["cased"]]
    texts += ["", " ", "two  blanks", "the [MASK] cat", "the\tother\nline "]
    huggingface.write(folders / "v1-ours", folders / "written_v1", "last")
    by_class(folders / "written_v1", "DebertaTokenizer")
    (folders / "written_v1" / "texts.json").write_text(json.dumps(texts))
    hf.run("hf_deberta.py", "tokenizer", folders / "written_v1")
    ids = json.loads((folders / "written_v1" / "ids.json").read_text())
    ours = model_folder.restore(folders / "v1-ours")[1]
    for file in ("vocab.json", "merges.txt"):
        (folders / "written_v1" / "fast" / file).unlink()
    fast = tokenizers.load(folders / "written_v1" / "fast")
    for tokenizer in (ours, fast):
        found = [row.tolist() for row in tokenizer.encode(texts, special=True)]
        assert found == ids["fast"]
        assert tokenizer.mask_id == ids["mask"] and tokenizer.pair_separators == 1
    pairs = [[ours.cls_id, *row, ours.sep_id, *row, ours.sep_id] for row in ids["plain"]]
    assert pairs == ids["pairs"]
