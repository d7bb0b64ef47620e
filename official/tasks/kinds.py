"""The table of the kinds of tasks, with the modules that build, score and serve each kind.

The modules are named by their paths and imported when they are used.
"""

import dataclasses
import importlib
import types


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes:
      targets: the features of an example with the values to predict.
      objectives: the types of the objectives that learn the task.
      metrics: the metrics that can be computed; the first one is the default.
      method: the method of `official.load(DIR)` that predicts the task; "" = none.
      builder: the module of the shard builder, which has `Builder`.
      scorer: the module with the `Scorer`, which computes metrics and writes predictions.
      signatures: the module of the signatures of a SavedModel; "" = those of the encoder.
      output: for kinds with one target a row, the prediction that is compared with the first
        target.
      max_length: the default length of examples, in tokens.
      generic: whether a user can define a task of this kind by naming columns.
      generates: whether predictions are texts that a decoder generates.
      flags: the flags of `build_task_shards` that this kind takes and not every kind does.
    """

    targets: tuple[str, ...]
    objectives: tuple[str, ...]
    metrics: tuple[str, ...]
    method: str
    builder: str
    scorer: str
    signatures: str
    output: str = ""
    max_length: int = 128
    generic: bool = False
    generates: bool = False
    flags: tuple[str, ...] = ()


_OF_ROWS = ("unlabelled_train", "weight_column", "windows", "window_overlap")  # with labels, scores

KINDS = {
    "classification": Kind(
        targets=("label",),
        objectives=("classification",),
        metrics=("accuracy", "f1", "matthews_correlation"),
        method="classify",
        builder="tfrecords_tools.tasks.labelled_text",
        scorer="official.evaluation.rows",
        signatures="official.serving.signatures.texts",
        output="probabilities",
        generic=True,
        flags=_OF_ROWS,
    ),
    "multi_label": Kind(
        targets=("label_flags",),
        objectives=("multi_label",),
        metrics=("micro_f1", "macro_f1", "subset_accuracy"),
        method="classify",
        builder="tfrecords_tools.tasks.labelled_text",
        scorer="official.evaluation.rows",
        signatures="official.serving.signatures.texts",
        output="probabilities",
        generic=True,
        flags=_OF_ROWS,
    ),
    "regression": Kind(
        targets=("score",),
        objectives=("regression",),
        metrics=("pearson", "spearman"),
        method="score",
        builder="tfrecords_tools.tasks.labelled_text",
        scorer="official.evaluation.rows",
        signatures="official.serving.signatures.texts",
        output="score",
        generic=True,
        flags=_OF_ROWS,
    ),
    "ranking": Kind(
        targets=(),
        objectives=("ranking", "kernel_ranking"),
        metrics=(
            "ndcg_20",
            "err_20",
            "mrr",
            "map",
            "ndcg_10",
            "mrr_10",
            "recall_1",
            "recall_100",
        ),
        method="rank",
        builder="tfrecords_tools.tasks.ranking",
        scorer="official.evaluation.rankings",
        signatures="official.serving.signatures.ranking",
        flags=("queries", "documents", "qrels", "negatives", "list_size", "list_labels"),
    ),
    "span": Kind(
        targets=("answer_start", "answer_end"),
        objectives=("span_answer",),
        metrics=("f1", "exact_match", "best_f1", "best_exact_match"),
        method="answer",
        builder="tfrecords_tools.tasks.span",
        scorer="official.evaluation.span_answers",
        signatures="official.serving.signatures.span_answer",
        max_length=384,
        flags=("doc_stride", "max_query_length", "answers"),
    ),
    "choice": Kind(
        targets=("answer",),
        objectives=("multiple_choice",),
        metrics=("accuracy",),
        method="choose",
        builder="tfrecords_tools.tasks.multiple_choice",
        scorer="official.evaluation.rows",
        signatures="official.serving.signatures.multiple_choice",
        output="probabilities",
        max_length=512,
        flags=("choice_first", "max_choice_length"),
    ),
    "embedding": Kind(
        targets=("score",),
        objectives=("sentence_embedding", "sparse_embedding", "late_interaction"),
        metrics=("spearman", "pearson", "average_precision", "accuracy", "mrr"),
        method="encode",
        builder="tfrecords_tools.tasks.embedding",
        scorer="official.evaluation.embeddings",
        signatures="",
        flags=("negative_columns", "teacher_scores_column", "score_range", "task_name"),
    ),
    "tagging": Kind(
        targets=("tag_ids",),
        objectives=("token_classification",),
        metrics=("f1", "precision", "recall", "strict_f1", "surface_f1", "accuracy", "macro_f1"),
        method="tag",
        builder="tfrecords_tools.tasks.tagging",
        scorer="official.evaluation.tags",
        signatures="official.serving.signatures.tagging",
        generic=True,
        flags=("repair_tags", "split_words", "nested_spans", "multiword_tokens"),
    ),
    "text_to_text": Kind(
        targets=("target_ids",),
        objectives=("seq2seq_lm",),
        metrics=(
            "accuracy",
            "f1",
            "matthews_correlation",
            "pearson",
            "spearman",
            "exact_match",
            "bleu",
            "chrf",
            "rouge_1",
            "rouge_2",
            "rouge_l",
        ),
        method="generate",
        builder="tfrecords_tools.tasks.text_to_text",
        scorer="official.evaluation.generated_texts",
        signatures="official.serving.signatures.generation",
        max_length=512,
        generates=True,
        flags=("max_target_length", "prefix", "punctuation", "bleu_tokenization", "rouge_words"),
    ),
}
GENERIC = tuple(name for name, kind in KINDS.items() if kind.generic)
METRICS = {name: kind.metrics for name, kind in KINDS.items()}


def load(path: str) -> types.ModuleType:
    """Imports a module that a kind names."""
    return importlib.import_module(path)
