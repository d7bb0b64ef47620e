"""Makes models of transformers' TensorFlow classes: PARENT [SUFFIX], a folder of it for each.

A folder has what `save_pretrained` writes, `keras` (`tf_model.h5`) and `safe` (model.safetensors),
`inputs.npz` and, of the class on these inputs, `outputs.npz`. All weights are random.
"""

import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import transformers  # noqa: E402

LENGTH = 9
SIZES = {
    "vocab_size": 61,
    "hidden_size": 15,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "max_position_embeddings": 13,
}
DISTIL = {"vocab_size": 61, "dim": 15, "n_layers": 2, "n_heads": 3, "hidden_dim": 22}
DISTIL |= {"max_position_embeddings": 13}
XLNET = {"vocab_size": 61, "d_model": 18, "n_layer": 2, "n_head": 3, "d_inner": 23, "mem_len": None}
GPT2 = {"vocab_size": 259, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
T5 = {"vocab_size": 133, "d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 3}
TRANSFO_XL = {"vocab_size": 61, "cutoffs": [20, 40], "d_model": 12, "d_embed": 12, "n_head": 3}
TRANSFO_XL |= {"d_head": 4, "d_inner": 20, "n_layer": 2, "div_val": 2, "mem_len": 4}
TRANSFO_XL |= {"clamp_len": 12, "same_length": False}
ROBERTA = {**SIZES, "vocab_size": 277, "type_vocab_size": 1}
ALBERT, ELECTRA = {**SIZES, "embedding_size": 7}, {**SIZES, "embedding_size": 10}
LABELS = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}
_TASKS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
_FAMILIES = {
    "Bert": (SIZES, ("Model", "ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction")),
    "Roberta": (ROBERTA, ("Model", "ForMaskedLM")),
    "Albert": (ALBERT, ("Model", "ForPreTraining", "ForMaskedLM")),
    "Electra": (ELECTRA, ("Model", "ForPreTraining", "ForMaskedLM")),
    "DistilBert": (DISTIL, ("Model", "ForMaskedLM")),
    "XLNet": (XLNET, ("Model", "LMHeadModel")),
}
CASES = {
    f"TF{family}{kind}": sizes
    for family, (sizes, kinds) in _FAMILIES.items()
    for kind in (*kinds, *(f"For{task}" for task in _TASKS))
    if (family, kind) != ("XLNet", "ForQuestionAnswering")
} | {
    "TFXLNetForQuestionAnsweringSimple": XLNET,
    "TFGPT2Model": GPT2,
    "TFGPT2LMHeadModel": GPT2,
    "TFT5ForConditionalGeneration": T5,
    "TFT5ForConditionalGeneration.gated": {
        **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    },
    "TFT5EncoderModel": T5,
    "TFTransfoXLModel": TRANSFO_XL,
}  # fmt: skip

# Classes that are saved once more, with shorter names.
BUILT = {
    *("TFBertForPreTraining", "TFAlbertForPreTraining", "TFElectraForMultipleChoice"),
    *("TFRobertaForSequenceClassification", "TFXLNetForTokenClassification", "TFGPT2LMHeadModel"),
    *("TFDistilBertForMaskedLM", "TFT5ForConditionalGeneration", "TFT5EncoderModel"),
}


def inputs_of(name, config, rng):
    """Rows of different lengths, or rows of choices; an XLNet has its padding on the left."""
    xlnet = name.startswith("TFXLNet")
    shape = (2, 3) if "MultipleChoice" in name else (3,)
    length = rng.integers(5, LENGTH + 1, (*shape, 1))
    length.reshape(-1)[0] = LENGTH
    place = np.arange(LENGTH)
    real = place >= LENGTH - length if xlnet else place < length
    pad = config.pad_token_id or 0
    ids = np.where(real, rng.integers(5, 61, real.shape), pad).astype(np.int32)
    if name.startswith("TFTransfoXL"):
        return {"input_ids": rng.integers(5, 61, (3, LENGTH)).astype(np.int32)}
    inputs = {"input_ids": ids, "attention_mask": real.astype(np.int32)}
    if config.model_type in ("bert", "albert", "electra", "xlnet"):
        inputs["token_type_ids"] = rng.integers(0, 2, real.shape).astype(np.int32)
    if name.startswith("TFT5For"):
        inputs["decoder_input_ids"] = rng.integers(1, 61, (3, 6)).astype(np.int32)
    return inputs


def main(parent, suffix=""):
    rng = np.random.default_rng(0)
    for name, sizes in CASES.items():
        if not name.endswith(suffix):
            continue
        cls = getattr(transformers, name.partition(".")[0])
        labels = LABELS if name.endswith(("SequenceClassification", "TokenClassification")) else {}
        model = cls(cls.config_class(**sizes, **labels))
        inputs = inputs_of(name, model.config, rng)
        model(inputs)
        for variable in model.weights:
            ones = 1.0 if "gamma" in variable.name or "layer_norm/weight" in variable.name else 0.0
            variable.assign(ones + 0.25 * rng.standard_normal(variable.shape))
        asked = {key: tf.constant(value) for key, value in inputs.items()}
        if name.startswith("TFTransfoXL"):  # which reads zeros for a memory that is not given
            asked["mems"] = [tf.zeros([0, 3, sizes["d_model"]])] * sizes["n_layer"]
        found = {k: value.numpy() for k, value in model(asked).items() if tf.is_tensor(value)}
        folder = Path(parent) / name
        model.save_pretrained(folder / "keras", safe_serialization=False)
        model.save_pretrained(folder / "safe", safe_serialization=True)
        if name in BUILT:
            again = cls(model.config)
            again.build()  # without the name of the model before those of its variables
            again.set_weights(model.get_weights())
            again.save_pretrained(folder / "built", safe_serialization=True)
        np.savez(folder / "inputs.npz", **inputs)
        np.savez(folder / "outputs.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
