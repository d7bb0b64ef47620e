"""Makes tests/golden/byte_bpe.json: a small byte-level BPE, texts, and the ids of `tokenizers`.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_byte_bpe_golden.py
"""

import json
import tempfile
from pathlib import Path

import tokenizers
from make_tokenizer_golden import DECOMPOSED, ODD, PROSE

OUTPUT = Path(__file__).with_name("byte_bpe.json")
TEXTS = [
    *PROSE,
    *ODD,
    *DECOMPOSED,
    " a  b\n\n c \t\td   ",
    "  two at the start",
    "don't I'll we've you're he'd I'm it's 'S 'LL ' 's's  's",
    "a\u00a0\u00a0b \u00a0 c\u3000\u3000d\u2003 e\u0085f\u1680g\u200bh\x1ci",
    "x1 22 \u0663\u0664 \u2167\u00bd 3rd $4.50 a_b-c...d !? ?!",
    "\u1c89\u1c8aa \U0002ebf0\U0002ee5d \U00010d40\U00010d411 \ua7cb\ua7da",  # Unicode 15.1, 16.0
    "\x00\x01\x1f\x7f\x80\x9f\ufffe\uffff \U0010ffff",
    "<s> </s> <pad> <unk> <mask> <|endoftext|>",
    "aaaaaaaaaa aaaaaaaaa eeee lllll ......... ---- ====  ====",
    "\u0120\u010a\u0120t \u0120 \u0100",
]


def main():
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        PROSE * 4 + ["aaaa aaa eeee llll .... ----"] * 4,
        vocab_size=700,
        min_frequency=2,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        trained.save_model(folder)
        vocabulary = json.loads(Path(folder, "vocab.json").read_text(encoding="utf-8"))
        merges = Path(folder, "merges.txt").read_text(encoding="utf-8")
        # Without special tokens, so that text which spells one is text.
        bare = tokenizers.models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt")
        ids = {}
        for name, add_prefix_space in (("plain", False), ("prefixed", True)):
            tokenizer = tokenizers.Tokenizer(bare)
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space)
            ids[name] = [tokenizer.encode(text).ids for text in TEXTS]
    result = {
        "tokenizers": tokenizers.__version__,
        "vocab.json": sorted(vocabulary, key=vocabulary.get),
        "merges.txt": merges,
        "texts": TEXTS,
        **ids,
    }
    text = json.dumps(result, ensure_ascii=True, indent=0, separators=(",", ":"))
    # One line for each list of numbers, not one for each number.
    OUTPUT.write_text(text.replace(",\n", ",").replace("[\n", "[").replace("\n]", "]") + "\n")
    print(OUTPUT, len(vocabulary), "pieces", OUTPUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
