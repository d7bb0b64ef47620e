"""Folders as transformers 5 saves them have the ids of the `tokenizers` package, both ways."""

import base64
import json
import re
import unicodedata

import pytest
import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as model_pb2
import tensorflow as tf

from official import tokenizers
from official.tokenizers import tokenizer_json
from official.tokenizers.components import Components
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden"
SAVED = json.loads((GOLDEN / "hf5_tokenizers.json").read_text())
NAMES = list(SAVED["tokenizers"])
GRAPHS = ("bert", "roberta", "modernbert", "albert", "deberta")


def alone(text):
    """Whether a mark follows a character that `Precompiled` replaces; see `tokenizer_json`."""
    marks = [i for i, c in enumerate(text) if unicodedata.category(c)[0] == "M" and i]
    befores = [text[i - 1] for i in marks]
    return any(unicodedata.normalize("NFKC", c) != c or c.isspace() for c in befores)


@pytest.fixture(scope="module")
def write(tmp_path_factory, spiece_model):
    """Writes a folder as transformers 5 does; `change` may change tokenizer.json before."""
    table = model_pb2.ModelProto.FromString(spiece_model()).normalizer_spec.precompiled_charsmap

    def folder(name, change=None):
        files = json.loads(json.dumps(SAVED["tokenizers"][name]))
        described = files["tokenizer.json"]
        if described["model"]["vocab"] is None:
            pieces = json.loads((GOLDEN / "tokenizer.json").read_text())["vocabulary"]
            described["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
        steps = described["normalizer"] or {}
        for step in steps.get("normalizers", [steps]):
            if "precompiled_charsmap" in step:
                step["precompiled_charsmap"] = base64.b64encode(table).decode()
        if change:
            change(described)
            # The classes of transformers 5 make their own rules whatever the file says.
            files["tokenizer_config.json"]["tokenizer_class"] = "TokenizersBackend"
        path = tmp_path_factory.mktemp(name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (path / file).write_text(json.dumps(files[file]))
        return path

    return folder


def differences(name, tokenizer, graph=False):
    """The texts with other ids than those of transformers 5; with `graph`, offsets too."""
    rows = zip(SAVED["texts"], SAVED["tokenizers"][name]["ids"], strict=True)
    rows = [(text, ids) for text, ids in rows if not alone(text)]
    texts = [text for text, _ in rows]
    ways = [[ids.tolist() for ids in tokenizer.encode(texts, special=True)]]
    if graph:
        # Both in one graph, which is traced once.
        def both(texts):
            return tokenizer.tokenize(texts, True), tokenizer.tokenize_with_offsets(texts, True).ids

        ways += [ids.to_list() for ids in tf.function(both)(tf.constant(texts))]
    assert len(rows) > 80
    return [text for way in ways for ids, (text, theirs) in zip(way, rows, strict=True)
            if ids != theirs]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_transformers_5_and_files_come_back(write, name, tmp_path):
    folder = write(name)
    tokenizer = tokenizers.load(folder)
    # One of each kind in a graph, whose tracing takes long, and one that composes characters.
    assert not differences(name, tokenizer, graph=name in GRAPHS)
    pair = SAVED["tokenizers"][name]["pair"]
    first, second = (ids.tolist() for ids in tokenizer.encode(["one", "two"]))
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    ours = {
        "xlnet": first + sep + second + sep + cls,
        "t5": first + sep + second + sep,
        "gpt2": first + second,
    }
    packed = cls + first + sep * tokenizer.pair_separators + second + sep
    assert ours.get(name, packed) == pair
    tokenizer.save(tmp_path / "saved")
    again = tokenizers.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint and not differences(name, again)
    layout = {"xlnet": "cls_last", "t5": "no_cls"}.get(name, "cls_first")
    written = tokenizer_json.described(again, layout)
    theirs = json.loads((folder / "tokenizer.json").read_text())
    if name == "gpt2":  # both add nothing
        del written["post_processor"], theirs["post_processor"]
    assert written == theirs


def test_tokenizer_json_is_the_tokenizer_where_older_files_lie_beside_it(write):
    """As in transformers, where `vocab.txt` is not even opened then."""
    folder = write("bert", lambda described: described.pop("pre_tokenizer"))
    pieces = json.loads((GOLDEN / "tokenizer.json").read_text())["vocabulary"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    assert type(tokenizers.load(folder)) is Components
    both = write("bert")
    (both / "vocab.txt").write_text("".join(f"{piece}\n" for piece in reversed(pieces)))
    both = tokenizers.load(both)
    assert both.fingerprint == tokenizers.load(write("bert")).fingerprint
    assert len(both.added) == 10


def place(*keys):
    *path, last = keys

    def change(described, value):
        for key in path:
            described = described[key]
        described[last] = value

    return change


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}


@pytest.mark.parametrize(
    "name, where, value, message",
    [
        ("bert", place("model", "continuing_subword_prefix"), "", "continuing_subword_prefix is"),
        ("bert", place("pre_tokenizer"), {"type": "UnicodeScripts"}, "pre_tokenizer is .*Scripts"),
        ("bert", place("model", "vocab"), {"a": 7}, "model.vocab has no piece for the id 5"),
        ("bert", place("model", "vocab"), {"a": 0, "b": 10**11}, "no piece for the id 5, and 'b' "
         "has the id 100,000,000,000: 16 pieces have the numbers from 0 to 15"),
        ("bert", place("model", "max_input_chars_per_word"), 10**12, "from 1 to 1,000,000"),
        ("gpt2", place("model", "vocab", "!"), 10**11, "no piece for the id .*100,000,000,000"),
        ("bert", place("model", "vocab"), {"a": 0, "b": 0}, "'b' has id 0, but must have"),
        ("bert", place("added_tokens"), [{"id": 5, "content": "!!"}], "the piece .* at 5, the id"),
        ("bert", place("added_tokens"), [{"id": 1065, "content": "!!"}], "no piece has the id 106"),
        ("bert", place("added_tokens"), [{"id": "5", "content": "!!"}], "has id '5', but must"),
        ("bert", place("added_tokens"), [{"id": 5}], "is not a token: it needs `content`"),
        ("bert", place("post_processor", "single"),
         [{"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
         r"post_processor \(single and pair\) is"),
        ("gpt2", place("model", "dropout"), 0.1, "model.dropout is 0.1, which .* null or 0.0"),
        ("gpt2", place("model", "merges"), ["a b c"], "merge 1 is not a pair: 'a b c'"),
        ("t5", place("pre_tokenizer"),
         {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
         "pre_tokenizer is .*only without prepend_scheme 'first' after another|without a normal"),
        ("t5", place("model", "unk_id"), None, "model.unk_id is null"),
        ("t5", place("model", "vocab"), [["a", 0.0], ["a", 1.0]], "piece 1 'a' is listed twice"),
        ("t5", place("model", "vocab"), [["a", "b"]], "is not a piece with its score"),
    ],
)  # fmt: skip
def test_what_a_graph_cannot_do_is_refused_by_its_name(write, name, where, value, message):
    folder = write(name, lambda described: where(described, value))
    with pytest.raises(UserError, match=message) as raised:
        tokenizers.load(folder)
    assert "tokenizer.json" in str(raised.value)


def test_older_forms(write):
    def older(described):
        described["model"].pop("type")
        described["model"]["merges"] = [" ".join(pair) for pair in described["model"]["merges"]]
        described["post_processor"] = {"type": "ByteLevel"}

    old = tokenizers.load(write("gpt2", older))
    assert old.fingerprint == tokenizers.load(write("gpt2")).fingerprint


METASPACE_4 = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}


def spaced(*steps, added=True):
    """As transformers 4 writes it: Metaspace alone."""

    def change(described):
        described["normalizer"]["normalizers"] += steps
        described["pre_tokenizer"] = METASPACE_4
        if not added:
            described["added_tokens"] = described["added_tokens"][:5]

    return change


def test_white_space_without_whitespace_split(write):
    # Without added tokens.
    texts, ids = SAVED["texts"][1:4], SAVED["tokenizers"]["albert"]["ids"][1:4]
    blank = tokenizers.load(write("albert", spaced(RUNS)))
    number = blank.pieces.index("▁")
    spaces = [text + end for text, end in zip(texts, ("", " ", "\u3000\x01 "), strict=True)]
    # A blank at the end of a text is a piece of its own, also before an added token.
    expected = [ids[0], ids[1] + [number], ids[2] + [number]]
    assert [row.tolist() for row in blank.encode(spaces)] == expected
    assert [row[-1].tolist() for row in blank.encode_with_offsets(spaces)[1]] == [
        number, len(texts[1]), len(texts[1]) + 1
    ]  # fmt: skip
    assert blank.encode([" "])[0].tolist() == [number] and not len(blank.encode([""])[0])
    written = tokenizer_json.described(blank)
    assert written["normalizer"]["normalizers"][-1] == RUNS
    assert written["pre_tokenizer"]["type"] == "Metaspace"
    mark = next(iter(blank.added))
    assert blank.encode(["[E1] [E1]"])[0].tolist() == [mark, number, mark]
    stripped = tokenizers.load(write("albert", spaced(RUNS, STRIP, added=False)))
    plain = [row.tolist() for row in stripped.encode(spaces)]
    assert plain == [row.tolist() for row in stripped.encode(texts)]
    message = "normalizer is .*only without an added token that is `normal"
    for change in (spaced(), spaced({**RUNS, "content": "\u2581"}), spaced(RUNS, STRIP)):
        with pytest.raises(UserError, match=message):
            tokenizers.load(write("albert", change))


@pytest.mark.parametrize("strip_left", [None, False, True])
def test_where_a_blank_is_put_before_text(write, strip_left, tmp_path):
    """`always`, `first` and `never`, against the sentencepiece package."""
    steps = [RUNS]
    if strip_left is not None:
        steps.insert(0, {**STRIP, "strip_left": strip_left})

    def change(scheme):
        def changed(described):
            spaced(*steps, added=False)(described)
            described["pre_tokenizer"] = {**METASPACE, "prepend_scheme": scheme}
            marks = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
            token = {"id": len(described["model"]["vocab"]), "content": "[M]", "special": False}
            described["added_tokens"].append({**token, **marks})

        return changed

    schemes = ["always", "first", "never"]
    if strip_left:
        with pytest.raises(UserError, match="pre_tokenizer is .*only without a normalizer"):
            tokenizers.load(write("albert", change(schemes.pop(1))))
    loaded = {scheme: tokenizers.load(write("albert", change(scheme))) for scheme in schemes}
    model = loaded["never"].parsed()
    [mark] = loaded["never"].added
    prefixed = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    model.normalizer_spec.add_dummy_prefix = False
    bare = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    texts = ["the river", "  the  river", "the[M]the river", "[M]  the[M]river[M]", "", "[M]"]

    def expected(text, scheme):
        row = []
        for i, part in enumerate(text.split("[M]")):
            blank = scheme == "always" or (scheme == "first" and not i)
            blank = blank or (part.startswith(" ") and not strip_left)
            row += [mark] * (i > 0) + (prefixed if blank else bare).encode(part)
        return row

    for scheme, tokenizer in loaded.items():
        rows = [expected(text, scheme) for text in texts]
        assert [row.tolist() for row in tokenizer.encode(texts)] == rows, scheme
        offsets = tokenizer.encode_with_offsets(texts)
        assert [ids.tolist() for ids, _, _ in offsets] == rows
        for text, tokens in zip(texts, offsets, strict=True):
            for number, start, end in zip(*tokens, strict=True):
                piece = tokenizer.pieces[number].strip("\u2581")
                assert piece in ("", text[start:end].strip())
        tokenizer.save(tmp_path / scheme)
        again = tokenizers.load(tmp_path / scheme)
        assert again.fingerprint == tokenizer.fingerprint
        written = tokenizer_json.described(again)["pre_tokenizer"]
        assert written.get("prepend_scheme", "always") == scheme
    assert len({str([expected(text, scheme) for text in texts]) for scheme in loaded}) == len(
        loaded
    )


def test_composed_characters_are_those_of_unicode(write):
    """The text that a model reads, and of each token the characters that it comes from."""
    tokenizer = tokenizers.load(write("deberta"))
    texts = [
        "e\u0301a\u030a e\u0301", "\u0301a \u0301", "x\n\u0301", "\u1100\u1161\u11a8\u1100",
        "\u2000x\u2000", "a \t b\x0bc\u00a0", "\u3000\u3000x", "हि", "",
    ]  # fmt: skip
    runs = re.compile(r"\s{2,}|[\n\r\t]")
    expected = [unicodedata.normalize("NFC", runs.sub(" ", text)).rstrip() for text in texts]
    rules = tokenizer.rules
    assert [text.decode() for text in rules.apply(tf.constant(texts)).numpy()] == expected
    characters = tf.strings.unicode_split(tf.constant(texts), "UTF-8")
    split, attached = rules.apply_by_character(characters)
    assert [b"".join(row).decode() for row in split.to_list()] == expected
    assert attached.numpy()[:6].tolist() == [False, True, False, True, False, False]
    ids, starts, ends = tokenizer.encode_with_offsets(texts)[0]
    found = [texts[0][start:end] for start, end in zip(starts, ends, strict=True)]
    assert [tokenizer.pieces[i] for i in ids] == ["\u2581", "é", "[UNK]", "\u2581", "é"]
    assert found == ["e\u0301", "e\u0301", "a\u030a", " ", "e\u0301"]
    # Marks that stay apart have places of their own.
    starts, ends = tokenizer.encode_with_offsets(["हि"])[0][1:]
    assert list(zip(starts.tolist(), ends.tolist(), strict=True))[1:] == [(0, 1), (1, 2)]
    described = json.loads((write("deberta") / "tokenizer.json").read_text())
    steps = described["normalizer"]["normalizers"]
    steps.insert(0, {"type": "Lowercase"})
    lower = tokenizers.load(write("deberta", lambda all: all.update(described)))
    assert lower.rules.apply(tf.constant(["A\u030a É"])).numpy()[0].decode() == "å é"
    assert tokenizer_json.described(lower)["normalizer"] == described["normalizer"]
    steps[0] = {"type": "Precompiled", "precompiled_charsmap": None}
    assert type(tokenizers.load(write("deberta", lambda all: all.update(described)))) is Components


def test_a_model_that_puts_no_blank_before_text_says_so(spiece_model):
    parsed = model_pb2.ModelProto.FromString(spiece_model())
    parsed.normalizer_spec.add_dummy_prefix = False
    tokenizer = tokenizers.SentencePiece(parsed.SerializeToString())
    written = tokenizer_json.described(tokenizer)
    assert written["pre_tokenizer"]["prepend_scheme"] == "never"
    assert {**STRIP, "strip_left": True} in written["normalizer"]["normalizers"]
