"""WordPiece: the ids of the release, in and outside a graph; folders; errors."""

import json
import re
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from official import tokenizers
from official.tokenizers import added_tokens, base, file_formats, wordpiece
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "the", "un", "##aff", "##able", "cat", "[", "]", "mask", "a", "##b", "!"]


def tokenizer(**options) -> tokenizers.WordPiece:
    return tokenizers.WordPiece(PIECES, **options)


def write(folder, pieces=PIECES, settings=None):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_ids_are_those_of_the_reference(case):
    loaded = tokenizers.WordPiece(
        GOLDEN["vocabulary"], lower_case=case == "uncased", max_input_chars_per_word=100
    )
    texts = [row["text"] for row in GOLDEN[case]]
    for text, ids in zip(texts, loaded.encode(texts), strict=True):
        expected = next(row["ids"] for row in GOLDEN[case] if row["text"] == text)
        assert ids.tolist() == expected, text


# What words are made of, and what cleaning leaves of it, uncased and cased.
UNITS = {
    "a": ("a", "a"), "7": ("7", "7"), "α": ("α", "α"), "ก": ("ก", "ก"), "😀": ("😀", "😀"),
    "É": ("e", "É"), "e\u0301": ("e", "e\u0301"), "कि": ("कि", "कि"), "\u00ad\0a": ("a", "a"),
    "한": ("\u1112\u1161\u11ab", "한"), "Aα7😀": ("aα7😀", "Aα7😀"), "ﬁ": ("ﬁ", "ﬁ"),
}  # fmt: skip
BETWEEN = [" ", "!", "(", "中", "\u3000", "\t", "—", "_", "、", " \u2028"]


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 100, 200, 450])
def test_longer_words_are_unknown(limit, lower_case):
    """Counted in characters of whatever script, and the same with offsets and in a graph."""
    letters = dict.fromkeys("".join(a + b for a, b in UNITS.values()))
    pieces = [*SPECIAL, *letters, *(f"##{c}" for c in letters), *"!(中—_、"]
    loaded = tokenizers.WordPiece(pieces, lower_case, max_input_chars_per_word=limit)
    # Few texts of a batch are looked at closely, and they are not the first ones.
    texts, expected = ["a a"] * 5, [["a", "a"]] * 5
    for unit, cleaned in UNITS.items():
        cleaned = cleaned[0 if lower_case else 1]
        least = limit // len(cleaned)
        for count in {1, least, least + 1, 3 * limit} - {0}:
            first, *others = cleaned * count
            word = [first, *(f"##{c}" for c in others)] if len(others) < limit else ["[UNK]"]
            for between in BETWEEN:
                texts.append(f"a{between}{unit * count}{between}{unit * count}{between}a")
                parted = [*between.strip()]
                expected.append(["a", *parted, *word, *parted, *word, *parted, "a"])
    ids = loaded.encode(texts)
    for text, actual, wanted in zip(texts, ids, expected, strict=True):
        assert [loaded.pieces[i] for i in actual] == wanted, (text[:40], len(text))
    for text, actual, (same, starts, ends) in zip(
        texts, ids, loaded.encode_with_offsets(texts), strict=True
    ):
        assert same.tolist() == actual.tolist()
        unknown = {text[a:b] for i, a, b in zip(same, starts, ends, strict=True) if i == 1}
        words = re.split(f"[{''.join(BETWEEN)}]+", text)
        assert unknown <= {words[1].strip("\u00ad\0")} or unknown <= {words[1]}
    graph = tf.function(loaded.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    assert graph(tf.constant(texts)).to_list() == [actual.tolist() for actual in ids]


def test_folders_say_how_long_a_word_may_be(tmp_path):
    """A folder that does not is one of transformers, or one of before: its fingerprint stays."""
    old = tokenizers.load(write(tmp_path / "old", settings={"do_lower_case": True}))
    assert old.max_input_chars_per_word == 100
    assert old.fingerprint == "5aaa815bfe2d2ad85a4a9a65f38a157858b89b62249fe8a7ea2665e594953370"
    old.save(tmp_path / "saved")
    told = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert "max_input_chars_per_word" not in told and told["fingerprint"] == old.fingerprint
    said = {"max_input_chars_per_word": 100}
    assert tokenizers.load(write(tmp_path / "same", settings=said)).fingerprint == old.fingerprint
    loaded = tokenizer()
    assert loaded.max_input_chars_per_word == 200 and loaded.fingerprint != old.fingerprint
    loaded.save(tmp_path / "new")
    settings = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    assert settings["max_input_chars_per_word"] == 200
    again = tokenizers.load(tmp_path / "new")
    assert (again.max_input_chars_per_word, again.files) == (200, loaded.files)
    word = "a" + "b" * 150
    assert [len(t.encode([word])[0]) for t in (old, loaded, again)] == [1, 151, 151]


def test_attributes():
    loaded = tokenizer()
    assert (loaded.pad_id, loaded.unk_id, loaded.cls_id, loaded.sep_id, loaded.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert loaded.special_ids == (0, 1, 2, 3, 4)
    assert loaded.vocab_size == len(PIECES) and loaded.pieces == PIECES
    continuing = [
        piece for piece, start in zip(PIECES, loaded.word_starts, strict=True) if not start
    ]
    assert continuing == ["##aff", "##able", "##b"]
    assert loaded.word_starts.dtype == bool


def test_decode_reads_as_text():
    loaded = tokenizer()
    assert loaded.decode([2, *loaded.encode(["The unaffable cat!"])[0], 3]) == (
        "[CLS] the unaffable cat ! [SEP]"
    )


def test_same_ids_in_function_in_dataset_and_in_python():
    loaded = tokenizers.WordPiece(GOLDEN["vocabulary"])
    texts = [row["text"] for row in GOLDEN["uncased"]]
    expected = [ids.tolist() for ids in loaded.encode(texts)]
    in_function = tf.function(loaded.tokenize)(tf.constant(texts))
    assert in_function.dtype == tf.int32
    assert in_function.to_list() == expected
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(7).map(loaded.tokenize)
    assert [ids for batch in dataset for ids in batch.to_list()] == expected
    values, splits = loaded.encode_ragged(texts)
    assert (values.dtype, splits.dtype) == (np.int32, np.int64)
    assert np.split(values, splits[1:-1])[4].tolist() == expected[4]
    assert splits[-1] == len(values)


def test_batches_do_not_change_ids(monkeypatch):
    texts = [row["text"] for row in GOLDEN["uncased"]]
    loaded = tokenizers.WordPiece(GOLDEN["vocabulary"])
    whole = loaded.encode_ragged(texts)
    monkeypatch.setattr(base, "_CHUNK_CHARACTERS", 100)
    parts = loaded.encode_ragged(texts)
    np.testing.assert_array_equal(parts[0], whole[0])
    np.testing.assert_array_equal(parts[1], whole[1])


def test_no_texts():
    values, splits = tokenizer().encode_ragged([])
    assert values.tolist() == [] and splits.tolist() == [0]
    assert tokenizer().encode([]) == []
    assert [ids.tolist() for ids in tokenizer().encode(["", "cat"])] == [[], [9]]


def test_one_text_instead_of_a_list():
    with pytest.raises(TypeError, match="expected a list of texts, got one text"):
        tokenizer().encode("the cat")


@pytest.mark.parametrize("lower_case", [False, True])
@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe the", b"a\x80 the", b"\xc3", b"\xed\xa0\x80 the", b"\xf0\x9f\x98 the", b"\0"],
)
def test_bytes_that_are_not_utf8(lower_case, text):
    loaded = tokenizer(lower_case=lower_case)
    ids = loaded.tokenize(tf.constant([text, b"cat"])).to_list()
    assert ids[1] == [9]
    assert ids[0][-1:] == ([5] if text.endswith(b"the") else ids[0][-1:])
    assert set(ids[0]) <= {1, 5}


def test_lone_surrogates_are_no_reason_to_stop():
    assert [ids.tolist() for ids in tokenizer().encode(["\ud800 cat", "the"])] == [[9], [5]]


def test_text_never_gives_special_tokens():
    loaded = tokenizer()
    assert [loaded.pieces[i] for i in loaded.encode(["a [MASK] a[SEP]"])[0]] == [
        *["a", "[", "mask", "]", "a", "[", "[UNK]", "]"]
    ]
    pieces = ["<pad>", "[UNK]", "CLS", "[SEP]", "<mask>", "a", "<", ">", "mask"]
    settings = {"cls_token": "CLS"}
    bare = tokenizers.WordPiece(pieces, lower_case=False, settings=settings)
    assert bare.cls_id == 2
    assert bare.encode(["CLS a <mask>"])[0].tolist() == [1, 5, 6, 8, 7]
    assert tf.function(bare.tokenize)(tf.constant(["CLS a"])).to_list() == [[1, 5]]


def test_words_are_parted_as_the_tokenizer_parts_them():
    texts = [row["text"] for row in GOLDEN["uncased"]]
    cleaned = wordpiece.clean(tf.constant(texts), True, True)
    lone = tf_text.FastBertTokenizer(
        ["[UNK]", "\U000f0000"], max_bytes_per_word=4000, token_out_type=tf.int32
    )
    counts = lone.tokenize(cleaned).row_lengths().numpy()
    words = [line.split(b" ") for line in wordpiece.space_words(cleaned).numpy()]
    assert [len([word for word in line if word]) for line in words] == counts.tolist()


def test_every_character_splits_words_as_in_the_release():
    """The release's BasicTokenizer puts spaces around punctuation and Chinese characters."""
    every = [chr(n) for n in range(1, 0x110000) if not 0xD800 <= n < 0xE000]
    cleaned = wordpiece.clean(tf.constant([f"a{c}b{c}" for c in every]), False, False)
    splitter = wordpiece.WordPieceSplitter(["[UNK]", "a"], "[UNK]", False, False, 200)
    words = tf.strings.split(tf.strings.strip(wordpiece.space_words(cleaned)))
    assert {*words.row_lengths().numpy()} == {1, 2, 4}  # letters, white space, punctuation
    np.testing.assert_array_equal(splitter.split(cleaned).row_lengths(), words.row_lengths())


def test_save_and_load(tmp_path):
    loaded = tokenizer(settings={"model_max_length": 77, "tokenizer_class": "ElectraTokenizer"})
    loaded.save(tmp_path / "one" / "tokenizer")
    again = tokenizers.load(tmp_path / "one" / "tokenizer")
    assert sorted(p.name for p in (tmp_path / "one" / "tokenizer").iterdir()) == [
        "tokenizer_config.json",
        "vocab.txt",
    ]
    assert again.files == loaded.files and again.fingerprint == loaded.fingerprint
    assert again.lower_case is True and again.strip_accents is True
    assert again.encode(["Thé cat"])[0].tolist() == [5, 9]
    settings = json.loads((tmp_path / "one" / "tokenizer" / "tokenizer_config.json").read_text())
    assert settings["do_lower_case"] is True
    assert settings["mask_token"] == "[MASK]"
    assert settings["model_max_length"] == 77
    assert settings["tokenizer_class"] == "ElectraTokenizer"
    again.save(tmp_path / "two")
    for name, digest in loaded.files.items():
        data = [tmp_path / "one" / "tokenizer" / name, tmp_path / "two" / name]
        assert data[0].read_bytes() == data[1].read_bytes()
        assert len(digest) == 64


def test_fingerprint_is_of_what_decides_ids(tmp_path):
    loaded = tokenizer()
    bare = tokenizers.load(write(tmp_path / "bare"))
    assert bare.fingerprint == tokenizer(max_input_chars_per_word=100).fingerprint
    same = [tokenizer(lower_case=True), tokenizer(settings={"model_max_length": 5})]
    others = [
        tokenizer(lower_case=False),
        tokenizer(strip_accents=False),
        bare,
        tokenizer(settings={"mask_token": "mask"}),
        tokenizers.WordPiece(PIECES[:-2] + PIECES[:-3:-1]),
    ]
    assert {other.fingerprint for other in same} == {loaded.fingerprint}
    assert len({other.fingerprint for other in [loaded, *others]}) == 6


def test_case_is_what_the_settings_say_or_the_vocabulary_tells(tmp_path):
    assert tokenizers.load(write(tmp_path / "a")).lower_case is True
    assert tokenizers.load(write(tmp_path / "b", [*PIECES, "Cat"])).lower_case is False
    loaded = tokenizers.load(write(tmp_path / "c", [*PIECES, "Cat"], {"do_lower_case": True}))
    assert loaded.lower_case is True and loaded.strip_accents is True
    settings = {"do_lower_case": True, "strip_accents": False}
    loaded = tokenizers.load(write(tmp_path / "d", [*PIECES, "é"], settings))
    assert loaded.encode(["É"])[0].tolist() == [len(PIECES)]


def test_windows_line_ends_and_no_last_line_end(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(PIECES).encode())
    expected = tokenizer(max_input_chars_per_word=100)
    assert tokenizers.load(tmp_path).fingerprint == expected.fingerprint


def test_special_tokens_as_objects(tmp_path):
    pieces = [*PIECES[:4], "<hide>", *PIECES[5:]]
    folder = write(tmp_path / "a", pieces, {"mask_token": {"content": "<hide>", "lstrip": True}})
    assert tokenizers.load(folder).mask_id == 4


@pytest.mark.parametrize(
    "pieces, settings, message",
    [
        (
            [p for p in PIECES if p not in ("[PAD]", "[CLS]")],
            None,
            r"vocab.txt lacks special tokens: pad_token \(\[PAD\] or <pad>\), cls_token "
            r"\(\[CLS\] or <cls>\): add them to the vocabulary, or name in",
        ),
        (PIECES, {"sep_token": "</s>"}, r"vocab.txt lacks special tokens: sep_token \(</s>\)"),
        ([], None, r"vocab.txt is empty: a vocabulary has one piece a line"),
        (["", ""], None, r"vocab.txt is empty"),
        (PIECES[:4], None, r"vocab.txt has only special tokens: is it complete\?"),
        (PIECES, {"do_lower_case": "yes"}, r"do_lower_case is 'yes', but must be true or false"),
        (
            PIECES,
            {"tokenize_chinese_chars": "no"},
            r"tokenizer_config.json: tokenize_chinese_chars is 'no', but must be true or false",
        ),
        (PIECES, {"mask_token": 4}, r"mask_token is 4, but must be the text of a token"),
        *(
            (
                PIECES,
                {"max_input_chars_per_word": value},
                rf"tokenizer_config.json: max_input_chars_per_word is {value!r}, expected a "
                r"whole number from 1 to 1,000,000: 200 as in BERT's release, 100 as in tr",
            )
            for value in (0, -1, 10**7, True, 100.0, "100")
        ),
    ],
)
def test_bad_folders(tmp_path, pieces, settings, message):
    folder = write(tmp_path / "tok", pieces, settings)
    with pytest.raises(UserError, match=message) as raised:
        tokenizers.load(folder)
    assert str(folder) in str(raised.value) or "tokenizer_config.json: " in str(raised.value)


def test_a_vocabulary_may_lack_a_mask_token(tmp_path):
    folder = write(tmp_path / "tok", [piece for piece in PIECES if piece != "[MASK]"])
    loaded = tokenizers.load(folder)
    assert loaded.mask_id is None and loaded.special_ids == (0, 1, 2, 3)


def test_settings_that_are_not_an_object(tmp_path):
    folder = write(tmp_path / "tok")
    (folder / "tokenizer_config.json").write_text('{"a": ')
    with pytest.raises(UserError, match=r"tokenizer_config.json is not JSON: .*line 1 column 7"):
        tokenizers.load(folder)
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match="tokenizer_config.json holds a list, expected an object"):
        tokenizers.load(folder)


