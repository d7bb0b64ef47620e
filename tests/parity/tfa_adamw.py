"""AdamW of tensorflow-addons on given gradients, its bias correction canceled.

  python tfa_adamw.py IN.npz OUT.npz

IN: `start` [n], `gradients` [steps, n], `rates` [steps], `settings` (beta_1, beta_2, epsilon,
weight_decay). OUT: `trajectory` [steps, n], the weights after each update.

tensorflow-addons takes `weight_decay * w` off the weights (not multiplied by the learning rate)
and then makes Keras' Adam update, whose rate is `rate * sqrt(1 - b2^t) / (1 - b1^t)`. BERT's
optimizer has no such correction, so the rate handed in is divided by it, and the decay handed in
is multiplied by the learning rate.
"""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa


def main(source: str, target: str) -> None:
    """Writes the trajectory."""
    given = np.load(source)
    beta_1, beta_2, epsilon, weight_decay = given["settings"].tolist()
    weights = tf.Variable(given["start"])
    optimizer = tfa.optimizers.AdamW(
        weight_decay=0.0, learning_rate=0.0, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon
    )
    trajectory = []
    for t, gradient in enumerate(given["gradients"], start=1):
        rate = given["rates"][t - 1]
        correction = np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        optimizer.learning_rate = rate / correction
        optimizer.weight_decay = rate * weight_decay
        optimizer.apply_gradients([(tf.constant(gradient), weights)])
        trajectory.append(weights.numpy())
    np.savez(target, trajectory=trajectory)


if __name__ == "__main__":
    main(*sys.argv[1:])
