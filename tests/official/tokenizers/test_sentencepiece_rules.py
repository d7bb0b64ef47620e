"""What the releases of ALBERT and XLNet do around SentencePiece, against Python and the package."""

import hashlib
import io
import json
import unicodedata

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from official import tokenizers
from official.tokenizers import sentencepiece_rules
from official.tokenizers.sentencepiece_rules import TextRules
from official.utils.errors import UserError

RELEASED = {"remove_space": True, "keep_accents": False, "replace_quotes": True,
            "split_digit_comma": True}  # fmt: skip
BLANKS = [c for c in map(chr, range(0x3001)) if c.isspace()]
TEXTS = [
    "", " ", "\t\n", "``", "''", "```", "`` ''", "' '", "a''b", "``Yes'', he said.", "'''a''''b'",
    "  two  blanks ", "\u3000a\x85b\u2028c\x1cd\x1e ", "no\u00a0break", "café Cafe\u0301 ÅÉÎÕÜ",
    "ﬁne ½ ² ３，５ １９９０， x", "\u1e9b\u0323 \u0344 \u0f73", "한글 각", "a\u0301\u0316''",
    "ΟΔΟΣ Σ σΣ.", "İstanbul ISSUE", "in 1990, 2000, and 92000,", "1,000,000, 9,9 9, 09,",
    "12,,34,'' 5, ,5", "²,²", "९, 5९,", "x1, 1990,x", "A\0B \0", "\u200b1\u200b9, 1\u00ad9,",
]  # fmt: skip


