"""The side of `benchmarks.text_bounds`: encodes texts, and measures its own time and memory."""

import time
from pathlib import Path

import server


def encode(settings: dict) -> None:
    """Encodes the text of each requested file with the tokenizer of a folder.

    `side` is `python`, or one of the graphs `graph`, `offsets` and `special` (with special tokens).
    """
    import functools

    from official import tokenizers

    tokenizer = tokenizers.load(settings["tokenizer"])
    if settings["side"] == "python":

        def tokens(text: str) -> None:
            tokenizer.encode([text])

    else:
        import tensorflow as tf

        made = {
            "graph": tokenizer.tokenize,
            "offsets": tokenizer.tokenize_with_offsets,
            "special": functools.partial(tokenizer.tokenize, special=True),
        }
        graph = tf.function(
            made[settings["side"]], input_signature=[tf.TensorSpec([None], tf.string)]
        )

        def tokens(text: str) -> None:
            graph(tf.constant([text]))

    tokens("a b")

    def measured(file: str) -> dict:
        text = Path(file).read_bytes().decode()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, began = server.mib("VmRSS"), time.process_time()
        tokens(text)
        seconds = time.process_time() - began
        return {"seconds": seconds, "mib": max(0.0, server.mib("VmHWM") - before)}

    server.serve(measured)


if __name__ == "__main__":
    server.main(encode)
