"""BPE by codes: PhoBERT's and BERTweet's files."""

import pytest
import tensorflow as tf

from official import tokenizers
from official.utils.errors import UserError

CODES = ["h ọ 9", "họ c</w> 8", "s i 7", "si n 6", "sin h 5", "sinh _ 4", "v i 3", "vi ê 2",
         "viê n</w> 2"]  # fmt: skip
PIECES = "học sinh_@@ viên s@@ i@@ n@@ h@@ v@@ t@@ ô@@ i T@@ là l@@ à họ@@ c".split()
# By PhobertTokenizer of transformers 4.57.6.
EXPECTED = {
    "sinh_viên học": [5, 6, 4],
    "Tôi là sinh_viên": [15, 13, 14, 17, 18, 5, 6],
    "x họ\thọc\u3000i": [3, 10, 3, 4, 14],
    "học\nsinhx": [19, 3, 3, 3, 3],
    "</w> @@ học@@": [3, 3, 3, 3, 3, 3, 19, 3, 3, 3],
    "": [],
}


def write(folder, pieces=None, codes=None, settings="{}"):
    folder.mkdir()
    lines = [f"{piece} 10" for piece in PIECES] if pieces is None else pieces
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "bpe.codes").write_text("".join(f"{line}\n" for line in codes or CODES))
    (folder / "tokenizer_config.json").write_text(settings)
    return folder


def test_ids_are_those_of_transformers(tmp_path):
    loaded = tokenizers.load(write(tmp_path / "phobert"))
    texts = list(EXPECTED)
    assert [ids.tolist() for ids in loaded.encode(texts)] == list(EXPECTED.values())
    assert tf.function(loaded.tokenize)(tf.constant(texts)).to_list() == list(EXPECTED.values())
    assert (loaded.cls_id, loaded.pad_id, loaded.sep_id, loaded.unk_id) == (0, 1, 2, 3)
    assert loaded.mask_id == loaded.vocab_size - 1 == 21
    assert (loaded.pairs.separators, loaded.pairs.types) == (2, "one")
    assert loaded.decode([5, 6, 4]) == "sinh_viên học"
    assert loaded.join(tf.ragged.constant([[5, 6, 4], []], tf.int32)).numpy().tolist() == [
        "sinh_viên học".encode(), b""]  # fmt: skip
    ((ids, starts, ends),) = loaded.encode_with_offsets(["Tôi  sinh_viên"])
    assert ids.tolist() == [15, 13, 14, 5, 6]
    assert [*zip(starts.tolist(), ends.tolist(), strict=True)] == [
        (0, 1), (1, 2), (2, 3), (5, 10), (10, 14)]  # fmt: skip
    # A piece after one that ends a word, or after a special token, begins a word.
    ends_word = [loaded.pieces[i] for i in range(22) if loaded.word_ends[i]]
    assert ends_word == ["<s>", "<pad>", "</s>", "<unk>", "học", "viên", "i", "là", "à", "c",
                         "<mask>"]  # fmt: skip
    ids = loaded.encode(["học <mask> viên"], special=True)[0].tolist()
    assert ids == [4, 21, 6]


def test_files_come_back(tmp_path):
    loaded = tokenizers.load(write(tmp_path / "phobert"))
    loaded.save(tmp_path / "again")
    again = tokenizers.load(tmp_path / "again")
    assert again.fingerprint == loaded.fingerprint
    for name in ("vocab.txt", "bpe.codes"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / "phobert" / name
        ).read_bytes()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pieces": ["học"]}, "vocab.txt:1: 'học': expected a piece and its count"),
        ({"pieces": ["a 1", "a 2"]}, "vocab.txt: 'a' is in line 5 and again in line 6"),
        ({"codes": ["h ọ"]}, "bpe.codes:1: 'h ọ': expected two parts and a count"),
        ({"settings": '{"normalization": true}'}, "normalization: true is not supported: normali"),
    ],
)
def test_bad_folders(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tokenizers.load(write(tmp_path / "bad", **options))


@pytest.mark.slow
def test_the_same_in_a_saved_model(tmp_path):
    server = tf.Module()
    server.splitter = tokenizers.load(write(tmp_path / "phobert")).module()
    spec = tf.TensorSpec([None], tf.string)
    server.split = tf.function(server.splitter.tokenize, [spec], autograph=False)
    tf.saved_model.save(server, str(tmp_path / "saved"))
    found = tf.saved_model.load(str(tmp_path / "saved")).split(tf.constant(list(EXPECTED)))
    assert found.to_list() == list(EXPECTED.values())
