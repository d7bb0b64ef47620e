#!/usr/bin/env bash
# A loop in a TensorFlow graph whose initial value takes long to compute.
#
# Expected: `tf.while_loop(cond, body, [0, first])` begins when `first` is computed, as the same loop
#   does in Python. With `parallel_iterations=1` there is nothing else to overlap.
# What happens: the ops of the first turn that do not read `first` run before `first` is there. A loop
#   over the parts of a batch that adds to the result of the first part, unrolled before the loop,
#   computes two parts at the same time, and needs the memory of both: an accumulation of gradients
#   over four parts took 3.8 GB in place of 2.9.
# Why: the graph runtime takes loops apart into Enter, Switch and Merge for each loop variable, and an
#   op runs when its own inputs are there. `parallel_iterations` limits turns against each other
#   alone.
# Versions: tensorflow 2.21.0, Python 3.11, CPU.
# Consequence: let the counter depend on the initial values (`tf.control_dependencies`) where memory
#   matters. The second half of the script does, and the order is the expected one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tensorflow==2.21.0
cd "$folder"
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import sys
import time

import tensorflow as tf

began = []


def takes(name, seconds, x):
    def run(value):
        began.append(name)
        time.sleep(seconds)
        return value

    return tf.ensure_shape(tf.numpy_function(run, [x], x.dtype, stateful=False), [])


@tf.function
def total(x, wait):
    first = takes("initial value", 1.0, x)
    with tf.control_dependencies([first] if wait else []):
        start = tf.identity(tf.constant(0))

    def body(i, y):
        return i + 1, y + takes("turn", 0.1, tf.cast(i, tf.float32))

    return tf.while_loop(lambda i, y: i < 3, body, (start, first), parallel_iterations=1)[1]


seen = {}
for wait in (False, True):
    began.clear()
    assert total(tf.constant(1.0), wait).numpy() == 4.0
    seen[wait] = list(began)
    print("with a dependency:   " if wait else "without a dependency:", ", ".join(began))
expected = ["initial value", "turn", "turn", "turn"]
if seen[False] != ["turn", "initial value", "turn", "turn"] or seen[True] != expected:
    sys.exit("changed: expected the first turn before the initial value, unless it depends on it")
print("as described: the first turn began before the initial value of the loop")
PYTHON
