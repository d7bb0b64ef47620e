"""Generation with an encoder-decoder: against transformers, against a loop without a cache."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.config.encoders import EncoderDecoderConfig
from official.config.objectives import Seq2SeqLMConfig
from official.modeling import token_loop
from official.saving import checkpoints, model_folder, named_arrays
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving.export import saved_model
from official.serving.generation.generator import Generator
from official.tokenizers.pair_forms import PairForm
from official.utils import seeding
from official.utils.errors import UserError
from tests import GOLDEN, commands
from tests.official.commands.test_export import ask
from tests.official.conversion import systems
from tests.official.serving.generation import t5_weights

NEW = 12
SIZE = 17
# Pieces are letters; the texts of T5 end with id 1.
TOKENIZER = SimpleNamespace(
    pad_id=0,
    sep_id=1,
    unk_id=2,
    vocab_size=SIZE,
    pairs=PairForm(),
    encode=lambda texts: [np.array([ord(c) - ord("a") for c in text], int) for text in texts],
    decode=lambda ids: "".join(chr(i + ord("a")) for i in ids),
)
GREEDY = Settings(NEW)
DRAWN = Settings(NEW, temperature=1.5, top_k=9, top_p=0.9, seed=3)
TEXTS = ["cdefgh", "c", "", "ponmlkjihgfedc"]


def read(number):
    with np.load(GOLDEN / "generation.npz") as file:
        prefix = f"{number}/"
        return {name.removeprefix(prefix): file[name] for name in file if name.startswith(prefix)}


@pytest.fixture(scope="module", params=range(6))
def case(request):
    golden = read(request.param)
    return golden, make(golden)


def make(golden, max_length=64):
    config = configs.Config(
        "t5",
        encoder=t5_weights.encoder_config(json.loads(str(golden["config"]))),
        objectives=(Seq2SeqLMConfig(),),
    )
    model = model_folder.build(config)
    t5_weights.assign(model, {n[7:]: v for n, v in golden.items() if n.startswith("weight/")})
    return Generator(ServedModel(config, TOKENIZER, model, max_length))


@pytest.mark.slow
def test_the_searches_are_those_of_transformers(case):
    golden, generator = case
    batch = golden["token_ids"], golden["padding_mask"]
    assert golden["padding_mask"].sum(axis=1).tolist() == [7, 3, 5]
    found = generator.ids(*batch, GREEDY)
    np.testing.assert_array_equal(found, golden["greedy"])
    for penalty in (0.6, 1.0, 2.0):
        graph = generator._beam_graph
        ids, scores = graph(*map(tf.constant, batch), NEW, 4, "huggingface", tf.constant(penalty))
        np.testing.assert_array_equal(ids[:, 0], golden[f"beams/{penalty}"])
        np.testing.assert_allclose(scores[:, 0], golden[f"scores/{penalty}"], atol=1e-5, rtol=1e-5)


def by_hand(scored, row, settings, number):
    """The new tokens of one row of ids, alone and without a cache."""
    seeds = seeding.row_seeds(settings.seed, 0, tf.constant([number], tf.int64))
    uniforms = seeding.uniforms(seeds, seeding.Stream.GENERATION, settings.max_new_tokens)[0]
    new = []
    for uniform in uniforms.numpy():
        scores = scored(row, new)[-1]
        order = np.argsort(-scores, kind="stable")
        place = 0
        if settings.temperature:
            kept = np.exp(scores[order[: settings.top_k]].astype(float) / settings.temperature)
            kept /= kept.sum()
            kept = kept[np.cumsum(kept) - kept < settings.top_p]
            place = np.searchsorted(np.cumsum(kept) / kept.sum(), uniform, side="right")
        new.append(int(order[place]))
        if new[-1] == 1:
            break
    return new


def reader(model, start_id):
    """A function of a row and new tokens: the scores [V] of the token after each, without cache."""

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)] * 2, autograph=False)
    def read_both(row, decoder_ids):
        encoded = model.encode({"token_ids": row, "decoder_ids": decoder_ids})
        return model.objectives[0].logits(encoded["decoder_output"][0], model.encoder)

    def scores(row, new):
        return read_both(np.array([row], np.int32), np.array([[start_id, *new]], np.int32)).numpy()

    return scores


@pytest.mark.slow
@pytest.mark.parametrize("settings", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_texts_are_those_of_a_loop_without_a_cache(settings):
    generator = make(read(0))
    scored, expected = reader(generator.model, generator.start_id), []
    for number, text in enumerate(TEXTS):
        row = [*TOKENIZER.encode([text])[0], 1]
        new = by_hand(scored, row, settings, number)
        ended = new[: [*new, 1].index(1)]
        expected.append(TOKENIZER.decode([i for i in ended if i != 0]))
    assert generator.texts(TEXTS, settings) == expected
    assert generator.texts(TEXTS, settings, batch_size=2) == expected
    assert len(set(expected)) >= 3
    if settings is DRAWN:
        assert generator.texts(TEXTS, dataclasses.replace(DRAWN, seed=4)) != expected
        assert len(set(generator.texts(["c"] * 4, DRAWN))) > 1


def test_cached_logits_are_those_of_the_whole_sequence():
    golden = read(5)
    generator = make(golden)
    ids, mask = (tf.constant(golden[name]) for name in ("token_ids", "padding_mask"))
    rows = generator.reader.read(ids, mask, NEW)
    cache = rows.self_cache
    tokens = golden["beams/2.0"]
    found = []
    for i in range(NEW):
        read_ids = tf.zeros([3], tf.int32) if i == 0 else tf.constant(tokens[:, i - 1])
        logits, cache = rows.next(read_ids, tf.constant(i), cache)
        found.append(logits.numpy())
    scored = reader(generator.model, 0)
    for row in range(3):
        real = golden["token_ids"][row][golden["padding_mask"][row]]
        whole = scored(real, tokens[row, :-1])
        np.testing.assert_allclose(np.stack(found)[:, row], whole, atol=1e-4, rtol=1e-4)


def test_long_texts_are_cut_and_keep_their_end():
    golden = read(2)
    short, long = make(golden, max_length=6), make(golden)
    found = short.texts(["cdefghijklm", "cde"], GREEDY)
    assert found == long.texts(["cdefg", "cde"], GREEDY)
    assert found[0] != long.texts(["cdefghijklm"], GREEDY)[0]


def test_texts_of_beams_are_cut_at_their_end():
    golden = read(0)
    generator = make(golden)
    settings = Settings(NEW, num_beams=4, length_penalty=0.6, length_rule="huggingface")
    batch = zip(golden["token_ids"], golden["padding_mask"], strict=True)
    read_texts = [TOKENIZER.decode(ids[mask][:-1]) for ids, mask in batch]
    cut = [row[: [*row, 1].index(1)] for row in golden["beams/0.6"].tolist()]
    assert not any(0 in row for row in cut)
    assert sorted(map(len, cut))[:2] == [2, 3]
    assert generator.texts(read_texts, settings) == [TOKENIZER.decode(row) for row in cut]


def test_ids_beyond_the_vocabulary_and_padding_are_decoded_as_in_evaluations():
    golden = read(4)
    fewer = SimpleNamespace(**{**vars(TOKENIZER), "vocab_size": 5})
    generator = Generator(ServedModel(None, fewer, make(golden).model, 64))
    ids = golden["greedy"]
    found = token_loop.greedy(
        generator.model,
        {"padding_mask": golden["padding_mask"]},
        generator.model.encode({n: golden[n] for n in ("token_ids", "padding_mask")}),
        NEW,
        end_id=1,
    )
    np.testing.assert_array_equal(found, ids)
    batch = zip(golden["token_ids"], golden["padding_mask"], strict=True)
    texts = generator.texts([TOKENIZER.decode(row[mask][:-1]) for row, mask in batch], GREEDY)
    ended = [row[: [*row, 1].index(1)] for row in ids.tolist()]
    known = [[i if i < 5 else 2 for i in row if i != 0] for row in ended]
    assert texts == [TOKENIZER.decode(row) for row in known]
    assert ids.max() >= 5


def test_what_cannot_be_generated_is_refused():
    generator = make(read(0))
    assert generator.texts([]) == []
    with pytest.raises(UserError, match="generate: give a list of texts"):
        generator.texts("c")
    with pytest.raises(UserError, match="generate: batch_size: 0 is less than 1"):
        generator.texts(["c"], batch_size=0)
    with pytest.raises(UserError, match="top_k: 3, top_p: 1.0: not supported with temperature 0"):
        generator.texts(["c"], Settings(top_k=3))
    config = configs.Config("x", encoder=generator.model.encoder.config)
    bare = ServedModel(config, TOKENIZER, model_folder.build(config), 64)
    with pytest.raises(UserError, match="it has no causal_lm or seq2seq_lm objective"):
        Generator(bare)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams: 0 is not from 1 to 1,000"),
        ({"num_beams": 1.5}, "num_beams: 1.5 is not a whole number"),
        ({"num_beams": 2, "temperature": 1.0}, "num_beams: 2: beam search draws no tokens"),
        ({"num_beams": 2, "top_k": 3}, "num_beams: 2: beam search draws no tokens"),
        ({"length_rule": "google"}, "length_rule: 'google' is not one of t5, huggingface"),
        ({"length_penalty": -1.0}, "length_penalty: -1.0 is not a finite number, or is negative"),
        ({"length_penalty": float("nan")}, "length_penalty: nan is not a finite number"),
        ({"length_penalty": "x"}, "length_penalty: 'x' is not a number"),
    ],
)
def test_settings_of_beams_are_checked(settings, message):
    with pytest.raises(UserError, match=message):
        Settings(**settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder with random weights and a byte-level vocabulary."""
    path = tmp_path_factory.mktemp("writer") / "model"
    (path / "tokenizer").mkdir(parents=True)
    systems.write_byte_vocabulary(path / "tokenizer", ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
    size = tokenizers.load(path / "tokenizer").vocab_size + 3
    encoder = EncoderDecoderConfig(
        vocab_size=size, hidden_size=12, num_layers=1, num_heads=3, intermediate_size=20,
        tied_output=False, initializer="normal", initializer_range=0.8,
    )  # fmt: skip
    config = configs.Config("writer", encoder=encoder, objectives=(Seq2SeqLMConfig(start_id=1),))
    configs.save(config, path / "config.yaml")
    (path / "task.json").write_text('{"max_length": 24}')
    model = model_folder.build(config)
    checkpoints.save(path, 1, named_arrays.values(model.variables_by_path()), {})
    return path


ODD = [
    "the cat", "", " ", "\0", "\ufeff", "e\u0301\u0323", "\u202eabc", "😀" * 9, "漢字", "x" * 99,
    "</s>", "<pad> <s>", "\n", "a\tb",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_the_saved_model_writes_what_python_writes(folder, tmp_path):
    loaded = official.load(folder)
    beams = {"num_beams": 3, "length_penalty": 1.2, "length_rule": "huggingface"}
    written = loaded.generate(ODD, max_new_tokens=9)
    assert len(set(written)) > 5
    searched = loaded.generate(ODD, max_new_tokens=9, **beams)
    assert searched != written
    assert saved_model.export(folder, tmp_path / "saved", max_new_tokens=9) == ("generate", 24)
    saved_model.export(folder, tmp_path / "beams", max_new_tokens=9, **beams)
    broken = [b"\xff", b"cat\x80"]
    requests = [("generate", {"text": texts}) for texts in (ODD, ODD[:1], [], broken)]
    found = ask(tmp_path / "saved", requests, tmp_path)
    assert [text.decode() for text in found[0]["text"]] == written
    assert found[0]["token_ids"].shape == (len(ODD), 9)
    assert [text.decode() for text in found[1]["text"]] == written[:1]
    assert found[2]["token_ids"].shape == (0, 9) and len(found[2]["text"]) == 0
    replaced = [text.decode(errors="replace") for text in broken]
    read_again = loaded.generate(replaced, max_new_tokens=9)
    assert [text.decode() for text in found[3]["text"]] == read_again
    (found,) = ask(tmp_path / "beams", requests[:1], tmp_path)
    assert [text.decode() for text in found["text"]] == searched
    signatures = tf.saved_model.load(tmp_path / "saved").signatures
    assert set(signatures) == {"generate", "sample", "serving_default"}
    drawn = signatures["sample"](
        text=tf.constant(ODD), temperature=tf.constant(1.5), top_k=tf.constant(40),
        top_p=tf.constant(0.9), seed=tf.constant(3, tf.int64),
    )["text"].numpy()  # fmt: skip
    settings = {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 3}
    in_python = loaded.generate(ODD, max_new_tokens=9, **settings)
    assert [text.decode() for text in drawn] == in_python


@pytest.mark.slow
def test_the_command_line(folder, tmp_path):
    expected = official.load(folder).generate(["the cat"], max_new_tokens=6, num_beams=2)
    done = commands.run(
        "official.main", "--mode=generate", f"--model_dir={folder}", "--max_new_tokens=6",
        "--num_beams=2", "--prompt=the cat", f"--output={tmp_path}/out.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = json.loads((tmp_path / "out.jsonl").read_text())
    assert line == {"prompt": "the cat", "text": expected[0]}
