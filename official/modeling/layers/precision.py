"""Which number type a computation runs in."""

import keras


def accurate(dtype):
    """The type for sums, softmax, norms and losses: float32 at least, float64 under float64."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
