"""Folders of transformers 5 have its ids here, and what is written has them there."""

import json

from official import tokenizers
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
