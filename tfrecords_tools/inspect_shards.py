r"""Shows the content of a shard folder, and checks that it is complete.

  python -m tfrecords_tools.inspect_shards DIR [--examples=N] [--verify] \
      [--entropy]

Examples are shown as text. A masked token is shown as {original → replacement}, and a token that is
predicted but not replaced as {original}. --entropy shows the entropy of the token frequencies, in
nats. It is the masked-LM loss of a model that knows the frequency of each token and nothing of its
context. --verify checks every checksum, parses every example, and checks that ids, positions,
labels and lengths are in their ranges; the exit status is 1 if anything is wrong.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags
from google.protobuf import message

from official.utils import checksums, command_line, paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

if TYPE_CHECKING:
    import tensorflow as tf

    from official.shards import parsing
    from official.shards.manifest import Manifest
    from official.tasks import Description

_SHARDS_SHOWN = 8
_LENGTH_GROUPS = 8
_AT_ONCE = 1024  # examples
_PROBLEMS_SHOWN = 20
# What an example with numbers out of range, or a record that is no example, leads to.
_NO_EXAMPLE = (message.DecodeError, LookupError, ValueError, RuntimeError, StopIteration)
# The meaning of 0 and 1 in the labels of pairs and in the features of a stream.
_ANSWERS = {
    "next_sentence_label": ("B follows A", "B is from another document"),
    "sentence_order_label": ("B follows A", "A and B are swapped"),
    "continues": ("begins anew", "continues the batch before"),
    "backward": ("forward", "backward"),
}


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_integer("examples", 3, "number of examples to show", lower_bound=0)
    flags.DEFINE_bool("entropy", False, "show the entropy of the token frequencies")
    flags.DEFINE_bool("verify", False, "check every checksum, record and number")


def summary(folder: AnyPath) -> Iterator[str]:
    """Yields the lines of the summary of a folder.

    Raises:
      UserError: the manifest cannot be read.
    """
    from official.shards import manifest

    stored = manifest.read(folder)
    totals = strict.to_dict(stored.totals)
    size = sum(shard.bytes for shard in stored.shards)
    yield (
        f"{folder}: {stored.kind}, {sum(shard.records for shard in stored.shards):,} examples in "
        f"{len(stored.shards)} shards, {size / 1e6:.1f} MB"
    )
    skipped = totals.pop("skipped", {})
    yield f"  features: {', '.join(stored.features)}; at most {stored.max_length} tokens"
    counts = {name: n for name, n in totals.items() if isinstance(n, int)}
    yield f"  made of: {_listed(counts)}; left out: {_listed(skipped) or 'nothing'}"
    if stored.length_histogram:
        yield f"  lengths: {', '.join(_lengths(stored.length_histogram))}"
    if task := _task(stored):
        yield f"  task: {task.name} ({task.kind}) {', '.join(task.labels)}"
    settings = _flat(strict.to_dict(stored.config))
    yield f"  settings: seed={stored.seed}{''.join(f' {k}={v}' for k, v in settings)}"
    yield f"  tokenizer: {', '.join(stored.tokenizer)}; fingerprint {stored.tokenizer_fingerprint}"
    for shard in stored.shards[:_SHARDS_SHOWN]:
        yield f"  {shard.name}: {shard.records:,} records, {shard.bytes:,} bytes"
    if len(stored.shards) > _SHARDS_SHOWN:
        yield f"  … and {len(stored.shards) - _SHARDS_SHOWN} more shards"


def examples(folder: AnyPath, count: int) -> Iterator[str]:
    """Yields the first examples of a folder, as text.

    Raises:
      UserError: a shard cannot be read.
    """
    import tensorflow as tf

    from official import tokenizers
    from official.shards import manifest

    stored = manifest.read(folder)
    tokenizer = tokenizers.load(folder / manifest.TOKENIZER_FOLDER)
    try:
        for number, record in enumerate(itertools.islice(_records(folder, stored), count)):
            try:
                example = tf.train.Example.FromString(record.numpy())
                values = {
                    name: list(feature.int64_list.value or feature.float_list.value)
                    for name, feature in example.features.feature.items()
                    if not feature.bytes_list.value
                }
                facts, *texts = _example(values, tokenizer, _task(stored))
            except _NO_EXAMPLE:
                facts, texts = "cannot be shown: --verify says what is wrong with it", []
            yield "\n  ".join([f"example {number}: {facts}", *texts])
    except tf.errors.OpError:
        raise UserError(f"{folder}: a shard is damaged or missing: --verify says which") from None


def _task(stored: "Manifest") -> "Description | None":
    """Returns the task of a folder, which is a single one."""
    (task,) = stored.task.by_name.values() if stored.task else (None,)
    return task


def _records(folder: AnyPath, stored: "Manifest") -> "Iterator[tf.Tensor]":
    """Yields the records in the order of the examples; that of a stream is step by step."""
    groups, segments = stored.row_groups, stored.segments
    size = segments.rows // groups if segments and groups > 1 else 1  # rows of a group
    group_records = sum(shard.records for shard in stored.shards) // groups
    names: list[list[str]] = [[] for _ in range(groups)]
    before = 0
    for shard in stored.shards:
        if shard.records:
            names[before // group_records].append(str(folder / shard.name))
        before += shard.records
    parts = [_read(of_group) for of_group in names]
    while step := [record for part in parts for record in itertools.islice(part, size)]:
        yield from step


def _read(files: list[str], batch_size: int | None = None) -> "Iterator[tf.Tensor]":
    """Yields the records of some files; what a remote file system does not give is tried again.

    Raises:
      UserError: a file is missing, cannot be fetched, or has a record that ends beyond it.
    """
    import tensorflow as tf

    from official.shards import local_files, shard_folder
    from official.utils import gfile

    for file in files:
        if isinstance(path := paths.path(file), Path):
            shard_folder.check_lengths(path)
    records = local_files.records(files)
    records = records.batch(batch_size) if batch_size else records
    try:
        yield from gfile.each(records.skip, files[0] if files else "")
    except tf.errors.InvalidArgumentError as error:
        if said := local_files.problem(error):
            raise UserError(said) from error
        raise


def verify(folder: AnyPath) -> list[str]:
    """Returns the problems of the shards and tokenizer files of a folder, one sentence each.

    Raises:
      UserError: the manifest cannot be read.
    """
    from official.shards import manifest, shard_folder

    problems = shard_folder.problems(folder, deep=True)
    for name, digest in manifest.read(folder).tokenizer.items():
        if problem := checksums.problem(folder / manifest.TOKENIZER_FOLDER / name, digest):
            problems.append(problem)
    return problems


def verify_examples(folder: AnyPath) -> tuple[list[str], int]:
    """Parses all examples of a folder, and checks that their numbers are in their ranges.

    Returns:
      A sentence for each broken example, at most 20; and the number of examples that were read.

    Raises:
      UserError: the manifest or the tokenizer cannot be read, or a shard is damaged.
    """
    import tensorflow as tf

    from official import tokenizers
    from official.shards import manifest, parsing

    stored = manifest.read(folder)
    size = tokenizers.load(folder / manifest.TOKENIZER_FOLDER).vocab_size
    problems, total = [], 0
    for split in dict.fromkeys(shard.split for shard in stored.shards):
        limits = parsing.Limits.of(str(folder), stored, split, size)
        rules = _rules(stored, split, limits)
        for shard in stored.split(split):
            try:
                first = 0
                for batch in _read([str(folder / shard.name)], _AT_ONCE):
                    if rules(batch):
                        problems += [
                            f"{folder / shard.name}: example {first + i}: {'; '.join(found)}"
                            for i in range(len(batch))
                            if (found := rules(batch[i : i + 1]))
                        ]
                        if len(problems) >= _PROBLEMS_SHOWN:
                            return problems[:_PROBLEMS_SHOWN], total + first
                    first += len(batch)
                total += first
            except tf.errors.OpError as error:
                raise UserError(f"{folder / shard.name}: cannot be read ({error})") from None
    return problems, total


def _rules(
    stored: "Manifest", split: str, limits: "parsing.Limits"
) -> "Callable[[tf.Tensor], list[str]]":
    """Returns a function from records to the rules that they break, in words."""
    import tensorflow as tf

    from official.shards import features, parsing

    read = stored.features_of(split)
    if stored.kind == "tf_models":
        read &= frozenset(features.TF_MODELS_FEATURES)
    names: list[str] = []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def broken(records: tf.Tensor) -> tf.Tensor:
        found = parsing.broken(parsing.parse_wide(records, read), limits)
        names[:] = found
        return tf.stack(list(found.values()))

    def of_records(records: tf.Tensor) -> list[str]:
        try:
            flags = broken(records).numpy()
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            return [parsing.problem(error) or str(error)]
        return [name for name, flag in zip(names, flags, strict=True) if flag]

    return of_records


def unigram_entropy(folder: AnyPath) -> tuple[float, int]:
    """Returns the entropy of the token frequencies, in nats, and the number of tokens.

    Special tokens are not counted.

    Raises:
      UserError: the examples have no token ids, or a shard cannot be read.
    """
    import numpy as np
    import tensorflow as tf

    from official import tokenizers
    from official.shards import manifest, parsing

    stored = manifest.read(folder)
    if "token_ids" not in stored.features:
        raise UserError(f"{folder}: --entropy needs token_ids; it has {', '.join(stored.features)}")
    tokenizer = tokenizers.load(folder / manifest.TOKENIZER_FOLDER)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    files = [str(folder / shard.name) for shard in stored.shards]
    try:
        for records in _read(files, 1024):
            ids = parsing.parse(records, ["token_ids"])["token_ids"].flat_values
            counts += np.bincount(ids, minlength=len(counts))
    except tf.errors.OpError:
        raise UserError(f"{folder}: a shard is damaged or missing: --verify says which") from None
    counts[list(tokenizer.special_ids)] = 0
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum()), int(counts.sum())


def _example(
    values: Mapping[str, list], tokenizer: Any, task: "Description | None"
) -> Iterator[str]:
    """Yields a summary of an example, and the text of each segment."""
    facts = []
    if "input_mask" in values:
        values = _from_tf_models(values)
    parts = values.get("part_lengths") or values.get("sequence_lengths")
    parts = parts or [len(values["token_ids"])]
    if "part_lengths" in values:
        facts.append(f"{len(parts)} parts")
    for name, answers in _ANSWERS.items():
        facts += [answers[value] for value in values.get(name, ())]
    labels = task.labels if task else ()
    for name in ("label", "answer"):
        if name in values:
            label = values[name][0]
            facts.append(f"{name} {labels[label] if 0 <= label < len(labels) else label}")
    facts += [f"{name} {values[name][0]}" for name in ("score", "row") if values.get(name)]
    ids = values["token_ids"]
    yield ", ".join([f"{len(ids)} tokens", *facts])
    hidden = dict(
        zip(values.get("masked_positions", ()), values.get("masked_ids", ()), strict=True)
    )
    segments = iter(values["segment_lengths"])
    start = stop = 0
    for number, part in enumerate(parts, 1):
        stop += part
        names = iter("ABCDEFGH")
        while start < stop:
            name = f"{number if len(parts) > 1 else ''}{next(names)}"
            end = start + next(segments)
            yield f"{name}: {_text(ids, range(start, end), hidden, tokenizer)}"
            start = end
    if target := values.get("target_ids"):
        yield f"target: {_text(target, range(len(target)), {}, tokenizer)}"


def _from_tf_models(values: Mapping[str, list]) -> dict[str, list]:
    ids = values.get("input_ids") or values["input_word_ids"]
    segments = values.get("segment_ids") or values["input_type_ids"]
    length = sum(values["input_mask"])
    second = sum(segments)
    predictions = sum(weight > 0 for weight in values["masked_lm_weights"])
    return {
        "token_ids": ids[:length],
        "segment_lengths": [length - second, second],
        "next_sentence_label": values["next_sentence_labels"],
        "masked_positions": values["masked_lm_positions"][:predictions],
        "masked_ids": values["masked_lm_ids"][:predictions],
    }


def _text(
    ids: list[int], positions: Iterable[int], hidden: Mapping[int, int], tokenizer: Any
) -> str:
    """Returns tokens as text; the pieces of a word are joined."""
    text = ""
    for position in positions:
        now = ids[position]
        was = hidden.get(position, now)
        shown = _plain(was, tokenizer)
        if position in hidden:
            shown = f"{{{shown}}}" if was == now else f"{{{shown} → {_plain(now, tokenizer)}}}"
        text += (" " if tokenizer.word_starts[was] else "") + shown
    return text.strip()


def _plain(token: int, tokenizer: Any) -> str:
    if token < 0:
        raise IndexError(token)
    piece = tokenizer.pieces[token]
    return piece.removeprefix("▁" if tokenizer.word_starts[token] else "##") or piece


def _lengths(histogram: Iterable[int]) -> Iterator[str]:
    histogram = list(histogram)
    step = -(-len(histogram) // _LENGTH_GROUPS)
    for start in range(0, len(histogram), step):
        if share := sum(histogram[start : start + step]) / max(sum(histogram), 1):
            yield f"{start}-{min(start + step, len(histogram)) - 1} {share:.1%}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def main(argv: list[str]) -> None:
    """Runs the command line; `argv` has the folder as its only argument."""
    if len(argv) != 2:
        raise UserError("name one shard folder: python -m tfrecords_tools.inspect_shards DIR")
    folder = paths.path(argv[1])
    for line in summary(folder):
        print(line)
    if flags.FLAGS.examples:
        for text in examples(folder, flags.FLAGS.examples):
            print(text)
    if flags.FLAGS.entropy:
        entropy, tokens = unigram_entropy(folder)
        print(f"unigram entropy: {entropy:.4f} nats over {tokens:,} tokens")
    if flags.FLAGS.verify:
        problems = verify(folder)
        print("\n".join(problems) or "verified: every file is as it was written")
        if not problems:
            started = time.monotonic()
            problems, count = verify_examples(folder)
            rate = count / max(time.monotonic() - started, 1e-9)
            print("\n".join(problems) or f"verified: {count:,} examples, {rate:,.0f} a second")
        if problems:
            sys.exit(1)


run = command_line.Command(main, define_flags, usage="DIR [FLAGS]")


if __name__ == "__main__":
    run()
