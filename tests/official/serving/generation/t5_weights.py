"""The variables of an encoder-decoder from the weights of a T5 of transformers."""

import numpy as np

from official.config.encoders import EncoderDecoderConfig


def encoder_config(config):
    """The encoder of a `config.json`, for the settings that the golden files use."""
    gated = config["feed_forward_proj"].startswith("gated-")
    return EncoderDecoderConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["d_model"],
        num_layers=config["num_layers"],
        decoder_layers=config["num_decoder_layers"],
        num_heads=config["num_heads"],
        head_size=config["d_kv"],
        intermediate_size=config["d_ff"],
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        relative_buckets=config["relative_attention_num_buckets"],
        relative_max_distance=config["relative_attention_max_distance"],
        tied_output=config.get("tie_word_embeddings", True),
    )


def assign(model, weights):
    """Assigns all variables of a model with the objective `seq2seq_lm`."""
    values = {"encoder/token_embedding/table": weights["shared.weight"]}
    if "lm_head.weight" in weights:
        values["seq2seq_lm/output/kernel"] = weights["lm_head.weight"].T
    for stack, layers in (("encoder", model.encoder.config.num_layers),
                          ("decoder", model.encoder.config.decoder_layers)):  # fmt: skip
        path = f"encoder/{stack}"
        values[f"{path}/final_norm/scale"] = weights[f"{stack}.final_layer_norm.weight"]
        first = f"{stack}.block.0.layer.0.SelfAttention"
        values[f"{path}/relative_bias/table"] = weights[f"{first}.relative_attention_bias.weight"]
        for i in range(layers):
            values |= _layer(weights, f"{stack}.block.{i}.layer", f"{path}/layer_{i}")
    variables = model.variables_by_path()
    assert variables.keys() == values.keys()
    for name, variable in variables.items():
        variable.assign(values[name])


def _layer(weights, name, path):
    """The variables of one layer."""

    def joined(number, kind, *letters):
        kernels = [weights[f"{name}.{number}.{kind}.{letter}.weight"].T for letter in letters]
        return np.concatenate(kernels, axis=1)

    values = {
        f"{path}/attention/query_key_value/kernel": joined(0, "SelfAttention", *"qkv"),
        f"{path}/attention/output/kernel": joined(0, "SelfAttention", "o"),
        f"{path}/attention_norm/scale": weights[f"{name}.0.layer_norm.weight"],
    }
    last = 1
    if f"{name}.2.layer_norm.weight" in weights:
        last = 2
        values |= {
            f"{path}/cross_attention/query/kernel": joined(1, "EncDecAttention", "q"),
            f"{path}/cross_attention/key_value/kernel": joined(1, "EncDecAttention", *"kv"),
            f"{path}/cross_attention/output/kernel": joined(1, "EncDecAttention", "o"),
            f"{path}/cross_attention_norm/scale": weights[f"{name}.1.layer_norm.weight"],
        }
    kind = "DenseReluDense"
    inner = {"inner": "wi"}
    if f"{name}.{last}.{kind}.wi_0.weight" in weights:
        inner = {"gate": "wi_0", "inner": "wi_1"}
    for ours, theirs in {**inner, "outer": "wo"}.items():
        values[f"{path}/feed_forward/{ours}/kernel"] = joined(last, kind, theirs)
    values[f"{path}/feed_forward_norm/scale"] = weights[f"{name}.{last}.layer_norm.weight"]
    return values
