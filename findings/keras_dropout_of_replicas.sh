#!/usr/bin/env bash
# The masks of keras.layers.Dropout on the replicas of tf.distribute.MirroredStrategy.
#
# Expected: each replica drops other units, as tf.nn.dropout does in the same step, so that the rows
#   of a global batch have masks of their own however they are split.
# What happens: all replicas drop the same units of their rows in every step. The state of
#   `keras.random.SeedGenerator` is a variable that each replica reads and advances for itself from
#   the same value, and the seed has nothing of the replica in it.
# Versions: Keras 3.15.1, TensorFlow 2.21.0, Python 3.11, two logical CPU devices.
# Consequence: row i of each replica has the mask of row i of every other one, so a batch of R
#   replicas has as many masks as 1/R of its rows. A layer that should differ has to be given seeds
#   with `tf.distribute.get_replica_context().replica_id_in_sync_group` in them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  keras==3.15.1 tensorflow-cpu==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - <<'PYTHON'
import sys

import keras
import numpy as np
import tensorflow as tf

halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    layer = keras.layers.Dropout(0.5, seed=1)


def dropped(x):
    return layer(x, training=True), tf.nn.dropout(x, 0.5)


@tf.function
def step():
    return strategy.run(dropped, args=(tf.ones((4, 64)),))


masks = []
for _ in range(3):
    equal = []
    for outputs in step():
        one, other = (x.numpy() for x in strategy.experimental_local_results(outputs))
        equal.append(bool(np.all(one == other)))
        masks.append(one)
    print({"keras.layers.Dropout: replicas equal": equal[0], "tf.nn.dropout": equal[1]})
    if equal != [True, False]:
        sys.exit("changed: expected equal masks of Keras and different ones of TensorFlow")
if np.all(masks[0] == masks[2]):
    sys.exit("changed: two steps have the same mask")
print("as described: the replicas have the same masks, which change from step to step")
PYTHON
