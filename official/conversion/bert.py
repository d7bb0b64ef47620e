"""BERT and the systems with its network: the names of their tensors in other tools' files.

* BERT, in Hugging Face's files and in the TF1 release. Label 1 of the next-sentence head means
  "random" in all formats.
  With the `position_embedding_type` relative_key or relative_key_query (transformers 4), files have
  a table of distances in each layer, and a table of positions that no layer reads.
* RoBERTa, XLM-RoBERTa and CamemBERT are one network with different vocabularies. The position table
  has additional rows, as many as the id of the padding token plus one (2 in the releases). The
  hidden layer of the classification head is our pooler.
* MPNet is a RoBERTa without segments, whose layers share biases of relative positions in T5's
  buckets.
* DistilBERT is a BERT without segments. The hidden layer of heads that read the first position is
  our pooler, with a ReLU. With other heads there is no pooler.
* ERNIE is a BERT with embeddings of tasks. transformers adds the embedding of task 0 to every token
  by default. Here this embedding is added to the position table. The files that are written have no
  embeddings of tasks (`use_task_id: false`).
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official import config as configs
from official.config.encoders import TransformerConfig
from official.conversion.heads import (
    Classification,
    Head,
    MaskedLM,
    MultiLabel,
    MultipleChoice,
    NextSentence,
    Ranking,
    Regression,
    SpanAnswer,
    TokenClassification,
    table,
)
from official.conversion.mapping import LazyTensors, Row, layer_rows, linear, norm
from official.conversion.system import (
    BOUNDS,
    ENDS,
    FORM,
    ONLY,
    SIZES,
    EncoderKeys,
    FineTuning,
    System,
)
from official.conversion.weight_files import Tensors
from official.tokenizers import SentencePiece, Tokenizer, WordPiece, file_formats
from official.tokenizers.pair_forms import SEPARATORS
from official.tokenizers.sentencepiece import FAIRSEQ, FAIRSEQ_FILE
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# Paths of our variables → tensors of Hugging Face's files, without the prefix of the system.
_EMBEDDINGS = {
    "token_embedding/table": "word_embeddings.weight",
    "position_embedding/table": "position_embeddings.weight",
    "segment_embedding/table": "token_type_embeddings.weight",
    "norm/scale": "LayerNorm.weight",
    "norm/offset": "LayerNorm.bias",
}
# The same within a layer: affine maps, and norms.
_LAYER_MATRICES = {
    "attention/query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention/output": ("attention.output.dense",),
    "feed_forward/inner": ("intermediate.dense",),
    "feed_forward/outer": ("output.dense",),
}
_LAYER_NORMS = {
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward_norm": "output.LayerNorm",
}


# `position_embedding_type` of BERT in transformers 4 → our positions.
_POSITION_TYPES = {
    "absolute": "learned",
    "relative_key": "relative_key",
    "relative_key_query": "relative_key_query",
}
_DISTANCES = "attention.self.distance_embedding.weight"


def embedding_rows(prefix: str, segments: bool = True, positions: bool = True) -> list[Row]:
    """Returns the rows of the embedding tables and their norm."""
    return [
        Row(f"encoder/embeddings/{path}", (f"{prefix}embeddings.{name}",))
        for path, name in _EMBEDDINGS.items()
        if (segments or not path.startswith("segment_"))
        and (positions or not path.startswith("position_"))
    ]


def encoder_rows(
    prefix: str,
    stem: str = "encoder.layer",
    matrices: Mapping[str, Iterable[str]] = _LAYER_MATRICES,
    norms: Mapping[str, str] = _LAYER_NORMS,
    segments: bool = True,
) -> Callable[[TransformerConfig], list[Row]]:
    """Returns a function that makes the rows of embeddings and layers.

    Args:
      prefix: the prefix of the encoder's tensors.
      stem: after the prefix, the names of the tensors of layer i begin with this and `.i`.
      matrices: the names of the affine maps of a layer (see `mapping.layer_rows`).
      norms: the names of its norms.
      segments: whether there are segment embeddings.
    """

    def rows(encoder: TransformerConfig) -> list[Row]:
        layers = layer_rows(encoder.num_layers, f"{prefix}{stem}", matrices, norms)
        return embedding_rows(prefix, segments, encoder.positions == "learned") + layers

    return rows


def masked_lm_rows(transform: str, norm_name: str, bias: str) -> list[Row]:
    """Returns the rows of a masked LM.

    Args:
      transform: the name of the hidden layer.
      norm_name: the name of the norm after it.
      bias: the name of the output bias.
    """
    return [
        *linear("masked_lm/transform", transform),
        *norm("masked_lm/norm", norm_name),
        Row("masked_lm/output_bias", (bias,)),
    ]


def task_heads(
    model: str,
    name: str,
    *,
    hidden: str | None = None,
    activation: str | None = None,
    choice: MultipleChoice | None = None,
    span: str = "QuestionAnswering",
) -> tuple[Head, ...]:
    """Returns the heads of tasks.

    Args:
      model: the prefix of the names of the classes of transformers.
      name: the last layer of classification, regression and multiple choice.
      hidden: the layer before `name` that is our pooler; None = the pooler of the system.
      activation: the activation of the pooler with these heads; None = that of the system.
      choice: the head of multiple choice, if its names differ.
      span: the suffix of the name of the class for span answers.
    """
    texts = f"{model}ForSequenceClassification"
    pooler: dict[str, Any] = {"pooler": hidden, "pooler_activation": activation}
    return (
        Classification(linear("classification/output", name), texts, **pooler),
        MultiLabel(linear("multi_label/output", name), texts, **pooler),
        Ranking(linear("ranking/output", name), texts, **pooler),
        Regression(linear("regression/output", name), texts, **pooler),
        choice
        or MultipleChoice(
            linear("multiple_choice/output", name), f"{model}ForMultipleChoice", **pooler
        ),
        SpanAnswer(linear("span_answer/output", "qa_outputs"), f"{model}For{span}", **pooler),
        TokenClassification(
            linear("token_classification/output", "classifier"), f"{model}ForTokenClassification"
        ),
    )


# Prefixes of heads that the release stores as two variables, `output_weights` and `output_bias`:
# the next-sentence head, and the heads of run_classifier.py and run_squad.py.
_TF1_BARE = {
    "cls.seq_relationship": "cls/seq_relationship/",
    "classifier": "",
    "qa_outputs": "cls/squad/",
}


def tf1_name(name: str) -> str:
    """Returns the name in the release of a tensor of transformers.

    For example, `bert.encoder.layer.0.output.dense.weight` becomes
    `bert/encoder/layer_0/output/dense/kernel`.
    """
    if name == "cls.predictions.bias":
        return "cls/predictions/output_bias"
    scope, _, kind = name.rpartition(".")
    if scope in _TF1_BARE:
        return f"{_TF1_BARE[scope]}output_{'weights' if kind == 'weight' else kind}"
    stem, _, kind = name.replace("encoder.layer.", "encoder.layer_").rpartition(".")
    layer = stem.rpartition(".")[2]
    if layer.startswith("LayerNorm"):
        kind = {"weight": "gamma", "bias": "beta"}[kind]
    elif layer.endswith("_embeddings"):
        return stem.replace(".", "/")
    else:
        kind = {"weight": "kernel", "bias": "bias"}[kind]
    return f"{stem.replace('.', '/')}/{kind}"


def tf1_row(row: Row, name: Callable[[str], str] = tf1_name) -> Row:
    """Returns the row with the names of the release, whose kernels are [in, out], like ours."""
    # The matrices of these heads are [out, in].
    transposed = row.transposed and row.names[0].rpartition(".")[0] in _TF1_BARE
    return dataclasses.replace(row, names=tuple(map(name, row.names)), transposed=transposed)


def system(
    model_type: str,
    title: str,
    prefix: str,
    classes: str,
    kind: type[System] = System,
    **more: Any,
) -> System:
    """Returns the system of a network with BERT's names.

    Args:
      model_type: `model_type` of config.json.
      title: the name of the system, with its article.
      prefix: the prefix of the encoder's tensors.
      classes: the prefix of the names of the classes of transformers.
      kind: `System`, or a subclass.
      **more: other attributes of the system.
    """
    return kind(
        **{
            "model_type": model_type,
            "encoder": EncoderKeys(title=title),
            "prefix": prefix,
            "encoder_rows": encoder_rows(prefix),
            "pooler": "pooler.dense",
            "heads": table(
                MaskedLM(
                    masked_lm_rows(
                        "cls.predictions.transform.dense",
                        "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias",
                    ),
                    f"{classes}ForMaskedLM",
                ),
                NextSentence(
                    linear("next_sentence", "cls.seq_relationship"),
                    f"{classes}ForNextSentencePrediction",
                ),
                *task_heads(classes, "classifier"),
            ),
            "architectures": {
                frozenset(): f"{classes}Model",
                frozenset({"masked_lm", "next_sentence"}): f"{classes}ForPreTraining",
            },
            "aliases": {
                "cls.predictions.decoder.weight": f"{prefix}embeddings.word_embeddings.weight",
                "cls.predictions.decoder.bias": "cls.predictions.bias",
            },
            "buffers": (f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids"),
            **more,
        }
    )


class _RelativeKeys(LazyTensors):
    """The tensors of a file, without an unused position table if there are tables of distances."""

    def __init__(self, tensors: Tensors, source: str | os.PathLike):
        """Wraps tensors, and adds a note about an omitted position table."""
        self.source, self._tensors = source, tensors
        unread = _UNREAD if any(name.endswith(_DISTANCES) for name in tensors) else None
        self._index = dict.fromkeys(name for name in tensors if name != unread)
        if unread in tensors:
            tensors.notes.append(
                f"{unread} is left out: no layer reads it in a model with relative keys"
            )

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        return self._tensors[name]


@dataclasses.dataclass(frozen=True)
class Bert(System):
    """A BERT, with the three kinds of positions of transformers 4."""

    @override
    def keeps_positions(self, encoder: Any) -> bool:
        return encoder.positions in _POSITION_TYPES.values()

    @override
    def written(
        self, encoder: Any, heads: Collection[str], variables: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """See `System`; adds the unused position table that transformers requires."""
        tensors = super().written(encoder, heads, variables)
        if encoder.positions != "learned":
            unread = np.zeros((encoder.max_positions, encoder.hidden_size), np.float32)
            tensors[_UNREAD if heads else _UNREAD.removeprefix(self.prefix)] = unread
        return tensors


def _bert_rows(encoder: TransformerConfig) -> list[Row]:
    rows = encoder_rows("bert.")(encoder)
    if encoder.positions == "learned":
        return rows
    return rows + [
        Row(
            f"encoder/layer_{i}/attention/distance_embedding/table",
            (f"bert.encoder.layer.{i}.{_DISTANCES}",),
        )
        for i in range(encoder.num_layers)
    ]


def _position_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    name = config.get("position_embedding_type", "absolute")
    if name not in _POSITION_TYPES:
        known = ", ".join(_POSITION_TYPES)
        raise ValueError(f"position_embedding_type: {name!r} is not supported (known: {known})")
    return {"positions": _POSITION_TYPES[name]}


def _position_keys(encoder: TransformerConfig) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in _POSITION_TYPES.items()}
    return {"position_embedding_type": names[encoder.positions]}


_UNREAD = "bert.embeddings.position_embeddings.weight"
BERT = system(
    "bert",
    "a BERT",
    "bert.",
    "Bert",
    kind=Bert,
    encoder=EncoderKeys(
        title="a BERT",
        only={key: only for key, only in ONLY.items() if key != "position_embedding_type"},
        more_fields=_position_fields,
        more_keys=_position_keys,
        also={},
    ),
    encoder_rows=_bert_rows,
    tensors=_RelativeKeys,
    tf1_row=tf1_row,
)


def _roberta_heads(classes: str) -> dict[str, Head]:
    """Returns the heads of a RoBERTa or an MPNet."""
    return table(
        MaskedLM(
            masked_lm_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            f"{classes}ForMaskedLM",
            erf_gelu=True,
        ),
        *task_heads(
            classes,
            "classifier.out_proj",
            hidden="classifier.dense",
            choice=MultipleChoice(
                linear("multiple_choice/output", "classifier"), f"{classes}ForMultipleChoice"
            ),
        ),
    )


_ROBERTA_SETTINGS = FineTuning("roberta")


@dataclasses.dataclass(frozen=True)
class Roberta(System):
    """A RoBERTa; its kinds differ in the file of the vocabulary and in `unused_piece`."""

    @override
    def matches(self, config: configs.ResolvedConfig, tokenizer: Tokenizer | None = None) -> bool:
        pieces = tokenizer.pieces if isinstance(tokenizer, SentencePiece) else None
        file = ROBERTA.vocabulary if pieces is None else FAIRSEQ_FILE
        unused = pieces is not None and "<s>NOTUSED" in pieces
        same = (self.vocabulary, self.unused_piece) == (file, unused)
        return same and super().matches(config, tokenizer)


def _roberta(model_type: str, title: str, classes: str, vocabulary: str, **more: Any) -> System:
    return Roberta(
        model_type=model_type,
        encoder=EncoderKeys(title=title, padded_positions=True),
        prefix="roberta.",
        encoder_rows=encoder_rows("roberta."),
        mark=lambda encoder: encoder.position_offset > 0,
        finetune=_ROBERTA_SETTINGS,
        pooler="pooler.dense",
        heads=_roberta_heads(classes),
        architectures={frozenset(): f"{classes}Model"},
        aliases={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
        vocabulary=vocabulary,
        bounds=BOUNDS,
        ends=ENDS,
        segments={"format": "full_sentences"},
        corruption={"random_tokens": "non_special"},
        **more,
    )


ROBERTA = _roberta("roberta", "a RoBERTa", "Roberta", "vocab.json")
XLM = _roberta("xlm-roberta", "an XLM-RoBERTa", "XLMRoberta", FAIRSEQ_FILE)
CAMEMBERT = _roberta("camembert", "a CamemBERT", "Camembert", FAIRSEQ_FILE, unused_piece=True)


_MPNET_BUCKETS = 32  # transformers uses 32 whatever the config says
_MPNET_MATRICES = {
    "attention/query_key_value": tuple(f"attention.attn.{name}" for name in "qkv"),
    "attention/output": ("attention.attn.o",),
    "feed_forward/inner": ("intermediate.dense",),
    "feed_forward/outer": ("output.dense",),
}
_MPNET_NORMS = {"attention_norm": "attention.LayerNorm", "feed_forward_norm": "output.LayerNorm"}


def _mpnet_rows(encoder: TransformerConfig) -> list[Row]:
    names = encoder_rows("mpnet.", matrices=_MPNET_MATRICES, norms=_MPNET_NORMS, segments=False)
    bias = "mpnet.encoder.relative_attention_bias.weight"
    return [*names(encoder), Row("encoder/relative_bias/table", (bias,))]


@dataclasses.dataclass(frozen=True)
class Mpnet(System):
    """MPNet, whose releases have the special tokens of RoBERTa and the pieces of BERT."""

    @override
    def tokenizer_defaults(self, folder: AnyPath) -> dict[str, Any]:
        """See `System`.

        The vocabulary also has BERT's special tokens, of which only the unknown token is used. A
        folder that this project wrote names its special tokens in its settings.
        """
        defaults, vocabulary = super().tokenizer_defaults(folder), folder / WordPiece.FILE
        if not vocabulary.exists():
            return defaults
        if file_formats.FINGERPRINT in file_formats.read_settings(folder):
            return defaults
        pieces = set(file_formats.read_pieces(vocabulary))
        names = {**FAIRSEQ, "unk_token": file_formats.SPECIALS["unk_token"][0]}
        known = {key: name for key, name in names.items() if name in pieces}
        return {**defaults, **known, SEPARATORS: 2}


MPNET = Mpnet(
    model_type="mpnet",
    encoder=EncoderKeys(
        title="an MPNet",
        form={**FORM, "segment_types": 0, "relative_buckets": _MPNET_BUCKETS},
        sizes={ours: theirs for ours, theirs in SIZES.items() if ours != "segment_types"},
        only={**ONLY, "relative_attention_num_buckets": _MPNET_BUCKETS},
        also={"relative_attention_num_buckets": _MPNET_BUCKETS},
        padded_positions=True,
        padding_id=1,
    ),
    prefix="mpnet.",
    encoder_rows=_mpnet_rows,
    mark=lambda encoder: encoder.relative_buckets is not None,
    finetune=_ROBERTA_SETTINGS,
    pooler="pooler.dense",
    heads=_roberta_heads("MPNet"),
    architectures={frozenset(): "MPNetModel"},
    aliases={
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("mpnet.embeddings.position_ids",),
    bounds=BOUNDS,
    ends=ENDS,
    segments={"format": "full_sentences"},
)

_DISTILBERT_MATRICES = {
    "attention/query_key_value": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention/output": ("attention.out_lin",),
    "feed_forward/inner": ("ffn.lin1",),
    "feed_forward/outer": ("ffn.lin2",),
}
_DISTILBERT_NORMS = {"attention_norm": "sa_layer_norm", "feed_forward_norm": "output_layer_norm"}

DISTILBERT = System(
    model_type="distilbert",
    encoder=EncoderKeys(
        title="a DistilBERT",
        form={**FORM, "segment_types": 0},
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "max_positions": "max_position_embeddings",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "initializer_range": "initializer_range",
        },
        activation="activation",
        epsilon=None,
        only={"tie_word_embeddings": True, "tie_weights_": True},
        also={},
    ),
    prefix="distilbert.",
    encoder_rows=encoder_rows(
        "distilbert.",
        "transformer.layer",
        _DISTILBERT_MATRICES,
        _DISTILBERT_NORMS,
        segments=False,
    ),
    mark=lambda encoder: not encoder.segment_types,
    heads=table(
        MaskedLM(
            masked_lm_rows("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            "DistilBertForMaskedLM",
        ),
        *task_heads("DistilBert", "classifier", hidden="pre_classifier", activation="relu"),
    ),
    architectures={frozenset(): "DistilBertModel"},
    dropout="seq_classif_dropout",
    aliases={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    buffers=("distilbert.embeddings.position_ids",),
    segments={"format": "full_sentences"},
)

_ERNIE_TASKS = "ernie.embeddings.task_type_embeddings.weight"
_ERNIE_POSITIONS = "ernie.embeddings.position_embeddings.weight"


class OneTask(LazyTensors):
    """The tensors of a file, with the embedding of task 0 added to the position table."""

    def __init__(self, tensors: Tensors, source: str | os.PathLike):
        """Wraps tensors, and adds a note about the omitted embeddings."""
        self.source, self._tensors = source, tensors
        self._index = dict.fromkeys(name for name in tensors if name != _ERNIE_TASKS)
        if _ERNIE_TASKS in tensors:
            tensors.notes.append(
                "the embedding of task 0 is added to the embeddings of positions; those of other "
                "tasks are left out"
            )

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        tensor = self._tensors[name]
        if name != _ERNIE_POSITIONS or _ERNIE_TASKS not in self._tensors:
            return tensor
        tasks = self._tensors[_ERNIE_TASKS]
        if tasks.ndim != 2 or tensor.ndim != 2 or tasks.shape[1:] != tensor.shape[1:]:
            raise UserError(
                f"{self.source}: {_ERNIE_TASKS} has the shape {list(tasks.shape)}, and the "
                f"positions have {list(tensor.shape)}"
            )
        return tensor + tasks[:1]


ERNIE = system(
    "ernie",
    "an ERNIE",
    "ernie.",
    "Ernie",
    encoder=EncoderKeys(
        title="an ERNIE",
        form={**FORM, "family": "ernie"},
        also={"position_embedding_type": "absolute", "use_task_id": False},
    ),
    mark=lambda encoder: encoder.family == "ernie",
    tensors=OneTask,
)
