"""Writes random tokenizers of the `tokenizers` package, and the ids of texts: OUT SEED FIRST COUNT.

Each is a folder, OUT/NUMBER: normalizers, pre-tokenizers, a model that is trained on a few texts,
added tokens and settings are drawn by the seed and the number. OUT/ids.json has the texts and the
ids of each by `tokenizers`. Run by transformers 4 and 5, whose packages have two versions of it.
"""

import io
import json
import random
import sys
from pathlib import Path

import sentencepiece
import tokenizers
from hf5_tokenizers import GOLDEN, ODD, PROSE, odd_texts
from tokenizers import AddedToken, Regex, Tokenizer, models, processors, trainers
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MARKS = GPT2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)
QWEN = LLAMA3.replace("{1,3}", "")
PATTERNS = [
    LLAMA3, GPT2, MARKS, QWEN, r"\p{L}+|\p{N}", r"\d{1,3}", r"[a-z]+(?:'[a-z]+)?", r"\s", r"(?=x)y",
    r"[\p{Han}\p{Hiragana}]", r"[^\s]+", r"\S+\n?", r"[.,!?]", r"e+", r"\p{Lu}?\p{Ll}+",
]  # fmt: skip
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def charsmap() -> str:
    """Returns the table of NFKC that SentencePiece has, as `tokenizer.json` writes it."""
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE), model_writer=data, vocab_size=225, minloglevel=2,
        character_coverage=0.98,
    )  # fmt: skip
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(data.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def normalizer(draw: random.Random, table: bytes):
    flags = [draw.random() < 0.5 for _ in range(4)]
    return draw.choice([
        norm.NFC(), norm.NFD(), norm.NFKC(), norm.NFKD(), norm.Lowercase(), norm.Lowercase(),
        norm.StripAccents(), norm.Strip(left=flags[0], right=flags[1]), norm.Nmt(),
        norm.Prepend(draw.choice(["\u2581", "x"])), norm.Precompiled(table),
        norm.BertNormalizer(*flags), norm.BertNormalizer(lowercase=flags[0]),
        norm.Replace(" ", "\u2581"), norm.Replace(draw.choice(["e", "``", "the"]), "u"),
        norm.Replace(Regex(draw.choice([r"\s+", r" {2,}", r"[\n\r\t]", r"\p{N}", r"e+"])), " "),
        norm.ByteLevel(),
    ])  # fmt: skip


def pre_tokenizer(draw: random.Random):
    behavior, flags = draw.choice(BEHAVIORS), [draw.random() < 0.5 for _ in range(2)]
    scheme = draw.choice(["always", "first", "never"])
    pattern = Regex(draw.choice(PATTERNS)) if draw.random() < 0.8 else draw.choice([" ", "e", "ab"])
    return draw.choice([
        pre.Whitespace(), pre.Whitespace(), pre.WhitespaceSplit(), pre.BertPreTokenizer(),
        pre.Punctuation(behavior), pre.Digits(individual_digits=flags[0]),
        pre.Split(pattern, behavior, invert=flags[0] and flags[1]), pre.Split(pattern, "isolated"),
        pre.CharDelimiterSplit(draw.choice(" -e")),
        pre.Metaspace(prepend_scheme=scheme, split=flags[0]), pre.Metaspace(),
        pre.ByteLevel(add_prefix_space=flags[0], use_regex=flags[1]), pre.ByteLevel(),
        pre.UnicodeScripts() if flags[0] else pre.Whitespace(),
    ])  # fmt: skip


def model_and_trainer(draw: random.Random):
    size = draw.choice([300, 500, 900])
    plain = {"vocab_size": size, "special_tokens": SPECIALS, "show_progress": False}
    alphabet = {"limit_alphabet": draw.choice([40, 400])}
    kind = draw.random()
    if kind < 0.5:
        options = {"unk_token": draw.choice(["[UNK]", "[UNK]", None])}
        options["fuse_unk"] = draw.random() < 0.5
        options["ignore_merges"] = draw.random() < 0.3
        affixes = {}
        if draw.random() < 0.3:
            affixes["continuing_subword_prefix"] = draw.choice(["##", "@"])
        if draw.random() < 0.3:
            affixes["end_of_word_suffix"] = draw.choice(["</w>", "@"])
        if draw.random() < 0.3:
            options["byte_fallback"] = True
        if draw.random() < 0.03:
            options["dropout"] = 0.1
        initial = pre.ByteLevel.alphabet() if draw.random() < 0.5 else []
        trainer = trainers.BpeTrainer(**plain, **affixes, **alphabet, initial_alphabet=initial)
        return models.BPE(**options, **affixes), trainer
    if kind < 0.7:
        prefix = draw.choice(["##", "##", "@@"])
        trainer = trainers.WordPieceTrainer(**plain, **alphabet, continuing_subword_prefix=prefix)
        most = draw.choice([100, 100, 5])
        return models.WordPiece(
            unk_token="[UNK]", continuing_subword_prefix=prefix, max_input_chars_per_word=most
        ), trainer
    if kind < 0.9:
        return models.Unigram(), trainers.UnigramTrainer(**plain, unk_token="[UNK]")
    return models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(**plain)


def with_bytes(described: dict) -> None:
    """Adds the pieces of all bytes to a BPE."""
    vocabulary = described["model"]["vocab"]
    for byte in range(256):
        vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))


