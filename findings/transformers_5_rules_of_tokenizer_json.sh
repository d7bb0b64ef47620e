#!/usr/bin/env bash
# What is obeyed of a tokenizer.json that stands beside `tokenizer_class: BertTokenizer`.
#
# Expected: AutoTokenizer reads tokenizer.json as the tokenizers library does, as 4.57.6 does (but
#   for the options that tokenizer_config.json also has, such as the case).
# What happens: with transformers 5.24.0 the normalizer, the pre-tokenizer and the post-processor of
#   the file are made anew by the class, so a step that was added to them (here: a Replace, and a
#   template that gives both texts of a pair the type 0) is lost without a message.
# Source: transformers 5.24.0, the __init__ of models/bert/tokenization_bert.py sets all three
#   after the file is read. `PreTrainedTokenizerFast` as tokenizer_class keeps the file's.
# Versions: transformers 4.57.6 with tokenizers 0.22.2, 5.24.0 with tokenizers 0.23.3, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/make.py" <<'PYTHON'
import json
import os
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

out = sys.argv[1]
names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]
tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.Sequence(
    [normalizers.Replace("feline", "cat"), normalizers.BertNormalizer(lowercase=True)]
)
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0",
    pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
tokenizer.save(os.path.join(out, "tokenizer.json"))
settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
with open(os.path.join(out, "tokenizer_config.json"), "w") as file:
    json.dump(settings, file)
with open(os.path.join(out, "config.json"), "w") as file:
    json.dump({"model_type": "bert"}, file)
PYTHON
cat > "$folder/read.py" <<'PYTHON'
import sys

import transformers

tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
made = tokenizer("feline", "dog", return_token_type_ids=True)
print(f"transformers {transformers.__version__}: {made['input_ids']} {made['token_type_ids']}")
PYTHON

mkdir "$folder/model"
for versions in "4.57.6 0.22.2" "5.24.0 0.23.3"; do
  set -- $versions
  python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "transformers==$1" "tokenizers==$2"
done
"$folder/4.57.6/bin/python" "$folder/make.py" "$folder/model"
export TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1
old=$("$folder/4.57.6/bin/python" "$folder/read.py" "$folder/model" 2> /dev/null)
new=$("$folder/5.24.0/bin/python" "$folder/read.py" "$folder/model" 2> /dev/null)
printf '%s\n' "$old" "$new"
test "$old" = "transformers 4.57.6: [2, 5, 3, 6, 3] [0, 0, 0, 0, 0]" || { echo "changed: 4.57.6" >&2; exit 1; }
test "$new" = "transformers 5.24.0: [2, 1, 3, 6, 3] [0, 0, 0, 1, 1]" || { echo "changed: 5.24.0" >&2; exit 1; }
echo "as described: 5.24.0 replaces the normalizer and the post-processor of the file"
