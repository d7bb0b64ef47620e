r"""Ranks the candidates for a pronoun by a masked LM (Kocijan et al., 2019; RoBERTa, section 5.1).

  python -m experiments.candidate_lm --input=run/wnli --init=run/pretrained \
      --config=configs/finetune/wnli.yaml --model_dir=run/wnli_model
  python -m experiments.candidate_lm --input=run/wnli --init=run/wnli_model \
      --split=test --output=test.run

--input is a folder of `experiments.compared_rows --pronouns`. Each token of a candidate is a mask
in the place of the pronoun, and the score of the candidate is the mean of their log probabilities.
With --model_dir the model learns from the train split: of each right candidate and another one of
the same pronoun, the loss is

  - log P(right) + margin_weight * max(0, log P(other) - log P(right) + margin)

`margin_weight` and `margin` are alpha and beta of Kocijan et al. With --loss=softmax it is the
cross-entropy of both. The result is a masked LM as before, so with or without training --output
gets the scores of a split, of which `experiments.compared_labels` makes labels.

Shapes: N rows, each with a candidate; T length, P tokens of the longest candidate, D hidden.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags
from keras import ops

from experiments.compared_rows import BLANK
from official.modeling.layers.kernels import cross_entropy
from official.modeling.model import Model
from official.modeling.types import Batch, Encoded, Tensor
from official.tokenizers import Tokenizer, pair_packing
from official.utils import atomic, command_line, errors, host_seeding, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FLAGS = flags.FLAGS
_REQUIRED = ("input", "init")
_REPORT_EVERY = 100  # steps
Arrays = dict[str, np.ndarray]


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("input", None, "Folder of experiments.compared_rows.")
    flags.DEFINE_string("init", None, "Model folder of a masked LM.")
    flags.DEFINE_string("checkpoint", "best", "The checkpoint of --init.")
    flags.DEFINE_string("config", None, "Config of the training, with its recipe.")
    flags.DEFINE_multi_string("override", [], "Value of the config: key.subkey=value.")
    flags.DEFINE_string("model_dir", None, "The model folder to write; none = no training.")
    flags.DEFINE_enum("loss", "margin", ["margin", "softmax"], "The loss.")
    flags.DEFINE_float("margin_weight", 20.0, "The factor of the margin.", lower_bound=0.0)
    flags.DEFINE_float("margin", 0.2, "The margin.", lower_bound=0.0)
    flags.DEFINE_integer("negatives", 4, "Other candidates of each right one.", lower_bound=1)
    flags.DEFINE_string("split", "validation", "The split to score.")
    flags.DEFINE_string("output", None, "The run to write.")


class CandidateModel(Model):
    """A masked LM that scores rows whose masks hide candidates.

    A batch has the fields of masked LM: `masked_positions`, `masked_ids`, `masked_weights` [N, P].
    In training, the right candidates have the rows 0, 2, 4, ..., and each is followed by another
    candidate of its pronoun.

    Attributes:
      loss: 'margin' or 'softmax'.
      margin_weight: the factor of the margin.
      margin: the margin.
    """

    loss = "margin"
    margin_weight = 20.0
    margin = 0.2

    def scores(self, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Returns the mean log probability of the tokens of each candidate: [N]."""
        (head,) = self.objectives
        encoded = self.encode_as_read(batch) if encoded is None else encoded
        (hidden,) = head.states_read(batch, encoded)  # [N, P, D]
        rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
        targets = ops.reshape(batch["masked_ids"], (-1,))
        losses, _, _ = cross_entropy(head.logits(rows, self.encoder), targets)
        weights = head.as_loss(batch["masked_weights"])
        logs = -head.as_loss(ops.reshape(losses, ops.shape(weights))) * weights
        return ops.sum(logs, axis=1) / ops.sum(weights, axis=1)

    def pair_losses(self, scores: Tensor) -> Tensor:
        """Returns the loss of each right candidate and another one: [N / 2].

        Args:
          scores: [N / 2, 2].
        """
        right, other = scores[:, 0], scores[:, 1]
        if self.loss == "softmax":
            return ops.softplus(other - right)
        return self.margin_weight * ops.relu(other - right + self.margin) - right

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the number of pairs."""
        return {self.objectives[0].name: ops.sum(batch["example_weights"]) / 2}

    def terms(self, batch, rng=None, encoded=None, objectives=None):
        """See `Model`; the accuracy is over pairs."""
        del rng, objectives
        scores = ops.reshape(self.scores(batch, encoded), (-1, 2))
        name = self.objectives[0].name
        hits = ops.cast(scores[:, 0] > scores[:, 1], scores.dtype)
        metrics = {f"{name}_accuracy": (ops.sum(hits), ops.sum(ops.ones_like(hits)))}
        return {name: ops.sum(self.pair_losses(scores))}, metrics


def row_of(sentence: str, candidate: str, tokenizer: Tokenizer, max_length: int) -> Arrays:
    """Returns the tokens of a sentence with a candidate, and the tokens that its masks hide.

    Raises:
      UserError: the sentence does not have one blank, or is too long; the candidate has no tokens.
    """
    before, *after = sentence.split(BLANK)
    if len(after) != 1:
        raise UserError(f"{sentence[:60]!r}: a sentence needs one blank ({BLANK})")
    ((ids, starts, ends),) = tokenizer.encode_with_offsets([f"{before}{candidate}{after[0]}"])
    inside = (ends > len(before)) & (starts < len(before) + len(candidate))
    if not inside.any():
        raise UserError(f"{candidate!r}: a candidate without tokens")
    room = max_length - pair_packing.num_specials(1, tokenizer)
    if len(ids) > room:
        raise UserError(
            f"{sentence[:60]!r} has {len(ids)} tokens with its candidate, and the model reads "
            f"{room}: leave it out"
        )
    hidden = ids[inside]
    masked = np.where(inside, tokenizer.mask_id, ids)
    tokens, _ = pair_packing.pack_arrays([masked], tokenizer, max_length)
    return {"tokens": tokens, "positions": 1 + np.flatnonzero(inside), "hidden": hidden}


def batch_of(rows: Sequence[Arrays], length: int, most: int) -> Batch:
    """Returns the batch of some rows.

    Args:
      rows: the rows.
      length: T.
      most: P.
    """
    shape = len(rows), length
    masks = len(rows), most
    batch = {
        "token_ids": np.zeros(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "padding_mask": np.zeros(shape, bool),
        "masked_positions": np.zeros(masks, np.int32),
        "masked_ids": np.zeros(masks, np.int32),
        "masked_weights": np.zeros(masks, np.float32),
        "example_weights": np.ones(len(rows), np.float32),
    }
    for number, row in enumerate(rows):
        tokens, hidden = len(row["tokens"]), len(row["hidden"])
        batch["token_ids"][number, :tokens] = row["tokens"]
        batch["padding_mask"][number, :tokens] = True
        batch["masked_positions"][number, :hidden] = row["positions"]
        batch["masked_ids"][number, :hidden] = row["hidden"]
        batch["masked_weights"][number, :hidden] = 1
    return batch


def pairs(
    run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]], negatives: int, seed: int
) -> list[tuple[str, str, str]]:
    """Returns the query, a right candidate and another one, of queries that have both."""
    from tfrecords_tools.tasks import ranking

    counts = ranking.SplitCounts()
    triples = ranking.triples(run, qrels, negatives, seed, counts)
    found = [(query, *documents) for query, documents in triples]
    left = sum(counts.queries_left_out.values())
    print(f"train: {len(found):,} pairs of {counts.queries:,} pronouns, {left:,} left out")
    if not found:
        raise UserError("--input: no pronoun of the train split has a right and a wrong candidate")
    return found


def _batches(examples: Sequence[tuple[Arrays, Arrays]], size: int, seed: int) -> Iterator[Batch]:
    """Yields batches of `size` pairs without end, each epoch in an order of its own."""
    length = max(len(row["tokens"]) for both in examples for row in both)
    most = max(len(row["hidden"]) for both in examples for row in both)
    epochs = (
        host_seeding.numpy_rng(seed, epoch).permutation(len(examples))
        for epoch in itertools.count()
    )
    order = itertools.chain.from_iterable(epochs)
    while True:
        chosen = [examples[i] for i in itertools.islice(order, size)]
        yield batch_of([row for both in chosen for row in both], length, most)


def train(
    model: CandidateModel, config, examples: Sequence[tuple[Arrays, Arrays]], report=print
) -> None:
    """Trains a model on pairs by the recipe of a config."""
    import tensorflow as tf

    from official.training import optimizers
    from official.training.train_step import TrainStep

    recipe = config.recipe
    steps = recipe.total_steps(len(examples))
    optimizer = optimizers.make(recipe, steps, model)
    step = TrainStep(model, optimizer, tf.distribute.get_strategy(), seed=config.seed)
    made = _batches(examples, recipe.batch_size, config.seed)
    first = next(_batches(examples, recipe.batch_size, config.seed))
    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in first.items()}
    batches = iter(tf.data.Dataset.from_generator(lambda: made, output_signature=specs))
    for start in range(0, steps, _REPORT_EVERY):
        count = min(_REPORT_EVERY, steps - start)
        sums = step.run(batches, count).sums
        figures = step.statistics.summarize(sums, model.term_weights)
        report(f"step {start + count} of {steps}: " + ", ".join(
            f"{name} {value:.4f}" for name, value in figures.items()
        ))  # fmt: skip


def score(model: CandidateModel, rows: Sequence[Arrays], size: int = 32) -> np.ndarray:
    """Returns the score of each row: float32 [N]."""
    results = np.zeros(len(rows), np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["tokens"]))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        some = [rows[i] for i in chosen]
        most = max(len(row["hidden"]) for row in some)
        batch = batch_of(some, len(some[-1]["tokens"]), most)
        results[chosen] = ops.convert_to_numpy(model.scores(batch))
    return results


def read(folder: AnyPath, split: str):
    """Returns the texts of queries and of documents, the run of a split, and the judgments."""
    from official.tasks import text_files, trec

    queries, documents = (
        dict(text_files.unique(folder / f"{name}.tsv")) for name in ("queries", "documents")
    )
    run = trec.read_run(folder / f"{split}.run", queries, documents)
    return queries, documents, run, trec.read_qrels(folder / "qrels")


def main(argv: list[str]) -> None:
    """Trains and scores."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    if not FLAGS.model_dir and not FLAGS.output:
        raise UserError("--model_dir (to train) or --output (to score) is missing")
    from official import config as configs
    from official.saving import checkpoints, model_folder, named_arrays
    from official.tasks import trec

    folder = model_folder.ModelFolder.open(FLAGS.init, FLAGS.checkpoint)
    config, tokenizer = folder.config, folder.tokenizer
    heads = tuple(each for each in config.objectives if each.type == "masked_lm")
    if not heads or tokenizer.mask_id is None:
        raise UserError(f"--init={FLAGS.init}: give a masked LM: its model has no masked_lm")
    config = dataclasses.replace(config, objectives=heads)
    if FLAGS.config:
        recipe = configs.load(FLAGS.config, FLAGS.override).recipe
        config = dataclasses.replace(config, recipe=recipe)
    elif FLAGS.model_dir:
        raise UserError("--config is missing: the recipe of the training, such as wnli.yaml")
    model = CandidateModel(config)
    variables = model.variables_by_path()
    arrays = checkpoints.load_variables(FLAGS.init, FLAGS.checkpoint)
    named_arrays.assign(
        variables, {path: arrays[path] for path in variables if path in arrays}, FLAGS.init
    )
    model.loss, model.margin = FLAGS.loss, FLAGS.margin
    model.margin_weight = FLAGS.margin_weight
    place, length = paths.path(FLAGS.input), folder.max_length

    if FLAGS.model_dir:
        queries, documents, run, qrels = read(place, "train")
        examples = [
            tuple(row_of(queries[query], documents[d], tokenizer, length) for d in both)
            for query, *both in pairs(run, qrels, FLAGS.negatives, config.seed)
        ]
        train(model, config, examples)
        model_folder.write_new(config, tokenizer, named_arrays.values(variables), FLAGS.model_dir)
    if FLAGS.output:
        queries, documents, run, _ = read(place, FLAGS.split)
        named = [(query, document) for query, scores in run.items() for document in scores]
        rows = [row_of(queries[q], documents[d], tokenizer, length) for q, d in named]
        scored: trec.Run = {}
        for (query, document), value in zip(named, score(model, rows).tolist(), strict=True):
            scored.setdefault(query, {})[document] = value
        with atomic.file(FLAGS.output) as stream:
            trec.write_run(stream, scored, "candidate_lm")
        print(f"{FLAGS.output}: {len(rows):,} candidates of {len(run):,} pronouns")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