def drawn(seed: int, number: int, table: bytes) -> tuple[dict, dict] | None:
    """Returns a `tokenizer.json` and its settings; None = the package cannot train it."""
    draw = random.Random(f"{seed} {number}")
    model, trainer = model_and_trainer(draw)
    made = Tokenizer(model)
    steps = [normalizer(draw, table) for _ in range(draw.choice([0, 0, 1, 1, 2, 3]))]
    if steps:
        made.normalizer = norm.Sequence(steps) if len(steps) > 1 else steps[0]
    steps = [pre_tokenizer(draw) for _ in range(draw.choice([0, 1, 1, 1, 2, 2, 3]))]
    if steps:
        made.pre_tokenizer = pre.Sequence(steps) if len(steps) > 1 else steps[0]
    try:
        made.train_from_iterator([text for text in PROSE + ODD[:20] if "\0" not in text], trainer)
    except BaseException:  # the package's own errors are not exceptions
        return None
    ends = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    if None in [i for _, i in ends]:
        return None
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    described = json.loads(made.to_str())
    if described["model"].get("byte_fallback") and draw.random() < 0.9:
        with_bytes(described)
    settings = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    alone = described["pre_tokenizer"] or {}
    if alone.get("type") == "ByteLevel":
        # This class of transformers 4 puts its setting in place of that of the file.
        settings["add_prefix_space"] = alone["add_prefix_space"]
    if draw.random() < 0.3:
        made = Tokenizer.from_str(json.dumps(described))
        for content in draw.sample(["[E1]", "covid19", "the", "River", "<left>", "two words"], 3):
            flags = {name: draw.random() < 0.3 for name in ("lstrip", "rstrip", "single_word")}
            token = AddedToken(content, normalized=draw.random() < 0.3, **flags)
            made.add_tokens([token])
        described = json.loads(made.to_str())
    return described, settings


def main(out: str, seed: str, first: str, count: str) -> None:
    texts = sorted({*odd_texts(120), *(row["text"] for row in GOLDEN["cased"])})
    table, ids = charsmap(), {}
    for number in range(int(first), int(first) + int(count)):
        if (found := drawn(int(seed), number, table)) is None:
            continue
        described, settings = found
        folder = Path(out) / str(number)
        folder.mkdir(parents=True)
        text = json.dumps(described, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        plain = tokenizers.Tokenizer.from_str(text)
        ids[number] = [plain.encode(row, add_special_tokens=False).ids for row in texts]
    (Path(out) / "ids.json").write_text(json.dumps({"texts": texts, "ids": ids}))


if __name__ == "__main__":
    main(*sys.argv[1:])
