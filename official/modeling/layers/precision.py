"""The dtypes of computations."""

import keras


def accurate(dtype):
    """Returns the dtype of sums, softmax, norms and losses: float64 for float64, else float32."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
