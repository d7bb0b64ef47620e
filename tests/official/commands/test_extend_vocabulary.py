"""New words in the vocabulary of a model: ids, rows, and what stays as it was."""

import gzip
import json

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

import official
from official import tokenizers
from official.commands import extend_vocabulary
from official.modeling.layers import embeddings
from official.saving import derived_models, model_folder
from official.tokenizers import extension
from official.tokenizers.added_tokens import LISTED, AddedToken, Listed
from official.tokenizers.byte_vocabulary import ALPHABET
from official.training import run
from official.utils.errors import UserError
from tests import commands, small, systems
from tests.official.tokenizers.conftest import PROSE, spiece_model  # noqa: F401
from tfrecords_tools.pretraining.settings import Settings

MARK = {LISTED: {"[E1]": Listed(None, AddedToken("[E1]", special=True))}}
WORDS = ["cardiology", "cardio", "Myocarditis", "two words", "cardio", "river"]


def wordpiece():
    letters = "abcdefghijklmnoprstuvyáC"
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "river"]
    pieces += [*letters, *(f"##{letter}" for letter in letters), "card", "##io"]
    return tokenizers.WordPiece(pieces, True, settings=MARK)


def byte_bpe():
    merges = [("c", "a"), ("Ġ", "ca"), ("r", "d"), ("o", "r"), ("Ġ", "t"), ("i", "o")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *ALPHABET.values(), *map("".join, merges), "<mask>"]
    return tokenizers.ByteBPE(pieces, merges, settings=MARK)


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram", "bpe"])
def test_words_are_one_piece_and_other_ids_stay(kind, spiece_model, tmp_path):  # noqa: F811
    if kind in ("unigram", "bpe"):
        tokenizer = tokenizers.SentencePiece(spiece_model(kind), False, settings=MARK, extra_ids=4)
    else:
        tokenizer = {"wordpiece": wordpiece, "byte_bpe": byte_bpe}[kind]()
    extended = extension.extend(tokenizer, WORDS)
    grown, before = extended.tokenizer, " " if kind == "byte_bpe" else ""
    assert {"cardiology", "cardio", "river"} - {*extended.words} <= {"river"}
    assert "several words" in extended.left_out["two words"]
    if kind == "wordpiece":
        assert extended.left_out["river"] == "is one piece already"
    for word in extended.words:
        [ids], [old] = grown.encode([before + word]), tokenizer.encode([before + word])
        # Nothing but the word: the piece alone, and its old pieces in their order.
        assert len(ids) == 1
        spelled = [i for i in old if i != tokenizer.unk_id]
        assert list(extended.rows[ids[0]]) == spelled and len(spelled) > 1
    # All ids, also those of the tokens behind the vocabulary.
    changed = [i for i, piece in enumerate(tokenizer.pieces) if grown.pieces[i] != piece]
    assert changed == ([1, 6] if kind == "wordpiece" else [])
    assert [tokenizer.pieces[i] for i in changed] == ["[unused0]", "[unused1]"][: len(changed)]
    assert grown.special_ids == tokenizer.special_ids and grown.added == tokenizer.added
    assert grown.sentinel_ids == tokenizer.sentinel_ids
    assert grown.vocab_size == tokenizer.vocab_size + len(extended.rows) - len(changed)
    texts = [text for text in PROSE if "river" not in text] if kind == "unigram" else ["éé on [E1]"]
    for old, new in zip(tokenizer.encode(texts), grown.encode(texts), strict=True):
        assert old.tolist() == new.tolist()
    grown.save(tmp_path)
    assert tokenizers.load(tmp_path).fingerprint == grown.fingerprint
    few = extension.extend(tokenizer, WORDS, pieces=1)
    assert len(few.rows) <= 1
    reason = "does not fit: at most 1 pieces may be new"
    assert [why for why in few.left_out.values() if why == reason]


