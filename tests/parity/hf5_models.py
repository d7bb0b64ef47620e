"""Models with tokenizers of transformers 5, and the vectors of texts.

Run by transformers 5: `save OUT` writes a folder for each class, with added tokens; `vectors OUT`
writes OUT/vectors.npz: for each folder of OUT the means over the tokens of texts.json.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import hf5_tokenizers
import hf_heads
import numpy as np
import torch
import transformers

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "initializer_range": 0.5,
}  # fmt: skip
XLNET = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "initializer_range": 0.5}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "initializer_range": 0.5}
MODELS = {
    "bert": (transformers.BertModel, transformers.BertConfig, SIZES),
    "distilbert": (transformers.DistilBertModel, transformers.DistilBertConfig, DISTILBERT),
    "mpnet": (transformers.MPNetModel, transformers.MPNetConfig, SIZES),
    "roberta": (transformers.RobertaModel, transformers.RobertaConfig, SIZES),
    "albert": (transformers.AlbertModel, transformers.AlbertConfig,
               {**SIZES, "embedding_size": 8, "hidden_act": "gelu_new"}),
    "xlnet": (transformers.XLNetModel, transformers.XLNetConfig, XLNET),
    "t5": (transformers.T5EncoderModel, transformers.T5Config, T5),
    "xlm_roberta": (transformers.XLMRobertaModel, transformers.XLMRobertaConfig, SIZES),
    "camembert": (transformers.CamembertModel, transformers.CamembertConfig, SIZES),
    "deberta": (transformers.DebertaV2Model, transformers.DebertaV2Config,
                {**SIZES, **hf_heads.DEBERTA}),
    "modernbert": (transformers.ModernBertModel, transformers.ModernBertConfig, SIZES),
    "electra": (transformers.ElectraModel, transformers.ElectraConfig,
                {**SIZES, "embedding_size": 8}),
}  # fmt: skip


def save(out: Path) -> None:
    torch.manual_seed(0)
    sources = hf5_tokenizers.sources(out)
    sources["electra"] = sources["bert"]
    for name, (kind, config, sizes) in MODELS.items():
        tokenizer_class, folder, settings = sources[name]
        tokenizer = tokenizer_class.from_pretrained(folder, **settings)
        tokenizer.add_tokens(hf5_tokenizers.added_to(name))
        pad = {"pad_token_id": tokenizer.pad_token_id}
        model = kind(config(vocab_size=len(tokenizer), **sizes, **pad))
        model.save_pretrained(out / name)
        tokenizer.save_pretrained(out / name)


def vectors(out: Path) -> None:
    texts = json.loads((out / "texts.json").read_text())
    result = {}
    for folder in sorted(path.parent for path in out.glob("*/config.json")):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        kind = MODELS.get(folder.name.removesuffix("_back"), [transformers.AutoModel])[0]
        model = kind.from_pretrained(folder).eval()
        rows = []
        for text in texts:
            with torch.no_grad():
                inputs = tokenizer(text, return_tensors="pt")
                states = model(**inputs).last_hidden_state
            rows.append(states[0].mean(0).numpy())
        result[folder.name] = np.stack(rows)
    np.savez(out / "vectors.npz", **result)


if __name__ == "__main__":
    {"save": save, "vectors": vectors}[sys.argv[1]](Path(sys.argv[2]))
