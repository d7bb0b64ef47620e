"""Strict YAML into frozen dataclasses: a system is one choice from each of five parts.

`segments` (how text becomes sequences), `corruption` (what the model gets to see), `encoder`
(how it reads), `objectives` (what it is asked) and `recipe` (optimizer, schedule, sizes).
A key that does not exist, a value of the wrong type and a combination of parts that cannot work
are refused here, with the place, before anything runs.
"""

import dataclasses
import difflib
import importlib
import math
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from official import atomic
from official.errors import UserError

# What `type:` may say, and the module that holds its `Config`. Modules are imported when named.
CORRUPTIONS = {
    "token_masks": "official.corruption.token_masks",
    "permutation": "official.corruption.permutation",
}
ENCODERS = {
    "transformer": "official.encoders.transformer",
    "transformer_xl": "official.encoders.transformer_xl",
}
OBJECTIVES = {
    "masked_lm": "official.objectives.masked_lm",
    "causal_lm": "official.objectives.causal_lm",
    "generator": "official.objectives.generator",
    "replaced_tokens": "official.objectives.replaced_tokens",
    "all_tokens_lm": "official.objectives.all_tokens_lm",
    "sentence_pair": "official.objectives.sentence_pair",
    "span_boundary": "official.objectives.span_boundary",
    "permutation_lm": "official.objectives.permutation_lm",
    "classification": "official.objectives.classification",
    "regression": "official.objectives.regression",
}

# The input formats (see `Segments`): those of two segments, those of one, and rows that go on.
PAIR_FORMATS = ("pairs", "sentence_pairs")
FORMATS = (*PAIR_FORMATS, "full_sentences", "doc_sentences", "stream")
SHORT_DOCUMENTS = ("join", "drop")
# What may be asked of two segments, and the feature with the answer (see `official.features`).
RELATIONS = {
    "next_sentence": "next_sentence_label",
    "sentence_order": "sentence_order_label",
    "none": None,
}
# What tells the parts of a row apart, where several sequences share it.
PART_FIELDS = frozenset({"part_ids", "positions", "part_starts", "part_weights"})
# What a shard folder of a fine-tuning task puts into a batch.
TASK_FIELDS = frozenset({"token_ids", "segment_ids", "padding_mask", "label", "score", "row"})
# What the reader puts into every batch, or into those of objectives that need it.
READER_FIELDS = frozenset({"example_weights", "row_seeds"})


def _one_of(field: str, value: Any, choices: Iterable) -> None:
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{field}: {value!r} is not one of {', '.join(map(str, choices))}")


def _at_least(field: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"{field}: {value} is less than {least}")


