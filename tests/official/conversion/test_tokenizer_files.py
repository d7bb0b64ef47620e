"""What the files of a tokenizer say to transformers; `make parity` asks transformers itself."""

import dataclasses
import json

import numpy as np
import pytest

from official import tokenizers
from official.config.encoders import TransformerConfig
from official.conversion import bert, converted_model, gpt2, huggingface, tokenizer_files
from official.tokenizers import tokenizer_json
from official.utils import json_files
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.conversion import systems, xlnets
from tfrecords_tools.vocabulary import builder

LANGUAGES = json.loads((GOLDEN / "languages.json").read_text())
NAMES = ["input_ids", "attention_mask"]
TYPED = ["input_ids", "token_type_ids", "attention_mask"]


def written(path, name, change=None):
    """Settings and `tokenizer.json` of a golden model that was read and written again."""
    if name.startswith("xlnet"):
        config, weights, _ = xlnets.load(name)
        xlnets.write(path / "hf", config, weights)
    else:
        config, parts, _ = systems.load(name)
        systems.write(path / "hf", config, parts["weight"])
    converted_model.write(huggingface.read(path / "hf"), path / "model")
    if change:
        change(path / "model")
    huggingface.write(path / "model", path / "out", "last")
    return (json_files.read(path / "out" / name)
            for name in ("tokenizer_config.json", "tokenizer.json"))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inputs", "side", "ends"),
    [
        ("albert_bare", TYPED, None, ("[CLS]", "[SEP]")),
        ("xlnet_lm", TYPED, "left", (None, None)),
        ("roberta_bare", NAMES, None, ("<s>", "</s>")),
        ("mpnet_bare", NAMES, None, ("<s>", "</s>")),
        ("distilbert_bare", NAMES, None, (None, None)),
        ("gpt2_bare", NAMES, None, ("<|endoftext|>", "<|endoftext|>")),
    ],
)
def test_what_the_class_of_a_system_would_say_is_written(tmp_path, name, inputs, side, ends):
    settings, described = written(tmp_path, name)
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert settings["model_input_names"] == inputs
    assert settings.get("padding_side") == side
    assert (settings.get("bos_token"), settings.get("eos_token")) == ends
    decoder = settings["added_tokens_decoder"]
    assert [{"id": int(i), **flags} for i, flags in decoder.items()] == sorted(
        described["added_tokens"], key=lambda token: str(token["id"])
    )
    if name == "roberta_bare":
        strips = {flags["content"] for flags in decoder.values() if flags["lstrip"]}
        assert strips == {"<mask>"} and len(decoder) == 5


def test_the_length_is_that_of_the_model_and_not_of_its_source(tmp_path):
    def fine_tuned(folder):
        (folder / "task.json").write_text(json.dumps({"max_length": 9}))
        path = folder / "tokenizer" / "tokenizer_config.json"
        settings = json_files.read(path) | {"model_max_length": 13}
        path.write_text(json.dumps(settings))

    settings, _ = written(tmp_path, "roberta_bare", fine_tuned)
    assert settings["model_max_length"] == 9


def test_an_mpnet_is_refused_whose_padding_has_another_id_than_transformers_counts():
    wrong = "padding token's id: 0: an MPNet of transformers takes the token 1 for padding"
    with pytest.raises(UserError, match=wrong):
        bert.MPNET.encoder.check(TransformerConfig(vocab_size=9, relative_buckets=32), pad_id=0)
    config = systems.load("mpnet_bare")[0]
    with pytest.raises(UserError, match="pad_token_id: 0: an MPNet of transformers"):
        bert.MPNET.encoder.fields({**config, "pad_token_id": 0}, "config.json")


def test_a_vocabulary_of_mpnet_alone_has_two_separators_and_roberta_s_tokens(tmp_path):
    config, parts, _ = systems.load("mpnet_bare")
    folder = systems.write(tmp_path / "hf", config, parts["weight"])
    (folder / "tokenizer_config.json").unlink()
    # As released: BERT's vocabulary, [PAD] too, between the tokens of a RoBERTa.
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*pieces, "the", "cat", "<mask>"]) + "\n")
    tokenizer = huggingface.read(folder).tokenizer
    assert tokenizer.pair_separators == 2
    names = [tokenizer.pieces[i] for i in tokenizer.special_ids]
    assert names == ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    assert tokenizer.pieces[tokenizer.pad_id] == "<pad>"
    # One that was written here keeps what it says.
    one = tokenizers.WordPiece(
        tokenizer.pieces, True, settings=tokenizer.settings | {"pair_separators": 1}
    )
    converted = dataclasses.replace(huggingface.read(folder), tokenizer=one)
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    again = huggingface.read(tmp_path / "out").tokenizer
    assert (again.pair_separators, again.fingerprint) == (1, one.fingerprint)


