"""Saves tokenizers of transformers 5, and the ids of odd texts.

Run by transformers 5: OUT [NUMBER OF TEXTS]. Writes a folder for each class, plain and with added
tokens, and `ids.json`: texts, and for each folder the ids of transformers and of `tokenizers`.
"""

import io
import json
import os
import random
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokenizer.json").read_text())
PROSE = [row["text"] for row in GOLDEN["cased"][:8]]
ODD = [row["text"] for row in GOLDEN["cased"][8:]]
ADDED = [
    AddedToken("[E1]", special=True, normalized=False),
    AddedToken("[/E1]", special=True, normalized=False),
    AddedToken("covid19", normalized=True),
    AddedToken("River", single_word=True, normalized=False),
    AddedToken("Spain", single_word=True, normalized=True),
    AddedToken("<left>", lstrip=True, normalized=False),
    AddedToken("<right>", rstrip=True, normalized=False),
    AddedToken("<both>", lstrip=True, rstrip=True, normalized=True),
    AddedToken("<left", normalized=False),
    AddedToken("two words", normalized=True),
]
# A normalizer of DeBERTa ends in a Strip, before tokens that are `normalized` are found.
PLAIN = [token for token in ADDED if not token.normalized]
SPECIALS = "[MASK] [SEP] [CLS] <mask> <s> </s> <pad> <unk> <sep> <cls> <extra_id_0> <extra_id_17>"
SPACES = [" ", "  ", "\t", "\n", "\u00a0", "\u3000", " \r\n ", "\u2009", "   "]


def wordpiece(folder: Path, first: str = "", last: str = "") -> None:
    folder.mkdir(parents=True)
    lines = "".join(f"{piece}\n" for piece in GOLDEN["vocabulary"])
    (folder / "vocab.txt").write_text(first + lines + last, encoding="utf-8")


def byte_bpe(folder: Path, specials: list[str]) -> None:
    folder.mkdir(parents=True)
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(
        PROSE * 3, vocab_size=450, special_tokens=specials, min_frequency=2, show_progress=False
    )
    made.save_model(str(folder))


def modern(folder: Path) -> None:
    """A ModernBERT: bytes of composed characters, runs of blanks, special tokens at the end."""
    folder.mkdir(parents=True)
    plain = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(**plain))
    made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=450, initial_alphabet=letters, show_progress=False, min_frequency=2, **plain
    )
    made.train_from_iterator(PROSE * 3, trainer)
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in range(6, 1, -1)])
    names = {name.lower(): f"[{name}]" for name in ("UNK", "CLS", "SEP", "PAD", "MASK")}
    made.add_special_tokens([AddedToken(n, lstrip=n == "[MASK]") for n in names.values()])
    ends = [(names[name], made.token_to_id(names[name])) for name in ("cls", "sep")]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {f"{name}_token": token for name, token in names.items()}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def euro(folder: Path) -> None:
    """A EuroBERT: Llama 3's words, each of which may be a piece, and special tokens at the end."""
    folder.mkdir(parents=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    parts = tokenizers.pre_tokenizers
    made.pre_tokenizer = parts.Sequence(
        [
            parts.Split(tokenizers.Regex(words), "isolated"),
            parts.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=450, initial_alphabet=parts.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(PROSE * 3, trainer)
    names = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "mask": "<|mask|>"}
    made.add_special_tokens([AddedToken(n, lstrip="mask" in n) for n in names.values()])
    template = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A <|end_of_text|>",
        pair="<|begin_of_text|> $A <|end_of_text|> $B <|end_of_text|>",
        special_tokens=[(name, made.token_to_id(name)) for name in list(names.values())[:2]],
    )
    level = tokenizers.processors.ByteLevel(trim_offsets=True)
    made.post_processor = tokenizers.processors.Sequence([level, template])
    made.save(str(folder / "tokenizer.json"))
    settings = {f"{name}_token": token for name, token in names.items()}
    settings |= {"pad_token": names["eos"], "tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= {"model_input_names": ["input_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def unigram(folder: Path, controls: list[str], name: str = "spiece.model", **options) -> None:
    folder.mkdir(parents=True)
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE * 3),
        model_writer=data,
        vocab_size=225,
        character_coverage=0.98,
        control_symbols=controls,
        minloglevel=2,
        **options,
    )
    (folder / name).write_bytes(data.getvalue())