def _fraction(field: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{field}: {value} is not a fraction between 0 and 1")


def _regular_expression(field: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{field}: {pattern!r} is not a regular expression: {error}") from None


@dataclasses.dataclass(frozen=True)
class Segments:
    """How documents become sequences.

    Attributes:
      format: what a sequence is made of (RoBERTa, section 4.2): `pairs` = two segments of some
        sentences each (BERT, section 3.1 and A.1), `sentence_pairs` = two single sentences,
        `full_sentences` = as many sentences as fit, with a separator where a document ends and the
        next one begins, `doc_sentences` = the same within one document, `stream` = rows that go on
        from one batch to the next, for encoders with memory (Dai et al., 2019, section 3.2; Yang et
        al., 2019, section 2.5).
      relation: of two segments: `next_sentence` = the second one follows or is from another
        document (BERT), `sentence_order` = it follows or the two are swapped (ALBERT, section 3.1),
        `none` = it follows. None = `next_sentence` for pairs, `none` for the other formats.
      max_length: tokens of a sequence, special tokens counted.
      short_seq_prob: share of sequences that aim at a random shorter length (not of
        `sentence_pairs`, which are as long as their sentences).
      random_next_prob: share of pairs whose second segment comes from another document, where the
        relation is `next_sentence`.
      random_negatives: where the relation is `sentence_order`, what becomes of a sentence that has
        no other beside it: paired with a random one, as swapped (ALBERT's release), or left out.
      duplicates: how often each document is cut into sequences anew.
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
        after a [SEP], and so does the memory; `drop` = each document is read by itself, and those
        without text for one row are left out.
    """

    format: str = "pairs"
    relation: str | None = None
    max_length: int = 128
    short_seq_prob: float = 0.1
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
        _one_of("format", self.format, FORMATS)
        paired = self.format in PAIR_FORMATS
        if self.relation is None:
            object.__setattr__(self, "relation", "next_sentence" if paired else "none")
        _one_of("relation", self.relation, RELATIONS)
        if self.label and not paired and not self.reuse_length:
            raise ValueError(
                f"relation: {self.relation} is one of two segments, and {self.format} has one: "
                f"take none, or the format {' or '.join(PAIR_FORMATS)}, or a stream's reuse_length"
            )
        _one_of("short_documents", self.short_documents, SHORT_DOCUMENTS)
        if self.format == "stream":
            self._check_stream()
        for name in ("rows", "reuse_length", "backward", "short_documents"):
            default = type(self).__dataclass_fields__[name].default
            if self.format != "stream" and getattr(self, name) != default:
                raise ValueError(f"{name}: has a meaning for the format stream, not {self.format}")
        if self.random_negatives and self.relation != "sentence_order":
            raise ValueError(
                f"random_negatives: has a meaning for sentence_order, not for {self.relation}"
            )
        _at_least("max_length", self.max_length, 8)
        _at_least("duplicates", self.duplicates, 1)
        _at_least("packing", self.packing, 1)
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
        _fraction("short_seq_prob", self.short_seq_prob)
        _fraction("random_next_prob", self.random_next_prob)

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
        _at_least("reuse_length", self.reuse_length, 0)
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
        return frozenset(fields - {None}) | self.stream_features

    @property
    def stream_features(self) -> frozenset[str]:
        """The features of a stream's rows beside the text, which are fields of a batch too."""
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

    def __post_init__(self):
        _one_of("type", self.type, ["adamw", "lamb"])
        for name in ("no_decay", "no_adaptation"):
            for pattern in getattr(self, name) or ():
                _regular_expression(name, pattern)
        if self.no_adaptation is not None and self.type != "lamb":
            raise ValueError(f"no_adaptation: is of type lamb, and the type is {self.type}")
        _fraction("layer_decay", self.layer_decay)
        if not self.layer_decay:
            raise ValueError("layer_decay: 0 stops every layer but the head: leave it out, or 1")
        _fraction("beta_1", self.beta_1)
        _fraction("beta_2", self.beta_2)
        for name in ("learning_rate", "epsilon", "weight_decay", "clip_norm"):
            _at_least(name, getattr(self, name), 0)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Warm-up and decay of the learning rate: see `official.training.schedules`.

    Attributes:
      type: whose warm-up: `bert`, `electra` or `xlnet`.
      warmup_steps: steps of warm-up; or
      warmup_fraction: the same as a share of all steps.
      end_ratio: where the decay ends, as a share of the peak.
      power: of the polynomial decay; 1 = linear.
    """

    type: str = "bert"
    warmup_steps: int = 0
    warmup_fraction: float = 0.0
    end_ratio: float = 0.0
    power: float = 1.0

    def __post_init__(self):
        _one_of("type", self.type, ["bert", "electra", "xlnet"])
        _at_least("warmup_steps", self.warmup_steps, 0)
        _fraction("warmup_fraction", self.warmup_fraction)
        _fraction("end_ratio", self.end_ratio)
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
      best_metric: which figure of the evaluation picks the best checkpoint; empty = the task's
        first metric, or the loss.
      max_bad_steps: updates in a row that may be skipped for a non-finite gradient.
      shuffle_buffer: examples among which the reader draws.
      bucket_lengths: lengths to which batches are padded; empty = always the longest.
      init_weights: what `--init` gives: `encoder`, `all`, `none` (its sizes alone), or `generator`:
        the encoder, and again as a frozen generator, with its masked LM.
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
    max_bad_steps: int = 10
    shuffle_buffer: int = 50_000
    bucket_lengths: tuple[int, ...] = ()
    init_weights: str = "encoder"

    def __post_init__(self):
        _one_of("precision", self.precision, ["float32", "mixed_bfloat16", "float64"])
        _one_of("init_weights", self.init_weights, ["encoder", "all", "none", "generator"])
        for name in (
            "batch_size accumulation report_every save_every keep_checkpoints "
            "max_bad_steps shuffle_buffer"
        ).split():
            _at_least(name, getattr(self, name), 1)
        for name in "steps epochs eval_every eval_batches eval_batch_size".split():
            _at_least(name, getattr(self, name), 0)
        if bool(self.steps) == bool(self.epochs):
            raise ValueError("steps: give either steps or epochs")
        if list(self.bucket_lengths) != sorted(set(self.bucket_lengths)):
            raise ValueError("bucket_lengths: must rise")


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


_PARTS = {"corruption": CORRUPTIONS, "encoder": ENCODERS}


def type_of(part: Any) -> str:
    """The name under which a part's dataclass stands in YAML, such as `transformer`."""
    module = type(part).__module__
    for table in (CORRUPTIONS, ENCODERS, OBJECTIVES):
        for name, path in table.items():
            if path == module:
                return name
    raise TypeError(f"{module} is in no table of official.config")


def module_of(part: Any) -> types.ModuleType:
    """The module that a part's dataclass stands in, with its `Encoder`, `Objective`, ..."""
    return importlib.import_module(type(part).__module__)


def corruption_of(raw: Mapping[str, Any], source: str) -> Any:
    """Builds a corruption's dataclass from plain values, as `to_dict` gives them."""
    return _typed(raw, CORRUPTIONS, "corruption", source)


def objective_fields(objectives: Iterable[Any]) -> frozenset[str]:
    """The batch fields that objectives make for one another before the encoder runs."""
    given: frozenset[str] = frozenset()
    for objective in objectives:
        if gives := getattr(module_of(objective), "gives", None):
            given |= gives(objective)
    return given


def load(path: str | os.PathLike, overrides: Sequence[str] = ()) -> Config:
    """Reads a config file.

    Args:
      path: a YAML file.
      overrides: `a.b=value` each; the value is read as YAML. Items of `objectives` are named by
        their number or their type.

    Raises:
      UserError: the file is missing or not YAML, or something in it cannot be.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such config file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a config is a mapping, such as `name: my_run`")
    for override in overrides:
        _override(raw, override)
    return from_dict(raw, str(path))


def from_dict(raw: Mapping[str, Any], source: str = "config") -> Config:
    """Builds and checks a config; `source` stands at the head of every message."""
    raw = dict(raw)
    config_parts: dict[str, Any] = {}
    for key, table in _PARTS.items():
        value = raw.pop(key, None)
        config_parts[key] = None if value is None else _typed(value, table, key, source)
    objectives = raw.pop("objectives", None) or []
    if not isinstance(objectives, list | tuple):
        raise UserError(f"{source}: objectives: expected a list, each item with a `type`")
    config_parts["objectives"] = tuple(
        _typed(item, OBJECTIVES, f"objectives.{i}", source) for i, item in enumerate(objectives)
    )
    config = _build(Config, raw, "", source, ready=config_parts)
    _check(config, source)
    return config


def to_dict(config: Any) -> dict[str, Any]:
    """The plain form that `from_dict` takes, with every field."""
    return _plain(config)


def save(config: Config, path: str | os.PathLike) -> None:
    """Writes the resolved config as YAML."""
    with atomic.file(path) as stream:
        yaml.safe_dump(to_dict(config), stream, sort_keys=False, allow_unicode=True)


def differences(a: Config, b: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values."""
    flat_a, flat_b = dict(_flatten(to_dict(a))), dict(_flatten(to_dict(b)))
    keys = list(dict.fromkeys([*flat_a, *flat_b]))
    return [
        (key, flat_a.get(key), flat_b.get(key))
        for key in keys
        if flat_a.get(key) != flat_b.get(key)
    ]


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _override(raw: dict, override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"--override={override}: expected key.subkey=value")
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise UserError(f"--override={override}: the value is not YAML") from None
    *parents, last = path.split(".")
    place: Any = raw
    for key in parents:
        place = _item(place, key, override)
    if isinstance(place, list):
        place[_index(place, last, override)] = value
    else:
        place[last] = value


def _item(place: Any, key: str, override: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, key, override)]
    if place.get(key) is None:
        place[key] = {}
    if not isinstance(place[key], dict | list):
        raise UserError(f"--override={override}: {key} is a value and has no keys below it")
    return place[key]


def _index(place: list, key: str, override: str) -> int:
    names = [item.get("type") if isinstance(item, dict) else None for item in place]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(place):
        return int(key)
    raise UserError(
        f"--override={override}: no item {key!r}: there are {', '.join(map(str, names))}"
    )


def _typed(value: Any, table: Mapping[str, str], place: str, source: str) -> Any:
    if not isinstance(value, dict):
        raise UserError(f"{source}: {place}: expected a mapping with a `type`")
    value = dict(value)
    name = value.pop("type", None)
    if name not in table:
        found = "no `type` is given" if name is None else f"unknown type {name!r}"
        raise UserError(f"{source}: {place}: {found}{_nearest(name, table)}")
    module = importlib.import_module(table[name])
    return _build(module.Config, value, place, source)


def _build(cls: type, raw: Any, place: str, source: str, ready: Mapping[str, Any] = {}) -> Any:
    where = f"{source}: {place + '.' if place else ''}"
    if not isinstance(raw, Mapping):
        raise UserError(f"{where.rstrip('.')}: expected a mapping, got {raw!r}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values = dict(ready)
    for key, value in raw.items():
        if key not in fields:
            raise UserError(f"{where}{key}: unknown key{_nearest(key, fields)}")
        values[key] = _value(hints[key], value, f"{place + '.' if place else ''}{key}", source)
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where}{missing[0]}: missing, and it has no default")
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(f"{where}{error}") from None


def _value(hint: Any, value: Any, place: str, source: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        choices = typing.get_args(hint)
        if value is None and type(None) in choices:
            return None
        return _value(next(c for c in choices if c is not type(None)), value, place, source)
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, place, source)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise UserError(f"{source}: {place}: expected a list, got {value!r}")
        return tuple(_value(item, v, f"{place}.{i}", source) for i, v in enumerate(value))
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        # YAML 1.1 reads 1e-4, without a point, as text.
        try:
            return float(value)
        except ValueError:
            pass
    elif hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    expected = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise UserError(f"{source}: {place}: expected {expected[hint]}, got {value!r}")


def _nearest(name: Any, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"


def _check(config: Config, source: str) -> None:
    """Refuses parts that do not fit together."""
    given = set(config.segments.fields if config.segments else TASK_FIELDS)
    if config.corruption is not None:
        if config.segments is None:
            raise UserError(f"{source}: corruption: needs `segments`, the pretraining data")
        module = module_of(config.corruption)
        try:
            module.check(config.corruption, config.segments)
        except ValueError as error:
            raise UserError(f"{source}: corruption.{error}") from None
        if config.segments.static_masks and not getattr(module, "STATIC", True):
            raise UserError(
                f"{source}: segments.static_masks: {type_of(config.corruption)} is drawn anew each "
                "time an example is read: take static_masks: false"
            )
        if config.segments.packing > 1 and not hasattr(module, "row_predictions"):
            raise UserError(
                f"{source}: segments.packing: corruption: {type_of(config.corruption)} cannot be "
                "packed: take segments.packing: 1"
            )
        given |= module.gives(config.corruption)
    elif config.segments and config.segments.static_masks:
        raise UserError(f"{source}: segments.static_masks: there is no `corruption` to apply")
    given |= READER_FIELDS | objective_fields(config.objectives)
    # An encoder without segments is that of weights from elsewhere, which may be there to be used
    # and not to be trained on (a discriminator without its generator); or it is to learn a task,
    # and `official.data` asks the shards.
    whole = config.encoder is None or config.segments is not None
    for i, objective in enumerate(config.objectives if whole else ()):
        packed = config.segments is not None and config.segments.packing > 1
        if packed and not getattr(module_of(objective), "PACKS", False):
            raise UserError(
                f"{source}: segments.packing: objectives.{i}: {type_of(objective)} cannot be "
                "packed: it does not keep the parts of a row apart; take segments.packing: 1"
            )
        needed = module_of(objective).needs(objective)
        if "permutation_mask" in given - needed and "masked_ids" in needed:
            raise UserError(
                f"{source}: objectives.{i}: {type_of(objective)} asks for tokens that are hidden, "
                "and corruption.type: permutation leaves all of them in their places: take "
                "token_masks, or permutation_lm"
            )
        if lacking := sorted(needed - given):
            raise UserError(
                f"{source}: objectives.{i}: {type_of(objective)} needs {', '.join(lacking)}, which "
                "neither segments nor corruption nor another objective give here (they give "
                f"{', '.join(sorted(given - READER_FIELDS))}){_giver(set(lacking))}"
            )
    for i, objective in enumerate(config.objectives):
        try:
            getattr(module_of(objective), "check", lambda *_: None)(objective, config)
        except ValueError as error:
            raise UserError(f"{source}: objectives.{i}: {type_of(objective)}: {error}") from None
    frozen = any(getattr(objective, "frozen", False) for objective in config.objectives)
    if frozen != (config.recipe.init_weights == "generator"):
        raise UserError(
            f"{source}: recipe.init_weights: {config.recipe.init_weights}, and "
            f"{'a' if frozen else 'no'} generator is frozen: `init_weights: generator` and "
            "`frozen: true` belong together"
        )
    _check_memory(config, source)
    longest = getattr(config.encoder, "max_positions", None)
    if longest and config.segments and config.segments.max_length > longest:
        raise UserError(
            f"{source}: segments.max_length: {config.segments.max_length} tokens do not fit "
            f"encoder.max_positions: {longest}"
        )


def _giver(fields: set[str]) -> str:
    """Says which objective would give fields that are lacking, if one does."""
    for name, path in OBJECTIVES.items():
        module = importlib.import_module(path)
        if hasattr(module, "gives") and fields & module.gives(module.Config()):
            return f"; the objective {name} gives {', '.join(sorted(fields))}"
    return ""


def _check_memory(config: Config, source: str) -> None:
    """Refuses an encoder with memory where rows do not go on, and one that keeps other tokens."""
    segments, encoder = config.segments, config.encoder
    if segments is None or not getattr(encoder, "memory_length", 0):
        return
    if segments.format != "stream":
        raise UserError(
            f"{source}: encoder.memory_length: {encoder.memory_length}, and rows of "
            f"segments.format: {segments.format} do not go on from batch to batch: take the format "
            "stream, or memory_length: 0"
        )
    if encoder.reuse_length != segments.reuse_length:
        raise UserError(
            f"{source}: encoder.reuse_length: {encoder.reuse_length}, and segments.reuse_length: "
            f"{segments.reuse_length}: the memory keeps what the next row goes on after, so make "
            "them the same"
        )
    if segments.reuse_length and _hides(config) and encoder.attention == "bi":
        raise UserError(
            f"{source}: corruption.block_size: missing: the next row asks for the text behind the "
            f"first {segments.reuse_length} tokens (segments.reuse_length), which these see before "
            f"the memory keeps them (encoder.attention: bi): set it to a divisor of them and of "
            f"max_length {segments.max_length}, such as "
            f"{math.gcd(segments.reuse_length, segments.max_length)}, or take encoder.attention: "
            "uni, or encoder.memory_length: 0 and encoder.reuse_length: 0"
        )


def _hides(config: Config) -> bool:
    """Whether tokens are hidden that every position of the row would help to find."""
    corruption = config.corruption
    if corruption is None or "permutation_mask" in module_of(corruption).gives(corruption):
        return False
    asked = {f for o in config.objectives for f in module_of(o).needs(o)}
    return "masked_ids" in asked and getattr(corruption, "block_size", None) is None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        plain = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if not isinstance(value, Config | Segments | Recipe | Optimizer | Schedule):
            plain = {"type": type_of(value), **plain}
        return plain
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _flatten(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _flatten(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value
