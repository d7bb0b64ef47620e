"""GPT-2: the names of its tensors in Hugging Face's files.

Its matrices are [in, out], and queries, keys and values are one matrix, as in our variables. The
head is the token table and has no other tensors.
"""

from collections.abc import Mapping
from typing import Any

from official.config.encoders import TransformerConfig
from official.conversion.heads import CausalLM, table
from official.conversion.mapping import Row, norm
from official.conversion.system import BOUNDS, ENDS, FORM, EncoderKeys, System

_LAYER_MATRICES = {
    "attention/query_key_value": "attn.c_attn",
    "attention/output": "attn.c_proj",
    "feed_forward/inner": "mlp.c_fc",
    "feed_forward/outer": "mlp.c_proj",
}
_LAYER_NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = [
        Row("encoder/embeddings/token_embedding/table", ("transformer.wte.weight",)),
        Row("encoder/embeddings/position_embedding/table", ("transformer.wpe.weight",)),
        *norm("encoder/final_norm", "transformer.ln_f"),
    ]
    for i in range(encoder.num_layers):
        ours, theirs = f"encoder/layer_{i}", f"transformer.h.{i}"
        for path, name in _LAYER_MATRICES.items():
            rows.append(Row(f"{ours}/{path}/kernel", (f"{theirs}.{name}.weight",)))
            rows.append(Row(f"{ours}/{path}/bias", (f"{theirs}.{name}.bias",)))
        for path, name in _LAYER_NORMS.items():
            rows += norm(f"{ours}/{path}", f"{theirs}.{name}")
    return rows


def _more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    rates = [config.get(key, config["resid_pdrop"]) for key in ("embd_pdrop", "resid_pdrop")]
    if rates[0] != rates[1]:
        raise ValueError(
            f"embd_pdrop: {rates[0]!r} is not supported with resid_pdrop: {rates[1]!r}: this "
            "encoder has one rate for both"
        )
    return {"intermediate_size": config.get("n_inner") or 4 * config["n_embd"]}


def _more_keys(encoder: TransformerConfig) -> dict[str, Any]:
    usual = encoder.intermediate_size == 4 * encoder.hidden_size
    inner = None if usual else encoder.intermediate_size
    return {"n_inner": inner, "embd_pdrop": encoder.dropout}


SYSTEM = System(
    model_type="gpt2",
    encoder=EncoderKeys(
        title="a GPT-2",
        form={
            **FORM,
            "norm": "pre",
            "causal": True,
            "pooled_position": "last",
            "segment_types": 0,
        },
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "n_embd",
            "num_layers": "n_layer",
            "num_heads": "n_head",
            "max_positions": "n_positions",
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "initializer_range": "initializer_range",
        },
        more_fields=_more_fields,
        more_keys=_more_keys,
        activation="activation_function",
        epsilon="layer_norm_epsilon",
        only={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
            "tie_word_embeddings": True,
        },
        also={},
    ),
    prefix="transformer.",
    encoder_rows=_encoder_rows,
    mark=lambda encoder: encoder.causal,
    frames=False,
    heads=table(CausalLM(architecture="GPT2LMHeadModel")),
    architectures={frozenset(): "GPT2Model"},
    bounds=BOUNDS,
    ends=ENDS,
    aliases={"lm_head.weight": "transformer.wte.weight"},
    bare=("wte.", "wpe.", "h.", "ln_f."),
    buffers=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
    vocabulary="vocab.json",
    segments={"format": "blocks"},
    max_length=1024,
)