def sources(out: Path) -> dict[str, tuple[type, Path, dict]]:
    """Returns the class of each tokenizer, the folder of its vocabulary, and its settings."""
    old = out / "old"
    wordpiece(old / "bert")
    wordpiece(old / "mpnet", "<s>\n<pad>\n</s>\n<unk>\n", "<mask>\n")
    byte_bpe(old / "roberta", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    byte_bpe(old / "gpt2", ["<|endoftext|>"])
    modern(old / "modernbert")
    euro(old / "eurobert")
    none = {"bos_id": -1, "eos_id": -1}
    marks = ["[CLS]", "[SEP]", "[MASK]"]
    unigram(old / "albert", marks, pad_id=0, unk_id=1, pad_piece="<pad>", **none)
    marks = ["<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    unigram(old / "xlnet", marks, unk_id=0, pad_id=-1, **none)
    unigram(old / "t5", [], pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>")
    marks = {f"{name}_piece": f"[{piece}]" for name, piece in
             (("pad", "PAD"), ("bos", "CLS"), ("eos", "SEP"), ("unk", "UNK"))}  # fmt: skip
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    unigram(old / "deberta", [], "spm.model", **ids, **marks)
    name = "sentencepiece.bpe.model"
    unigram(old / "xlmr", [], name, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    return {
        "bert": (transformers.BertTokenizer, old / "bert", {}),
        "bert_cased": (transformers.BertTokenizer, old / "bert", {"do_lower_case": False}),
        "distilbert": (transformers.DistilBertTokenizer, old / "bert", {}),
        "mpnet": (transformers.MPNetTokenizer, old / "mpnet", {}),
        "roberta": (transformers.RobertaTokenizer, old / "roberta", {}),
        "roberta_prefix": (
            transformers.RobertaTokenizer, old / "roberta", {"add_prefix_space": True}
        ),
        "gpt2": (transformers.GPT2Tokenizer, old / "gpt2", {}),
        "modernbert": (transformers.PreTrainedTokenizerFast, old / "modernbert", {}),
        "eurobert": (transformers.PreTrainedTokenizerFast, old / "eurobert", {}),
        "albert": (transformers.AlbertTokenizer, old / "albert", {}),
        "xlnet": (transformers.XLNetTokenizer, old / "xlnet", {}),
        "t5": (transformers.T5Tokenizer, old / "t5", {}),
        "xlm_roberta": (transformers.XLMRobertaTokenizer, old / "xlmr", {}),
        "camembert": (transformers.CamembertTokenizer, old / "xlmr", {}),
        "deberta": (transformers.DebertaV2Tokenizer, old / "deberta", {}),
    }  # fmt: skip


def added_to(name: str) -> list[AddedToken]:
    """Returns the tokens that are added to a tokenizer."""
    return PLAIN if name.startswith("deberta") else ADDED


def odd_texts(number: int) -> list[str]:
    """Returns texts of odd words, blanks, added tokens and special tokens."""
    draw = random.Random(7)
    words = [word for text in PROSE + ODD for word in text.split(" ") if len(word) < 40]
    tokens = [token.content for token in ADDED] + SPECIALS.split() + ["COVID19", "Covid19", "SPAIN"]
    letters = sorted({letter for text in PROSE + ODD for letter in text})
    texts = [*PROSE, *ODD]
    while len(texts) < number:
        parts = []
        for _ in range(draw.randrange(1, 9)):
            kind = draw.random()
            if kind < 0.5:
                parts.append(draw.choice(words))
            elif kind < 0.75:
                parts.append(draw.choice(tokens))
            else:
                parts.append("".join(draw.choices(letters, k=draw.randrange(1, 4))))
            if draw.random() < 0.7:
                parts.append(draw.choice(SPACES) if draw.random() < 0.4 else " ")
        texts.append("".join(parts))
    return texts


def main():
    out, number = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    texts = odd_texts(number)
    ids = {}
    for name, (kind, folder, settings) in sources(out).items():
        for added in (False, True):
            tokenizer = kind.from_pretrained(folder, **settings)
            saved = out / (name + "_added" * added)
            if added:
                tokenizer.add_tokens(added_to(name))
            tokenizer.save_pretrained(saved)
            again = transformers.AutoTokenizer.from_pretrained(saved)
            plain = tokenizers.Tokenizer.from_file(str(saved / "tokenizer.json"))
            ids[saved.name] = {
                "transformers": [again.encode(text, add_special_tokens=False) for text in texts],
                "tokenizers": [plain.encode(text, add_special_tokens=False).ids for text in texts],
            }
    shutil.rmtree(out / "old")
    (out / "ids.json").write_text(json.dumps({"texts": texts, "ids": ids}))


if __name__ == "__main__":
    main()
