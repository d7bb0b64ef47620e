"""Words and their characters: the ids of the release, in and outside a graph; folders; errors."""

import json
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import word_characters, wordpiece
from official.utils.errors import UserError

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "Cat", ".", "né", "東京", "a\ufffd", "a.b"]
BLANKS = [c for c in map(chr, range(0x3001)) if c.isspace()]
ODD = [
    *BLANKS, *WORDS, *"éß東.,-½`。", "\0", "\u200b", "\ufeff", "\ue000", "\U0001f600", "e\u0301",
    "x" * 47, "y" * 48, "z" * 49, "é" * 24, "é" * 25, "x" * 47 + "é", "w" * 10_000,
]  # fmt: skip


def odd_texts(count):
    rng = random.Random(3)
    yield from ("", " ", "the", " the  cat\tné ", "<S> the </S> <UNK>", "\ud800 the", "a\0b")
    for _ in range(count):
        parts = rng.choices(ODD, k=rng.randrange(12))
        yield "".join(part + rng.choice(["", "", " "]) for part in parts)


def ids_by_hand(word: bytes) -> list[int]:
    """Returns the 50 ids of a word: those of the release's vocabulary, with 1 added."""
    ids = [260] * 50
    ids[0] = 258
    for i, byte in enumerate(word[:48]):
        ids[1 + i] = byte
    ids[1 + len(word[:48])] = 259
    return [i + 1 for i in ids]


def test_words_are_those_of_python():
    tokenizer = tokenizers.Characters(WORDS)
    texts = list(odd_texts(300))
    assert any(BLANKS[0] in text for text in texts) and len(BLANKS) == 29
    ids, splits, words = tokenizer.encode_words(texts)
    allowed = {word: i for i, word in enumerate(WORDS) if i > 2}
    for i, text in enumerate(texts):
        # The bytes of a lone surrogate are three bytes that are not UTF-8.
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        mine = slice(splits[i], splits[i + 1])
        assert [word.decode() for word in words[mine]] == text.split()
        assert ids[mine].tolist() == [allowed.get(word, 2) for word in text.split()]


def test_graph_and_python_agree():
    tokenizer = tokenizers.Characters(WORDS)
    texts = [text for text in odd_texts(200) if "\ud800" not in text]
    raw = [text.encode() for text in texts] + [b"a\xff the", b"\xe6\x9d cat", b"\xc3"]
    graph = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    rows = graph(tf.constant(raw)).to_list()
    assert rows[: len(texts)] == [ids.tolist() for ids in tokenizer.encode(texts)]
    # A byte that is not UTF-8 is U+FFFD, whose word may be in the vocabulary.
    assert rows[len(texts) :] == [[9, 3], [2, 4], [2]]
    characters = tf.function(tokenizer.character_ids)(tf.constant(raw))
    for text, row in zip(raw, characters, strict=True):
        words = text.decode("utf-8", "replace").split()
        begin, *inner, end = row.numpy().tolist()
        assert begin == [259, 257, 260] + [261] * 47
        assert end == [259, 258, 260] + [261] * 47
        assert inner == [ids_by_hand(word.encode()) for word in words]


def test_ids_of_a_word():
    words = [b"cat", b"", b"\0", "né".encode(), b"x" * 48, b"x" * 47 + "é".encode(), b"w" * 10_000]
    ids = word_characters.of_words(tf.constant([words, words[::-1]])).numpy()
    assert ids.shape == (2, 7, 50) and ids.dtype == np.int32
    assert ids[0].tolist() == [ids_by_hand(word) for word in words]
    assert ids[1].tolist() == ids[0, ::-1].tolist()
    assert ids[0, 0, :6].tolist() == [259, 100, 98, 117, 260, 261]
    # 48 bytes leave no padding; the cut falls inside a character.
    assert ids[0, 4, -2:].tolist() == [121, 260] and ids[0, 5, -2:].tolist() == [0xC3 + 1, 260]
    assert ids.max() <= word_characters.PADDING and ids.min() == 1


def test_ids_from_the_bytes_of_rows():
    rows = [["the", "né"], [], ["x" * 48, "a\0"]]
    data = tf.constant(["".join(row).encode() for row in rows])
    lengths = tf.ragged.constant([[len(w.encode()) for w in row] for row in rows], tf.int32)
    ids = tf.function(word_characters.of_bytes)(data, lengths).numpy()
    assert ids.tolist() == [ids_by_hand(word.encode()) for row in rows for word in row]


def test_marks_in_a_text_are_characters():
    tokenizer = tokenizers.Characters(WORDS)
    assert tokenizer.encode(["<S> </S> <UNK> the"])[0].tolist() == [2, 2, 2, 3]
    row = tokenizer.character_ids(tf.constant(["<S>"]))[0].numpy()
    assert row[1].tolist() == ids_by_hand(b"<S>") != row[0].tolist()


def test_punctuation_that_is_split():
    tokenizer = tokenizers.Characters(WORDS, split_punctuation=True)
    texts = [text for text in odd_texts(200) if "\ud800" not in text] + ["The cat. 東京a.b!"]
    _, splits, words = tokenizer.encode_words(texts)
    assert words[splits[-2] :].tolist() == [w.encode() for w in ["The", "cat", ".", *"東京a.b!"]]
    for i, text in enumerate(texts):
        parted = wordpiece.space_words(tf.constant([text])).numpy()[0].decode()
        assert [w.decode() for w in words[splits[i] : splits[i + 1]]] == parted.split()


