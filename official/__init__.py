"""Encoder Garden: pretrained text encoders on TensorFlow 2 and Keras 3."""
