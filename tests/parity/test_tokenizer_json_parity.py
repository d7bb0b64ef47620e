"""Folders of transformers 5 have its ids here, and what is written has them there."""

import collections
import json
import shutil
import unicodedata

import numpy as np

import official
from official import tokenizers
from official.config.encoders import TransformerConfig
from official.conversion import bert, converted_model, huggingface, tokenizer_files
from official.tokenizers import byte_bpe, tokenizer_json
from tests import ROOT
from tests.official.tokenizers.test_tokenizer_json import alone
from tests.parity import random_tokenizers
from tfrecords_tools.vocabulary import word_vocabularies


def test_odd_texts_with_every_class(hf5, hf, tmp_path):
    hf5.run("hf5_tokenizers.py", tmp_path, 2000)
    saved = json.loads((tmp_path / "ids.json").read_text())
    texts = saved["texts"]
    # Other letters at the ends of words, and marks that `tokenizers` drops: see `tokenizer_json`.
    known = [i for i, text in enumerate(texts) if "Σ" not in text and not alone(text)]
    assert len(known) > 1800
    for name, theirs in saved["ids"].items():
        tokenizer = tokenizers.load(tmp_path / name)
        ours = tokenizer.encode([texts[i] for i in known], special=True)
        for library, ids in theirs.items():
            different = [texts[i] for i, row in zip(known, ours, strict=True)
                         if row.tolist() != ids[i]]  # fmt: skip
            assert not different, (name, library)
        layout = {"xlnet": "cls_last", "t5": "no_cls"}.get(name.split("_")[0], "cls_first")
        written = tokenizer_json.described(tokenizer, layout)
        tokenizer.save(tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(written))
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    for reference in (hf5, hf):
        reference.run("hf_tokenizer_json.py", tmp_path, *saved["ids"])
        again = json.loads((tmp_path / "again.json").read_text())
        for name, theirs in saved["ids"].items():
            for library, ids in again[name].items():
                assert ids == theirs["tokenizers"], (name, library, reference.name)


def test_where_metaspace_puts_a_blank(hf5, tmp_path):
    """`prepend_scheme`: as T5 of transformers 4 has it in its own file, with Metaspace alone."""
    hf5.run("hf5_tokenizers.py", tmp_path, 1000)
    texts = json.loads((tmp_path / "ids.json").read_text())["texts"]
    texts = [text for text in texts if "Σ" not in text and not alone(text)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    runs = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    names = {}
    for source, steps in {
        "t5": [strip, runs],
        "albert": [{**strip, "strip_left": True}, runs],
        "t5_added": [{**runs, "content": " "}],
        "xlm_roberta": [strip, runs],
    }.items():
        described = json.loads((tmp_path / source / "tokenizer.json").read_text())
        before = described["normalizer"] or {"type": "Sequence", "normalizers": []}
        before = before.get("normalizers", [before])
        described["normalizer"] = {"type": "Sequence", "normalizers": [*before, *steps]}
        for scheme in ("first", "never")[source == "albert" :]:
            step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme}
            described["pre_tokenizer"] = {**step, "split": True}
            folder = tmp_path / f"{source}_{scheme}"
            shutil.copytree(tmp_path / source, folder)
            (folder / "tokenizer.json").write_text(json.dumps(described))
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            settings["tokenizer_class"] = "TokenizersBackend"  # others make these steps anew
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
            tokenizer = tokenizers.load(folder)
            names[folder.name] = [ids.tolist() for ids in tokenizer.encode(texts, special=True)]
            again = tmp_path / f"{folder.name}_again"
            shutil.copytree(folder, again)
            written = tokenizer_json.described(tokenizer, "no_cls")
            (again / "tokenizer.json").write_text(json.dumps(written))
            names[again.name] = names[folder.name]
    hf5.run("hf_tokenizer_json.py", tmp_path, *names)
    theirs = json.loads((tmp_path / "again.json").read_text())
    for name, ours in names.items():
        rows = zip(texts, ours, theirs[name]["tokenizers"], strict=True)
        assert not [text for text, row, right in rows if row != right], name


def test_models_from_raw_text_both_ways(hf5, tmp_path):
    hf5.run("hf5_models.py", "save", tmp_path)
    texts = [
        "The [E1] river [/E1] flows through Spain .", "COVID19 in Segovia", "two words",
        "naïve café <left> and <right> Łódź <both> 3.5%",
    ]  # fmt: skip
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    ours = {}
    for folder in sorted(path.parent for path in tmp_path.glob("*/config.json")):
        model = tmp_path / "models" / folder.name
        converted_model.write(huggingface.read(folder), model)
        ours[folder.name] = official.load(model).encode(texts)
        huggingface.write(model, tmp_path / f"{folder.name}_back", "last")
        ours[f"{folder.name}_back"] = ours[folder.name]
    assert len(ours) == 24
    hf5.run("hf5_models.py", "vectors", tmp_path)
    theirs = np.load(tmp_path / "vectors.npz")
    for name, vectors in ours.items():
        np.testing.assert_allclose(vectors, theirs[name], atol=1e-5, err_msg=name)


