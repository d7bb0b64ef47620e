"""Filled masks: against transformers, against decoding by hand, in an export, by the command."""

import dataclasses
import json
import re
import shutil
import warnings

import numpy as np
import pytest
import tensorflow as tf

import official
from official.conversion import converted_model, huggingface
from official.modeling.encoders.inputs import encode
from official.saving.generation_settings import Settings
from official.serving.compute import first_call
from official.serving.export import litert, saved_model
from official.serving.generation import mask_filler
from official.serving.generation.generator import Generator
from official.serving.generation.mask_filler import MaskFiller
from official.serving.signatures import table
from official.utils.errors import UserError
from tests import GOLDEN, commands, fill_masks
from tests.official.conversion.test_convert_electra import SHARED, both

EXPECTED = json.loads((GOLDEN / "fill_mask.json").read_text())


@pytest.fixture(scope="module")
def hf(tmp_path_factory):
    return fill_masks.folders(tmp_path_factory.mktemp("fill_masks") / "hf")


@pytest.fixture(scope="module")
def bert(hf, tmp_path_factory):
    return fill_masks.loaded(hf / "bert_pretraining", tmp_path_factory.mktemp("bert") / "model")


@pytest.mark.parametrize("name", EXPECTED)
def test_words_and_probabilities_are_those_of_transformers(name, hf, tmp_path):
    model, texts = fill_masks.loaded(hf / name, tmp_path / "model")
    fill_masks.compare(model.fill_mask(texts), EXPECTED[name])


def test_batches_and_progress(bert):
    model, texts = bert
    lines = []
    fillings = model.filler.texts(texts, batch_size=3, report=lines.append)
    fill_masks.compare(fillings, EXPECTED["bert_pretraining"])
    assert model.fill_mask([]) == []


def test_all_calls_but_the_first_run_in_a_graph(hf, tmp_path, monkeypatch):
    model, texts = fill_masks.loaded(hf / "bert_pretraining", tmp_path / "model")
    monkeypatch.setattr(first_call, "EAGER_SPLITS", 1)
    eager = []

    def noted(owner, name):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **options: note() or real(*args, **options))

    note = lambda: eager.append(tf.executing_eagerly())  # noqa: E731
    noted(MaskFiller, "encoded")
    noted(type(model.tokenizer), "tokenize_with_offsets")
    traced_one_after_another = [True, True], [False, True], [True], [True], [False], []
    assert first_call.EAGER_CALLS == 4
    for expected in traced_one_after_another:
        eager.clear()
        fill_masks.compare(model.fill_mask(texts), EXPECTED["bert_pretraining"])
        assert eager == expected


def test_words_stand_in_the_text(bert):
    model, _ = bert
    text = "a (big [MASK]), [MASK]"
    (first, second), (third,) = model.fill_mask([text, "un[MASK]"], 3, ["cat", "##s", "."])
    by_word = lambda fillings: {f.word: f.text for f in fillings}  # noqa: E731
    assert by_word(first) == {
        "cat": "a (big cat), [MASK]", "##s": "a (bigs), [MASK]", ".": "a (big .), [MASK]",
    }  # fmt: skip
    assert by_word(second)["##s"] == "a (big [MASK]),s"
    assert by_word(third) == {"cat": "un cat", "##s": "uns", ".": "un."}


def test_targets(bert):
    model, texts = bert
    (every,) = model.fill_mask(texts[:1], top_k=1000)[0]
    (chosen,) = model.fill_mask(texts[:1], targets=["CAT", "##s", "mat"])[0]
    wanted = [f for f in every if f.word in ("cat", "##s", "mat")]
    assert [f.word for f in chosen] == [f.word for f in wanted]
    chances = [[f.probability for f in fillings] for fillings in (chosen, wanted)]
    np.testing.assert_allclose(*chances, rtol=1e-6)
    for targets, message in (
        (["cat dog"], "'cat dog' is not one token of this vocabulary, but cat dog"),
        ([""], "'' is not one token of this vocabulary, but nothing"),
        ([], "the list is empty"),
        ("cat", "give a list"),
    ):
        with pytest.raises(UserError, match=f"targets: .*{re.escape(message)}"):
            model.fill_mask(texts, targets=targets)


@pytest.mark.parametrize(
    "text, spelled, expected",
    [
        ("a cat_", " sat", "a cat sat"), ("a cat _", " sat", "a cat sat"), ("re _", "do", "redo"),
        ("北京是_国", " 中", "北京是中国"), ("यह किताब की_", " बात", "यह किताब की बात"),
        ("ดี_", " มาก", "ดีมาก"),
    ],
)  # fmt: skip
def test_blanks_before_what_is_filled_in(text, spelled, expected):
    place = text.index("_")
    assert mask_filler._filled(text, (place, place + 1), spelled) == expected


