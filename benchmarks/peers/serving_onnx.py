"""ONNX Runtime's side of `serving`: the exported graph with all optimisations that it has."""

import threading

import onnxruntime
import serving_work as work
from transformers import AutoTokenizer


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()

    def load():
        folder = settings["folder"]
        lock = threading.Lock()  # a fast tokenizer is one thread's at a time
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/huggingface", use_fast=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["threads"]
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(
            f"{folder}/{settings['mode']}.onnx", options, providers=["CPUExecutionProvider"]
        )

        def made(rows):
            batch = {k: v.astype("int64") for k, v in work.padded(rows).items()}
            return {
                "input_ids": batch["ids"],
                "attention_mask": batch["mask"],
                "token_type_ids": batch["ids"] * 0,
            }

        def of_ids(batch):
            return work.softmax(session.run(["logits"], batch)[0])

        def of_texts(texts):
            with lock:
                batch = tokenizer(
                    texts,
                    padding=True,
                    truncation=True,
                    max_length=settings["max_length"],
                    return_tensors="np",
                )
            return of_ids({name: batch[name].astype("int64") for name in batch})

        return made, of_ids, of_texts

    work.serve(load, settings)


if __name__ == "__main__":
    main()
