#!/usr/bin/env bash
# The types of the tokens of a pair, and an empty second text, in transformers.js.
#
# Expected: a tokenizer.json whose template gives the second text the type 1 has token_type_ids
#   0 0 0 1 1 for a pair of words, and a second [SEP] for an empty second text, as the tokenizers
#   library gives them.
# What happens: with @huggingface/transformers 4.3.2 there are no token_type_ids if tokenizer_class
#   is PreTrainedTokenizerFast, the class that the libraries of Python write for any tokenizer.json,
#   and there are with BertTokenizer; a model then gets zeros for both texts. With either class, an
#   empty second text is none: its separator is missing.
# Source: seen by running both on one file. The classes of transformers.js decide by themselves
#   whether types are returned; return_token_type_ids: true asks for them.
# Versions: @huggingface/transformers 4.3.2 (npm, without its install scripts), Node 20;
#   tokenizers 0.22.2, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/make.py" <<'PYTHON'
from tokenizers import Tokenizer, models, pre_tokenizers, processors

names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0",
    pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
tokenizer.save("model/tokenizer.json")
for second in ("dog", ""):
    row = tokenizer.encode("cat", second)
    print(f"tokenizers {second!r}: {row.ids} {row.type_ids}")
PYTHON
cat > "$folder/read.mjs" <<'JAVASCRIPT'
import fs from "fs";
import { AutoTokenizer, env } from "@huggingface/transformers";

env.localModelPath = "./";
env.allowRemoteModels = false;
for (const name of ["PreTrainedTokenizerFast", "BertTokenizer"]) {
  const settings = { tokenizer_class: name, pad_token: "[PAD]" };
  fs.writeFileSync("model/tokenizer_config.json", JSON.stringify(settings));
  const tokenizer = await AutoTokenizer.from_pretrained("model");
  for (const second of ["dog", ""]) {
    const row = tokenizer("cat", { text_pair: second, return_tensor: false });
    console.log(`${name} '${second}': [${row.input_ids}] [${row.token_type_ids ?? "none"}]`);
  }
}
JAVASCRIPT

cd "$folder"
mkdir model
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check "tokenizers==0.22.2"
npm install --silent --no-audit --no-fund --ignore-scripts "@huggingface/transformers@4.3.2" > npm.log
found=$(environment/bin/python make.py; node read.mjs)
printf '%s\n' "$found"
test "$found" = "tokenizers 'dog': [2, 5, 3, 6, 3] [0, 0, 0, 1, 1]
tokenizers '': [2, 5, 3, 3] [0, 0, 0, 1]
PreTrainedTokenizerFast 'dog': [2,5,3,6,3] [none]
PreTrainedTokenizerFast '': [2,5,3] [none]
BertTokenizer 'dog': [2,5,3,6,3] [0,0,0,1,1]
BertTokenizer '': [2,5,3] [0,0,0]" || { echo "changed" >&2; exit 1; }
echo "as described: no types with PreTrainedTokenizerFast, and no separator of an empty second text"
