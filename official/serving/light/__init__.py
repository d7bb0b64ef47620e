"""A model for LiteRT with its tokenizer, run by `ai-edge-litert` and `tokenizers` alone.

No module of this package but `writing` imports TensorFlow: a process has its first vector before
TensorFlow would be imported, in a fraction of the memory.
"""
