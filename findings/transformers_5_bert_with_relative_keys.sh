#!/usr/bin/env bash
# What becomes of a BERT with `position_embedding_type: relative_key` in transformers 5.
#
# Expected: a folder that transformers 4.57.6 wrote is read with the same network, or refused: the
#   type of positions is a key of its config.json and decides what the layers compute.
# What happens: transformers 5.24.0 has BERTs with absolute positions alone. It reads the folder as
#   one of these, with the table of positions that no layer of the trained model has ever read, and
#   other vectors come out. The tables of distances are listed as "unexpected" keys, which a note
#   says can be ignored; the key of config.json is not mentioned.
# Source: transformers 4.57.6, models/bert/modeling_bert.py, class BertSelfAttention, has
#   position_embedding_type; that file of 5.24.0 has no such word.
# Versions: transformers 4.57.6 and 5.24.0, torch 2.13.0, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/vector.py" <<'PYTHON'
import os
import sys

import torch
import transformers
from transformers import BertConfig, BertModel

if not os.path.isdir(sys.argv[1]):
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=20, max_position_embeddings=12, initializer_range=0.5,
    )
    BertModel(BertConfig(position_embedding_type="relative_key", **sizes)).save_pretrained(sys.argv[1])
model, found = BertModel.from_pretrained(
    sys.argv[1], output_loading_info=True, attn_implementation="eager"
)
with torch.no_grad():
    states = model.eval()(torch.tensor([[2, 5, 6, 7, 3]])).last_hidden_state
left = sorted({name.split(".attention.")[1] for name in found["unexpected_keys"]})
first = " ".join(f"{value:.3f}" for value in states[0, 0, :4].tolist())
print(f"transformers {transformers.__version__}: {first}, not read: {left}")
PYTHON

for version in 4.57.6 5.24.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "transformers==$version" torch==2.13.0
done
export TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1
old=$("$folder/4.57.6/bin/python" "$folder/vector.py" "$folder/model" 2> /dev/null)
new=$("$folder/5.24.0/bin/python" "$folder/vector.py" "$folder/model" 2> /dev/null)
printf '%s\n%s\n' "$old" "$new"
[[ $old == *"not read: []" && $new == *"not read: ['self.distance_embedding.weight']" ]]
vector() { sed 's/^[^:]*: //; s/,.*//' <<< "$1"; }
if [[ $(vector "$old") == "$(vector "$new")" ]]; then
  echo "the vectors are the same: this has changed"
  exit 1
fi
echo "the vectors differ"