def test_files_that_changed_since_they_were_saved_are_refused(tmp_path):
    folder = tmp_path / "tok"
    tokenizer().save(folder)
    assert tokenizers.load(folder).fingerprint == tokenizer().fingerprint
    vocabulary, settings = folder / "vocab.txt", folder / "tokenizer_config.json"
    pieces = vocabulary.read_text()
    vocabulary.write_text(pieces.replace("##able", "##acle"))
    with pytest.raises(UserError, match="these are not the files that were saved: their"):
        tokenizers.load(folder)
    vocabulary.write_text(pieces.removesuffix("!\n"))
    with pytest.raises(UserError, match="these are not the files that were saved"):
        tokenizers.load(folder)
    vocabulary.write_text(pieces)
    said = json.loads(settings.read_text())
    settings.write_text(json.dumps({**said, "do_lower_case": False}))
    with pytest.raises(UserError, match="if it was changed on purpose, remove 'fingerprint'"):
        tokenizers.load(folder)
    settings.write_text(json.dumps({**said, "model_max_length": 7}))  # decides no ids
    assert tokenizers.load(folder).fingerprint == tokenizer().fingerprint
    del said[file_formats.FINGERPRINT]  # a folder of an earlier version, or of another tool
    settings.write_text(json.dumps({**said, "do_lower_case": False}))
    assert not tokenizers.load(folder).lower_case


