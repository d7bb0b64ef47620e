"""Tokenizes with a slow tokenizer of transformers: CLASS FOLDER TEXTS.json IDS.json."""

import json
import sys

import transformers


def main(name, folder, texts, output):
    tokenizer = getattr(transformers, name).from_pretrained(folder)
    assert not tokenizer.is_fast
    ids = tokenizer(json.load(open(texts)), add_special_tokens=False)["input_ids"]
    json.dump(ids, open(output, "w"))


if __name__ == "__main__":
    main(*sys.argv[1:])
