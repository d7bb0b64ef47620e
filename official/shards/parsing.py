"""Parses serialized examples by the table of features, and checks the ranges of their numbers.

Shards may come from other programs and other people. Ids are read as int32, so 2^40 + 7 would
become 7, and on a GPU or TPU a table gives some vector for an id that it lacks, without an error.

Shapes: B examples of a batch.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator

import tensorflow as tf

from official.shards import local_files
from official.shards.features import FEATURES, FLOATS, TF_MODELS_FEATURES
from official.shards.manifest import Manifest
from official.utils.errors import UserError

_BROKEN = "examples out of range: "
_END = " (end)"
_NO_EXAMPLE = "an example cannot be parsed"
_QUOTES = b"Could not parse example"
_LARGEST = 1 << 31

Parsed = dict[str, tf.Tensor | tf.RaggedTensor]


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the values in a folder's examples.

    Attributes:
      folder: the folder, for messages.
      ids: the number of entries of the vocabulary.
      labels: the number of labels of the task; 0 = unknown.
      tokens: the largest number of tokens of a row, or of a sequence of an example with several.
      targets: the largest number of tokens of a target; 0 = there are none.
      sequences: the number of sequences of an example; None = one.
      windows: the largest number of windows of a text, each a sequence; None = it has none.
      parts: the largest number of parts of a row.
    """

    folder: str
    ids: int
    labels: int
    tokens: int
    targets: int = 0
    sequences: int | None = None
    windows: int | None = None
    parts: int = 1

    @classmethod
    def of(cls, folder: str, content: Manifest, split: str, vocab_size: int) -> "Limits":
        """Returns the limits for a split of a folder."""
        tasks = list(content.task.by_name.values()) if content.task else []
        single = tasks[0] if len(tasks) == 1 else None
        return cls(
            folder,
            vocab_size,
            labels=len(single.labels) if single else 0,
            tokens=content.max_length,
            targets=max((task.max_target_length or 0 for task in tasks), default=0),
            sequences=(single and single.sequences or {}).get(split),
            windows=single.windows if single else None,
            parts=content.segments.packing if content.segments else 1,
        )


def parse(serialized: tf.Tensor, names: Iterable[str], limits: Limits | None = None) -> Parsed:
    """Parses a batch of serialized examples.

    Args:
      serialized: strings [B].
      names: the features to parse, which every example must have.
      limits: what the numbers are limited to. Examples that break a rule stop the graph with an
        error that `reported` says in words. None = nothing is checked.

    Returns:
      An int32 RaggedTensor [B, None] for 'ints' and a float32 one for 'floats', int32 [B] for
      'int', float32 [B] for 'float', and string [B] for 'bytes'. 'part' is as 'ints' if
      `part_lengths` is among the names, and as 'int' otherwise.
    """
    parsed = parse_wide(serialized, names)
    if limits is not None:
        parsed = checked(parsed, limits)
    return {
        name: value if FEATURES[name].kind in (*FLOATS, "bytes") else tf.cast(value, tf.int32)
        for name, value in parsed.items()
    }


def parse_wide(serialized: tf.Tensor, names: Iterable[str]) -> Parsed:
    """Parses like `parse`, but keeps integers as int64, as they are stored."""
    names = set(names)
    kinds = {
        "ints": tf.io.RaggedFeature(tf.int64),
        "floats": tf.io.RaggedFeature(tf.float32),
        "int": tf.io.FixedLenFeature([], tf.int64),
        "float": tf.io.FixedLenFeature([], tf.float32),
        "bytes": tf.io.FixedLenFeature([], tf.string, ""),
    }
    kinds["part"] = kinds["ints" if "part_lengths" in names else "int"]
    table = TF_MODELS_FEATURES | FEATURES
    return tf.io.parse_example(
        serialized, {name: kinds[table[name].kind] for name in sorted(names)}
    )


