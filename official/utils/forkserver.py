"""The first import of the process that workers are forked from.

It silences TensorFlow, leaves Keras out, and pauses the garbage collector, which would walk through
what is imported. It imports the tokenizers, which every worker needs, so that workers share their
memory.
"""

import gc
import importlib

from official.utils import quiet_import

quiet_import.install(keras=False)
gc.disable()
importlib.import_module("official.tokenizers.loading")