def test_bytes_have_a_merge_for_each_part():
    extended = extension.extend(byte_bpe(), ["cardio"])
    grown = extended.tokenizer
    new = [grown.pieces[i] for i in extended.rows]
    assert new == ["Ġcard", "Ġcardio"]  # of Ġca, rd, io
    assert grown.merges[-2:] == [("Ġca", "rd"), ("Ġcard", "io")]
    assert [[grown.pieces[i] for i in ids] for ids in extended.rows.values()] == [
        ["Ġca", "rd"], ["Ġca", "rd", "io"]
    ]  # fmt: skip


SYSTEMS = ("albert", "electra", "gpt2", "xlnet", "t5", "spanbert", "deberta_v3", "modernbert")


UNTIED = {"objectives": [{"type": "masked_lm", "form": "linear"}]}


@pytest.mark.parametrize("name", [*SYSTEMS, "untied"])
def test_every_table_bias_and_head_grows(name):
    config = small.config(**{**systems.SYSTEMS, "untied": UNTIED}[name])
    size = config.encoder.vocab_size
    draw = np.random.default_rng(0)
    shapes = model_folder.shapes(config)
    variables = {path: draw.normal(size=shape) for path, shape in shapes.items()}
    sources = derived_models.grown_rows(size, size + 2, {size: [5, 9], size + 1: [7], 3: [5, 6]})
    # Sums of tables are made again of what they are sums of.
    given = embeddings.finished(variables)
    grown, new = derived_models.with_rows(config, given, sources)
    assert grown.encoder.vocab_size == size + 2
    assert {path: array.shape for path, array in new.items()} == model_folder.shapes(grown)
    wider = [path for path in shapes if size in shapes[path]]
    # ELECTRA's generator has a bias and shares the table; T5's output is the table or a head.
    assert len(wider) >= (1 if name == "gpt2" else 1 + (name != "t5"))
    for path, array in variables.items():
        if path not in wider:
            np.testing.assert_array_equal(new[path], array)
            continue
        axis = shapes[path].index(size)
        old, now = np.moveaxis(array, axis, 0), np.moveaxis(new[path], axis, 0)
        kept = [i for i in range(size) if i != 3]
        np.testing.assert_array_equal(now[kept], old[kept])
        np.testing.assert_allclose(now[size], (old[5] + old[9]) / 2, rtol=1e-12)
        np.testing.assert_array_equal(now[size + 1], old[7])
        np.testing.assert_allclose(now[3], (old[5] + old[6]) / 2, rtol=1e-12)


def test_words_of_a_text():
    tokenizer = wordpiece()
    lines = ["Cardio, cardio card-io the river"] * 3 + ["cab " * 9, "a1b fabulous"]
    # By count times the pieces that are saved: cardio 6 x 1, the 3 x 2, cab 9 x 2. `fabulous` is
    # too rare, `river` one piece, and a1b no word.
    chosen = extension.choose(tokenizer, iter(lines), 2)
    assert chosen == ["cab", "cardio", "the"]
    assert extension.extend(tokenizer, chosen, 2).words == ["cab", "cardio"]


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz", "t.txt.zst", "t.jsonl.zst", "t.parquet"])
def test_text_is_read_as_shards_are_built_of_it(tmp_path, name):
    texts = ["ba be\nbä", "bo"]
    path, lines = str(tmp_path / name), ["ba be", "bä", "bo"]
    if name.endswith(".parquet"):
        parquet.write_table(pyarrow.table({"text": texts}), path)
    else:
        rows = [json.dumps({"text": text}) for text in texts] if "jsonl" in name else texts
        data = ("\n".join(rows) + "\n").encode()
        pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path[path.rindex(".") :])
        (tmp_path / name).write_bytes(pack(data) if pack else data)
    assert list(extend_vocabulary._lines([path, path])) == lines * 2
    if not name.endswith(".txt"):
        damaged = (tmp_path / name).read_bytes()[:-5]
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UserError, match=name):
            list(extend_vocabulary._lines([path]))


