"""Folders of other tools: each key is done, harmless or refused, as the class reads it there.

The expected ids and choices are those of transformers 4.57.6 and 5.24.0, whose classes were run on
such folders.
"""

import json

import pytest

from official import UserError, tokenizers
from official.tokenizers import class_rules, file_formats, folder_classes, folder_keys

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "the", "cat", "city", "film", *"abcdefghijklmnopqrstuvwxyz", "##s"]
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    """Writes a folder with a vocabulary of WordPiece, settings and other files."""

    def folder(settings=None, pieces=PIECES, **files):
        contents = {f"{name}.json": content for name, content in files.items()}
        if settings is not None:
            contents["tokenizer_config.json"] = settings
        if pieces is not None:
            (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
        for name, content in contents.items():
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return folder


def described(normalizer=BERT, **changes):
    """A `tokenizer.json` of WordPiece."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: i for i, piece in enumerate(PIECES)},
        },
        **changes,
    }


def words(folder, *texts):
    tokenizer = tokenizers.load(folder)
    return [[tokenizer.pieces[i] for i in row] for row in tokenizer.encode(texts)]


def test_marks_in_brackets_are_no_letters(write, spiece_model):
    """Google's vocabulary of Chinese has no capitals but those of `<S>` and `<T>`."""
    marks = ["<S>", "<T>", "[unused1]", "[E1]", "<0xE3>"]
    assert file_formats.capitals([*marks, *PIECES], {}) == []
    folder = write(pieces=[*SPECIAL, *marks, "the", "cat"])
    assert words(folder, "The CAT") == [["the", "cat"]]
    [note] = tokenizers.load(folder).notes
    assert "text is lower-cased: no file says it, and no piece has a capital" in note
    cased = tokenizers.load(write(pieces=[*PIECES, "The"]))
    assert not cased.lower_case and "pieces such as 'The' have capitals" in cased.notes[0]
    assert not tokenizers.load(write({"do_lower_case": True})).notes


@pytest.mark.parametrize(
    ("model_type", "lower_case"), [("bert", True), ("mpnet", True), ("roberta", False)]
)
def test_the_class_of_the_model_says_the_case(write, model_type, lower_case):
    """`config.json` implies BertTokenizer, which lower-cases whatever the pieces are."""
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    folder = write(special, [*PIECES, "The"], config={"model_type": model_type})
    tokenizer = tokenizers.load(folder)
    assert tokenizer.lower_case is lower_case
    assert ("though pieces such as 'The' have capitals" in tokenizer.notes[0]) is lower_case
    assert tokenizer.about["class"].endswith(f"(model_type {model_type})")


def test_each_sentencepiece_class_has_its_own_case(tmp_path, spiece_model):
    """The release of XLNet keeps capitals even if no piece has one; that of ALBERT never does."""
    (tmp_path / "spiece.model").write_bytes(spiece_model(normalization_rule_name="nmt_nfkc_cf"))
    expected = {"xlnet": False, "albert": True, "camembert": False, "deberta-v2": False}
    for name, lower_case in expected.items():
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
        assert tokenizers.load(tmp_path).lower_case is lower_case, name


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"}, {},
         "tokenizer_class in tokenizer_config.json: BertJapaneseTokenizer is not supported: it"),
        ({"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}}, {},
         "auto_map is .*, which is not supported: the tokenizer is Python code"),
        ({"tokenizer_class": "OwnTokenizer"}, {}, "OwnTokenizer is not known here.*BertTokenizer"),
        ({}, {"config": {"tokenizer_class": "HerbertTokenizerFast"}},
         "tokenizer_class in config.json: HerbertTokenizerFast is not supported"),
        ({"word_rule": 1}, {}, "word_rule: 1: this key is not known here"),
        ({"add_bos_token": True}, {}, "add_bos_token is true, which is not supported: only false"),
        ({}, {"special_tokens_map": {"eol_token": "x"}}, "special_tokens_map.json: eol_token"),
        ({}, {"tokenizer": described({**BERT, "fold": 1})}, "normalizer.BertNormalizer.fold: 1"),
        ({}, {"tokenizer": described({"type": "Fold"})}, "normalizer.Fold: \"Fold\": this part"),
        ({}, {"tokenizer": described(model={"type": "Trie"})}, "model.Trie"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_its_name(write, settings, files, message):
    folder = write(settings, **files)
    with pytest.raises(UserError, match=message) as raised:
        tokenizers.load(folder)
    assert str(folder) in str(raised.value)


def test_pieces_of_sentencepiece_are_no_wordpiece(write):
    (write(pieces=[*SPECIAL, "▁a", "▁b", "c"]) / "tokenizer_1.model").write_bytes(b"")
    with pytest.raises(UserError, match=r"pieces of a SentencePiece model \(2 begin .*tokenizer_1"):
        tokenizers.load(write(pieces=[*SPECIAL, "▁a", "▁b", "c"]))


REPLACES = {"type": "Sequence", "normalizers": [
    {"type": "Replace", "pattern": {"String": "film"}, "content": "city"}, BERT]}  # fmt: skip
CASED = {**BERT, "lowercase": False}


@pytest.mark.parametrize(
    ("settings", "normalizer", "expected"),
    [
        # Transformers 4: options of settings, or of the class, replace those of the file ...
        ({"tokenizer_class": "BertTokenizer"}, CASED, ["the", "film"]),
        ({"tokenizer_class": "BertTokenizer", "do_lower_case": False}, BERT, ["[UNK]", "film"]),
        # ... but not where the file alone is read ...
        ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}, CASED,
         ["[UNK]", "film"]),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, REPLACES, ["the", "city"]),
        # ... and not within a sequence.
        ({"tokenizer_class": "BertTokenizer"}, REPLACES, ["the", "city"]),
        # Transformers 5: the class makes the normalizer anew.
        ({"tokenizer_class": "BertTokenizer", "backend": "tokenizers"}, REPLACES, ["the", "film"]),
        ({"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}, REPLACES,
         ["the", "city"]),
        # No class at all: what is said comes first.
        ({}, CASED, ["[UNK]", "film"]),
        ({"do_lower_case": True}, CASED, ["the", "film"]),
    ],
)  # fmt: skip
def test_which_file_counts_where_two_disagree(write, settings, normalizer, expected):
    """The pieces of "The film"."""
    for pieces in (None, PIECES):  # the older file beside it changes nothing
        folder = write(settings, pieces, tokenizer=described(normalizer))
        assert words(folder, "The film") == [expected], pieces


