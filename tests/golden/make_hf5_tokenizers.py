"""Makes hf5_tokenizers.json: small tokenizers as transformers 5 saves them, and ids of odd texts.

Run with the Python of the environment of tests/parity/requirements-hf5.txt:
    .parity/hf5/bin/python tests/golden/make_hf5_tokenizers.py

The vocabulary of BERT is that of tokenizer.json beside it. The table of replacements of
SentencePiece's `nmt_nfkc`, 300 kB, is left out: each model that is trained with it has it.
"""

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "parity"))

import hf5_tokenizers as parity  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402

NAMES = ("bert", "roberta", "gpt2", "modernbert", "albert", "xlnet", "t5", "camembert", "deberta")


def shortened(described: dict) -> dict:
    if described["model"]["type"] == "WordPiece":
        described["model"]["vocab"] = None
    steps = described["normalizer"] or {}
    for step in steps.get("normalizers", [steps]):
        if step.get("type") == "Precompiled":
            step["precompiled_charsmap"] = None
    return described


def main():
    texts = parity.odd_texts(1000)
    texts = [text for text in texts if "Σ" not in text]
    # The first are the odd texts of tokenizer.json; most of the others have added tokens.
    texts = [*texts[:24], *texts[24::12]]
    result = {"transformers": transformers.__version__, "texts": texts, "tokenizers": {}}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for name, (kind, old, settings) in parity.sources(out).items():
            if name not in NAMES:
                continue
            tokenizer = kind.from_pretrained(old, **settings)
            tokenizer.add_tokens(parity.added_to(name))
            tokenizer.save_pretrained(out / name)
            file = out / name / "tokenizer.json"
            plain = tokenizers.Tokenizer.from_file(str(file))
            ids = [plain.encode(text, add_special_tokens=False).ids for text in texts]
            again = transformers.AutoTokenizer.from_pretrained(out / name)
            assert ids == [again.encode(text, add_special_tokens=False) for text in texts]
            result["tokenizers"][name] = {
                "tokenizer.json": shortened(json.loads(file.read_text())),
                "tokenizer_config.json": json.loads(
                    (out / name / "tokenizer_config.json").read_text()
                ),
                "ids": ids,
                "pair": again("one", "two")["input_ids"],
            }
    data = json.dumps(result, ensure_ascii=True, separators=(",", ":"))
    (HERE / "hf5_tokenizers.json").write_text(data + "\n")


if __name__ == "__main__":
    main()
