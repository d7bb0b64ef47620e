"""The side of PyTorch transformers in `serving`: its BERT classifier and fast tokenizer."""

import serving_work as work
import torch
from transformers import AutoTokenizer, BertForSequenceClassification


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    torch.set_num_threads(settings["threads"])

    def load():
        folder = f"{settings['folder']}/huggingface"
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True)
        tokenize = work.tokenized(tokenizer, settings, "pt")
        model = BertForSequenceClassification.from_pretrained(folder, attn_implementation="sdpa")
        model.eval()
        if settings["mode"].startswith("bfloat16"):
            model.to(torch.bfloat16)
        forward = model
        if settings["mode"].endswith("compiled"):
            forward = torch.compile(model, dynamic=True)

        def inputs_from(rows):
            batch = {k: torch.from_numpy(v).long() for k, v in work.padded(rows).items()}
            return {"input_ids": batch["ids"], "attention_mask": batch["mask"]}

        @torch.inference_mode()
        def predict_ids(batch):
            return torch.softmax(forward(**batch).logits.float(), dim=-1).numpy()

        def predict_texts(texts):
            return predict_ids(tokenize(texts))

        return inputs_from, predict_ids, predict_texts

    work.serve(load, settings)


if __name__ == "__main__":
    main()
