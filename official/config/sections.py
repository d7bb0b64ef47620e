"""The sections of a config as frozen dataclasses, each with the checks of its own values.

Parts that YAML names by `type` (corruption, encoder, objectives) are dataclasses of the modules in
`official.config.registry`.
"""

import dataclasses
import math
from typing import Any

from official.utils.validators import at_least, fraction, one_of, regular_expression

# The input formats (see `Segments`): those of two segments, those of one, and rows that go on.
PAIR_FORMATS = ("pairs", "sentence_pairs")
FORMATS = (*PAIR_FORMATS, "halves", "full_sentences", "doc_sentences", "blocks", "stream")
SHORT_DOCUMENTS = ("join", "drop")
# What may be asked of two segments, and the feature with the answer; see
# `official.shards.features`.
RELATIONS = {
    "next_sentence": "next_sentence_label",
    "sentence_order": "sentence_order_label",
    "none": None,
}
# What tells the parts of a row apart, where several sequences share it.
PART_FIELDS = frozenset({"part_ids", "positions", "part_starts", "part_weights"})


@dataclasses.dataclass(frozen=True)
class Segments:
    """How documents become sequences.

    Attributes:
      format: what a sequence is made of (RoBERTa, section 4.2): `pairs` = two segments of some
        sentences each (BERT, section 3.1 and A.1), `sentence_pairs` = two single sentences,
        `full_sentences` = as many sentences as fit, with a separator where a document ends and the
        next one begins, `doc_sentences` = the same within one document, `blocks` = the documents
        one after the other, a separator behind each, cut every `max_length` tokens, with no other
        special token (GPT-2's text: Radford et al., 2019), `stream` = rows that go on from one
        batch to the next, for encoders with memory (Dai et al., 2019, section 3.2; Yang et al.,
        2019, section 2.5).
      relation: of two segments: `next_sentence` = the second one follows or is from another
        document (BERT), `sentence_order` = it follows or the two are swapped (ALBERT, section 3.1),
        `none` = it follows. None = `next_sentence` for pairs, `none` for the other formats.
      max_length: tokens of a sequence, special tokens counted.
      short_seq_prob: share of sequences that aim at a random shorter length (not of
        `sentence_pairs`, which are as long as their sentences, nor of `blocks` and `stream`, whose
        rows are full).
      single_prob: of `halves`: share of texts that are one segment by choice, however long.
      random_next_prob: share of pairs whose second segment comes from another document, where the
        relation is `next_sentence`.
      random_negatives: where the relation is `sentence_order`, what becomes of a sentence that has
        no other beside it: paired with a random one, as swapped (ALBERT's release), or left out.
      duplicates: copies of each document on disk, each with other cuts, other random segments and
        other labels. An epoch reads them all: with 10 copies one epoch is 10 passes over the text.
        1 = every epoch reads the same sequences, with masks of its own.
      packing: the most short sequences that share a row, each a part with its own positions,
        attention, masks and label; 1 = a row each.
      row_length: tokens of a row that sequences share; None = `max_length`. The longer the row, the
        less of it is left over, and the more attention costs.
      static_masks: corrupt once, when shards are written, rather than each time they are read.
      rows: of a stream: how many texts go on side by side; the batch size of its training.
      reuse_length: of a stream: how many tokens of a row the next one goes on after, in a row of
        [reused text][A][SEP][B][SEP][CLS]; 0 = rows are nothing but text, and follow one another.
      backward: of a stream: whether the second half of the rows runs over the text reversed.
      short_documents: of a stream: `join` = every document goes on where the one before it ended,
        after an <eod> (after a [SEP], if the vocabulary has no <eod>), and so does the memory;
        `drop` = each document is read by itself, and those without text for one row are left out.
    """

    format: str = "pairs"
    relation: str | None = None
    max_length: int = 128
    short_seq_prob: float = 0.1
    single_prob: float = 0.1
    random_next_prob: float = 0.5
    random_negatives: bool = False
    duplicates: int = 1
    packing: int = 1
    row_length: int | None = None
    static_masks: bool = False
    rows: int = 0
    reuse_length: int = 0
    backward: bool = False
    short_documents: str = "join"

    def __post_init__(self):
        one_of("format", self.format, FORMATS)
        paired = self.format in PAIR_FORMATS
        if self.relation is None:
            object.__setattr__(self, "relation", "next_sentence" if paired else "none")
        one_of("relation", self.relation, RELATIONS)
        if self.label and not paired and not self.reuse_length:
            has = "two that belong together" if self.format == "halves" else "one"
            raise ValueError(
                f"relation: {self.relation} is one of two segments, and {self.format} has {has}: "
                f"take none, or the format {' or '.join(PAIR_FORMATS)}, or a stream's reuse_length"
            )
        one_of("short_documents", self.short_documents, SHORT_DOCUMENTS)
        if self.format == "stream":
            self._check_stream()
        for name in ("rows", "reuse_length", "backward", "short_documents"):
            default = type(self).__dataclass_fields__[name].default
            if self.format != "stream" and getattr(self, name) != default:
                raise ValueError(f"{name}: has a meaning for the format stream, not {self.format}")
        if self.format != "halves" and self.single_prob != Segments.single_prob:
            raise ValueError(f"single_prob: has a meaning for the format halves, not {self.format}")
        if self.random_negatives and self.relation != "sentence_order":
            raise ValueError(
                f"random_negatives: has a meaning for sentence_order, not for {self.relation}"
            )
        at_least(self, 8, "max_length")
        at_least(self, 1, "duplicates", "packing")
        if self.format == "blocks" and self.packing > 1:
            raise ValueError(
                f"packing: {self.packing} is not for the format blocks, whose rows are full: take 1"
            )
        if self.places < self.max_length:
            raise ValueError(
                f"row_length: {self.row_length} does not hold a sequence of max_length: "
                f"{self.max_length}: make it that or more"
            )
        if self.places > self.max_length and self.packing == 1:
            raise ValueError(
                f"row_length: {self.row_length} is of rows that sequences share, and packing is 1: "
                f"raise packing, or leave row_length out"
            )
        fraction(self, "short_seq_prob", "single_prob", "random_next_prob")

    def _check_stream(self) -> None:
        if self.rows < 1:
            raise ValueError(
                "rows: missing: the format stream is made for so many rows, the batch size"
            )
        if self.backward and self.rows % 2:
            raise ValueError(
                f"rows: half of {self.rows} rows cannot run backward: take an even number"
            )
        if self.relation not in ("none", "next_sentence"):
            raise ValueError(f"relation: {self.relation} is none of a stream: none, next_sentence")
        at_least(self, 0, "reuse_length")
        most = self.max_length - 5  # A and B of one token, two [SEP] and [CLS]
        if self.reuse_length > most:
            raise ValueError(
                f"reuse_length: {self.reuse_length} of {self.max_length} tokens leave no room for "
                f"[A][SEP][B][SEP][CLS]: at most {most}"
            )
        for name, only in {"packing": 1, "static_masks": False}.items():
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name}: {getattr(self, name)} is not for the format stream, whose rows are "
                    f"full and whose masks are drawn when it is read: take {only}"
                )

    @property
    def label(self) -> str | None:
        """The feature that says how the two segments belong together; None = there is none."""
        return RELATIONS[self.relation]

    @property
    def places(self) -> int:
        """T: the tokens of a row, with padding."""
        return self.max_length if self.row_length is None else self.row_length

    @property
    def fields(self) -> frozenset[str]:
        """The fields of a batch that such sequences give."""
        fields = {"token_ids", "segment_ids", "padding_mask", self.label}
        fields |= PART_FIELDS if self.packing > 1 else set()
        return frozenset(fields - {None}) | self.row_features

    @property
    def row_features(self) -> frozenset[str]:
        """What rows of blocks or of a stream have beside their text: features and batch fields."""
        if self.format == "blocks":
            return frozenset({"next_id"})
        if self.format != "stream":
            return frozenset()
        more = {"backward"} if self.backward else set()
        return frozenset({"continues", *more, *(() if self.reuse_length else ("next_id",))})


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How gradients become updates: see `official.training.optimizers`.

    Attributes:
      type: `adamw` (BERT's) or `lamb` (You et al., 2020).
      learning_rate: the peak of the schedule.
      no_decay: regular expressions; weight decay leaves alone the variables in whose paths one of
        them is found.
      no_adaptation: the same for LAMB's trust ratio; None = those of `no_decay`.
      clip_norm: largest global norm of the reduced gradient; 0 = no clipping.
      bias_correction: of the moments, as Adam has it and the releases do not.
      layer_decay: rates fall by this factor from each layer to the one below; 1 = all are equal.
      layer_decay_from: what has the whole rate: the `head`, two steps above the last layer
        (ELECTRA), or the `last_layer` and all above it (XLNet).
    """

    type: str = "adamw"
    learning_rate: float = 1e-4
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    no_decay: tuple[str, ...] = ("bias", "norm")
    no_adaptation: tuple[str, ...] | None = None
    clip_norm: float = 1.0
    bias_correction: bool = False
    layer_decay: float = 1.0
    layer_decay_from: str = "head"

    def __post_init__(self):
        one_of("type", self.type, ["adamw", "lamb"])
        regular_expression(self, "no_decay", "no_adaptation")
        if self.no_adaptation is not None and self.type != "lamb":
            raise ValueError(f"no_adaptation: is of type lamb, and the type is {self.type}")
        one_of("layer_decay_from", self.layer_decay_from, ["head", "last_layer"])
        fraction(self, "layer_decay")
        if not self.layer_decay:
            raise ValueError("layer_decay: 0 stops every layer but the head: leave it out, or 1")
        fraction(self, "beta_1", "beta_2")
        at_least(self, 0, "learning_rate", "epsilon", "weight_decay", "clip_norm")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Warm-up and decay of the learning rate: see `official.training.schedules`.

    Attributes:
      type: whose warm-up: `bert`, `electra` or `xlnet`.
      steps: of the whole schedule; 0 = the steps of the run. A run of fewer steps is the first part
        of a longer one, which `recipe.init_weights: run` goes on with.
      warmup_steps: steps of warm-up; or
      warmup_fraction: the same as a share of all steps.
      end_ratio: where the decay ends, as a share of the peak.
      power: of the polynomial decay; 1 = linear.
    """

    type: str = "bert"
    steps: int = 0
    warmup_steps: int = 0
    warmup_fraction: float = 0.0
    end_ratio: float = 0.0
    power: float = 1.0

    def __post_init__(self):
        one_of("type", self.type, ["bert", "electra", "xlnet"])
        at_least(self, 0, "steps", "warmup_steps")
        fraction(self, "warmup_fraction", "end_ratio")
        if self.warmup_steps and self.warmup_fraction:
            raise ValueError("warmup_steps: give this or warmup_fraction, not both")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Sizes and habits of a training run.

    Attributes:
      steps: updates of the weights; or
      epochs: the same as passes over the training examples.
      batch_size: examples of one update, over all replicas and accumulation steps.
      accumulation: parts into which a replica's share of the batch is cut, to save memory.
      precision: `float32`, `mixed_bfloat16` or `float64`.
      jit_compile: compile forward and backward pass with XLA.
      report_every, eval_every, save_every: in steps; `eval_every: 0` = at the end only.
      eval_batches: batches of one evaluation during training; 0 = the whole split.
      eval_batch_size: 0 = `batch_size`.
      best_metric: which figure of the evaluation picks the best checkpoint: a loss (`loss` or a
        term, of which less is better) or a metric (more is better), with several tasks as
        `TASK/FIGURE`; empty = the task's first metric, or the loss.
      patience: evaluations in a row without a better figure after which the run ends; 0 = none.
      max_bad_steps: updates in a row that may be skipped for a non-finite gradient.
      shuffle_buffer: examples among which the reader draws.
      bucket_lengths: lengths to which batches are padded; empty = always the longest.
      task_sampling: of several tasks, which one a batch is of: drawn by their sizes
        (`proportional`), or more and more alike (`annealed`); see `official.data.mixture`.
      init_weights: what `--init` gives: `encoder`, `all`, `none` (its sizes alone), `generator`:
        the encoder, and again as a frozen generator, with its masked LM; or `run`: all weights, the
        optimizer's moments and the step, so that the run goes on with other data or settings.
    """

    steps: int = 0
    epochs: float = 0.0
    batch_size: int = 32
    accumulation: int = 1
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    precision: str = "float32"
    jit_compile: bool = False
    report_every: int = 50
    eval_every: int = 0
    eval_batches: int = 0
    eval_batch_size: int = 0
    save_every: int = 1000
    keep_checkpoints: int = 2
    best_metric: str = ""
    patience: int = 0
    max_bad_steps: int = 10
    shuffle_buffer: int = 50_000
    bucket_lengths: tuple[int, ...] = ()
    task_sampling: str = "proportional"
    init_weights: str = "encoder"

    def __post_init__(self):
        one_of("precision", self.precision, ["float32", "mixed_bfloat16", "float64"])
        one_of("task_sampling", self.task_sampling, ["proportional", "annealed"])
        one_of("init_weights", self.init_weights, ["encoder", "all", "none", "generator", "run"])
        at_least(self, 1, "batch_size", "accumulation", "report_every", "save_every")
        at_least(self, 1, "keep_checkpoints", "max_bad_steps", "shuffle_buffer")
        at_least(self, 0, "steps", "epochs", "eval_every", "eval_batches", "eval_batch_size")
        at_least(self, 0, "patience")
        if self.patience and not self.eval_every:
            raise ValueError(
                "patience: counts evaluations, and eval_every: 0 makes one at the end: give "
                "eval_every the steps from one to the next"
            )
        if bool(self.steps) == bool(self.epochs):
            raise ValueError("steps: give either steps or epochs")
        if list(self.bucket_lengths) != sorted(set(self.bucket_lengths)):
            raise ValueError("bucket_lengths: must rise")

    def total_steps(self, num_examples: int) -> int:
        """Updates of a run: given, or enough for the epochs (the last batch rounded up)."""
        return self.steps or max(1, math.ceil(self.epochs * num_examples / self.batch_size))


@dataclasses.dataclass(frozen=True)
class Config:
    """One run. A fine-tuning run has neither segments nor corruption.

    Attributes:
      name: of the run, for people.
      seed: of every random draw.
      segments: None for fine-tuning.
      corruption: None where the objectives need none.
      encoder: None = that of the model given with `--init`.
      objectives: what is asked, in the order of their loss terms.
      recipe: the rest.
    """

    name: str
    seed: int = 0
    segments: Segments | None = None
    corruption: Any = None
    encoder: Any = None
    objectives: tuple[Any, ...] = ()
    recipe: Recipe = Recipe(steps=1)