def test_special_tokens_map_counts_unless_tokens_are_listed(write):
    pieces = [*PIECES, "<s>"]
    names = {"cls_token": {"content": "<s>", "lstrip": False}}
    folder = write({"do_lower_case": True}, pieces, special_tokens_map=names)
    assert tokenizers.load(folder).cls_id == pieces.index("<s>")
    listed = {"do_lower_case": True, "added_tokens_decoder": {}}
    assert tokenizers.load(write(listed, pieces, special_tokens_map=names)).cls_id == 2


def test_of_a_piece_in_two_lines_the_later_counts(write, tmp_path):
    pieces = [*SPECIAL, "the", "", "cat", "the", "sat", ""]
    tokenizer = tokenizers.load(write({"do_lower_case": True}, pieces))
    assert [ids.tolist() for ids in tokenizer.encode(["the cat sat"])] == [[8, 7, 9]]
    assert tokenizer.vocab_size == 10
    assert tokenizer.notes == (
        f"{tmp_path}/vocab.txt: if a piece is in two lines, the last one counts: 'the' in lines 6 "
        "and 9",
        f"{tmp_path}/vocab.txt: the empty line 7 never occurs in text",
    )
    tokenizer.save(tmp_path / "saved")
    again = tokenizers.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint and again.notes == ()


def test_the_tables_are_whole():
    assert len(folder_keys.BY_KEY) == len(folder_keys.ROWS)
    assert {row.verdict for row in folder_keys.ROWS} == {"done", "harmless", "refused"}
    for row in folder_keys.ROWS:
        if row.file == folder_keys.DESCRIBED and row.key.count(".") == 2:
            assert (row.file, row.key.rpartition(".")[0]) in folder_keys.BY_KEY, row.key
    assert not set(folder_classes.CLASSES) & set(folder_classes.REFUSED_CLASSES)
    assert set(folder_classes.OF_MODELS.values()) <= set(folder_classes.CLASSES)


def test_who_wrote_a_folder():
    assert class_rules.version({"backend": "tokenizers"}, {}) == 5
    assert class_rules.version({"backend": "tokenizers", "added_tokens_decoder": {}}, {}) == 4
    assert class_rules.version({}, {"transformers_version": "5.24.0"}) == 5
    assert class_rules.version({}, {"transformers_version": "4.57.6"}) == 4
