"""XLNet: the names of its tensors in Hugging Face's files and in the TF1 release.

In the files, heads have a separate axis: [D, N, H]. The release stores each kind of bias, and the
segment embeddings, in one tensor for all layers. The direction of the halves of a batch (`bi_data`)
is a property of the batch in this project.

Fine-tuned checkpoints of the release lack `mask_emb`, the input of the query stream. Such an
encoder has no query stream.

Only the release stores biases that all layers share (`untie_r: false`) once. The files of
transformers always contain the biases of each layer, and so does a model read from them.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official.config.encoders import TransformerXLConfig
from official.conversion.bert import task_heads
from official.conversion.heads import ConditionalSpanAnswer, PermutationLM, table
from official.conversion.mapping import LazyTensors, Row, linear, norm
from official.conversion.system import EncoderKeys, System
from official.tokenizers import Tokenizer
from official.utils.errors import UserError

_QUERY_START = "transformer.mask_emb"
# `summary_type` of transformers → our `pooled_position`. `first` is the first token of the text,
# since [CLS] is the last token.
_POOLED = {"last": "last", "first": "first_of_text"}
_SUMMARIES = {ours: theirs for theirs, ours in _POOLED.items()}
# The biases of an attention layer, in the encoder and in files.
BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias"}

# The last layer of a task in the release.
_HEAD = re.compile(r"^(model/(classification|regression)_[^/]+/logit|logits/dense)/")
# Names in transformers → names in the TF1 release.
_TF1 = {
    r"^transformer\.": "model.transformer.",
    r"word_embedding\.weight$": "word_embedding.lookup_table",
    r"mask_emb$": "mask_emb.mask_emb",
    r"layer\.(\d+)\.": r"layer_\1.",
    r"(layer_norm|LayerNorm)\.weight$": "LayerNorm.gamma",
    r"(layer_norm|LayerNorm)\.bias$": "LayerNorm.beta",
    r"\.([qkvro])$": r".\1.kernel",
    r"layer_\d+\.rel_attn\.(r_._bias|seg_embed)$": r"\1",
    r"^sequence_summary": "model.sequnece_summary",  # The release spells it so.
    r"^lm_loss": "model.lm_loss",
    r"^logits_proj": "model.logit",  # See `OneHead`.
    r"\.weight$": ".kernel",
}


def encoder_rows(encoder: TransformerXLConfig) -> list[Row]:
    """Returns the rows of the tables and the layers."""
    size, heads = encoder.hidden_size, encoder.num_heads
    axes = (size, heads, encoder.head_size or size // heads)
    rows = [Row("encoder/embeddings/token_embedding/table", ("transformer.word_embedding.weight",))]
    if encoder.query_stream:
        rows.append(Row("encoder/embeddings/query_start", (_QUERY_START,), axes=(1, 1, size)))
    biases = "encoder/layer_{}/attention/biases" if encoder.untie_biases else "encoder/biases"
    for i in range(encoder.num_layers):
        ours, theirs = f"encoder/layer_{i}", f"transformer.layer.{i}"
        attention = f"{theirs}.rel_attn"
        qkv = tuple(f"{attention}.{name}" for name in "qkv")
        rows += [
            Row(f"{ours}/attention/query_key_value/kernel", qkv, axes=axes),
            Row(f"{ours}/attention/position_key/kernel", (f"{attention}.r",), axes=axes),
            Row(f"{ours}/attention/output/kernel", (f"{attention}.o",), transposed=True, axes=axes),
            Row(f"{ours}/attention/segment_embedding", (f"{attention}.seg_embed",)),
            *(
                Row(f"{biases.format(i)}/{path}", (f"{attention}.{name}",))
                for path, name in BIASES.items()
            ),
            *norm(f"{ours}/attention_norm", f"{attention}.layer_norm"),
            *linear(f"{ours}/feed_forward/inner", f"{theirs}.ff.layer_1"),
            *linear(f"{ours}/feed_forward/outer", f"{theirs}.ff.layer_2"),
            *norm(f"{ours}/feed_forward_norm", f"{theirs}.ff.layer_norm"),
        ]
    return rows


def tf1_row(row: Row) -> Row:
    """Returns the row with the names of the release, whose kernels are [in, out], like ours."""
    stacked = re.search(r"layer\.(\d+)\..*\.(?:r_._bias|seg_embed)$", row.names[0])
    shared = row.path.startswith("encoder/biases/")
    layer = int(stacked[1]) if stacked and not shared else None
    # The kernel of the output is also [D, N, H].
    transposed = row.transposed and row.axes is not None
    names = tuple(map(_tf1_name, row.names))
    return dataclasses.replace(row, names=names, transposed=transposed, layer=layer)


def _tf1_name(name: str) -> str:
    for pattern, replacement in _TF1.items():
        name = re.sub(pattern, replacement, name)
    return name.replace(".", "/")


def more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of our encoder that have no key of their own in config.json."""
    memory = config.get("mem_len") or 0
    return {
        # XLNet has one dropout rate.
        "attention_dropout": config["dropout"],
        "inner_dropout": config["dropout"],
        "memory_length": memory,
        "reuse_length": (config.get("reuse_len") or 0) if memory else 0,
        "clamp_length": max(config.get("clamp_len", -1), 0),
        "attention": config.get("attn_type", "bi"),
        "pooled_position": _pooled(config.get("summary_type", "last")),
        "untie_biases": not config.get("shared_biases", False),
    }


