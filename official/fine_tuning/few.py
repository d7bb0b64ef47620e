"""Classes from a few examples of each: vectors first, and then a head (Tunstall et al., 2022).

The encoder learns that texts of a class are alike and texts of different classes are not, from all
pairs of the examples (SetFit, section 3). A logistic regression on the vectors of the same texts
then becomes the output of a classification. With eight examples of each class, pairs give the
encoder far more to learn from than the labels do.

Shapes: N texts, C classes, D size of a vector.
"""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Sequence

import numpy as np

from official import config as configs
from official import tasks, tokenizers, training
from official.config.heads import ClassificationConfig
from official.fine_tuning.rows import Classes
from official.fine_tuning.settings import Settings
from official.saving import embedding_settings, model_folder, named_arrays
from official.serving import loaded_model
from official.tasks import embeddings
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.names import listed
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import builder

MOST = 2_000  # examples; of n there are n^2 / 2 pairs
_CONFIG = "configs/finetune/sentence_embedding.yaml"
_SHORTEST = 1e-12  # no vector is divided by less
_POOLINGS = ("mean", "first", "pooled")  # those of a classification
# SetFit 1.2.0: an epoch of pairs in batches of 16, of texts whose cosine is 0 or 1.
_RECIPE = {
    "objectives.0.loss": "cosine",
    "objectives.0.cached_rows": "null",
    "recipe.epochs": 1,
    "recipe.batch_size": 16,
    "recipe.distinct_texts": "false",
    "recipe.optimizer.learning_rate": 2e-5,
    "recipe.optimizer.bias_correction": "true",
}


def train(
    examples: Classes,
    source: str | os.PathLike,
    model_dir: str | os.PathLike,
    folder: AnyPath,
    chosen: Settings,
) -> None:
    """Makes the model folder of a classification.

    Args:
      examples: the texts with a label each.
      source: the model folder to start from, of dense vectors.
      model_dir: the folder to make.
      folder: an empty folder for what is made on the way.
      chosen: its `epochs`, `batch_size`, `learning_rate` and `override` are of the pairs.

    Raises:
      UserError: there are too many examples, or fewer than two of a class; the vectors of the model
        are not those of a classification; `model_dir` exists.
    """
    atomic.check_new(model_dir)
    texts, labels = examples.columns["text"], [str(x).strip() for x in examples.columns["label"]]
    _check(labels)
    known = model_folder.config_of(source)
    vectors = embedding_settings.read(source, known)
    pooling = _pooling(vectors, known)
    length = chosen.length("classification", known)
    _tune(texts, drawn(labels, chosen.seed), source, folder, length, pooling, chosen)
    tuned = loaded_model.load(folder / "tuned", checkpoint="last")
    # As the head will read them: a classification adds no prompt.
    raw = embedding_settings.EmbeddingSettings(pooling=(pooling,), max_length=length)
    found, size = tuned.embedder.texts(texts, raw), 1.0
    if vectors.normalize:
        # A head does not normalize: it reads lengths near their mean. The regression would rather
        # learn from lengths than from directions, if it saw them.
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        found, size = found / np.maximum(lengths, _SHORTEST), lengths.mean()
    from sklearn.linear_model import LogisticRegression  # slow to import

    head = LogisticRegression(max_iter=1000).fit(found, labels)
    kernel, bias = _softmax(head.coef_ / size, head.intercept_)
    objective = ClassificationConfig(
        labels=tuple(map(str, head.classes_)), pooling=pooling, dropout=0.0
    )
    config = dataclasses.replace(tuned.config, name="classification", objectives=(objective,))
    variables = {
        path: value
        for path, value in named_arrays.values(tuned.model.variables_by_path()).items()
        if path.startswith("encoder/")
    }
    variables |= {"classification/output/kernel": kernel, "classification/output/bias": bias}
    task = {"max_length": length}
    model_folder.write_new(config, tuned.tokenizer, variables, model_dir, task=task)


