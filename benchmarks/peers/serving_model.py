"""Writes the models that `serving` serves, as users of transformers and ONNX Runtime do.

A BERT classifier with random weights, large enough that texts differ in their answers: a folder
`huggingface` and, of the same weights, `float32.onnx` and `int8.onnx` (dynamic quantisation).
"""

import warnings

import serving_work as work
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

NAMES = ["input_ids", "attention_mask", "token_type_ids"]


def main() -> None:
    """Writes the files into the folder of the settings."""
    settings = work.settings()
    folder = settings["folder"]
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=settings["vocab"],
            hidden_size=settings["hidden"],
            num_hidden_layers=settings["layers"],
            num_attention_heads=settings["heads"],
            intermediate_size=settings["intermediate"],
            initializer_range=0.05,
            num_labels=2,
            id2label={0: "no", 1: "yes"},
            label2id={"no": 0, "yes": 1},
        )
    ).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(10)
    tokenizer = BertTokenizerFast(f"{folder}/tokenizer/vocab.txt", do_lower_case=True)
    model.save_pretrained(f"{folder}/huggingface")
    tokenizer.save_pretrained(f"{folder}/huggingface")

    ids = torch.ones((2, 16), dtype=torch.long)
    axes = {0: "batch", 1: "length"}
    # ONNX Runtime fuses the graph of eager attention.
    model.config._attn_implementation = "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (ids, ids, ids * 0),
            f"{folder}/float32.onnx",
            input_names=NAMES,
            output_names=["logits"],
            dynamic_axes={name: axes for name in NAMES} | {"logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    quantize_dynamic(f"{folder}/float32.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()