@pytest.mark.parametrize("splits", [False, True])
def test_offsets_are_slices(splits):
    tokenizer = tokenizers.Characters(WORDS, split_punctuation=splits)
    texts = [text for text in odd_texts(200) if "\ud800" not in text]
    _, bounds, words = tokenizer.encode_words(texts)
    rows = tokenizer.encode_with_offsets(texts)
    for text, (ids, starts, ends), expected, a, b in zip(
        texts, rows, tokenizer.encode(texts), bounds[:-1], bounds[1:], strict=True
    ):
        assert ids.tolist() == expected.tolist()
        slices = [text[i:j].encode() for i, j in zip(starts, ends, strict=True)]
        assert slices == words[a:b].tolist()


def test_roles_and_text():
    tokenizer = tokenizers.Characters([*WORDS, "[MASK]"])
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, 2, 1)
    assert tokenizer.mask_id is None and tokenizer.special_ids == (0, 1, 2)
    assert tokenizer.word_starts.all()
    assert tokenizer.decode([0, 3, 4, 1]) == "<S> the cat </S>"
    joined = tokenizer.join(tf.ragged.constant([[3, 4], []], tf.int32)).numpy().tolist()
    assert joined == [b"the cat", b""]


def test_saved_folder_is_the_same(tmp_path):
    for splits in (False, True):
        folder = tmp_path / str(splits)
        folder.mkdir()
        tokenizer = tokenizers.Characters(WORDS, splits)
        tokenizer.save(folder)
        loaded = tokenizers.load(folder)
        assert isinstance(loaded, tokenizers.Characters)
        assert loaded.split_punctuation == splits
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.files == tokenizer.files
    plain = tokenizers.Characters(WORDS).fingerprint
    assert len({plain, tokenizer.fingerprint, tokenizers.Characters(WORDS[:-1]).fingerprint}) == 3


def test_module_is_saved(tmp_path):
    tokenizer = tokenizers.Characters(WORDS)
    server = tf.Module()
    server.tokenizer = tokenizer.module()
    server.serve = tf.function(
        lambda text: (
            tokenizer.tokenize(text).to_tensor(-1),
            tokenizer.character_ids(text).to_tensor(),
        ),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    texts = tf.constant(["the né cat", "<S> x"])
    tf.saved_model.save(server, str(tmp_path / "saved"))
    ids, characters = tf.saved_model.load(str(tmp_path / "saved")).serve(texts)
    assert ids.numpy().tolist() == [[3, 7, 4], [2, 2, -1]]
    assert (characters.numpy() == tokenizer.character_ids(texts).to_tensor().numpy()).all()


def test_vocabularies_that_are_refused(tmp_path):
    def load(text: bytes, settings=None):
        (tmp_path / "words.txt").write_bytes(text)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings or {}))
        return tokenizers.load(tmp_path)

    for text, message in {
        b"the\ncat\n": "words.txt lacks <S> </S> <UNK>: a vocabulary of words has "
        "<S> </S> <UNK>, one a line",
        b"": "words.txt is empty",
        b"<S>\n</S>\n<UNK>\n\nthe\n": "words.txt, line 4: empty",
        b"<S>\n</S>\n<UNK>\nthe\nthe\n": "'the' is in line 4 and again in line 5",
        b"<S>\n</S>\n<UNK>\ncaf\xe9\n": "words.txt:4: not UTF-8",
    }.items():
        with pytest.raises(UserError, match=re.escape(message)):
            load(text)
    good = b"<S>\n</S>\n<UNK>\nthe\n"
    assert load(good).pieces[-1] == "the"
    assert load(good, {"split_punctuation": True}).split_punctuation
    with pytest.raises(UserError, match="mask_token is 'the', but words.txt has only <S>"):
        load(good, {"mask_token": "the"})
    with pytest.raises(UserError, match="split_punctuation is 3, but must be true or false"):
        load(good, {"split_punctuation": 3})


def test_the_marks_may_be_on_any_line(tmp_path):
    """As in vocabularies of releases, whose reader leaves `!!!MAXTERMID` out."""
    path = tmp_path / "vocabulary.txt"
    path.write_text("the\n</S>\n!!!MAXTERMID\ncat\n<UNK>\n<S>\ndog\n")
    tokenizer = tokenizers.Characters.read(path, {})
    assert tokenizer.pieces == ["the", "</S>", "cat", "<UNK>", "<S>", "dog"]
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id) == (4, 1, 1)
    (ids,) = tokenizer.encode(["dog the bird </S> !!!MAXTERMID cat"])
    assert ids.tolist() == [5, 0, 3, 3, 3, 2]
    graph = tokenizer.tokenize(tf.constant(["dog the bird </S> cat"]))
    assert graph.to_list() == [[5, 0, 3, 3, 2]]
    tokenizer.save(tmp_path / "saved")
    assert tokenizers.load(tmp_path / "saved").pieces == tokenizer.pieces