def drawn(labels: Sequence[str], seed: int) -> list[tuple[int, int, float]]:
    """Returns pairs of texts, and 1 for those of one class or 0 for others, by turns.

    All pairs occur, a text with itself too. Those of the rarer kind are repeated until there are as
    many as of the other.

    Args:
      labels: those of N texts.
      seed: decides the order.
    """
    rng = np.random.default_rng(seed)
    every = list(itertools.combinations_with_replacement(range(len(labels)), 2))
    every = [every[i] for i in rng.permutation(len(every))]
    alike = [(i, j, 1.0) for i, j in every if labels[i] == labels[j]]
    others = [(i, j, 0.0) for i, j in every if labels[i] != labels[j]]
    turns = zip(
        itertools.cycle(alike), itertools.cycle(others), range(max(len(alike), len(others)))
    )
    return [pair for one, other, _ in turns for pair in (one, other)]


def _check(labels: Sequence[str]) -> None:
    """Raises UserError if the examples are not few, or a class has not enough of them."""
    if len(labels) > MOST:
        raise UserError(
            f"few: {len(labels):,} examples are not few, and have {len(labels) ** 2 // 2:,} pairs: "
            f"take up to {MOST:,} of them, or leave out few=True"
        )
    for label, count in collections.Counter(labels).items():
        if count < 2:
            raise UserError(
                f"few: the label {label!r} has {count} example, and pairs of a class need two: add "
                "examples, or leave the class out"
            )


def _pooling(vectors: embedding_settings.EmbeddingSettings, config: configs.ResolvedConfig) -> str:
    """Returns the pooling of the vectors of a model.

    Raises:
      UserError: a classification cannot read these vectors.
    """
    objective = embedding_settings.objective_of(config)
    if objective is not None and objective.kept_projection is not None:
        raise UserError(
            "few: the vectors of the model have a projection, which a classification does not "
            "have: take another model, or leave out few=True"
        )
    (first, *others) = vectors.pooling
    if others or first not in _POOLINGS or vectors.size is not None:
        raise UserError(
            f"few: pooling: {','.join(vectors.pooling)}, and a classification has one of "
            f"{listed(_POOLINGS)}, of all dimensions: take another model, or leave out few=True"
        )
    return first


def _tune(
    texts: Sequence[str],
    pairs: Sequence[tuple[int, int, float]],
    source: str | os.PathLike,
    folder: AnyPath,
    length: int,
    pooling: str,
    chosen: Settings,
) -> None:
    """Trains the vectors of a model on pairs of texts; the result is `folder / "tuned"`."""
    rows = folder / "pairs.jsonl"
    with open(rows, "w", encoding="utf-8") as stream:
        for i, j, alike in pairs:
            row = {"text": texts[i], "text_b": texts[j], "score": alike}
            stream.write(json.dumps(row) + "\n")
    task = embeddings.of_task(tasks.generic("regression", "text", "text_b", "score"), "scores")
    tokenizer = tokenizers.load(paths.path(source) / "tokenizer")
    shards = folder / "shards"
    builder.build(
        task,
        {"train": rows},
        tokenizer,
        shards,
        length,
        seed=chosen.seed,
        report=lambda line: None,  # The user has not asked for these shards.
    )
    recipe = {**_RECIPE, "seed": chosen.seed, "objectives.0.pooling": pooling}
    settings = [f"{key}={value}" for key, value in recipe.items()]
    config = configs.load(_CONFIG, [*settings, *chosen.overrides()])
    chosen.report(
        f"{len(texts)} texts, {len(pairs):,} pairs of them: {config.recipe.epochs:g} epochs, "
        f"batches of {config.recipe.batch_size}, learning rate "
        f"{config.recipe.optimizer.learning_rate:g}"
    )
    training.train(
        config, str(shards), folder / "tuned", evaluate=False, init=source, report=chosen.report
    )


def _softmax(weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a kernel [D, C] and a bias [C], whose softmax is that of a logistic regression.

    Args:
      weights: [C, D]; of two classes [1, D], the scores of the second one.
      bias: [C], or [1].
    """
    if len(weights) == 1:
        weights, bias = np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    return weights.T.astype(np.float32), bias.astype(np.float32)
