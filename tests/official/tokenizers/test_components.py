"""Tokenizers of components: the ids of the `tokenizers` package, offsets, graphs and folders."""

import json

import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import patterns, tokenizer_json, word_steps
from official.tokenizers.components import Components
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "components.json").read_text())
SETTINGS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def write(folder, described, **settings):
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(described))
    content = {**SETTINGS, "tokenizer_class": "PreTrainedTokenizerFast", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", GOLDEN["forms"])
def test_ids_are_those_of_the_package_and_files_come_back(name, tmp_path):
    form, texts = GOLDEN["forms"][name], GOLDEN["texts"]
    loaded = tokenizers.load(write(tmp_path / name, form["described"]))
    assert type(loaded) is Components
    ids = [row.tolist() for row in loaded.encode(texts, special=True)]
    assert dict(zip(texts, ids, strict=True)) == dict(zip(texts, form["ids"], strict=True))
    tokens = loaded.tokenize_with_offsets(tf.constant(texts), True)
    assert tokens.ids.to_list() == ids
    for text, starts, ends in zip(
        texts, tokens.starts.to_list(), tokens.ends.to_list(), strict=True
    ):
        for start, end in zip(starts, ends, strict=True):
            assert 0 <= start < end <= len(text)
        assert starts == sorted(starts)
    loaded.save(tmp_path / "again")
    again = tokenizers.load(tmp_path / "again")
    assert again.fingerprint == loaded.fingerprint and again.files == loaded.files
    assert [row.tolist() for row in again.encode(texts, special=True)] == ids
    written = tokenizer_json.described(loaded)
    assert {key: written[key] for key in ("normalizer", "pre_tokenizer", "model")} == {
        key: form["described"][key] for key in ("normalizer", "pre_tokenizer", "model")
    }
    assert written["post_processor"]["type"] == "TemplateProcessing"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "affixed_bytes", "fused", "unigram"])
def test_the_same_in_a_graph(name, tmp_path):
    texts = GOLDEN["texts"]
    loaded = tokenizers.load(write(tmp_path / name, GOLDEN["forms"][name]["described"]))
    both = tf.function(lambda each: (loaded.tokenize(each), loaded.tokenize_with_offsets(each)))
    in_graph, tokens = both(tf.constant(texts))
    assert in_graph.to_list() == tokens.ids.to_list()
    assert in_graph.to_list() == [row.tolist() for row in loaded.encode(texts)]
    eager = loaded.tokenize_with_offsets(tf.constant(texts))
    assert tokens.starts.to_list() == eager.starts.to_list()
    assert tokens.ends.to_list() == eager.ends.to_list()


LONG = ("llama", "suffix", "word_level")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["precompiled", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]
)
def test_the_same_in_a_saved_model(name, tmp_path):
    texts = GOLDEN["texts"]
    loaded = tokenizers.load(write(tmp_path / name, GOLDEN["forms"][name]["described"]))
    server = tf.Module()
    server.splitter = loaded.module()
    spec = tf.TensorSpec([None], tf.string)
    server.split = tf.function(server.splitter.tokenize, [spec], autograph=False)
    tf.saved_model.save(server, str(tmp_path / "saved"))
    found = tf.saved_model.load(str(tmp_path / "saved")).split(tf.constant(texts))
    assert found.to_list() == [row.tolist() for row in loaded.encode(texts)]


def test_offsets_are_of_the_characters_of_the_text(tmp_path):
    def slices(name, text):
        loaded = tokenizers.load(write(tmp_path / name, GOLDEN["forms"][name]["described"]))
        ((_, starts, ends),) = loaded.encode_with_offsets([text])
        return [text[a:b] for a, b in zip(starts, ends, strict=True)]

    assert slices("gemma", " ab é  a") == ["ab", " ", "é", "é", "  ", "a"]
    assert slices("suffix", "AAB abé") == ["AAB", "a", "b", "é"]
    assert slices("fused", "ab ééa ﬁ") == ["ab", "éé", "a", "ﬁ"]
    assert slices("word_level", "  a  áb!") == ["a", "áb", "!"]
    accents = "a\u0300\u0301"
    assert slices("precompiled", f"{accents}b\r\nab") == [accents, accents, "b", "\r\n", "ab"]
    assert slices("word_piece", "A\x00Abé 中") == ["A\x00Abé", "中"]
    assert slices("llama", "Don't  ab") == ["D", "o", "n", "'", "t", " ", "ab"]


LLAMA3 = GOLDEN["forms"]["llama"]["described"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]
MARKS = {"Regex": tokenizer_json.LETTERS_AND_MARKS}
# By `tokenizers` 0.22.2 and 0.23.3.
WORDS = [
    (LLAMA3, "Don't  stop\n\n  now!\n x",
     ["Don", "'t", " ", " stop", "\n\n", " ", " now", "!\n", " x"]),
    (LLAMA3, "a 12345\t\tb\u3000\u3000c ",
     ["a", " ", "123", "45", "\t", "\tb", "\u3000", "\u3000c", " "]),
    (LLAMA3, "भोपाल में\r\n  है।", ["भ", "ोप", "ाल", " म", "ें\r\n", " ", " ह", "ै।"]),
    (LLAMA3, "  ", ["  "]),
    (LLAMA3, "'S'LL \n\ty…  !?\n", ["'S", "'LL", " \n", "\ty", "…", " ", " !?\n"]),
    (MARKS, "Don't  stop\n\n  now!\n x",
     ["Don", "'t", " ", " stop", "\n\n ", " now", "!", "\n", " x"]),
    (MARKS, "a 12345\t\tb\u3000\u3000c ",
     ["a", " 12345", "\t", "\t", "b", "\u3000", "\u3000", "c", " "]),
    (MARKS, "भोपाल में\r\n  है।", ["भोपाल", " में", "\r\n ", " है", "।"]),
    (MARKS, "'S'LL \n\ty…  !?\n",
     ["'", "S", "'", "LL", " \n", "\t", "y", "…", " ", " !?", "\n"]),
    ({"Regex": "[.,!?]"}, "a+b? *{c}. d,e-!f",
     ["a+b", "?", " *{c}", ".", " d", ",", "e-", "!", "f"]),
    ({"Regex": "[*+{?-z]+"}, "a+b? *{c}. d,e-!f", 
     ["a+b?", " ", "*{c", "}. ", "d", ",", "e", "-!", "f"]),
]  # fmt: skip
BEHAVIORS = {
    ("Removed", False): "the final count",
    ("Removed", True): "- - - - -",
    ("Isolated", False): "- the - final - - count -",
    ("Isolated", True): "- the - final - - count -",
    ("MergedWithPrevious", False): "- the- final- - count-",
    ("MergedWithPrevious", True): "-the -final - -count -",
    ("MergedWithNext", False): "-the -final - -count -",
    ("MergedWithNext", True): "- the- final- - count-",
    ("Contiguous", False): "- the - final -- count -",
    ("Contiguous", True): "- the - final -- count -",
}