def learned(folder, lines, vocab_size=300, **options):
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(lines) + "\n", "utf-8")
    said = []
    built = builder.build(
        str(folder / "text.txt"), folder / "tokenizer", vocab_size=vocab_size, coverage=1.0,
        report=said.append, **options,
    )  # fmt: skip
    return built, [line for line in said if "accents" in line]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_vowel_signs_stay_where_accents_are_removed(tmp_path, kind):
    """`StripAccents` of `tokenizers` would remove them too: है would become ह."""
    lines = [
        line for name in ("hi", "th", "my", "km", "am", "ko", "fr") for line in LANGUAGES[name]
    ]
    rules = {"normalize_text": True, "strip_accents": True}
    built, _ = learned(tmp_path / kind, lines, 400, kind=kind, **rules)
    described = tokenizer_json.described(built)
    assert described["model"]["type"] == {"unigram": "Unigram", "bpe": "BPE"}[kind]
    steps = described["normalizer"]["normalizers"]
    assert [step["type"] for step in steps[:4]] == ["Replace", "Replace", "NFKD", "Replace"]
    # The parts of Korean syllables are put together again.
    assert [step["type"] for step in steps[4:]] == ["NFC", "Precompiled"]
    assert "StripAccents" not in json.dumps(described)
    if kind == "unigram":
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(described))
        again = tokenizers.load(tmp_path)
        assert (again.rules.keep_accents, again.rules.remove_marks) == (False, False)
        for mine, theirs in zip(built.encode(lines), again.encode(lines), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_normalized_text_keeps_marks_where_they_are_many(tmp_path):
    for name, kept in {"hi": True, "th": True, "vi": True, "en": False, "fr": False}.items():
        built, said = learned(tmp_path / name, LANGUAGES[name], kind="bpe", normalize_text=True)
        assert built.rules.keep_accents == kept, name
        [line] = said or [""]
        assert line.startswith("accents and signs are kept: the text has ") == kept, name
    built, said = learned(
        tmp_path / "no", LANGUAGES["hi"], kind="bpe", normalize_text=True, strip_accents=True
    )
    assert not built.rules.keep_accents and said[0].startswith("accents and vowel signs are rem")


def test_a_deberta_of_few_positions_and_many_buckets_is_read(tmp_path):
    config, parts, _ = systems.load("deberta-v2_bare")
    config |= {"position_buckets": 256, "max_relative_positions": -1}
    weights = dict(parts["weight"])
    table = "encoder.rel_embeddings.weight"
    weights[table] = np.zeros((512, config["hidden_size"]), np.float32)
    converted = huggingface.read(systems.write(tmp_path / "hf", config, weights))
    form = converted.config.encoder.disentangled
    assert config["max_position_embeddings"] < 130
    assert (form.buckets, form.max_distance) == (256, 130)


def test_an_albert_of_transformers_5_gets_a_line_about_types(tmp_path):
    config, parts, _ = systems.load("albert_bare")
    folder = systems.write(tmp_path / "hf", config, parts["weight"])
    path = folder / "tokenizer_config.json"
    of_5 = {"backend": "tokenizers"}
    for settings, lines in (({}, 0), (of_5, 1), ({**of_5, "model_input_names": TYPED}, 0)):
        path.write_text(json.dumps({"tokenizer_class": "AlbertTokenizer", **settings}))
        said = [line for line in huggingface.read(folder).notes if "types" in line]
        assert len(said) == lines, settings
        if lines:
            assert "tokenizer of an ALBERT asks for no types" in said[0]


def test_a_text_that_a_model_continues_begins_with_its_first_token_and_has_no_end(tmp_path):
    built, _ = learned(tmp_path / "a", LANGUAGES["en"], kind="byte_bpe")
    encoder = TransformerConfig(vocab_size=300, hidden_size=8, num_layers=1, num_heads=1,
                                intermediate_size=8, causal=True)  # fmt: skip
    tokenizer_files.save(built, tmp_path, gpt2.SYSTEM, encoder, 9, built.cls_id)
    rows = json_files.read(tmp_path / "tokenizer.json")["post_processor"]
    assert [[*part.values()][0]["id"] for part in rows["single"]] == ["<s>", "A"]
    assert [[*part.values()][0]["id"] for part in rows["pair"]] == ["<s>", "A", "B"]
    assert rows["special_tokens"]["<s>"]["ids"] == [built.cls_id]
