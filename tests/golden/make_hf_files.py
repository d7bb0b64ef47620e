"""Makes tests/golden/hf_files: tiny BERTs as transformers writes them, and what they answer.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_hf_files.py
"""

import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

OUTPUT = Path(__file__).parent / "hf_files"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the a cat dog sat ran on under mat tree and ##s ##ning quick ##ly . , ! ?".split()
LETTERS = [chr(c) for c in range(ord("a"), ord("a") + 6)]
VOCAB = SPECIAL + WORDS + [c for c in LETTERS if c not in WORDS] + [f"##{c}" for c in LETTERS]
TEXTS = ["The cat sat on a mat.", "Dogs", "A quickly running dog, under the tree!"]
PAIRS = ["", "The dog ran.", "cats and dogs?"]
LABELS = ["negative", "neutral", "positive"]


def main():
    if OUTPUT.exists():
        shutil.rmtree(OUTPUT)
    OUTPUT.mkdir()
    (OUTPUT / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = transformers.BertTokenizer(OUTPUT / "vocab.txt", model_max_length=24)
    (OUTPUT / "vocab.txt").unlink()
    batch = tokenizer(TEXTS, PAIRS, padding=True, return_tensors="pt")
    expected = {name: array.numpy().astype(np.int32) for name, array in batch.items()}
    sizes = {
        "vocab_size": len(VOCAB),
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 24,
        "initializer_range": 0.5,
    }
    kinds = {
        "pretraining": (transformers.BertForPreTraining, {"hidden_act": "gelu"}),
        "classification": (
            transformers.BertForSequenceClassification,
            {
                "hidden_act": "gelu_new",
                "layer_norm_eps": 1e-5,
                "id2label": dict(enumerate(LABELS)),
                "label2id": {label: i for i, label in enumerate(LABELS)},
                "classifier_dropout": 0.2,
            },
        ),
        "bare": (transformers.BertModel, {"hidden_act": "relu", "type_vocab_size": 3}),
    }
    for seed, (kind, (make, more)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        model = make(transformers.BertConfig(**sizes, **more)).eval()
        with torch.no_grad():
            for variable in model.parameters():
                if variable.ndim == 1:  # biases of 0 and scales of 1 would hide a mix-up
                    variable.add_(torch.randn_like(variable) * 0.3)
            outputs = model(**batch)
            bare = model.base_model(**batch)
        model.save_pretrained(OUTPUT / kind)
        tokenizer.save_pretrained(OUTPUT / kind)
        outputs = {**bare, **outputs}
        for name in ("last_hidden_state", "pooler_output", "prediction_logits",
                     "seq_relationship_logits", "logits"):  # fmt: skip
            if name in outputs:
                expected[f"{kind}/{name}"] = outputs[name].numpy()
    np.savez_compressed(OUTPUT / "expected.npz", **expected)
    about = {"texts": TEXTS, "pairs": PAIRS, "transformers": transformers.__version__,
             "torch": torch.__version__}  # fmt: skip
    (OUTPUT / "about.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
