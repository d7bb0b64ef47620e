"""Our model for LiteRT in `serving`: a process without TensorFlow, which tokenizes by itself."""

import queue

import numpy as np
import serving_work as work
from ai_edge_litert.interpreter import Interpreter
from tokenizers import BertWordPieceTokenizer


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()

    def load():
        folder = f"{settings['folder']}/saved_{settings['mode']}"
        tokenizer = BertWordPieceTokenizer(f"{folder}/tokenizer/vocab.txt", lowercase=True)
        tokenizer.enable_truncation(settings["max_length"])
        # A request at a time may use an interpreter.
        runners = queue.SimpleQueue()
        for _ in range(settings["at_once"]):
            interpreter = Interpreter(f"{folder}/model.tflite", num_threads=settings["threads"])
            runners.put(interpreter.get_signature_runner("tokens"))

        def inputs_from(rows):
            batch = work.padded(rows)
            return {
                "input_word_ids": batch["ids"],
                "input_mask": batch["mask"],
                "input_type_ids": np.zeros_like(batch["ids"]),
            }

        def predict_ids(batch):
            runner = runners.get()
            try:
                return runner(**batch)["probabilities"]
            finally:
                runners.put(runner)

        def predict_texts(texts):
            return predict_ids(inputs_from([row.ids for row in tokenizer.encode_batch(texts)]))

        return inputs_from, predict_ids, predict_texts

    work.serve(load, settings)


if __name__ == "__main__":
    main()
