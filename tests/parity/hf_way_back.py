"""Makes models of transformers with their tokenizers, and answers with folders as a user does.

  make OUT     writes a folder for each system, with a head of a task where the system has one, and
               `answer`s with them.
  answer OUT   writes OUT/answers.json: of every folder in it what OUT/texts.json gets by
               `AutoTokenizer` and the class that config.json names, without further arguments.

transformers 5 saves `tokenizer.json` alone. transformers 4 saves the older files of the slow
tokenizer; of some folders the vocabulary alone is left, as in releases of old.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf5_tokenizers
import hf_heads
import torch
import transformers

NEW = int(transformers.__version__.partition(".")[0]) >= 5
LENGTH = 160
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": LENGTH, "initializer_range": 0.5,
}  # fmt: skip
OFFSET = {**SIZES, "max_position_embeddings": LENGTH + 2, "type_vocab_size": 1}
XLNET = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24, "initializer_range": 0.5}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
DISTILBERT = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24, "initializer_range": 0.5}
DISTILBERT |= {"max_position_embeddings": LENGTH}
# System: its classes, its tokenizer in `hf5_tokenizers`, and its sizes.
MODELS = {
    "bert": ("Bert", "bert", SIZES),
    "bert_cased": ("Bert", "bert_cased", SIZES),
    "ernie": ("Ernie", "bert", SIZES),
    "electra": ("Electra", "bert", {**SIZES, "embedding_size": 8}),
    "distilbert": ("DistilBert", "distilbert", DISTILBERT),
    "mpnet": ("MPNet", "mpnet", OFFSET),
    "roberta": ("Roberta", "roberta", OFFSET),
    "xlm_roberta": ("XLMRoberta", "xlm_roberta", OFFSET),
    "camembert": ("Camembert", "camembert", OFFSET),
    "albert": ("Albert", "albert", {**SIZES, "embedding_size": 8, "hidden_act": "gelu_new"}),
    "xlnet": ("XLNet", "xlnet", XLNET),
    "deberta_v1": ("Deberta", "deberta_v1", {**SIZES, **hf_heads.DEBERTA_V1}),
    "deberta_v3": ("DebertaV2", "deberta", {**SIZES, **hf_heads.DEBERTA}),
    "modernbert": ("ModernBert", "modernbert", SIZES),
    "gpt2": ("GPT2", "gpt2", SIZES),
    "t5": ("T5", "t5", T5),
}
ALONE = {"GPT2": "GPT2LMHeadModel", "T5": "T5EncoderModel"}
# What transformers 4 makes, and what is left of it beside config.json and the weights.
OLD = {
    "roberta": (),
    "albert": (),
    "xlnet": (),
    "deberta_v1": (),
    "mpnet": ("vocab.txt",),
    "xlnet_bare": ("spiece.model",),
    "deberta_v3": ("spm.model",),
}


def make(out: Path) -> None:
    """Writes the folders, and answers with them."""
    sources = hf5_tokenizers.sources(out)
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    hf5_tokenizers.byte_bpe(out / "old" / "deberta_v1", specials)
    sources["deberta_v1"] = (transformers.DebertaTokenizer, out / "old" / "deberta_v1", {})
    for seed, name in enumerate(MODELS if NEW else OLD):
        classes, source, sizes = MODELS[name.removesuffix("_bare")]
        kind, folder, settings = sources[source]
        tokenizer = kind.from_pretrained(folder, **settings, model_max_length=LENGTH)
        pad = tokenizer.pad_token_id if tokenizer.pad_token else tokenizer.eos_token_id
        sizes = {**sizes, "vocab_size": len(tokenizer), "pad_token_id": pad}
        torch.manual_seed(seed)
        cls = getattr(transformers, ALONE.get(classes, f"{classes}ForSequenceClassification"))
        model = cls(cls.config_class(**sizes, **hf_heads.LABELS)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        model.save_pretrained(out / name)
        tokenizer.save_pretrained(out / name)
        if kept := () if NEW else OLD[name]:
            for path in (out / name).iterdir():
                if path.name not in ("config.json", "model.safetensors", *kept):
                    path.unlink()
    shutil.rmtree(out / "old")
    answer(out)


def answer(out: Path) -> None:
    """Writes the answers."""
    given = json.loads((out / "texts.json").read_text())
    answers = {}
    for folder in sorted(path.parent for path in out.glob("*/config.json")):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        (name,) = json.loads((folder / "config.json").read_text())["architectures"]
        model = getattr(transformers, name).from_pretrained(folder).eval()
        rows = []
        for texts in given["texts"]:
            inputs = tokenizer(*texts, return_tensors="pt")
            with torch.no_grad():
                rows.append(row_of(inputs, model(**inputs)))
        # Texts that are too long, as far as the tokenizer says what is too long.
        known = tokenizer.model_max_length < 10**6
        cut = [tokenizer(*texts, truncation=True)["input_ids"] for texts in given["long"] * known]
        marked = [text.format(mask=tokenizer.mask_token) for text in given["marked"]]
        answers[folder.name] = {
            "rows": rows,
            "cut": cut,
            "marked": [tokenizer.encode(text, add_special_tokens=False) for text in marked],
            "class": type(tokenizer).__name__,
        }
    (out / "answers.json").write_text(json.dumps(answers))


def row_of(inputs, outputs):
    """The ids and types of a text, and what a model says: probabilities, or the mean of states."""
    types = inputs["token_type_ids"][0].tolist() if "token_type_ids" in inputs else None
    made = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    made = made[0].softmax(-1) if made.ndim == 2 else made[0].mean(0)
    return {"ids": inputs["input_ids"][0].tolist(), "types": types, "made": made.tolist()}


if __name__ == "__main__":
    {"make": make, "answer": answer}[sys.argv[1]](Path(sys.argv[2]))
