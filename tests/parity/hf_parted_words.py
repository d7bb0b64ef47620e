"""BERTs for text whose words are parted.

`save OUT` writes folders and OUT/ids.json; `read OUT NAME...` writes OUT/again.json, the ids of the
texts by what AutoTokenizer makes of folders.

Run by transformers 4, whose slow tokenizer has both switches; `read` by both.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokenizer.json").read_text())
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SWITCHES = {
    "ideographs_cased": {"tokenize_chinese_chars": False, "do_lower_case": False},
    "ideographs_uncased": {"tokenize_chinese_chars": False, "do_lower_case": True},
    "plain": {"do_basic_tokenize": False, "do_lower_case": False},
    "plain_lower": {"do_basic_tokenize": False, "do_lower_case": True},
}


def texts() -> list[str]:
    """Returns odd texts that spell no special token."""
    rows = [row["text"] for case in ("cased", "uncased") for row in GOLDEN[case]]
    rows += ["\u6c5f \u94c3 \u57df\u864e \uff0c \u65e5\u672c\u8a9e \u306e", "a\u4e2db \u4e2d ##c"]
    rows += [" ".join(pair) for pair in zip(rows, rows[::-1], strict=True)]
    return sorted({row for row in rows if "[" not in row})


def save(out: Path) -> None:
    rows, ids = texts(), {}
    for name, settings in SWITCHES.items():
        folder = out / name
        folder.mkdir()
        lines = "".join(f"{piece}\n" for piece in GOLDEN["vocabulary"])
        (folder / "vocab.txt").write_text(lines, encoding="utf-8")
        config = transformers.BertConfig(len(GOLDEN["vocabulary"]), intermediate_size=8, **SIZES)
        transformers.BertModel(config).save_pretrained(folder)
        settings = {"tokenizer_class": "BertTokenizer", **settings}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        plain = name.startswith("plain")
        kind = transformers.BertTokenizer if plain else transformers.BertTokenizerFast
        tokenizer = kind.from_pretrained(folder)
        ids[name] = [tokenizer.encode(row, add_special_tokens=False) for row in rows]
    (out / "ids.json").write_text(json.dumps({"texts": rows, "ids": ids}))


def read(out: Path, *names: str) -> None:
    rows = json.loads((out / "ids.json").read_text())["texts"]
    found = {name: transformers.AutoTokenizer.from_pretrained(out / name) for name in names}
    ids = {
        name: [tokenizer.encode(row, add_special_tokens=False) for row in rows]
        for name, tokenizer in found.items()
    }
    (out / "again.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    torch.manual_seed(0)
    {"save": save, "read": read}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
