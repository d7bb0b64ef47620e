"""Pairs as transformers reads them.

Run with OUT: writes a folder for each form of a pair, and in it `texts.json` and `expected.json`,
the rows and the probabilities of texts and pairs.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import sentencepiece
import torch
import transformers as t
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the a cat dog sat on mat red ran to big is it good very bad film".split()
LETTERS = [chr(i) for i in range(97, 123)]
PIECES = [*SPECIALS, *WORDS, *LETTERS[1:], *("##" + x for x in LETTERS)]
PAIRS = [
    ("the cat sat on the mat", "a dog ran to the mat"),
    ("is it good", "it is very bad"),
    ("red",),
    # Cut, with an odd room for most of these lengths.
    *(("the " * first, "dog " * second) for first, second in ((30, 30), (31, 9), (9, 31), (40, 8))),
]
LENGTH = 24


def ask(folder):
    """Returns what transformers gives for the texts of a folder."""
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = []
    texts = json.loads((folder / "texts.json").read_text())
    for each in texts:
        encoded = tokenizer(*each, return_tensors="pt", truncation=True, max_length=LENGTH)
        with torch.no_grad():
            logits = model(**encoded).logits
        types = encoded.get("token_type_ids")
        rows.append(
            {
                "ids": encoded["input_ids"][0].tolist(),
                "types": None if types is None else types[0].tolist(),
                "probabilities": logits.softmax(-1)[0].tolist(),
            }
        )
    (folder / "expected.json").write_text(json.dumps(rows))


def save(folder, model, texts=PAIRS, vocabulary=None, settings=None, tokenizer=None):
    model.eval().save_pretrained(folder)
    if vocabulary is not None:
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    (folder / "texts.json").write_text(json.dumps([list(each) for each in texts]))
    ask(folder)


def described(post_processor):
    raw = Tokenizer(models.WordPiece({x: i for i, x in enumerate(PIECES)}, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = post_processor
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIALS, strict=False))
    return t.PreTrainedTokenizerFast(tokenizer_object=raw, mask_token="[MASK]", **names)


def template(pair):
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )


def make(out):
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    sizes |= {"vocab_size": len(PIECES), "initializer_range": 0.5, "num_labels": 3}
    bert = t.BertForSequenceClassification(t.BertConfig(max_position_embeddings=64, **sizes))
    names = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    save(out / "usual", bert, vocabulary=PIECES, settings=names)
    no_types = names | {"model_input_names": ["input_ids", "attention_mask"]}
    save(out / "names", bert, vocabulary=PIECES, settings=no_types)
    distil = names | {"tokenizer_class": "DistilBertTokenizer"}
    save(out / "class", bert, vocabulary=PIECES, settings=distil)
    save(out / "zeros", bert, tokenizer=described(template("[CLS] $A [SEP] $B [SEP]")))
    twice = described(template("[CLS] $A [SEP] [SEP] $B:1 [SEP]:1"))
    save(out / "twice", bert, tokenizer=twice)
    corpus = out / "corpus.txt"
    corpus.write_text("\n".join([" ".join(WORDS), "the cat sat on the mat", "a dog ran"] * 30))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(out / "xl"), vocab_size=64, hard_vocab_limit=False,
        minloglevel=2, pad_id=-1, unk_id=0, bos_id=1, eos_id=2,
        control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
    )  # fmt: skip
    xl = t.XLNetTokenizerFast(str(out / "xl.model"))
    for name, summary in (("last", "last"), ("first", "first")):
        config = t.XLNetConfig(
            vocab_size=len(xl), d_model=16, n_layer=2, n_head=2, d_inner=32, num_labels=3,
            initializer_range=0.5, summary_type=summary,
        )  # fmt: skip
        model = t.XLNetForSequenceClassification(config)
        save(out / f"xlnet_{name}", model, PAIRS[:3], tokenizer=xl)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
