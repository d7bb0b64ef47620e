"""Runs a SavedModel on texts; needs tensorflow and tensorflow_text, nothing of this project.

python demo/ask.py SAVED_MODEL "some text" "another"
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)


def main(folder: str, texts: list[str]) -> None:
    """Prints each text with its label and the probability of the label."""
    answers = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(texts))
    for text, label, row in zip(
        texts, answers["label"].numpy(), answers["probabilities"].numpy(), strict=True
    ):
        print(f"{label.decode()} ({row.max():.0%}): {text}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
