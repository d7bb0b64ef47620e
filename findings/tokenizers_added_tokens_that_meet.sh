#!/usr/bin/env bash
# Two added tokens that are equal once the text is normalized.
#
# Expected: one rule decides which of them a text becomes, so the same files give the same ids in
#   every process. tokenizers 0.22.2 takes the one that was added first.
# What happens: with tokenizers 0.23.3 a new instance of the same tokenizer takes one or the other.
# Why: 0.22.2 keeps normalized added tokens in a list; in 0.23.3 the order in which they are tried
#   is no longer that of the list.
# Versions: tokenizers 0.22.2 and 0.23.3, Python 3.11.
# Consequence: a vocabulary to which both `Xyz` and `xYZ` were added, below a normalizer that
#   lower-cases, is not reproducible. Add one of them, or `normalized=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/run.py" <<'PYTHON'
import collections

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers


def id_of():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_tokens([AddedToken(text, normalized=True) for text in ("Xyz", "xYZ")])
    return tokenizer.encode("a xyz").ids[-1]


counts = collections.Counter(id_of() for _ in range(60))
print(f"tokenizers {tokenizers.__version__}: ids of 'xyz' in 60 instances: {dict(counts)}")
print(len(counts))
PYTHON

several() {
  python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "tokenizers==$1"
  "$folder/$1/bin/python" "$folder/run.py" | tee "$folder/$1.txt" | head -n 1
  tail -n 1 "$folder/$1.txt"
}

old=$(several 0.22.2 | tee /dev/stderr | tail -n 1)
new=$(several 0.23.3 | tee /dev/stderr | tail -n 1)
test "$old" = 1 || { echo "changed: 0.22.2 gives $old different ids, expected 1" >&2; exit 1; }
test "$new" = 2 || { echo "changed: 0.23.3 gives $new different ids, expected 2" >&2; exit 1; }
echo "as described: one id with 0.22.2, either of two with 0.23.3"
