"""Folders of PyLate; `test_pylate_parity.py` starts it.

    python pylate_folders.py make OUT
    python pylate_folders.py answer OUT

`make` writes a folder for each case, and `answer`s with them: OUT/answers.json has the vectors of
the `queries` and the `documents` of OUT/texts.json, and their scores.
"""

import json
import shutil
import sys
from pathlib import Path

import hf5_tokenizers
import hf_way_back
import safetensors.torch
import torch
import transformers
from pylate import models, scores
from tokenizers import AddedToken

SIZES = {
    "hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 22,
}  # fmt: skip
# Folder: the system in `hf_way_back` and what ColBERT is given beside it.
CASES = {
    # Settings of PyLate but the lengths; the vocabulary lacks some of the punctuation.
    "bert": ("bert", {"query_length": 9, "document_length": 13}),
    "attend": (
        "bert_cased",
        {
            "query_length": 11,
            "document_length": 8,
            "attend_to_expansion_tokens": True,
            "query_prefix": "[unused0]",
            "document_prefix": "[unused1]",
            "skiplist_words": [".", "the"],
        },
    ),
    "bare": (
        "electra",
        {
            "query_length": 8,
            "document_length": 14,
            "do_query_expansion": False,
            "query_prefix": "",
            "document_prefix": "",
            "skiplist_words": [],
        },
    ),
    "roberta": ("roberta", {"query_length": 12, "document_length": 17}),
    "modernbert": ("modernbert", {"query_length": 10, "document_length": 15}),
}


def make(out):
    out = Path(out)
    sources = hf5_tokenizers.sources(out)
    for seed, (name, (system, settings)) in enumerate(CASES.items()):
        classes, source, sizes = hf_way_back.MODELS[system]
        kind, folder, options = sources[source]
        tokenizer = kind.from_pretrained(folder, **options, model_max_length=24)
        prefixes = [settings.get(f"{text}_prefix") for text in ("query", "document")]
        # As in a released BERT they are there before: PyLate adds no rows for them.
        known = [AddedToken(x, special=True, normalized=False) for x in prefixes if x]
        tokenizer.add_tokens(known)
        sizes = {**sizes, **SIZES, "vocab_size": len(tokenizer)}
        torch.manual_seed(seed)
        cls = getattr(transformers, f"{classes}Model")
        bare = out / "old" / name
        cls(cls.config_class(**sizes, pad_token_id=tokenizer.pad_token_id)).save_pretrained(bare)
        tokenizer.save_pretrained(bare)
        model = models.ColBERT(str(bare), embedding_size=7, device="cpu", **settings)
        with torch.no_grad():  # the two new rows of the table are nearly equal
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.encode(["a"], is_query=True, show_progress_bar=False)  # leaves its length behind
        model.save_pretrained(str(out / name))
    write_stanford(out)
    shutil.rmtree(out / "old")
    answer(out)


def write_stanford(out):
    """A checkpoint of Stanford's ColBERT, whose markers are pieces of the vocabulary."""
    hf5_tokenizers.wordpiece(out / "old" / "stanford", last="[unused0]\n[unused1]\n")
    tokenizer = transformers.BertTokenizer.from_pretrained(out / "old" / "stanford")
    torch.manual_seed(9)
    sizes = {**hf_way_back.MODELS["bert"][2], **SIZES, "vocab_size": len(tokenizer)}
    bert = transformers.BertModel(transformers.BertConfig(**sizes))
    tensors = {f"bert.{name}": value for name, value in bert.state_dict().items()}
    tensors["linear.weight"] = torch.randn(7, SIZES["hidden_size"])
    folder = out / "stanford"
    bert.config.architectures = ["HF_ColBERT"]
    bert.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 13,
        "doc_maxlen": 16,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))


def answer(out):
    out = Path(out)
    texts, answers = json.loads((out / "texts.json").read_text()), {}
    for folder in sorted(path.parent for path in out.glob("*/config.json")):
        model = models.ColBERT(str(folder), device="cpu")
        queries, documents = (
            model.encode(
                texts[kind], batch_size=3, is_query=kind == "queries", show_progress_bar=False
            )
            for kind in ("queries", "documents")
        )
        answers[folder.name] = {
            "queries": [each.tolist() for each in queries],
            "documents": [each.tolist() for each in documents],
            "scores": [
                [
                    scores.colbert_scores(query[None], document[None]).item()
                    for document in documents
                ]
                for query in queries
            ],
        }
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    mode, folder = sys.argv[1:]
    {"make": make, "answer": answer}[mode](folder)