def test_vocabulary_that_is_not_utf8(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"vocab.txt:2: not UTF-8: is this a vocabulary"):
        tokenizers.load(tmp_path)


def test_folders_without_a_tokenizer(tmp_path):
    looked = (
        r"vocab.txt \(WordPiece\), spiece.model \(SentencePiece\), vocab.json with merges.txt "
        r"\(byte-level BPE\), words.txt \(characters\), bpe.codes with vocab.txt or tokenizer.json"
    )
    with pytest.raises(UserError, match=f"none is missing: it should hold {looked}"):
        tokenizers.load(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file is a file, not a folder: it should hold"):
        tokenizers.load(tmp_path / "file")
    with pytest.raises(UserError, match=f"looked for {looked}, found file"):
        tokenizers.load(tmp_path)
    write(tmp_path / "tokenizer")
    inner = re.escape(str(tmp_path / "tokenizer"))
    with pytest.raises(UserError, match=rf"found file, tokenizer; did you mean {inner}\?"):
        tokenizers.load(tmp_path)
    (tmp_path / "tokenizer" / "spiece.model").write_bytes(b"x")
    with pytest.raises(UserError, match="holds both vocab.txt and spiece.model: remove the files"):
        tokenizers.load(tmp_path / "tokenizer")


# Written with the ids of `BertTokenizer` of transformers 4.57.6 and of its fast form.
PARTED = [
    *SPECIAL,
    "東",
    "京",
    "東京",
    "##大",
    "##学",
    "学",
    "大",
    "a",
    "##b",
    ".",
    "##.",
    "é",
    "e",
    "A",
]


@pytest.mark.parametrize(
    "settings, text, expected",
    [
        ({"tokenize_chinese_chars": False}, "東京 大 a.b", "東京 大 a . [UNK]"),
        ({"tokenize_chinese_chars": False}, "東京大学ab東京", "[UNK]"),
        ({"tokenize_chinese_chars": False}, "東京大学。学", "東京 ##大 ##学 [UNK] 学"),
        ({"tokenize_chinese_chars": False, "do_lower_case": True}, "É 東京\u200b大", "e 東京 ##大"),
        ({"do_basic_tokenize": False}, "東京\u3000大学 a. a.b", "東京 大 ##学 a ##. a ##. ##b"),
        ({"do_basic_tokenize": False, "do_lower_case": True}, "A É é ab", "A [UNK] é a ##b"),
        ({"do_basic_tokenize": False}, "東京\x1c大\x85a\u200b a\0", "東京 大 [UNK] [UNK]"),
        ({"do_basic_tokenize": False}, "  ", ""),
        ({"do_basic_tokenize": False}, f"a{'b' * 99} a{'b' * 100}", f"a{' ##b' * 99} [UNK]"),
        ({"tokenize_chinese_chars": False}, f"a{'b' * 99} a{'b' * 100}", f"a{' ##b' * 99} [UNK]"),
    ],
)  # fmt: skip
def test_text_that_another_program_has_parted(tmp_path, settings, text, expected):
    pieces = [piece for piece in PARTED if piece != "##." or "do_basic_tokenize" in settings]
    pieces += ["##b"] * ("##b" not in pieces)
    loaded = tokenizers.load(write(tmp_path / "tok", pieces, settings))
    (ids,) = loaded.encode([text])
    assert [loaded.pieces[i] for i in ids] == expected.split()
    assert tf.function(loaded.tokenize)(tf.constant([text])).to_list() == [ids.tolist()]
    ((same, starts, ends),) = loaded.encode_with_offsets([text])
    assert same.tolist() == ids.tolist()
    for i, start, end in zip(same, starts, ends, strict=True):
        if i != loaded.unk_id:
            piece = loaded.pieces[i].removeprefix("##")
            assert text[start:end].rstrip("\u200b").lower().replace("é", "e") in (
                piece, piece.replace("é", "e"), piece.lower())  # fmt: skip
    loaded.save(tmp_path / "again")
    again = tokenizers.load(tmp_path / "again")
    assert again.fingerprint == loaded.fingerprint
    assert again.encode([text])[0].tolist() == ids.tolist()


def test_switches_of_parted_text_are_in_the_fingerprint_where_they_are_off(tmp_path):
    usual = tokenizer(lower_case=True)
    on = {"do_lower_case": True, "tokenize_chinese_chars": True, "do_basic_tokenize": True,
          "max_input_chars_per_word": 200}  # fmt: skip
    assert tokenizers.load(write(tmp_path / "on", settings=on)).fingerprint == usual.fingerprint
    ideographs = tokenizer(lower_case=True, tokenize_chinese_chars=False)
    plain = tokenizer(do_basic_tokenize=False)
    assert len({usual.fingerprint, ideographs.fingerprint, plain.fingerprint}) == 3
    assert not plain.lower_case


# Of lower-cased "J" and a caron there is one character, and of the two in capitals there is none.
COMPOSED = [
    "ế",
    "##é",
    "é",
    "É",
    "ệ",
    "각",
    "##각",
    "j",
    "##\u030c",
    "ǰ",
    "x",
    "##̣",
    "東",
    "##東",
    "≠",
]


@pytest.mark.parametrize(
    "options", [{}, {"lower_case": True}, {"lower_case": True, "strip_accents": False},
                {"tokenize_chinese_chars": False}, {"do_basic_tokenize": False}],
)  # fmt: skip
def test_characters_may_be_composed_first(tmp_path, options):
    letters = dict.fromkeys("".join(COMPOSED).replace("#", "") + "aeoxj\u030c\u0301각각")
    pieces = list(dict.fromkeys([*SPECIAL, *COMPOSED, *letters, *(f"##{c}" for c in letters)]))
    plain = tokenizers.WordPiece(pieces, **{"lower_case": False, **options})
    made = tokenizers.WordPiece(pieces, **{"lower_case": False, **options}, nfc=True)
    assert made.nfc and made.fingerprint != plain.fingerprint
    made.save(tmp_path / "tok")
    loaded = tokenizers.load(tmp_path / "tok")
    assert loaded.fingerprint == made.fingerprint and loaded.nfc
    texts = [
        "e\u0302\u0301 x", "e\u0301\u0302", "e\u0323\u0302e\u0301", "J\u030c j\u030c",
        "\u1100\u1161\u11a8",
        "x\u0323x \uf900東", "a=\u0338a", "\u0301e \u0301", "",
        "e\u200b\u0301", "o\0e\u0301 \u212b", "Σe\u0301Σ=a",
        "e\u0301" * 250,
    ]  # fmt: skip
    whole = [unicodedata.normalize("NFC", text) for text in texts]
    expected = [row.tolist() for row in plain.encode(whole)]
    assert [row.tolist() for row in plain.encode(texts)] != expected or made.strip_accents
    for each in (made, loaded):
        assert [row.tolist() for row in each.encode(texts)] == expected
        assert tf.function(each.tokenize)(tf.constant(texts)).to_list() == expected
    rows = made.encode_with_offsets(texts)
    places = plain.encode_with_offsets(whole)
    for text, after, (ids, starts, ends), row, (_, firsts, lasts) in zip(
        texts, whole, rows, expected, places, strict=True
    ):
        assert ids.tolist() == row
        # A token covers what its part of the composed text was composed from.
        for start, end, first, last in zip(starts, ends, firsts, lasts, strict=True):
            assert unicodedata.normalize("NFC", text[start:end]) == after[first:last], (text, after)


def test_another_form_than_nfc_is_refused(tmp_path):
    message = "unicode_normalization: 'NFKC' in its settings is not supported, only 'NFC'"
    with pytest.raises(UserError, match=message):
        tokenizers.load(write(tmp_path / "tok", settings={"unicode_normalization": "NFKC"}))


def test_added_tokens_are_found_in_composed_text():
    """As in the `tokenizers` package: those that are `normalized`, in the normalized text."""
    token = added_tokens.AddedToken("caf\u00e9", normalized=True)
    settings = {added_tokens.LISTED: {token.content: added_tokens.Listed(None, token)}}
    made = tokenizers.WordPiece([*PIECES, "x"], False, settings=settings, nfc=True)
    (number,) = made.added
    text = "x cafe\u0301 x"
    assert made.encode([text])[0].tolist() == [
        made.pieces.index("x"),
        number,
        made.pieces.index("x"),
    ]
    ((ids, starts, ends),) = made.encode_with_offsets([text])
    assert ids[1] == number and text[starts[1] : ends[1]] == "cafe\u0301"


def test_pieces_that_no_text_becomes_are_named(tmp_path):
    """`never_split`, as the fast tokenizers of transformers have it: see the test of parity."""
    settings = {"never_split": ["[link]", "[mail]", "[MASK]"], "do_lower_case": False}
    loaded = tokenizers.load(write(tmp_path / "tok", [*PIECES, "[link]"], settings))
    plain = tokenizers.WordPiece([*PIECES, "[link]"], False)
    assert loaded.encode(["a [link] a"])[0].tolist() == plain.encode(["a [link] a"])[0].tolist()
    (note,) = [note for note in loaded.notes if "never_split" in note]
    assert "lists '[link]', which never occur" in note and "added_tokens_decoder" in note
    flags = {"content": "[link]", "lstrip": False, "rstrip": False, "single_word": False,
             "normalized": False, "special": True}  # fmt: skip
    settings["added_tokens_decoder"] = {str(len(PIECES)): flags}
    found = tokenizers.load(write(tmp_path / "listed", [*PIECES, "[link]"], settings))
    a = PIECES.index("a")
    assert found.encode(["a [link] a"])[0].tolist() == [a, len(PIECES), a]
    assert not [note for note in found.notes if "never_split" in note]


def test_a_vocabulary_is_compiled_once():
    """And again for another limit of words, and for words that are parted already."""
    wordpiece._compiled.cache_clear()
    first, second = tokenizer(), tokenizer(lower_case=False)
    assert wordpiece._compiled.cache_info()[:2] == (1, 1)  # hits and misses
    short, parted = tokenizer(max_input_chars_per_word=1), tokenizer(tokenize_chinese_chars=False)
    assert wordpiece._compiled.cache_info()[:2] == (1, 3)
    the, a, unknown = (PIECES.index(piece) for piece in ("the", "a", "[UNK]"))
    texts = ["The", "the a", "a中a"]
    for each, expected in (
        (first, [[the], [the, a], [a, unknown, a]]),
        (second, [[unknown], [the, a], [a, unknown, a]]),
        (short, [[unknown], [unknown, a], [a, unknown, a]]),
        (parted, [[the], [the, a], [unknown]]),
    ):
        assert [ids.tolist() for ids in each.encode(texts)] == expected