def _pooled(summary: Any) -> str:
    """Returns the pooled position of a `summary_type`.

    Raises:
      ValueError: our encoder has no such position.
    """
    if summary not in _POOLED:
        known = " or ".join(map(repr, _POOLED))
        raise ValueError(f"summary_type: {summary!r} is not supported, only {known}")
    return _POOLED[summary]


def more_keys(encoder: TransformerXLConfig) -> dict[str, Any]:
    """Returns the keys of config.json that depend on several fields of our encoder.

    Raises:
      UserError: the size of heads or the position of [CLS] differs from XLNet's.
    """
    if encoder.pooled_position not in _SUMMARIES:
        raise UserError(
            f"encoder.pooled_position: {encoder.pooled_position} puts [CLS] before the text, but "
            "an XLNet of transformers has it at the end: train with pooled_position: last, or "
            "with first_of_text"
        )
    size = encoder.hidden_size // encoder.num_heads
    if encoder.head_size not in (None, size):
        raise UserError(
            f"encoder.head_size: an XLNet has {size} (hidden_size / num_heads), not "
            f"{encoder.head_size}"
        )
    return {
        "mem_len": encoder.memory_length or None,
        "reuse_len": encoder.reuse_length or None,
        "clamp_len": encoder.clamp_length or -1,
        "attn_type": encoder.attention,
        "summary_type": _SUMMARIES[encoder.pooled_position],
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "bi_data": False,
        "same_length": False,
        "untie_r": encoder.untie_biases,
    }


class OneHead(LazyTensors):
    """The tensors of a release, with one name for the last layer of all tasks.

    In run_classifier.py the name contains the task (`model/classification_mnli/logit/kernel`, or
    `regression_sts-b`). In run_race.py it is `logits/dense/kernel`.
    """

    _index: Mapping[str, str]

    def __init__(self, tensors: LazyTensors):
        """Wraps the tensors of a checkpoint.

        Raises:
          UserError: the checkpoint has the heads of several tasks.
        """
        self.source = tensors.source
        self._tensors = tensors
        self._index = {_HEAD.sub("model/logit/", name): name for name in tensors}
        if len(self._index) < len(tensors):
            names = sorted(name for name in tensors if _HEAD.match(name))
            raise UserError(
                f"{self.source} has the heads of several tasks ({', '.join(names)}), but a model "
                "can have only one: save a checkpoint without the others"
            )

    def described(self) -> dict[str, Any]:
        """Returns the key `architectures` of config.json for the head of run_race.py."""
        if "logits/dense/kernel" not in self._tensors:
            return {}
        return {"architectures": [SYSTEM.heads["multiple_choice"].architecture]}

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        return self._tensors[self._index[name]]


def release_config(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a config.json for the xlnet_config.json of the release.

    Raises:
      UserError: `source` has a value that config.json cannot express.
    """
    heads = config.get("n_head") or 1
    if "d_head" in config and config["d_head"] * heads != config.get("d_model"):
        raise UserError(
            f"{source}: d_head: {config['d_head']} is not supported, only d_model / n_head = "
            f"{config.get('d_model')} / {heads}"
        )
    settings = {"dropout": 0.1, "initializer_range": 0.02, **config}
    settings["shared_biases"] = not config.get("untie_r", True)
    if "n_token" in config:
        settings["vocab_size"] = config["n_token"]
    return settings


class Xlnet(System):
    """XLNet; its tokenizer names `bos_token` and `eos_token` differently from config.json."""

    @override
    def ends_of(self, tokenizer: Tokenizer) -> dict[str, str]:
        pieces = {"bos_token": "<s>", "eos_token": "</s>"}
        return {key: piece for key, piece in pieces.items() if piece in tokenizer.pieces}


SYSTEM = Xlnet(
    model_type="xlnet",
    encoder=EncoderKeys(
        title="an XLNet",
        encoder_type=TransformerXLConfig,
        form={"segment_types": 2, "scale_embeddings": False, "same_length": False},
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "num_layers": "n_layer",
            "num_heads": "n_head",
            "intermediate_size": "d_inner",
            "dropout": "dropout",
            "initializer_range": "initializer_range",
        },
        more_fields=more_fields,
        more_keys=more_keys,
        activation="ff_activation",
        only={
            "same_length": False,
            "summary_use_proj": True,
            "summary_activation": "tanh",
            "tie_word_embeddings": True,
        },
        also={},
    ),
    prefix="transformer.",
    encoder_rows=encoder_rows,
    mark=lambda encoder: True,
    heads=table(
        PermutationLM([Row("permutation_lm/output_bias", ("lm_loss.bias",))], "XLNetLMHeadModel"),
        *task_heads(
            "XLNet",
            "logits_proj",
            hidden="sequence_summary.summary",
            span="QuestionAnsweringSimple",
        ),
        ConditionalSpanAnswer(
            [
                *linear("span_answer/start", "start_logits.dense"),
                *linear("span_answer/end_hidden", "end_logits.dense_0"),
                *norm("span_answer/end_norm", "end_logits.LayerNorm"),
                *linear("span_answer/end", "end_logits.dense_1"),
                *linear("span_answer/answerable_hidden", "answer_class.dense_0"),
                # The last layer has no bias.
                *linear("span_answer/answerable", "answer_class.dense_1")[:1],
            ],
            "XLNetForQuestionAnswering",
        ),
    ),
    architectures={frozenset(): "XLNetModel"},
    present={"query_stream": _QUERY_START},
    dropout="summary_last_dropout",
    aliases={"lm_loss.weight": "transformer.word_embedding.weight"},
    bare=("word_embedding.", "mask_emb", "layer."),
    vocabulary="spiece.model",
    tokenizer_class="XLNetTokenizer",
    typed_release=True,
    tf1_row=tf1_row,
)