def test_text_whose_words_are_parted(hf, hf5, tmp_path):
    """Both switches of BERT's tokenizer, there and back."""
    hf.run("hf_parted_words.py", "save", tmp_path)
    saved = json.loads((tmp_path / "ids.json").read_text())
    texts = saved["texts"]
    known = [i for i, text in enumerate(texts) if "\u03a3" not in text]
    assert len(known) >= 60
    back = {}
    for name, theirs in saved["ids"].items():
        converted_model.write(huggingface.read(tmp_path / name), tmp_path / "models" / name)
        tokenizer = official.load(tmp_path / "models" / name).tokenizer
        ours = tokenizer.encode(texts)
        for i in known:
            assert ours[i].tolist() == theirs[i], (name, texts[i])
        huggingface.write(tmp_path / "models" / name, tmp_path / f"{name}_back", "last")
        back[f"{name}_back"] = theirs
    for reference in (hf, hf5):
        reference.run("hf_parted_words.py", "read", tmp_path, *back)
        again = json.loads((tmp_path / "again.json").read_text())
        for name, theirs in back.items():
            for i in known:
                assert again[name][i] == theirs[i], (reference.name, name, texts[i])


def test_a_slice_of_random_tokenizers(hf, hf5, tmp_path):
    """See `random_tokenizers`, which compares as many as one likes."""
    equal = 0
    for reference in (hf, hf5):
        for number, found in random_tokenizers.compared(
            reference, tmp_path / reference.name, seed=5, first=0, count=12
        ):
            assert isinstance(found, str) or not found, (reference.name, number, found)
            if isinstance(found, str):
                assert any(part in found for part in ("normalizer", "pre_token", "model", "merge"))
            equal += found == []
    assert equal >= 10


def test_words_with_marks(hf, hf5, tmp_path):
    """Byte-level BPE with the pattern of marks has the same ids in both versions."""
    texts = sorted({row["text"] for row in golden()["cased"]})
    counts = collections.Counter(
        word.encode() for text in texts * 3 for word in byte_bpe.find(text, "marks")
    )
    pieces, merges = word_vocabularies.learn_byte_bpe(counts, 600)
    made = tokenizers.ByteBPE(pieces, merges, pattern="marks")
    made.save(tmp_path / "marks")
    (tmp_path / "marks" / "tokenizer.json").write_text(json.dumps(tokenizer_json.described(made)))
    settings = json.loads((tmp_path / "marks" / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = tokenizer_json.AS_DESCRIBED
    (tmp_path / "marks" / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    ours = [row.tolist() for row in made.encode(texts)]
    for reference in (hf, hf5):
        reference.run("hf_tokenizer_json.py", tmp_path, "marks")
        again = json.loads((tmp_path / "again.json").read_text())["marks"]
        plain = [i for i, text in enumerate(texts) if "<" not in text]
        for library, ids in again.items():
            assert [ids[i] for i in plain] == [ours[i] for i in plain], (reference.name, library)
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "marks" / name, alone / name)
    again = tokenizers.load(alone)
    assert isinstance(again, tokenizers.ByteBPE) and again.pattern == "marks"
    assert again.fingerprint == made.fingerprint


def test_composed_words(hf, hf5, tmp_path):
    """WordPiece that composes characters has the same ids in both versions, and comes back."""
    texts = sorted({row["text"] for row in golden()["cased"]} - {""})
    texts = [text for text in texts if "\u03a3" not in text]
    texts += [unicodedata.normalize("NFD", text) for text in texts]
    encoder = TransformerConfig(**{"vocab_size": 16, "hidden_size": 8, "num_layers": 1,
                                   "num_heads": 1, "intermediate_size": 8})  # fmt: skip
    ours = {}
    for name, options in {
        "cased": {"lower_case": False},
        "accents": {"lower_case": True, "strip_accents": False},
        "uncased": {"lower_case": True},
    }.items():
        made = tokenizers.WordPiece(
            golden()["vocabulary"], max_input_chars_per_word=100, nfc=True, **options
        )
        (tmp_path / name).mkdir()
        tokenizer_files.save(made, tmp_path / name, bert.BERT, encoder, 512)
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "bert"}))
        ours[name] = [row.tolist() for row in made.encode(texts, special=True)]
        plain = tokenizers.WordPiece(golden()["vocabulary"], **options)
        assert name == "uncased" or ours[name] != [
            row.tolist() for row in plain.encode(texts, special=True)
        ]
        for removed in ((), ("vocab.txt",)):  # as transformers 5 saves it
            for file in removed:
                (tmp_path / name / file).unlink()
            again = tokenizers.load(tmp_path / name, foreign=True)
            assert isinstance(again, tokenizers.WordPiece)
            assert again.fingerprint == made.fingerprint
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    for reference in (hf, hf5):
        reference.run("hf_tokenizer_json.py", tmp_path, *ours)
        for name, theirs in json.loads((tmp_path / "again.json").read_text()).items():
            for library, ids in theirs.items():
                assert ids == ours[name], (reference.name, name, library)


def golden() -> dict:
    return json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
