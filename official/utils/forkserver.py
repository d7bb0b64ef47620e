"""The first import of the process that workers are forked from.

It silences TensorFlow, leaves Keras out, and pauses the garbage collector, which would walk through
what is imported after it: the module of the workers' `setup`.
"""

import gc

from official.utils import quiet_import

quiet_import.install(keras=False)
gc.disable()
