"""The side of ONNX Runtime in `serving`: the exported graph with all its optimisations."""

import onnxruntime
import serving_work as work
from transformers import AutoTokenizer


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()

    def load():
        folder = settings["folder"]
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/huggingface", use_fast=True)
        tokenize = work.tokenized(tokenizer, settings, "np")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["threads"]
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(
            f"{folder}/{settings['mode']}.onnx", options, providers=["CPUExecutionProvider"]
        )

        def inputs_from(rows):
            batch = {k: v.astype("int64") for k, v in work.padded(rows).items()}
            return {
                "input_ids": batch["ids"],
                "attention_mask": batch["mask"],
                "token_type_ids": batch["ids"] * 0,
            }

        def predict_ids(batch):
            return work.softmax(session.run(["logits"], batch)[0])

        def predict_texts(texts):
            batch = tokenize(texts)
            return predict_ids({name: batch[name].astype("int64") for name in batch})

        return inputs_from, predict_ids, predict_texts

    work.serve(load, settings)


if __name__ == "__main__":
    main()