def test_texts_that_cannot_be_filled(bert, hf, tmp_path):
    model, _ = bert
    with pytest.raises(UserError, match=r"text 2 has no mask: write \[MASK\] where .*'a mask'"):
        model.fill_mask(["the [MASK]", "a mask"])
    assert model.max_length == 24
    long = "the [MASK] " + "cat " * 30 + "[MASK]"
    message = r"text 2 has 2 masks, and 1 of them are within the first 24 tokens"
    with pytest.raises(UserError, match=message):
        model.fill_mask(["[MASK]", long])
    with pytest.raises(UserError, match="give a list of texts"):
        model.fill_mask("the [MASK]")
    with pytest.raises(UserError, match="top_k: 0 is less than 1"):
        model.fill_mask(["the [MASK]"], top_k=0)
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "bare")
    with pytest.raises(UserError, match="fill_mask: masks are filled by .* this model has none"):
        official.load(tmp_path / "bare").fill_mask(["the [MASK]"])


def test_the_generator_of_an_electra_fills(tmp_path):
    both(tmp_path / "hf", SHARED)
    models = []
    for name, folder in (("both", tmp_path / "hf"), ("alone", tmp_path / "hf" / "generator")):
        models.append(fill_masks.loaded(folder, tmp_path / name))
    (joined, texts), (alone, _) = models
    assert [o.type for o in joined.config.objectives] == ["generator", "replaced_tokens"]
    found, expected = (model.fill_mask(texts) for model in (joined, alone))
    rows = [[[(f.token_ids[0], f.word, f.probability) for f in m] for m in t] for t in expected]
    fill_masks.compare(found, rows)


def test_signatures(bert, tmp_path):
    """The functions of an export, before they are saved."""
    model, texts = bert
    fillings = model.fill_mask([*texts, texts[0]], top_k=4)
    folder = tmp_path / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "pretraining"), folder)
    context, kind, default = saved_model.restore(folder)
    signatures = table.make(context, kind, default)[1]
    assert default == "single" and {"fill_mask", "fill_mask_tokens"} < set(signatures)
    given = tf.constant([*texts, texts[0], "no mask", ""])
    outputs = {k: v.numpy() for k, v in signatures["fill_mask"](given, tf.constant(4)).items()}
    assert outputs["number"].tolist() == [1, 3, 1, 1, 1, 0, 0]
    check_outputs(outputs, fillings)
    assert outputs["words"][0, 1:].tolist() == [[b""] * 4] * 2
    assert not outputs["probabilities"][5:].any()
    empty = signatures["fill_mask"](tf.constant([], tf.string), tf.constant(4))
    assert empty["words"].shape[:2] == (0, 0)


def check_outputs(outputs, fillings):
    for row, text in enumerate(fillings):
        for i, mask in enumerate(text):
            assert outputs["token_ids"][row, i].tolist() == [f.token_ids[0] for f in mask]
            chances = [f.probability for f in mask]
            np.testing.assert_allclose(outputs["probabilities"][row, i], chances, atol=1e-6)
            if "words" in outputs:
                assert outputs["words"][row, i].tolist() == [f.word.encode() for f in mask]


@pytest.mark.slow
def test_litert(bert, tmp_path):
    model, texts = bert
    folder = tmp_path / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "pretraining"), folder)
    litert.export(folder, tmp_path / "lite")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert")
        interpreter = tf.lite.Interpreter(str(tmp_path / "lite" / litert.FILE))
    assert set(interpreter.get_signature_list()) == {"tokens", "embed_tokens", "fill_mask_tokens"}
    run = interpreter.get_signature_runner("fill_mask_tokens")
    mask = model.tokenizer.mask_id
    rows = [[2, 7, mask, 3, 0, 0], [2, mask, 7, mask, 8, 3]]
    ids = np.array(rows, np.int32)
    positions = np.array([[2, 0], [1, 3]], np.int32)
    outputs = run(
        input_word_ids=ids, input_mask=(ids != 0).astype(np.int32),
        input_type_ids=np.zeros_like(ids), masked_positions=positions, top_k=np.int32(3),
    )  # fmt: skip
    head = model.model.objectives[0]
    states = encode(model.model.encoder, {"token_ids": ids, "padding_mask": ids != 0})
    states = np.asarray(states["sequence_output"])
    for row, column in ((0, 0), (1, 0), (1, 1)):
        state = states[row, positions[row, column]][None]
        chances = tf.nn.softmax(head.logits(state, model.model.encoder)[0]).numpy()
        best = np.argsort(-chances)[:3]
        assert outputs["token_ids"][row, column].tolist() == best.tolist()
        np.testing.assert_allclose(outputs["probabilities"][row, column], chances[best], atol=1e-5)