def broken(parsed: Parsed, limits: Limits) -> dict[str, tf.Tensor]:
    """Returns for each rule whether a batch breaks it; the keys describe the rules.

    Args:
      parsed: int64 and float32 features of B examples, as `parse` has them before it casts
        them.
      limits: those of the split.

    Returns:
      bool scalars.
    """
    found = {}
    for name, values in parsed.items():
        feature = FEATURES.get(name) or TF_MODELS_FEATURES[name]
        if feature.kind in FLOATS:
            finite = tf.reduce_all(tf.math.is_finite(_flat(values)))
            found[f"{name}: a number is not finite"] = ~finite
        elif feature.kind != "bytes":
            below, words = _below(feature.below, name, parsed, limits)
            flat = _flat(values)
            outside = tf.reduce_any((flat < feature.low) | (flat >= below))
            found[f"{name}: a number is not from {feature.low} to {words}"] = outside
        for other, amounts in ((feature.as_many_as, _counts), (feature.sum_of, _sums)):
            if (
                other is not None
                and other in parsed
                and not (amounts is _counts and values.shape.rank == 1)
            ):
                what = "number of values" if amounts is _counts else "sum"
                differ = amounts(values) != _counts(parsed[other])
                found[f"{name}: the {what} is not the length of {other}"] = tf.reduce_any(differ)
    return found | _lengths(parsed, limits)


def _lengths(parsed: Parsed, limits: Limits) -> dict[str, tf.Tensor]:
    """Returns the rules of the lengths of rows and sequences; see `broken`."""
    found = {}
    rows = parsed.get("token_ids")
    if "sequence_lengths" in parsed:
        rows = None
        lengths = parsed["sequence_lengths"]
        too_long = tf.reduce_any(lengths.flat_values > limits.tokens)
        found[f"sequence_lengths: more than {limits.tokens} tokens"] = too_long
        if limits.windows:
            counts = _counts(lengths)
            wrong = (counts < 1) | (counts > limits.windows)
            found[f"sequence_lengths: not from 1 to {limits.windows} windows"] = tf.reduce_any(
                wrong
            )
        if limits.sequences:
            other = tf.reduce_any(_counts(lengths) != limits.sequences)
            found[f"sequence_lengths: not {limits.sequences} sequences"] = other
            if "grades" in parsed:
                counts = _counts(parsed["grades"])
                wrong = (counts < 1) | (counts > limits.sequences)
                what = f"grades: not from 1 to {limits.sequences} documents"
                found[what] = tf.reduce_any(wrong)
            if "teacher_scores" in parsed:
                wrong = _counts(parsed["teacher_scores"]) != limits.sequences - 1
                found[f"teacher_scores: not {limits.sequences - 1} numbers"] = tf.reduce_any(wrong)
            if "segment_lengths" in parsed:
                uneven = _counts(parsed["segment_lengths"]) % limits.sequences != 0
                found["segment_lengths: not as many in each sequence"] = tf.reduce_any(uneven)
    if rows is not None:
        lengths = _counts(rows)
        wrong = (lengths < 1) | (lengths > limits.tokens)
        found[f"token_ids: not from 1 to {limits.tokens} tokens"] = tf.reduce_any(wrong)
    elif "segment_lengths" in parsed and "sequence_lengths" not in parsed:
        most = limits.tokens * (limits.windows or 1)
        too_long = tf.reduce_any(_sums(parsed["segment_lengths"]) > most)
        found[f"segment_lengths: more than {most} tokens"] = too_long
    if "part_lengths" in parsed:
        many = _counts(parsed["part_lengths"]) > limits.parts
        found[f"part_lengths: more than {limits.parts} parts"] = tf.reduce_any(many)
    if "target_ids" in parsed and limits.targets:
        long = _counts(parsed["target_ids"]) > limits.targets
        found[f"target_ids: more than {limits.targets} tokens"] = tf.reduce_any(long)
    return found


