#!/usr/bin/env bash
# What transformers 5 makes of a key of tokenizer_config.json that it does not know and that ends in
# "_token".
#
# Expected: a key of another program in tokenizer_config.json is kept, and changes no ids. The keys of
#   special tokens are known by name: unk_token, mask_token and so on.
# What happens: transformers 5.24.0 takes every key whose name ends in "_token" for a special token,
#   and its text for the token. A word that the vocabulary does not have whole gets an id of its own
#   behind the last one, so the table of a model has no row for it; the same key under another name
#   changes nothing. transformers 4.57.6 reads both alike.
# Source: transformers 5.24.0, tokenization_utils_base.py, the constructor of PreTrainedTokenizerBase,
#   collects the keys that end so as "auto-detected" tokens of the model.
# Versions: transformers 4.57.6 and 5.24.0, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/ids.py" <<'PYTHON'
import json
import os
import sys

import transformers
from transformers import AutoTokenizer

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "long", "##er"]
found = []
for key in ("cut_of_pairs", "cut_of_pairs_token"):
    place = f"{sys.argv[1]}/{transformers.__version__}_{key}"
    os.makedirs(place)
    with open(f"{place}/vocab.txt", "w") as stream:
        stream.writelines(f"{piece}\n" for piece in pieces)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, key: "longer"}
    with open(f"{place}/tokenizer_config.json", "w") as stream:
        json.dump(settings, stream)
    found.append(AutoTokenizer.from_pretrained(place)("a longer cat")["input_ids"])
print(f"transformers {transformers.__version__}, {len(pieces)} pieces: {found[0]}, {found[1]}")
PYTHON

for version in 4.57.6 5.24.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "transformers==$version"
done
export TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1
old=$("$folder/4.57.6/bin/python" "$folder/ids.py" "$folder" 2> /dev/null)
new=$("$folder/5.24.0/bin/python" "$folder/ids.py" "$folder" 2> /dev/null)
printf '%s\n%s\n' "$old" "$new"
right='[2, 5, 7, 8, 6, 3]'
[[ $old == *": $right, $right" && $new == *": $right, [2, 5, 9, 6, 3]" ]]
