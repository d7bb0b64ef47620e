"""Writes again.json, the ids of texts.json by the tokenizers in folders: OUT NAME..."""

import json
import sys
from pathlib import Path

import tokenizers
import transformers


def main(out, *names):
    out = Path(out)
    texts = json.loads((out / "texts.json").read_text())
    result = {}
    for name in names:
        plain = tokenizers.Tokenizer.from_file(str(out / name / "tokenizer.json"))
        loaded = transformers.AutoTokenizer.from_pretrained(out / name)
        result[name] = {
            "tokenizers": [plain.encode(text, add_special_tokens=False).ids for text in texts],
            "transformers": [loaded.encode(text, add_special_tokens=False) for text in texts],
        }
    (out / "again.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
