"""Tests of official.utils.quiet_import, in processes that have not imported TensorFlow."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

PROGRAM = """
import gc, sys
from official.utils import quiet_import
quiet_import.install()
import tensorflow as tf
print(sorted({"keras", "matplotlib", "sklearn"} & sys.modules.keys()), gc.isenabled())
import matplotlib.pyplot, sklearn.metrics
print(sklearn.metrics.f1_score([1, 0], [1, 0]), tf.keras.layers.Dense(3)(tf.ones([2, 4])).shape)
"""


@pytest.mark.slow
def test_the_import_is_silent_and_leaves_out_what_is_optional():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "['keras'] True\n1.0 (2, 3)\n", done.stderr
    assert "oneDNN" not in done.stderr


def test_keras_can_be_left_out_and_imported_later():
    program = (
        "import sys; from official.utils import quiet_import; quiet_import.install(keras=False)\n"
        "import tensorflow as tf, tensorflow_text\n"
        "one = tensorflow_text.normalize_utf8(['\u2460'], 'NFKC')\n"
        "print('keras' in sys.modules, one.numpy())\n"
        "print(tf.keras.layers.Dense(3)(tf.ones([2, 4])).shape)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False [b'1']\n(2, 3)\n", done.stderr


def test_a_failing_import_is_shown():
    program = (
        "import sys; from official.utils import quiet_import; quiet_import.install();"
        "sys.modules['numpy'] = None\n"
        "try:\n    import tensorflow\nexcept ImportError:\n    print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n", done.stderr


def test_what_official_load_imports():
    """Nothing for metrics and plots, and no notices; of the environment it sets their level."""
    program = (
        "import os, sys; before = dict(os.environ); import official\n"
        "try:\n    official.load('missing')\n"
        "except official.utils.errors.UserError as error:\n    print(error)\n"
        "unwanted = {'sklearn', 'matplotlib', 'scipy.stats'}\n"
        "print(unwanted & sys.modules.keys(), 'keras' in sys.modules)\n"
        "level = os.environ.get('TF_CPP_MIN_LOG_LEVEL')\n"
        "print(before.items() <= os.environ.items(), level)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    refused, imported, environment = done.stdout.splitlines()
    assert refused.startswith("missing: not a model folder"), done.stderr
    assert imported == "set() True" and environment == "True 3"
    assert "oneDNN" not in done.stderr