def test_text_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"ba\n\xff\n")
    with pytest.raises(UserError, match="t.txt:2: not UTF-8"):
        list(extend_vocabulary._lines([str(tmp_path / "t.txt")]))
    (tmp_path / "t.jsonl").write_text('{"text": "ba"}\n{"body": "be"}\n')
    with pytest.raises(UserError, match="t.jsonl:2: no `text` field that is a string"):
        list(extend_vocabulary._lines([str(tmp_path / "t.jsonl")]))
    with pytest.raises(UserError, match="there is no file .*none.txt"):
        list(extend_vocabulary._lines([str(tmp_path / "none.txt")]))


def test_the_command(tmp_path):
    folder = small.tokenizer_folder(tmp_path / "tokenizer")
    tokenizer = tokenizers.load(folder)
    config = small.config()
    shapes = model_folder.shapes(config)
    draw = np.random.default_rng(1)
    variables = {path: draw.normal(size=s).astype(np.float32) for path, s in shapes.items()}
    model_folder.write_new(config, tokenizer, variables, tmp_path / "model")
    (tmp_path / "words.txt").write_text("bada\nbadadi\nba\nnot\n")
    flags = [f"--model_dir={tmp_path / 'model'}", f"--output={tmp_path / 'grown'}"]
    done = commands.run(
        "official.commands.extend_vocabulary", *flags, f"--words={tmp_path / 'words.txt'}"
    )
    assert done.returncode == 0, done.stderr
    # `not` was unknown, which is one piece.
    assert "3 words are one piece each, and were 2.00 on average: 3 new pieces" in done.stdout
    assert "not added: 'ba' is one piece already" in done.stdout
    assert "rows of the tables: 125 -> 128" in done.stdout
    loaded = official.load(tmp_path / "grown")
    assert loaded.tokenizer.encode(["badadi bada"])[0].tolist() == [126, 125]
    # Old words have their old logits, and a new one the mean of those of its pieces.
    ids = tokenizer.encode(["fifo bada"])[0]
    batch = {
        "token_ids": ids[None], "segment_ids": np.zeros_like(ids)[None],
        "padding_mask": np.ones_like(ids, bool)[None],
    }  # fmt: skip
    old, new = (
        _logits(loaded, batch)
        for loaded in map(official.load, (tmp_path / "model", tmp_path / "grown"))
    )
    np.testing.assert_allclose(new[..., :125], old, atol=1e-5)
    pieces = tokenizer.encode(["bada"])[0]
    np.testing.assert_allclose(new[..., 125], old[..., pieces].mean(-1), atol=1e-5)
    done = commands.run("official.commands.extend_vocabulary", *flags, "--words=x", "--text=y")
    assert done.returncode and "give one of --words=FILE" in done.stderr


def _logits(loaded, batch):
    model = loaded.model
    states = np.asarray(model.encode(batch)["sequence_output"])[0]
    return np.asarray(model.objectives[0].logits(states, model.encoder))


