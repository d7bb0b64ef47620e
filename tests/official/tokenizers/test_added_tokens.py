"""Added tokens: in slices, files and graphs, and for what learns from their ids."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.corruption.vocabulary import Vocabulary
from official.tokenizers import added_tokens
from official.tokenizers.added_tokens import LISTED, AddedToken, Listed
from official.tokenizers.byte_vocabulary import ALPHABET
from official.utils.errors import UserError
from tests import ROOT

MARK = AddedToken("[E1]", special=True)
WORD = AddedToken("Naïve", normalized=True)
LEFT = AddedToken("<l>", lstrip=True)
RIGHT = AddedToken("<r>", rstrip=True)


def settings(*tokens):
    return {LISTED: {token.content: Listed(None, token) for token in tokens}}


def byte_bpe(*tokens, prefix=False):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *ALPHABET.values(), "<mask>"]
    return tokenizers.ByteBPE(pieces, [], prefix, settings(*tokens))


def wordpiece(*tokens):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgniv", "##a", "##b"]
    return tokenizers.WordPiece(pieces, True, settings=settings(*tokens))


@pytest.mark.parametrize("prefix", [False, True])
def test_a_document_of_slices_has_the_ids_of_its_text(prefix):
    tokenizer = byte_bpe(MARK, LEFT, RIGHT, prefix=prefix)
    documents = [
        ["a é", "[E1]", "b  ", " <l>c", ""],
        ["[E", "1] x <r>  ", " y"],
        ["no token"],
        ["", " [E1][E1]", "z <l>"],
    ]
    ids, splits = tokenizer.encode_slices(documents)
    starts = np.cumsum([0, *map(len, documents)])
    whole = tokenizer.encode(["".join(parts) for parts in documents])
    for i, expected in enumerate(whole):
        assert ids[splits[starts[i]] : splits[starts[i + 1]]].tolist() == expected.tolist()
    number = {token.content: i for i, token in tokenizer.added.items()}
    slices = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
    assert slices[1] == [number["[E1]"]]
    # The token has the blanks before it, so it begins in the slice of the first blank.
    assert slices[2][-1] == number["<l>"] and number["<l>"] not in slices[3]
    assert slices[5] == [number["[E1]"]] and number["[E1]"] not in slices[6]
    # Blanks after it are its own as well: the next token is the y of the next slice.
    assert slices[7] == tokenizer.encode(["y"])[0].tolist()
    plain = byte_bpe(prefix=prefix)
    assert plain.encode_slices(documents[2:3])[0].tolist() == whole[2].tolist()


def test_white_space_of_a_token_is_no_token():
    """Runs of blanks are tokens of ModernBERT, and its [MASK] has the blanks before it."""
    two, three = (AddedToken(" " * n, normalized=True) for n in (2, 3))
    tokenizer = byte_bpe(two, three, LEFT, RIGHT)
    number = {token.content: i for i, token in tokenizer.added.items()}
    a, b, left, right = *tokenizer.encode(["ab"])[0].tolist(), number["<l>"], number["<r>"]
    blank = tokenizer.encode([" "])[0].tolist()
    cases = {
        "a   b": [a, number["   "], b],
        "a   <l>  b": [a, left, number["  "], b],
        "a  <r>   b": [a, number["  "], right, b],
        "<r>   <l>": [right, left],
        "<r>  a  b  <l>": [right, a, number["  "], b, left],
        " <l>": [left],
        "    a": [number["   "], *blank, a],
    }
    in_graph = tf.function(tokenizer.tokenize)(tf.constant(list(cases)))
    assert in_graph.to_list() == list(cases.values())
    for text, expected in cases.items():
        ids, starts, ends = tokenizer.encode_with_offsets([text])[0]
        assert tokenizer.encode([text])[0].tolist() == ids.tolist() == expected, text
        for i, start, end in zip(ids, starts, ends, strict=True):
            piece = tokenizer.pieces[i]
            assert text[start:end].strip() == piece.replace("Ġ", "").strip(), (text, piece)
        flat, bounds = tokenizer.encode_slices([list(text)])
        assert flat.tolist() == expected and bounds[-1] == len(expected)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        # Those of tokenizers 0.22.2 for "xyz"; 17 is the first id after the vocabulary.
        ([("Xyz", False), ("xYZ", False)], 17),
        ([("xYZ", False), ("Xyz", False)], 17),
        ([("Xyz", False), ("xYZ", True)], 18),
        ([("XYZ", False), ("a", False)], 17),
        # A piece of the vocabulary that is listed, and a token that is lower-cased to it.
        ([("A", False), ("a", False)], 5),
    ],
)
def test_of_tokens_that_meet_in_lower_case_the_first_counts(tokens, expected):
    made = [AddedToken(text, normalized=True, special=special) for text, special in tokens]
    text = "xyz" if expected > 5 else "a"
    tokenizer = wordpiece(*made)
    assert tokenizer.encode([text])[0].tolist() == [expected]
    assert tokenizer.tokenize(tf.constant([text])).to_list() == [[expected]]


def test_without_added_tokens_nothing_changes():
    plain, added = wordpiece(), wordpiece(MARK, WORD)
    # As before there were added tokens.
    assert plain.fingerprint.startswith("e11eab179823e1a553b986cb3aca5fe7")
    assert added.fingerprint != plain.fingerprint
    assert added.vocab_size == plain.vocab_size + 2 and added.num_base_pieces == plain.vocab_size
    assert json.loads(plain._settings_file()).keys() >= {"do_lower_case", "cls_token"}
    assert added_tokens.DECODER not in json.loads(plain._settings_file())
    ids = [tokenizer.encode(["a [mask] b [MASK]"])[0].tolist() for tokenizer in (plain, added)]
    assert ids[0] == ids[1] and 4 not in ids[0]
    assert plain.encode(["a [MASK]b"], special=True)[0].tolist() == [5, 4, 6]


def test_tokens_in_texts_and_back(tmp_path):
    tokenizer = wordpiece(MARK, WORD)
    mark, word = tokenizer.added
    texts = ["a[E1] NAÏVE b", "naive[e1]", ""]
    ids = [ids.tolist() for ids in tokenizer.encode(texts)]
    assert ids == [[5, mark, word, 6], [word, 1, 1, 1], []]
    assert tokenizer.decode(ids[0]) == "a [E1] Naïve b"
    joined = tokenizer.join(tf.ragged.constant(ids, tf.int32)).numpy().tolist()
    assert joined == [tokenizer.decode(row).encode() for row in ids]
    _, starts, ends = tokenizer.encode_with_offsets(texts)[0]
    assert [texts[0][a:b] for a, b in zip(starts, ends, strict=True)] == ["a", "[E1]", "NAÏVE", "b"]
    assert tokenizer.word_starts[[mark, word]].all()
    assert tokenizer.piece_bytes[word] == len(" Naïve".encode())
    tokenizer.save(tmp_path)
    again = tokenizers.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint and again.added == tokenizer.added
    # A mark is never hidden or drawn, a word is.
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert mark in vocabulary.never_masked and mark not in vocabulary.text_ids
    assert word not in vocabulary.never_masked and word in vocabulary.text_ids


@pytest.mark.parametrize("prefix", [False, True])
def test_letters_that_are_no_ascii_come_back_from_byte_bpe(prefix):
    tokenizer = byte_bpe(AddedToken("é x"), prefix=prefix)
    [ids] = tokenizer.encode(["aé xb"])
    assert tokenizer.decode(ids) == " " * prefix + "aé x" + " " * prefix + "b"
    [joined] = tokenizer.join(tf.RaggedTensor.from_tensor(ids[None])).numpy()
    assert joined.decode() == tokenizer.decode(ids)


def test_sentinels(spiece_model):
    tokenizer = tokenizers.SentencePiece(spiece_model(), True, settings(WORD), extra_ids=3)
    text = "The river is the <extra_id_0> of NAÏVE Spain<extra_id_2>."
    [ids] = tokenizer.encode([text])
    names = [tokenizer.pieces[i] for i in ids]
    assert names.count("<extra_id_0>") == names.count("<extra_id_2>") == names.count("Naïve") == 1
    parts = [
        tokenizer.encode([part])[0].tolist() for part in ("The river is the", " of ", "Spain", ".")
    ]
    first, last = tokenizer.sentinel_ids[0], tokenizer.sentinel_ids[2]
    assert ids.tolist() == [
        *parts[0], first, *parts[1], *tokenizer.added, *parts[2], last, *parts[3]
    ]  # fmt: skip


@pytest.mark.slow
def test_a_saved_graph_has_both_of_its_models(spiece_model, tmp_path):
    tokenizer = tokenizers.SentencePiece(spiece_model(), True, settings(WORD), extra_ids=3)
    text = "The river is the <extra_id_0> of NAÏVE Spain<extra_id_2>."
    [ids] = tokenizer.encode([text])

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer.module()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def ids(self, texts):
            return self.tokenizer.tokenize(texts).to_tensor(-1)

    tf.saved_model.save(Served(), tmp_path / "served")
    served = tf.saved_model.load(tmp_path / "served")
    # The model and its table of replacements are two resources.
    assert served.ids(tf.constant([text])).numpy().tolist() == [ids.tolist()]


def test_errors(tmp_path):
    with pytest.raises(
        UserError, match="the added token 'x' has the id 99, and no piece has the id"
    ):
        tokenizers.WordPiece(wordpiece().pieces, settings={LISTED: {"x": Listed(99, WORD)}})
    for content, message in {
        "[E1]\n[E1]\n": r"added.txt:2: '\[E1\]' is in an earlier line as well",
        '{"content": "a", "left": true}\n': "added.txt:1: 'left' is not a flag: the flags are",
        '{"content": "a", "lstrip": 1}\n': "added.txt:1: lstrip is 1, but must be true or false",
        '{"content"\n': "added.txt:1: not JSON",
        "a\n\nb\n": "added.txt:2: a token has no text",
    }.items():
        (tmp_path / "added.txt").write_text(content)
        with pytest.raises(UserError, match=message):
            added_tokens.read_lines(tmp_path / "added.txt")
    with pytest.raises(UserError, match="other.txt is missing"):
        added_tokens.read_lines(tmp_path / "other.txt")


COUNT = 20_000  # tokens of a text of 160 kB: its copies for each of them would be 3 GB
# (The peak of a process never falls.)
PROGRAM = f"""
import resource, sys
import tensorflow as tf
from official.tokenizers import WordPiece
from official.tokenizers.added_tokens import LISTED, AddedToken, Listed

flags = {{"special": True}}, {{"lstrip": True, "rstrip": True}}, {{"normalized": True}}
for extra in flags:
    token = AddedToken("Naïve", **extra)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    tokenizer = WordPiece(pieces, True, settings={{LISTED: {{"Naïve": Listed(None, token)}}}})
    tokenizer.tokenize(tf.constant(["Naïve a"]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ids = tokenizer.tokenize(tf.constant([" Naïve a" * {COUNT}]))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert ids.values.numpy().tolist() == [6, 5] * {COUNT}
    assert grown < 250, f"{{extra}}: {{grown}} MB"
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_memory_of_a_text_of_many_tokens_is_linear():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr[-1000:]