def checked(parsed: Parsed, limits: Limits) -> Parsed:
    """Returns features, in a graph that fails where they break a rule; see `reported`.

    The features must be checked before anything else reads them: a wrong length could make
    TensorFlow allocate all memory.
    """
    rules = broken(parsed, limits)
    broke = tf.stack(list(rules.values()))
    names = tf.boolean_mask(tf.constant(list(rules)), broke)
    text = tf.strings.join(
        [_BROKEN, f"{limits.folder}: ", tf.strings.reduce_join(names, separator="; "), _END]
    )
    check = tf.debugging.Assert(~tf.reduce_any(broke), [text], summarize=1)
    # Eagerly, the check has been made, and there is no operation.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.nest.map_structure(tf.identity, parsed, expand_composites=True)


@contextlib.contextmanager
def reported(folders: str) -> Iterator[None]:
    """Reports damaged and invalid records, and shards that are missing, as user errors.

    Args:
      folders: what was read, for messages.

    Raises:
      UserError: a record is damaged, cannot be parsed or breaks a rule, or a shard was removed or
        cannot be fetched.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{folders}: a record differs from its checksum, so a shard has changed since it was "
            "written: python -m tfrecords_tools.inspect_shards FOLDER --verify says which one"
        ) from error
    except tf.errors.NotFoundError as error:
        # TensorFlow's message names the file after the operation.
        found = re.search(r"([^{}]*\.tfrecord); ", error.message)
        if found is None:
            raise
        raise UserError(f"{found[1].strip()} was removed while it was read") from error
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        if isinstance(error, tf.errors.OpError) and (said := local_files.problem(error)):
            raise UserError(said) from error
        if (reason := problem(error)) is None:
            raise
        where = "" if reason.startswith(_BROKEN) else f"{folders}: "
        raise UserError(
            f"{where}{reason.removeprefix(_BROKEN)}: the examples do not match the manifest; "
            "python -m tfrecords_tools.inspect_shards FOLDER --verify says which examples"
        ) from error


def problem(error: tf.errors.InvalidArgumentError | UnicodeDecodeError) -> str | None:
    """Returns what is wrong with an example, in words; None if the error has another reason.

    TensorFlow's message quotes a record that is no example, which is not always UTF-8.
    """
    if isinstance(error, UnicodeDecodeError):
        return _NO_EXAMPLE if _QUOTES in error.object else None
    if found := re.search(f"{_BROKEN}.*?(?={re.escape(_END)})", error.message, re.DOTALL):
        return found[0]
    if found := re.search(
        r"(Name: .*?, )?(Key|Feature): (?P<what>.*?)(\n|\[\[| \[Op:|$)", error.message
    ):
        return f"{_NO_EXAMPLE}: {found['what'].strip().rstrip('.')}"
    return _NO_EXAMPLE if _QUOTES.decode() in error.message else None


def _below(
    below: int | str | None, name: str, parsed: Parsed, limits: Limits
) -> tuple[int | tf.Tensor, str]:
    """Returns what the numbers of a feature are less than, and the largest one in words."""
    if below == "tokens":
        if "token_ids" not in parsed:
            return limits.tokens, str(limits.tokens - 1)
        counts = _counts(parsed["token_ids"])
        if isinstance(parsed[name], tf.RaggedTensor):
            counts = tf.gather(counts, parsed[name].value_rowids())
        return counts, "the last token"
    if below == "sequences":
        limit = limits.sequences
    else:
        limit = getattr(limits, below) if isinstance(below, str) else below
    limit = limit or _LARGEST
    return limit, f"{limit - 1:,}"


def _flat(values: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    return values.flat_values if isinstance(values, tf.RaggedTensor) else values


def _counts(values: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    """Returns the numbers, or the bytes, of each example: int64 [B]."""
    ragged = isinstance(values, tf.RaggedTensor)
    return tf.cast(values.row_lengths() if ragged else tf.strings.length(values), tf.int64)


def _sums(values: tf.RaggedTensor) -> tf.Tensor:
    """Returns the sum of each example, int64 [B]."""
    return tf.reduce_sum(values, axis=1)