def test_rows_of_another_tokenizer():
    old = wordpiece()
    pieces = [
        "[UNK]",
        "[PAD]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "card",
        "##card",
        "cardio",
        "river",
        "é",
    ]
    new = tokenizers.WordPiece([*pieces, "日", "##io"], True)
    rows = extension.spelled_by(old, new)
    spelled = [[old.pieces[i] for i in row] for row in rows]
    assert spelled[:6] == [["[UNK]"], ["[PAD]"], ["[CLS]"], ["[SEP]"], ["[MASK]"], ["card"]]
    # A piece inside of a word is spelled by itself.
    assert spelled[6:10] == [["card"], ["card", "##io"], ["river"], ["e"]]
    assert len(spelled[10]) == len(old.pieces) - len(old.special_ids)
    assert spelled[11] == ["##io"]
    words = extension.spelled_by(byte_bpe(), new)
    assert [[byte_bpe().pieces[i] for i in row] for row in words[5:8]] == [
        ["Ġca", "rd"], ["ca", "rd"], ["Ġca", "rd", "io"]
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_a_larger_tokenizer_includes_the_smaller_one(kind, spiece_model):  # noqa: F811
    if kind == "unigram":
        old = tokenizers.SentencePiece(spiece_model(kind), False, settings=MARK, extra_ids=4)
    else:
        old = {"wordpiece": wordpiece, "byte_bpe": byte_bpe}[kind]()
    grown = extension.extend(old, WORDS).tokenizer
    assert extension.includes(grown, old) and not extension.includes(old, grown)
    assert not extension.includes(byte_bpe() if kind != "byte_bpe" else wordpiece(), old)
    if kind == "wordpiece":
        assert not extension.includes(tokenizers.WordPiece(grown.pieces, False), old)


@pytest.mark.slow
@pytest.mark.long
def test_init_with_a_larger_vocabulary(tmp_path):
    """Pieces keep their rows under other ids; a new one has the mean of those that spell it."""
    old = tokenizers.load(small.tokenizer_folder(tmp_path / "old"))
    rate = {"learning_rate": 1e-30}  # no update
    config = small.config(recipe__steps=1, recipe__init_weights="all", recipe__optimizer=rate)
    size = config.encoder.vocab_size
    draw = np.random.default_rng(2)
    shapes = model_folder.shapes(config)
    variables = {path: draw.normal(size=s).astype(np.float32) for path, s in shapes.items()}
    model_folder.write_new(config, old, variables, tmp_path / "model")
    pieces = [*old.pieces[:60], "bada", "badadi", *old.pieces[60:]]
    new = tokenizers.WordPiece(
        pieces, old.lower_case, max_input_chars_per_word=old.max_input_chars_per_word
    )
    new.save(tmp_path / "new")
    texts = [" ".join(sentences) for sentences in small.documents(30)]
    for name in ("new", "old"):
        settings = Settings.from_config(config, tmp_path / name)
        small.built_here(tmp_path / f"{name}_shards", settings, [[text] for text in texts])

    def train(data, init, model_dir, run_config=config):
        run.train(
            run_config, tmp_path / data, tmp_path / model_dir, init=tmp_path / init,
            checkpoint="last", evaluate=False, report=lambda line: None,
        )  # fmt: skip

    train("new_shards", "model", "grown")
    loaded = official.load(tmp_path / "grown", "last")
    assert loaded.config.encoder.vocab_size == size + 2
    assert loaded.tokenizer.fingerprint == new.fingerprint
    rows = extension.spelled_by(old, new)
    for path, variable in loaded.model.variables_by_path().items():
        given, actual = variables[path], variable.numpy()
        if size in given.shape:
            given = np.stack([given[row].mean(axis=0, dtype=np.float64) for row in rows])
        np.testing.assert_allclose(actual, given, rtol=1e-6, err_msg=path)
    ba, da = (old.pieces.index(piece) for piece in ("ba", "##da"))
    assert rows[60] == [ba, da] and rows[59] == [59] and rows[62] == [60]
    # A smaller vocabulary loses rows, and an optimizer has its own.
    with pytest.raises(UserError, match="lacks pieces or rules of it: make the shards again"):
        train("old_shards", "grown", "shrunk")
    goes_on = small.replace(config, init_weights="run", steps=2)
    with pytest.raises(UserError, match="an optimizer state that has the old rows"):
        train("new_shards", "model", "on", goes_on)


def test_words_alone_cannot_grow():
    tokenizer = tokenizers.Characters(["<S>", "</S>", "<UNK>", "a"])
    with pytest.raises(
        UserError, match="words cannot be added to words.txt, a vocabulary of whole words"
    ):
        extension.extend(tokenizer, ["b"])
