"""Models in use: from Python (`official.load`), and as a SavedModel that takes raw text."""

# The types in which an export stores weights and computes products.
PRECISIONS = ("float32", "bfloat16", "int8")

# What computes the vectors of texts.
RUNTIMES = ("tensorflow", "litert")

# The types of the numbers of stored vectors.
DTYPES = ("float32", "float16", "bfloat16", "int8", "bits")