def words(text, **options):
    steps = word_steps.steps({"type": "Split", "invert": False, **options}, is_first=True)
    made = word_steps.Words(tf.constant([text]), tf.constant([0, 1], tf.int64))
    for step in steps:
        made = step.apply(made, None)
    return [word.decode() for word in made.texts.numpy()]


@pytest.mark.parametrize("pattern, text, expected", WORDS)
def test_expressions_mean_what_they_mean_in_the_package(pattern, text, expected):
    assert words(text, pattern=pattern, behavior="Isolated") == expected


def test_what_becomes_of_what_is_found():
    for (behavior, invert), expected in BEHAVIORS.items():
        found = words(
            "-the-final--count-", pattern={"String": "-"}, behavior=behavior, invert=invert
        )
        assert found == expected.split(), (behavior, invert)


@pytest.mark.parametrize(
    "expression, message",
    [
        (r"(?=a)", r"\(\?=a"), (r"a$", r"'\$'"), (r"a++", r"\+\+"), (r"a*", "matches the empty"),
        (r"\bword", r"\\b"), (r"[a&&b]", "&&"), (r"\p{Cc}", r"\\p"), (r"(a", "without an end"),
        (r"\s+(?!\S)x", "before 'x'"), (r"a(?!b)", r"\(\?!b"), (r"[]", "an empty class"),
        (r"(a)\1", r"\\1"), (r"a)", r"'\)' at its end"), (r"\P{L}", r"\\P"), ("[z-a]", "z-a|range"),
    ],
)  # fmt: skip
def test_expressions_of_oniguruma_alone_are_refused(expression, message):
    with pytest.raises(patterns.Unsupported, match=message):
        patterns.translated(expression)


def changed(name, part, value):
    described = json.loads(json.dumps(GOLDEN["forms"][name]["described"]))
    described[part] = value if part != "model" else {**described["model"], **value}
    return described


@pytest.mark.parametrize(
    "described, message",
    [
        (changed("suffix", "model", {"dropout": 0.1}), "model.dropout is 0.1, which is not"),
        (changed("suffix", "model", {"type": "Other"}), "model.Other: .Other.: this part"),
        (changed("suffix", "model", {"unk_token": "x"}), "unk_token 'x' is not in model.vocab"),
        (changed("suffix", "model", {"merges": [["a", "c"]]}), r"merge 1 \(a c\): 'c' is not in"),
        (changed("suffix", "model", {"byte_fallback": True}), "<0x00> is not in the vocabulary"),
        (changed("suffix", "pre_tokenizer", {"type": "UnicodeScripts"}),
         "pre_tokenizer is .*UnicodeScripts.*only Whitespace"),
        (changed("suffix", "pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(?=a)"},
                                             "behavior": "Isolated", "invert": False}),
         r"pre_tokenizer is .*only without '\(\?=a'"),
        (changed("suffix", "normalizer", {"type": "Replace", "pattern": {"Regex": "a*"},
                                          "content": "b"}),
         "normalizer is .*only without a form that matches the empty text"),
        (changed("unigram", "model", {"vocab": [["[UNK]", 0.0], ["a\0", 1.0]], "unk_id": 0}),
         r"piece 1 has the character U\+0000"),
        (changed("unigram", "model", {"vocab": [["[UNK]", 0.0], ["[CLS]", 0.0]], "unk_id": 0}),
         "model.vocab has only special tokens"),
        (changed("word_piece", "model", {"vocab": {"[UNK]": 0, "a" * 300: 1}}),
         "only pieces of up to 256 bytes"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_its_name(tmp_path, described, message):
    with pytest.raises(UserError, match=message) as raised:
        tokenizers.load(write(tmp_path / "bad", described))
    assert "tokenizer.json" in str(raised.value)


def test_tokens_that_are_normalized_need_normalizers_that_look_at_one_character(tmp_path):
    described = changed("suffix", "normalizer", {"type": "Prepend", "prepend": "x"})
    flags = {"content": "covid19", "id": 11, "normalized": True, "lstrip": False, "rstrip": False,
             "single_word": False, "special": False}  # fmt: skip
    described["added_tokens"] = [*described["added_tokens"], flags]
    with pytest.raises(UserError, match="normalizer is .*Prepend.*without an added token that is"):
        tokenizers.load(write(tmp_path / "bad", described))
    described["normalizer"] = {"type": "Lowercase"}
    loaded = tokenizers.load(write(tmp_path / "good", described))
    assert loaded.encode(["a COVID19b"])[0].tolist() == [7, 11, 8]
