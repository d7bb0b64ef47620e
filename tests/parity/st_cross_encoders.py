"""Makes rerankers of sentence-transformers with random weights, and scores pairs as a user does.

make OUT     writes a folder for each case, and `answer`s with them.
answer OUT   writes OUT/answers.json: what each folder in it gives for OUT/pairs.json.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf5_tokenizers
import hf_way_back
import safetensors.torch
import torch
import transformers
from sentence_transformers import CrossEncoder

LENGTH, BATCH = 24, 3
SIZES = {
    "hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 22,
}  # fmt: skip
XLNET = {"d_model": 18, "n_layer": 2, "n_head": 3, "d_inner": 22}
RAW = {"activation_fn": torch.nn.Identity()}
PROMPT = {"prompts": {"query": "in Spain: ", "other": "the "}, "default_prompt_name": "query"}
# Folder: the system in `hf_way_back`, the side of padding, the number of labels, the arguments.
CASES = {
    "bert": ("bert", "right", 1, {}),
    "bert_raw": ("bert", "right", 1, RAW),
    "bert_prompt": ("bert", "right", 1, {**RAW, **PROMPT}),
    "bert_labels": ("bert", "right", 3, {}),
    "roberta": ("roberta", "right", 1, {}),
    "roberta_left": ("roberta", "left", 1, RAW),
    "roberta_unlimited": ("roberta", "right", 1, {}),
    "electra": ("electra", "right", 1, {}),
    "deberta_v3": ("deberta_v3", "left", 1, {}),
    "modernbert": ("modernbert", "left", 1, RAW),
    "xlnet": ("xlnet", "left", 1, {}),
}


def make(out: Path) -> None:
    """Writes the folders, and answers with them."""
    sources = hf5_tokenizers.sources(out)
    for seed, (name, (system, side, labels, options)) in enumerate(CASES.items()):
        classes, source, sizes = hf_way_back.MODELS[system]
        kind, folder, settings = sources[source]
        length = int(1e30) if "unlimited" in name else LENGTH
        tokenizer = kind.from_pretrained(folder, **settings, padding_side=side)
        tokenizer.model_max_length = length
        sizes = {**sizes, **(XLNET if system == "xlnet" else SIZES)}
        sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        torch.manual_seed(seed)
        cls = getattr(transformers, f"{classes}ForSequenceClassification")
        model = cls(cls.config_class(**sizes, num_labels=labels)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        plain = out / "old" / name
        model.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        CrossEncoder(str(plain), device="cpu", **options).save_pretrained(str(out / name))
    raw = "torch.nn.modules.linear.Identity"
    for name, keys in {
        "bert_before_4": {"sbert_ce_default_activation_function": raw},
        "bert_5": {"sentence_transformers": {"activation_fn": raw}},
    }.items():
        shutil.copytree(out / "old" / "bert_raw", out / name)
        config = json.loads((out / name / "config.json").read_text())
        (out / name / "config.json").write_text(json.dumps({**config, **keys}))
    # Weights of old files have other names of norms, and are written under them again.
    shutil.copytree(out / "bert_raw", out / "bert_gamma")
    file = out / "bert_gamma" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    named = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, old in named.items():
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    shutil.rmtree(out / "old")
    answer(out)


def answer(out: Path) -> None:
    """Writes the answers."""
    pairs = json.loads((out / "pairs.json").read_text())
    answers = {}
    for folder in sorted(path.parent for path in out.glob("*/config.json")):
        model = CrossEncoder(str(folder), device="cpu")
        # A RoBERTa without a length is cut to 2 tokens too many there, and fails.
        unlimited = model.max_seq_length == 162
        given = [pair for pair in pairs if not unlimited or len(" ".join(pair)) < 60]
        one = model.num_labels == 1
        # With padding at the left, heads there read padding in place of the first token.
        left = model.tokenizer.padding_side == "left" and model.config.model_type != "xlnet"
        size = 1 if left else BATCH
        documents = [document for query, document in given if query == given[0][0]]
        best = model.rank(given[0][0], documents, batch_size=size) if one else []
        answers[folder.name] = {
            "pairs": given,
            "scores": model.predict(given, batch_size=size, apply_softmax=not one).tolist(),
            "logits": model.predict(
                given, batch_size=1, activation_fn=torch.nn.Identity()
            ).tolist(),
            "best": [entry["corpus_id"] for entry in best],
            "activation": type(model.activation_fn).__name__,
            "length": model.max_seq_length,
        }
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    {"make": make, "answer": answer}[sys.argv[1]](Path(sys.argv[2]))
