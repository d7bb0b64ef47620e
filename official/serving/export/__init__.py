"""A model folder as a SavedModel, for LiteRT and for ONNX."""
