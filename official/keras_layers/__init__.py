"""The encoders as Keras layers, with their configs.

Keras knows the layers of saved models by name once this module is imported:
`import official.keras_layers` comes before `keras.models.load_model`. It runs on every backend.
`TextPreprocessor` needs TensorFlow beside another backend, and is left out where there is none.
"""

import importlib.util

from official.config.encoders import (
    BilmConfig,
    EncoderDecoderConfig,
    StaticConfig,
    TransformerConfig,
    TransformerXLConfig,
)
from official.keras_layers.layouts import DeviceWeights, device_weights, layout_map
from official.modeling.encoders.bilm import Encoder as BilmEncoder
from official.modeling.encoders.encoder_decoder import Encoder as EncoderDecoder
from official.modeling.encoders.static import Encoder as StaticEncoder
from official.modeling.encoders.transformer import Encoder as TransformerEncoder
from official.modeling.encoders.transformer_xl import Encoder as TransformerXLEncoder
from official.modeling.layers.random import Draws

__all__ = [
    "BilmConfig",
    "BilmEncoder",
    "DeviceWeights",
    "Draws",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "StaticConfig",
    "StaticEncoder",
    "TransformerConfig",
    "TransformerEncoder",
    "TransformerXLConfig",
    "TransformerXLEncoder",
    "device_weights",
    "layout_map",
]

if importlib.util.find_spec("tensorflow_text") is not None:
    from official.keras_layers.text import TextPreprocessor

    __all__ += ["TextPreprocessor"]