@pytest.mark.slow
def test_command(tmp_path):
    folder = tmp_path / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "pretraining"), folder)
    texts = [text.format(mask="[MASK]") for text in fill_masks.TEXTS]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    options = ["--mode=fill_mask", f"--model_dir={folder}", f"--texts={tmp_path}/texts.txt"]
    output = tmp_path / "filled.jsonl"
    done = commands.run("official.main", *options, f"--output={output}", "--top_k=2", status=0)
    assert f"wrote {output}" in done.stdout
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["text"] for line in lines] == texts
    fillings = [[[mask_filler.Filling(**f) for f in m] for m in x["masks"]] for x in lines]
    rows = EXPECTED["bert_pretraining"]
    fill_masks.compare(fillings, [[mask[:2] for mask in text] for text in rows])
    output.unlink()
    (tmp_path / "texts.txt").write_text("[MASK]\nnothing\n")
    done = commands.run("official.main", *options, f"--output={output}", status=2)
    assert "text 2 has no mask" in done.stderr and not output.exists()


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    """Random weights that like the sentinels 0 and 1; text after a sentinel has a blank."""
    parent = tmp_path_factory.mktemp("t5")
    shutil.copytree(GOLDEN / "t5" / "v1_0", parent / "hf")
    settings = parent / "hf" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"legacy": True}))
    folder = parent / "model"
    converted_model.write(huggingface.read(parent / "hf"), folder)
    model = official.load(folder)
    table, names = model.model.encoder.token_table.table, model.tokenizer.sentinel_ids
    rows, values = [names[0], names[1], names[22], names[11]], table.numpy().copy()
    values[rows] = values[rows[2:] + rows[:2]]
    values[rows[0]] *= 0.5
    table.assign(values)
    return model


def test_sentinels_are_filled_by_generation(t5):
    texts = ["we <extra_id_0> of the <extra_id_1>", "the <extra_id_0> cat <extra_id_1>."]
    fillings = t5.fill_mask(texts, top_k=5)
    tokenizer, model = t5.tokenizer, t5.model
    first, second = tokenizer.sentinel_ids[:2]
    encode_one = lambda text: tokenizer.encode([text])[0].tolist()  # noqa: E731
    rows = [
        [*encode_one("we"), first, *encode_one("of the"), second, tokenizer.sep_id],
        [*encode_one("the"), first, *encode_one("cat"), second, *encode_one("."), tokenizer.sep_id],
    ]
    some = set()
    for text, masks, row in zip(texts, fillings, rows, strict=True):
        ids = np.array([row], np.int32)
        settings = Settings(num_beams=5, num_return_sequences=5, length_penalty=0.0)
        beams = Generator(t5._source).ids(ids, np.ones_like(ids, bool), settings)
        assert [len(mask) for mask in masks] == [5] * text.count("<")
        for number, beam in enumerate(beams.tolist()):
            beam = beam[: beam.index(tokenizer.sep_id) + 1]
            # The probability of the whole text, token by token.
            batch = {"token_ids": ids, "decoder_ids": np.array([[0, *beam[:-1]]], np.int32)}
            states = encode(model.encoder, batch)["decoder_output"][0]
            logits = model.objectives[0].logits(states, model.encoder)
            chances = tf.nn.softmax(logits).numpy()[np.arange(len(beam)), beam]
            spelled = tokenizer.decode(beam[:-1])
            for i, mask in enumerate(masks):
                name = f"<extra_id_{i}>"
                found = re.search(f"{name} ?(.*?) ?(<extra|$)", spelled)
                word = found[1] if found else ""
                assert mask[number].word == word
                some.add(word)
                np.testing.assert_allclose(mask[number].probability, chances.prod(), rtol=1e-4)
                # "h" has no mark of a word's beginning.
                assert mask[number].text == text.replace(f" {name}", word)
    assert some == {"", "h", "hh"}


def test_sentinels_that_cannot_be_filled(t5):
    for texts, options, message in (
        (["a <extra_id_0>", "the cat"], {}, "text 2 has no mask: write <extra_id_0> where"),
        (["a <extra_id_1> b"], {}, "text 1 has the sentinels <extra_id_1>: number them from 0"),
        (["<extra_id_0> <extra_id_0>"], {}, "<extra_id_0>, <extra_id_0>: number them from 0"),
        (["a <extra_id_0>"], {"targets": ["cat"]}, "targets: not supported for an encoder-decoder"),
        (["a cat " * 6 + "<extra_id_0>"], {}, "has 1 masks, and 0 of them are within"),
    ):
        filler = mask_filler.SentinelFiller(dataclasses.replace(t5._source, max_length=12))
        with pytest.raises(UserError, match=message):
            filler.texts(texts, **options)