def prepared(text, lower_case):
    """`preprocess_text` of the releases, in Python."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    return text.lower() if lower_case else text


def encoded(package, text, lower_case):
    """`encode_ids` of the releases."""
    ids = []
    for piece in package.encode(prepared(text, lower_case), out_type=str):
        if not (len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()):
            ids.append(package.piece_to_id(piece))
            continue
        parts = package.encode(piece[:-1].replace("▁", ""), out_type=str)
        if piece[0] != "▁" and parts[0][0] == "▁":
            parts = [parts[0][1:], *parts[1:]] if len(parts[0]) > 1 else parts[1:]
        ids += [package.piece_to_id(part) for part in [*parts, ","]]
    return ids


@pytest.fixture(scope="module")
def model():
    """A model of text with many numbers, whose pieces join digits and commas."""
    rng = np.random.default_rng(0)
    words = ["was", "born", "in", "the", "year", "and", "Yes", "'", '"', "false", "CAFE", "."]
    lines = []
    for _ in range(400):
        numbers = [f"{n}," for n in (1990, 2000, 19, 92000, 7, rng.integers(9999))]
        lines.append(" ".join(rng.permutation([*rng.choice(words, 6), *numbers])))
    lines.append("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ`,.-")
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=data, vocab_size=180, character_coverage=1.0,
        split_by_number=False, split_by_unicode_script=False, normalization_rule_name="nmt_nfkc",
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, pad_piece="<pad>", unk_piece="<unk>",
        control_symbols=["<cls>", "<sep>", "<mask>"], minloglevel=2,
    )  # fmt: skip
    return data.getvalue()


def test_the_model_has_such_pieces(model):
    pieces = tokenizers.SentencePiece(model).pieces
    joined = [p for p in pieces if p[-1:] == "," and p[-2:-1].isdigit()]
    assert len(joined) > 10 and {p[0] == "▁" for p in joined} == {True, False}


@pytest.mark.parametrize("lower_case", [False, True])
def test_ids_are_those_of_the_releases(model, lower_case):
    package = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = tokenizers.SentencePiece(model, lower_case, **RELEASED)
    rng = np.random.default_rng(1)
    parts = [*"abiIé19077029,,,'`.  ", *BLANKS, "``", "1990,", " 2000,", "\u0301", "½"]
    texts = TEXTS + ["".join(rng.choice(parts, rng.integers(1, 12))) for _ in range(400)]
    expected = [encoded(package, text, lower_case) for text in texts]
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == expected
    assert tf.function(tokenizer.tokenize)(tf.constant(texts)).to_list() == expected
    plain = [package.encode(text.lower() if lower_case else text) for text in texts]
    assert sum(a != b for a, b in zip(plain, expected, strict=True)) > 200
    # The same ids with their places, which are slices of the text in their order.
    for text, ids, (same, starts, ends) in zip(
        texts, expected, tokenizer.encode_with_offsets(texts), strict=True
    ):
        assert same.tolist() == ids
        assert (starts >= 0).all() and (starts < ends).all() and (ends <= len(text)).all()
        assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
        for i, start, end in zip(ids, starts, ends, strict=True):
            piece = tokenizer.pieces[i].removeprefix("▁")
            spelled = prepared(text[start:end].replace("\0", ""), lower_case).replace(" ", "")
            if i != tokenizer.unk_id and piece:
                # A character that is spelled with several pieces gives each of them the whole.
                assert piece == spelled or piece in unicodedata.normalize("NFKC", spelled), text


def slices(tokenizer, text):
    ids, starts, ends = tokenizer.encode_with_offsets([text])[0]
    actual = [(tokenizer.pieces[i], text[a:b]) for i, a, b in zip(ids, starts, ends, strict=True)]
    return [(piece, part) for piece, part in actual if piece != "▁"]


def test_places_of_numbers_quotes_and_accents(model):
    tokenizer = tokenizers.SentencePiece(model, False, **RELEASED)
    numbers = slices(tokenizer, "in  1990,\tand 92000,")
    assert [part for _, part in numbers if part == ","] == [",", ","]
    assert "".join(part for _, part in numbers) == "in1990,and92000,"
    assert all(piece.removeprefix("▁") == part for piece, part in numbers)
    assert [part for _, part in slices(tokenizer, "``Yes'' '")][0] == "``"
    assert ('"', "''") in [(p[-1], part) for p, part in slices(tokenizer, "``Yes'' '")]
    assert "".join(part for _, part in slices(tokenizer, "Cafe\u0301s")) == "Cafe\u0301s"
    # The model reads other digits as these: their place is the whole number's.
    wide = tokenizers.SentencePiece(model, False, split_digit_comma=True)
    assert {part for _, part in slices(wide, "１９９０，")} == {"１９９０，"}


def test_every_character(model):
    """All that Unicode 3.2 has, which every library knows alike."""
    known = [c for c in map(chr, range(0x110000)) if unicodedata.ucd_3_2_0.category(c) != "Cn"]
    texts = [c for c in known if not 0xD800 <= ord(c) < 0xE000]
    for lower_case in (False, True):
        rules = TextRules(True, True, False, lower_case)
        actual = rules.apply(tf.constant(texts)).numpy()
        assert [t.decode() for t in actual] == [prepared(t, lower_case) for t in texts]


def test_combining_marks_are_those_of_unicode_14():
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    actual = tf.strings.regex_full_match(every, sentencepiece_rules.COMBINING).numpy()
    ours = {c for c, mark in zip(every, actual, strict=True) if mark}
    theirs = {c for c in every if unicodedata.combining(c)}
    assert ours <= theirs
    if unicodedata.unidata_version == "14.0.0":
        assert ours == theirs


def test_what_becomes_of_a_text_is_what_becomes_of_its_characters():
    rng = np.random.default_rng(2)
    parts = [*"aB`'``''é  ", *BLANKS, "\u0301", "\u0316", "½", "\0", "한", "İ"]
    texts = TEXTS + ["".join(rng.choice(parts, rng.integers(0, 20))) for _ in range(500)]
    for rules in (
        TextRules(True, True, False, True),
        TextRules(remove_space=True),
        TextRules(replace_quotes=True),
        TextRules(keep_accents=False),
        TextRules(lower_case=True),
        TextRules(),
    ):
        whole = rules.apply(tf.constant(texts)).numpy()
        characters, attached = rules.apply_by_character(tf.strings.unicode_split(texts, "UTF-8"))
        joined = tf.strings.reduce_join(characters, axis=-1).numpy()
        for a, b in zip(whole, joined, strict=True):
            assert a.decode().replace("ς", "σ") == b.decode().replace("ς", "σ")
        assert attached.shape == characters.values.shape
    assert TextRules().apply(tf.constant([b"a\xff b"])).numpy().tolist() == [b"a\xff b"]


def test_lower_case_reads_on_after_a_nul(model):
    tokenizer = tokenizers.SentencePiece(model, lower_case=True)
    after = tokenizer.encode(["in the"])[0].tolist()
    assert tokenizer.encode(["Born\0 IN the"])[0].tolist()[-len(after) :] == after


def test_settings_say_what_is_done(model, tmp_path):
    def load(settings, config=None):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "spiece.model").write_bytes(model)
        if settings is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        return tokenizers.load(folder)

    def rules(tokenizer):
        actual = (
            tokenizer.rules.remove_space,
            not tokenizer.rules.keep_accents,
            tokenizer.rules.replace_quotes,
        )
        return (*actual, tokenizer.split_digit_comma)

    alone, released = (False,) * 4, (True,) * 4
    assert rules(load(None)) == rules(load({"do_lower_case": True})) == alone
    assert rules(load({"tokenizer_class": "T5Tokenizer"})) == alone
    for name in ("AlbertTokenizer", "AlbertTokenizerFast", "XLNetTokenizer"):
        assert rules(load({"tokenizer_class": name})) == released
        assert rules(load({"tokenizer_class": name, "remove_space": True})) == released
        # As folders were written that have none of this.
        old = {"tokenizer_class": name, "keep_accents": True, "remove_space": False}
        assert rules(load(old)) == alone
        assert rules(load({**old, "split_digit_comma": True})) == (False, False, False, True)
        assert rules(load({"tokenizer_class": name, "keep_accents": True})) == (
            True, False, True, True,
        )  # fmt: skip
    assert rules(load(None, {"model_type": "albert"})) == released
    assert rules(load({"do_lower_case": False}, {"model_type": "xlnet"})) == released
    assert rules(load(None, {"model_type": "camembert"})) == alone
    assert rules(load({"remove_space": True})) == (True, False, False, False)
    with pytest.raises(UserError, match="replace_quotes is 'yes', but must be true or false"):
        load({"replace_quotes": "yes"})
    (tmp_path / "0" / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json is not JSON"):
        tokenizers.load(tmp_path / "0")


def test_folders_keep_what_they_say_and_old_fingerprints(model, tmp_path):
    result = {
        "alone": tokenizers.SentencePiece(model, False),
        "released": tokenizers.SentencePiece(model, False, **RELEASED),
        "accents": tokenizers.SentencePiece(model, False, keep_accents=False),
        "numbers": tokenizers.SentencePiece(model, False, split_digit_comma=True),
    }
    for name, tokenizer in result.items():
        tokenizer.save(tmp_path / name)
        again = tokenizers.load(tmp_path / name)
        assert (again.fingerprint, again.files) == (tokenizer.fingerprint, tokenizer.files)
        assert (again.rules, again.split_digit_comma) == (
            tokenizer.rules, tokenizer.split_digit_comma,
        )  # fmt: skip
    assert len({tokenizer.fingerprint for tokenizer in result.values()}) == len(result)
    # Without the rules it is made of what it was made of before there were any.
    decides = {
        "do_lower_case": False,
        "special_ids": [0, 1, 2, 3, 4],
        "spiece.model": hashlib.sha256(model).hexdigest(),
    }
    plain = json.dumps(decides, indent=2, sort_keys=True) + "\n"
    assert result["alone"].fingerprint == hashlib.sha256(plain.encode()).hexdigest()
    assert json.loads((tmp_path / "alone" / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "AlbertTokenizer", "keep_accents": True, "remove_space": False,
        "do_lower_case": False, "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<cls>",
        "sep_token": "<sep>", "mask_token": "<mask>", "fingerprint": result["alone"].fingerprint,
    }  # fmt: skip
    assert json.loads((tmp_path / "released" / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "AlbertTokenizer", "keep_accents": False, "remove_space": True,
        "replace_quotes": True, "split_digit_comma": True,
        "do_lower_case": False, "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<cls>",
        "sep_token": "<sep>", "mask_token": "<mask>", "fingerprint": result["released"].fingerprint,
    }  # fmt: skip


def test_the_saved_model_has_it_too(model, tmp_path):
    tokenizer = tokenizers.SentencePiece(model, True, **RELEASED)
    server = tf.Module()
    server.tokenizer = tokenizer.module()
    signature = [tf.TensorSpec([None], tf.string, "text")]
    server.serve = tf.function(lambda text: tokenizer.tokenize(text).to_tensor(-1), signature)
    tf.saved_model.save(server, str(tmp_path))
    actual = tf.saved_model.load(str(tmp_path)).serve(tf.constant(TEXTS)).numpy()
    assert [row[row >= 0].tolist() for row in actual] == [
        i.tolist() for i in tokenizer.encode(TEXTS)
    ]
