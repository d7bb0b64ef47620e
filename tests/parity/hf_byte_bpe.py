"""Tokenizes with transformers: FOLDER TEXTS.json IDS.npz; the first texts are pairs too."""

import json
import sys

import numpy as np
import transformers


def main(folder, texts, output):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, transformers.RobertaTokenizerFast), type(tokenizer)
    texts = json.load(open(texts))
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    pairs = tokenizer(texts[:20], texts[20:40])["input_ids"]
    np.savez(
        output,
        values=np.concatenate([np.array(row, np.int32) for row in rows]),
        lengths=[len(row) for row in rows],
        pairs=np.concatenate([np.array(row, np.int32) for row in pairs]),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
