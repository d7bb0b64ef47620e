"""Text generation: against transformers, against a loop without a cache, and at its doors."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.config import compatibility
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.objectives import DIRECTIONS, CausalLMConfig, MaskedLMConfig
from official.conversion import converted_model, huggingface
from official.saving import checkpoints, model_folder, named_arrays
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving.export import saved_model
from official.serving.generation.generator import Generator, ends, padded
from official.serving.signatures import table
from official.utils import seeding
from official.utils.errors import UserError
from tests import commands
from tests.official.commands.test_export import ask
from tests.official.conversion import systems

GREEDY = Settings(max_new_tokens=9, temperature=0.0)
DRAWN = Settings(max_new_tokens=9, temperature=1.5, top_k=40, top_p=0.9, seed=3)
PROMPTS = ["the other", "", "a", "the cat; the dog"]
# Its memory is shorter than the prompts, and clamped distances are passed.
XL = TransformerXLConfig(
    hidden_size=12, num_layers=2, num_heads=3, intermediate_size=20, segment_types=0,
    attention="uni", memory_length=4, clamp_length=11, query_stream=False, initializer_range=0.6,
)  # fmt: skip
STREAM = configs.Segments(format="stream", max_length=16, rows=2)
KINDS = {
    "forward": {},
    "backward": {"direction": "backward"},
    "transformer_xl": {"encoder": XL},
    "transformer_xl, backward": {"encoder": XL, "direction": "backward"},
    "stream": {"encoder": dataclasses.replace(XL, untie_biases=False), "segments": STREAM},
}
# Both encoders and both directions, for what does not depend on how they go together.
BOTH = pytest.mark.parametrize("folder", ["forward", "transformer_xl, backward"], indirect=True)


def make(folder, direction="forward", encoder=None, segments=None, **changes):
    """A model folder with random weights and a byte-level vocabulary."""
    folder.mkdir(parents=True)
    (folder / "tokenizer").mkdir()
    systems.write_byte_vocabulary(
        folder / "tokenizer", ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]
    )
    tokenizer = tokenizers.load(folder / "tokenizer")
    size = tokenizer.vocab_size + 3
    encoder = (
        dataclasses.replace(encoder, vocab_size=size)
        if encoder
        else TransformerConfig(
            **{
                "vocab_size": size,
                "hidden_size": 12,
                "num_layers": 2,
                "num_heads": 3,
                "intermediate_size": 20,
                "max_positions": 28,
                "segment_types": 0,
                "norm": "pre",
                "causal": True,
                "pooler": False,
                "initializer_range": 0.6,
                **changes,
            }
        )
    )
    objectives = (CausalLMConfig(direction=direction),)
    config = configs.Config("writer", segments=segments, encoder=encoder, objectives=objectives)
    configs.save(config, folder / "config.yaml")
    checkpoints.save(
        folder, 1, named_arrays.values(model_folder.build(config).variables_by_path()), {}
    )
    return folder


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return make(tmp_path_factory.mktemp("writer") / "model", **KINDS[request.param])


@pytest.fixture(scope="module")
def generator(folder):
    return Generator(ServedModel(*model_folder.restore(folder), 28))


def by_hand(generator, row, settings, number):
    """The new tokens of one row of ids, alone and without a cache."""
    model, tokenizer = generator.model, generator.tokenizer
    seeds = seeding.row_seeds(settings.seed, 0, tf.constant([number], tf.int64))
    uniforms = seeding.uniforms(seeds, seeding.Stream.GENERATION, settings.max_new_tokens)[0]
    new = []
    for uniform in uniforms.numpy():
        tokens = np.array([[*row, *new]], np.int32)
        state = model.encode({"token_ids": tokens})["sequence_output"][0, -1].numpy()
        scores = model.encoder.token_table.table.numpy() @ state
        scores = scores[: tokenizer.vocab_size]
        order = np.argsort(-scores, kind="stable")
        place = 0
        if settings.temperature:
            kept = np.exp(scores[order[: settings.top_k]].astype(float) / settings.temperature)
            kept /= kept.sum()
            kept = kept[np.cumsum(kept) - kept < settings.top_p]
            place = np.searchsorted(np.cumsum(kept) / kept.sum(), uniform, side="right")
        new.append(int(order[place]))
        if new[-1] == generator.end_id:
            break
    return new


@pytest.mark.slow
def test_the_cache_changes_nothing(generator):
    read = [ids.tolist() for ids in generator.tokenizer.encode(PROMPTS)]
    rows = [
        [generator.start_id, *(ids[::-1] if generator.reader.backward else ids)] for ids in read
    ]
    ids, mask = padded(rows, 19, generator.tokenizer.pad_id, side="left")
    assert sorted(mask.sum(axis=1)) == sorted(map(len, rows)) and len(set(map(len, rows))) == 4
    actual = generator.ids(ids, mask, GREEDY)
    expected = [by_hand(generator, row, GREEDY, i) for i, row in enumerate(rows)]
    for new, wanted in zip(actual.tolist(), expected, strict=True):
        filler = [generator.tokenizer.pad_id] * (GREEDY.max_new_tokens - len(wanted))
        assert new == wanted + filler
    # They differ, and are no copies of one token.
    assert len({tuple(new) for new in expected}) >= 3
    assert max(len(set(new)) for new in expected) > 2


def test_what_opens_a_text_and_ends_it(folder, generator):
    config, tokenizer = configs.load(folder), generator.tokenizer
    expected = [tokenizer.cls_id, tokenizer.sep_id]
    if generator.reader.backward:
        expected = expected[::-1]
    if config.segments is not None:  # Its rows have nothing but [SEP] between documents.
        expected = [tokenizer.sep_id] * 2
    assert [generator.start_id, generator.end_id] == expected
    assert tokenizer.cls_id != tokenizer.sep_id


def test_rows_say_what_opens_a_text_and_ends_it():
    """Blocks have nothing but a separator behind each document, and full sentences have both."""
    tokenizer = SimpleNamespace(cls_id=1, sep_id=2)

    def found(direction="forward", **segments):
        config = configs.Config(
            "writer",
            segments=configs.Segments(**segments),
            objectives=(CausalLMConfig(direction=direction),),
        )
        return ends(config, tokenizer)

    for direction in DIRECTIONS:
        assert found(direction, format="blocks") == (2, 2)
    assert found(format="stream", rows=2) == (2, 2)
    assert found(format="full_sentences") == (1, 2)
    assert found("backward", format="full_sentences") == (2, 1)


@pytest.mark.slow
@BOTH
def test_the_whole_is_one_graph_of_static_shapes(generator):
    rows = [[generator.start_id, 40, 41, 42], [generator.start_id, 43]]
    ids, mask = (tf.constant(values) for values in padded(rows, 5, 1, side="left"))
    graph = tf.function(generator.write, autograph=False).get_concrete_function(ids, mask, 4)
    loops = [op for op in graph.graph.get_operations() if op.type.endswith("While")]
    assert len(loops) == 1
    shapes = [output.shape for output in loops[0].outputs]
    assert [2, 3, 8, 4] in [shape.as_list() for shape in shapes]  # keys of five slots and three
    assert all(shape.is_fully_defined() for shape in shapes)
    compiled = tf.function(generator.write, autograph=False, jit_compile=True)
    np.testing.assert_array_equal(compiled(ids, mask, 4), generator.write(ids, mask, 4))


def test_greedy_search_is_that_of_transformers(tmp_path):
    config, parts, _ = systems.load("gpt2_causal_lm")
    folder = systems.write(tmp_path / "hf", config, parts["weight"])
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    restored = model_folder.restore(tmp_path / "model")
    generator = Generator(ServedModel(*restored, 64))
    assert (generator.start_id, generator.end_id) == (258, 258)
    golden = parts["generation"]
    settings = Settings(max_new_tokens=7, temperature=0.0)
    assert golden["padding_mask"].sum(axis=1).tolist() == [6, 3]
    for end, name in ((-1, "free"), (int(golden["end"]), "ended")):
        generator = Generator(ServedModel(*restored, 64))
        generator.end_id = end
        actual = generator.ids(golden["token_ids"], golden["padding_mask"], settings)
        expected = np.where(golden[name] == 257, generator.tokenizer.pad_id, golden[name])
        np.testing.assert_array_equal(actual, expected)
    assert (golden["ended"][0] == 257).any() and not (golden["ended"][1] == 257).any()
    assert len(np.unique(golden["free"])) > 2


@pytest.mark.slow
@pytest.mark.long
@BOTH
def test_texts_are_the_prompts_and_what_comes_after_or_before(generator):
    texts = generator.texts(PROMPTS, DRAWN)
    end = str.endswith if generator.reader.backward else str.startswith
    assert all(end(text, prompt) for text, prompt in zip(texts, PROMPTS, strict=True))
    assert any(text != prompt for text, prompt in zip(texts, PROMPTS, strict=True))
    rows = [generator.tokenizer.encode([prompt])[0].tolist() for prompt in PROMPTS]
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        read = [generator.start_id, *(row[::-1] if generator.reader.backward else row)]
        new = by_hand(generator, read, DRAWN, number)
        new = new[:-1] if new[-1] == generator.end_id else new
        whole = [*new[::-1], *row] if generator.reader.backward else [*row, *new]
        assert generator.tokenizer.decode(whole) == text
    assert generator.texts(PROMPTS, DRAWN, batch_size=1) == texts
    assert generator.texts(PROMPTS, DRAWN, batch_size=3) == texts
    other = generator.texts(PROMPTS, Settings(9, 1.5, 40, 0.9, seed=4))
    assert other != texts
    # The same prompt, another number: another text.
    assert len(set(generator.texts(["the"] * 6, DRAWN))) > 1
    assert generator.texts([], DRAWN) == []


@pytest.mark.slow
@pytest.mark.long
@BOTH
def test_the_saved_model_writes_the_same(folder, generator, tmp_path):
    saved_model.export(folder, tmp_path / "saved", max_length=24, max_new_tokens=9)
    greedy = generator.texts(PROMPTS, GREEDY)
    long = "the dog " * 20
    (alone, cut, none) = ask(
        tmp_path / "saved",
        [("generate", {"text": texts}) for texts in (PROMPTS, [long], [])],
        tmp_path,
    )
    assert [text.decode() for text in alone["text"]] == greedy
    assert alone["token_ids"].shape == (4, 9)
    assert none["token_ids"].shape == (0, 9) and len(none["text"]) == 0
    # Of a long text the 14 tokens next to what is written are read.
    row = generator.tokenizer.encode([long])[0].tolist()
    near = row[:14][::-1] if generator.reader.backward else row[-14:]
    expected = by_hand(generator, [generator.start_id, *near], GREEDY, 0)
    assert cut["token_ids"][0].tolist()[: len(expected)] == expected
    end = str.endswith if generator.reader.backward else str.startswith
    assert end(cut["text"][0].decode(), long)

    signatures = tf.saved_model.load(tmp_path / "saved").signatures
    served = signatures["serving_default"].structured_outputs
    assert served.keys() == {"sequence_output", "input_mask"}
    sample = signatures["sample"]

    def sampled(temperature, top_k, top_p, seed):
        return sample(
            text=tf.constant(PROMPTS), temperature=tf.constant(temperature),
            top_k=tf.constant(top_k), top_p=tf.constant(top_p), seed=tf.constant(seed, tf.int64),
        )["text"].numpy()  # fmt: skip

    actual = [text.decode() for text in sampled(1.5, 40, 0.9, 3)]
    assert actual == generator.texts(PROMPTS, DRAWN)
    assert [text.decode() for text in sampled(0.0, 0, 1.0, 3)] == greedy
    # With the smallest settings the likeliest token is left.
    assert [text.decode() for text in sampled(1.0, 0, 1e-30, 3)] == greedy
    assert [text.decode() for text in sampled(1e-45, 0, 1.0, 3)] == greedy
    for bad, message in (
        ((1.0, 0, 0.0), r"\[top_p:\] \[0\] \[is not in \(0, 1\]; 1 stands for all tokens\]"),
        ((1.0, 0, -0.5), r"\[top_p:\] \[-0\.5\] \[is not in \(0, 1\]"),
        ((1.0, 0, 1.5), r"\[top_p:\] \[1\.5\] \[is not in \(0, 1\]"),
        ((1.0, 0, np.nan), r"\[top_p:\] \[-?nan\] \[is not in \(0, 1\]"),
        ((np.nan, 0, 1.0), r"\[temperature:\] \[-?nan\] \[is not a finite number of at least 0"),
        ((-0.1, 0, 1.0), r"\[temperature:\] \[-0\.1\] \[is not a finite number of at least 0"),
        ((np.inf, 0, 1.0), r"\[temperature:\] \[inf\] \[is not a finite number of at least 0"),
        ((1.0, -1, 1.0), r"\[top_k:\] \[-1\] \[is negative; 0 stands for all tokens\]"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            sampled(*bad, 3)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["backward"], indirect=True)
def test_the_signature_of_beams_continues_each_prompt(folder):
    beams = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}
    context, kind, default = saved_model.restore(folder, max_length=24, **beams)
    generate = table.make(context, kind, default)[1]["generate"]
    found = generate(tf.constant(PROMPTS))
    assert found["text"].shape == (4, 2) and found["token_ids"].shape == (4, 2, 4)
    expected = official.load(folder).generate(PROMPTS, **beams)
    assert [text.decode() for text in found["text"].numpy().ravel()] == expected
    assert len(set(expected)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["forward"], indirect=True)
def test_a_loaded_model_writes(folder, generator):
    loaded = official.load(folder)
    greedy = generator.texts(["the"], GREEDY)
    assert loaded.generate(["the"], max_new_tokens=9, temperature=0.0) == greedy
    # Values that float32 and int32 do not have.
    assert loaded.generate(["the"], max_new_tokens=9, top_p=1e-60) == greedy
    assert loaded.generate(["the"], max_new_tokens=9, temperature=1e-60, top_k=2**40) == greedy
    for bad in ({"top_p": float("nan")}, {"top_p": 0}, {"temperature": -1}, {"top_k": -1}):
        with pytest.raises(UserError, match=next(iter(bad))):
            loaded.generate(["the"], **bad)


def test_without_settings_new_tokens_are_half_of_the_positions(tmp_path):
    loaded = official.load(make(tmp_path / "model"))
    greedy = loaded.generate(["the"], temperature=0.0)
    assert greedy == loaded.generate(["the"], temperature=0.0, max_new_tokens=14)
    assert len(greedy[0]) > 3
    with pytest.raises(UserError, match="take a smaller max_new_tokens"):
        loaded.generate(["the"], max_new_tokens=64)


@pytest.mark.slow
@pytest.mark.long
def test_the_command_line(tmp_path):
    folder = make(tmp_path / "model")
    expected = official.load(folder).generate(PROMPTS, max_new_tokens=6, top_k=9, seed=2)
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")

    def run(*options):
        return commands.run("official.main", "--mode=generate", *options)

    how = [f"--model_dir={folder}", "--max_new_tokens=6", "--top_k=9", "--seed=2"]
    done = run(*how, f"--prompts={tmp_path}/prompts.txt", f"--output={tmp_path}/out.jsonl")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [
        {"prompt": prompt, "text": text} for prompt, text in zip(PROMPTS, expected, strict=True)
    ]
    done = run(*how, f"--prompt={PROMPTS[0]}")
    assert (done.returncode, done.stdout) == (0, expected[0] + "\n")
    for options, message in (
        (how, "give either --prompt=TEXT (which may be empty) or --prompts=FILE"),
        ([*how, "--prompt=a", "--output=out.txt"], "out.txt: texts are written as .jsonl"),
        ([*how, "--prompt=a", "--top_p=2"], "top_p: 2.0 is not in (0, 1]"),
        (["--prompt=a"], "--model_dir is missing (--mode=generate)"),
    ):
        done = run(*options)
        assert done.returncode and message in done.stderr, done.stderr


def test_what_cannot_write_is_refused(tmp_path):
    folder = make(tmp_path / "model")
    config, tokenizer, model = model_folder.restore(folder)
    generator = Generator(ServedModel(config, tokenizer, model, 28))
    message = (
        "prompt 2 has 25 tokens with the one that opens a sequence, and with 4 new ones at most 24 "
        "fit the 28 positions of this encoder: shorten it, or take a smaller max_new_tokens"
    )
    fits = "a" * 23
    assert generator.texts([fits], Settings(4))[0].startswith(fits)
    with pytest.raises(UserError, match=message):
        generator.texts(["a", fits + "a"], Settings(4))
    with pytest.raises(UserError, match="at most 0 fit the 28 positions"):
        generator.texts(["a"], Settings(64))
    with pytest.raises(UserError, match="generate: give a list of texts"):
        generator.texts("a")
    with pytest.raises(UserError, match="generate: batch_size: 0 is less than 1"):
        generator.texts(["a"], batch_size=0)
    masked = configs.Config("x", encoder=config.encoder, objectives=(MaskedLMConfig(),))
    with pytest.raises(UserError, match="it has no causal_lm or seq2seq_lm objective"):
        Generator(ServedModel(masked, tokenizer, model_folder.build(masked), 28))
    # An encoder that sees what comes after a position is no causal LM's.
    for encoder, wanted in (
        (dataclasses.replace(config.encoder, causal=False), "encoder.causal: true"),
        (dataclasses.replace(XL, vocab_size=300, attention="bi"), "encoder.attention: uni"),
    ):
        other = configs.Config("x", encoder=encoder, objectives=config.objectives)
        with pytest.raises(UserError, match=f"tokens that are predicted: set {wanted}"):
            compatibility.check_encoder(other.objectives, encoder, "x")


@pytest.mark.parametrize("folder", ["forward"], indirect=True)
@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "--max_new_tokens=0: must be from 1 to 23, less than"), (24, "=24: must be from 1 to 23")],
)
def test_new_tokens_must_fit_the_length_that_is_exported(folder, tmp_path, count, message):
    with pytest.raises(UserError, match=message):
        saved_model.export(folder, tmp_path / "saved", max_length=24, max_new_tokens=count)
    assert not (tmp_path / "saved").exists()


def test_a_model_that_cannot_write_has_no_new_tokens(tmp_path):
    folder = make(tmp_path / "model")
    config = configs.load(folder)
    configs.save(configs.Config("x", encoder=config.encoder), folder / "config.yaml")
    with pytest.raises(UserError, match="--max_new_tokens: .* no causal_lm or seq2seq_lm"):
        saved_model.export(folder, tmp_path / "saved", max_new_tokens=4)
