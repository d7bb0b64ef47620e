"""What the fill-mask pipeline of transformers makes of texts: PARENT TEXTS OUTPUT.

PARENT has a folder for each model. TEXTS is a JSON list of texts with {mask} for the mask token.
OUTPUT is a JSON object: the name of each folder, and for each text and each of its masks the
[token, word, probability] of every token of the vocabulary, the most probable first.
"""

import json
import sys
from pathlib import Path

import transformers


def main(parent, texts, output):
    found = {}
    for folder in sorted(Path(parent).iterdir()):
        # The fast ones of SentencePiece want one package more.
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
        model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
        pieces = sorted(tokenizer.get_vocab())
        found[folder.name] = rows = []
        for text in json.loads(Path(texts).read_text()):
            masks = fill(text.format(mask=tokenizer.mask_token), targets=pieces, top_k=len(pieces))
            masks = masks if isinstance(masks[0], list) else [masks]
            rows.append(
                [[(x["token"], x["token_str"], x["score"]) for x in mask] for mask in masks]
            )
    Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
