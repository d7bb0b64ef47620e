"""The flags of the modes that compute vectors."""

from official.serving import PRECISIONS, RUNTIMES
from official.utils.flag_table import Flag

_FOLDER = "Default: that of embedding.json in the model folder"
PRECISION = Flag(
    "precision",
    str,
    "float32",
    "how the encoder computes. bfloat16: on CPUs with bfloat16 products. int8: its matrices "
    "are 8-bit integers.",
    values=PRECISIONS,
)
RUNTIME = Flag(
    "runtime",
    str,
    "tensorflow",
    "what computes the vectors. litert: LiteRT, in --precision float32 or int8, in one process "
    "with all threads of the CPU. It is the fastest in int8. The model is converted first, "
    "which takes seconds; what was converted is kept, and without --pieces or --vectors the next "
    "command starts without TensorFlow.",
    values=RUNTIMES,
)
FLAGS = (
    Flag(
        "pooling",
        str,
        None,
        "mean, max, mean_sqrt_len, weighted_mean, first or last over the tokens, or pooled; "
        f"several with commas are joined. {_FOLDER}, or mean.",
    ),
    Flag(
        "normalize",
        bool,
        None,
        f"whether vectors are divided by their lengths. {_FOLDER}, or no.",
    ),
    Flag(
        "max_length",
        int,
        None,
        "texts are cut to this number of tokens. Default: the length of the model.",
        least=4,
    ),
    Flag(
        "sparse",
        bool,
        None,
        "whether the vectors have a weight for each word, of the objective sparse_embedding or of "
        "a masked LM. Default: whether the model has this objective.",
    ),
    Flag(
        "max_active_dims",
        int,
        None,
        "of sparse vectors: the most words, those of the largest weights. Default: that of "
        "embedding.json in the model folder, or all.",
        least=1,
    ),
    PRECISION,
    RUNTIME,
)
