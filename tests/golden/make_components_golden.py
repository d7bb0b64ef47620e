"""Writes components.json: small tokenizers of the `tokenizers` package, and the ids of texts.

Run by transformers 5's environment (`tokenizers` 0.23.3; 0.22.2 writes the same).
"""

import base64
import io
import json
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "", "  ", "aab Aa zz abé b.c", "a\u00e9 a日 a", "Don't  stop\n\n  now!\n x",
    "ab ab\u3000aba 12345",
    "भोपाल में है।", "[MASK] a_b?ab", "ＡＢ ﬁ ①", "x\u00adab\u200bab", "-a-b--ab", "ΑΣ aΣ İ",
    "    a     b  abababa ba --ab-aba",
    "a\r\nb a\u0300\u0301b a\u0301\u0300 ª\u0301ab\u200bª \u0600ª\u0301 ﬁ\u0301\u0301",
]  # fmt: skip
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def vocabulary(*pieces: str) -> dict[str, int]:
    return {piece: i for i, piece in enumerate([*SPECIALS, *pieces])}


def bpe(pieces: list[str], merges: list[list[str]], **options) -> dict:
    return {
        "type": "BPE", "dropout": None, "unk_token": "[UNK]", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": vocabulary(*pieces), "merges": merges, **options,
    }  # fmt: skip


def split(pattern: dict, behavior: str = "Isolated", invert: bool = False) -> dict:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def several(part: str, *steps: dict) -> dict:
    return {"type": "Sequence", part: list(steps)}


def byte_level(**options) -> dict:
    usual = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"type": "ByteLevel", **usual, **options}


def precompiled(**replacements: str) -> dict:
    """Returns the normalizer that a model of SentencePiece with these replacements has."""
    data = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for both in replacements.items():
            print(*(" ".join(f"{ord(c):X}" for c in text) for text in both), sep="\t", file=rules)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ab"]), model_writer=data, vocab_size=8, model_type="char",
            hard_vocab_limit=False, minloglevel=2, normalization_rule_tsv=rules.name,
        )  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto.FromString(data.getvalue())
    table = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    return {"type": "Precompiled", "precompiled_charsmap": table}


SUFFIX = bpe(["a", "b", "a</w>", "b</w>", "ab</w>", "aab</w>"],
             [["a", "b</w>"], ["a", "ab</w>"]], end_of_word_suffix="</w>")  # fmt: skip
FUSED = bpe(["a", "b", "##a", "##b", "ab", "aba"], [["a", "##b"], ["ab", "##a"]],
            continuing_subword_prefix="##", fuse_unk=True)  # fmt: skip
TREE = [["a", "b"], ["Ġ", "a"], ["Ġ", "ab"], ["1", "2"], ["Ġ", "Ġ"]]
FORMS = {
    # Llama-3's, as EuroBERT has it: a regular expression, bytes, and words that are pieces.
    "llama": (
        None,
        several("pretokenizers", split({"Regex": LLAMA3}), byte_level(use_regex=False)),
        bpe([*ALPHABET, "ab", "Ġa", "Ġab", "12", "ĠĠ", "123", "aba", "stop"], TREE,
            ignore_merges=True, unk_token=None),
    ),
    # Files that were made of tiktoken's: all pairs of a piece, some before what makes their parts.
    "tiktoken": (
        None,
        several("pretokenizers", split({"Regex": r"\s+|\S+"}), byte_level(use_regex=False)),
        bpe([*ALPHABET, "ĠĠ", "ĠĠĠĠ", "ĠĠĠ", "ba", "aba", "abab", "ab", "-a", "-ab", "--a"],
            [["Ġ", "Ġ"], ["Ġ", "ĠĠĠ"], ["ĠĠ", "ĠĠ"], ["ĠĠĠ", "Ġ"], ["Ġ", "ĠĠ"], ["ĠĠ", "Ġ"],
             ["-", "-a"], ["a", "ba"], ["b", "a"], ["aba", "b"], ["ab", "ab"], ["a", "b"],
             ["-", "ab"], ["-a", "b"], ["-", "a"]], unk_token=None),
    ),
    # Gemma's, as mmBERT has it: a text is one word, and unknown characters are bytes.
    "gemma": (
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        split({"String": " "}, "MergedWithPrevious"),
        bpe([*BYTES, "▁", "a", "b", "▁a", "ab", "▁ab", "▁▁"],
            [["▁", "▁"], ["a", "b"], ["▁", "a"], ["▁", "ab"], ["▁a", "b"]],
            byte_fallback=True, fuse_unk=True),
    ),
    # A letter with its marks is looked up as a whole.
    "precompiled": (
        precompiled(**{"\r": " ", "\n": " ", "a\u0300": "à", "a\u0300\u0301": "x", "ª": "a",
                       "ﬁ": "fi", "\u0301": "b", "\u200b": ""}),
        None,
        bpe([*BYTES, "a", "b", " ", "ab", "  "], [["a", "b"], [" ", " "]], byte_fallback=True),
    ),
    "suffix": ({"type": "Lowercase"}, {"type": "Whitespace"}, SUFFIX),
    "fused": ({"type": "NFKC"}, {"type": "Whitespace"}, FUSED),
    "dropped": (None, {"type": "WhitespaceSplit"}, {**SUFFIX, "unk_token": None}),
    "affixed_bytes": (None, {"type": "Whitespace"}, bpe(
        [*BYTES, "a", "@b", "@bé", "ab", "abé"], [["a", "@b"], ["a", "@bé"]], byte_fallback=True,
        continuing_subword_prefix="@", end_of_word_suffix="é")),
    "word_level": (
        several("normalizers", {"type": "NFD"}, {"type": "StripAccents"},
                {"type": "Strip", "strip_left": True, "strip_right": True}),
        several("pretokenizers", {"type": "WhitespaceSplit"},
                {"type": "Punctuation", "behavior": "MergedWithNext"},
                {"type": "Digits", "individual_digits": False}),
        {"type": "WordLevel", "unk_token": "[UNK]",
         "vocab": vocabulary("a", "ab", "!", "-a", "-b", "-", "12345")},
    ),
    "word_piece": (
        {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False,
         "strip_accents": False, "lowercase": True},
        {"type": "CharDelimiterSplit", "delimiter": " "},
        {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "@@",
         "max_input_chars_per_word": 4, "vocab": vocabulary("a", "ab", "@@b", "@@é", "@@\u200bab")},
    ),
    "unigram": (
        several("normalizers", {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"}),
        split({"Regex": "[-!]"}, "Contiguous"),
        {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
         "vocab": [[piece, -float(i)] for i, piece in
                   enumerate([*SPECIALS, "▁", "▁a", "b", "ab", "a", "--"])]},
    ),
}  # fmt: skip


def main() -> None:
    added = [
        {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, name in enumerate(SPECIALS)
    ]  # fmt: skip
    rows = {}
    for name, (normalizer, pre_tokenizer, model) in FORMS.items():
        described = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": None, "model": model,
        }  # fmt: skip
        made = tokenizers.Tokenizer.from_str(json.dumps(described))
        encoded = [made.encode(text, add_special_tokens=False) for text in TEXTS]
        rows[name] = {"described": described, "ids": [row.ids for row in encoded]}
    content = {"tokenizers": tokenizers.__version__, "texts": TEXTS, "forms": rows}
    path = Path(__file__).with_name("components.json")
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
