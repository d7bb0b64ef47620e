"""Folders of transformers 5 have its ids here, and what is written has them there."""

import json

import numpy as np

import official
from official import tokenizers
from official.convert import converted_model, huggingface
from official.tokenizers import tokenizer_json
from tests.official.tokenizers.test_tokenizer_json import alone


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
        if folder.name not in ("distilbert", "mpnet"):  # which are only read
            huggingface.write(model, tmp_path / f"{folder.name}_back", "last")
            ours[f"{folder.name}_back"] = ours[folder.name]
    assert len(ours) == 18
    hf5.run("hf5_models.py", "vectors", tmp_path)
    theirs = np.load(tmp_path / "vectors.npz")
    for name, vectors in ours.items():
        np.testing.assert_allclose(vectors, theirs[name], atol=1e-5, err_msg=name)
