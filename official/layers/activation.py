"""The activation functions that a config can name."""

import keras
from keras import ops

ACTIVATIONS = {
    # The tanh form of the releases of BERT, ALBERT and XLNet; the erf form of the PyTorch ports.
    "gelu_tanh": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu": lambda x: keras.activations.gelu(x, approximate=False),
    "relu": ops.relu,
}
