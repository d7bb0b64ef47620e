"""The files of texts beside the shards of a task, which scores and predictions need.

  questions-SPLIT.jsonl   a span task: one paragraph per line, with its questions and their answers
  references-SPLIT.jsonl  text to text: one example per line, with its right answers
  words-SPLIT.jsonl       tagging: one text per line, with its words and tags
  SPLIT.run, SPLIT.qrels  a ranking: the candidates of each query, and their grades if any are known

The manifest has the SHA-256 of each file: of the first three under `files`, and of those of a
ranking under `candidates` of its config.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from official.shards.manifest import ADVICE, Manifest
from official.tasks import trec
from official.utils import checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath


class Question(NamedTuple):
    """One question of a span task.

    Predictions are slices of the original text, and are scored against the original answers.

    Attributes:
      id: the id in the source file.
      text: the question.
      context: the text that may contain the answer.
      answers: the right answers; empty = the context has no answer; None = they are not known.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...] | None


def write_questions(
    folder: str | os.PathLike, split: str, questions: Mapping[int, Question]
) -> dict[str, str]:
    """Writes questions in their order.

    The row of a question is the number after that of the question before it, or the one that its
    record names.

    Args:
      folder: the shard folder.
      split: the split.
      questions: the questions by the `row` of their examples, which increases.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    befores = [-1, *questions][:-1]
    rows = zip(befores, questions.items(), strict=True)
    records = (
        {"context": context, "questions": [_question_record(*each) for each in group]}
        for context, group in itertools.groupby(rows, key=lambda each: each[1][1].context)
    )
    return _write(folder, f"questions-{split}.jsonl", records)


def _question_record(before: int, item: tuple[int, Question]) -> dict[str, Any]:
    """Returns the record of a question, given the row of the question before it."""
    row, question = item
    given = {} if row == before + 1 else {"row": row}
    known = {} if question.answers is None else {"answers": question.answers}
    return {"id": question.id, **given, "text": question.text, **known}


def read_questions(folder: str | os.PathLike, split: str, content: Manifest) -> dict[int, Question]:
    """Reads the questions of a split by the `row` of their examples, in order.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = (
        "a task of questions and spans; make them with build_task_shards --task=squad1 or squad2"
    )
    questions: dict[int, Question] = {}
    row = -1
    for paragraph in _read(folder, f"questions-{split}.jsonl", content, advice):
        for asked in paragraph["questions"]:
            row = asked.get("row", row + 1)
            answers = tuple(asked["answers"]) if "answers" in asked else None
            questions[row] = Question(asked["id"], asked["text"], paragraph["context"], answers)
    return questions


class Reference(NamedTuple):
    """The answers to one example of text to text.

    Targets are token ids, which a tokenizer may not decode to the same text, so answers are scored
    against these texts.

    Attributes:
      row: the number of the example's row in its source file.
      id: the id of a question in its source file; empty = it has none.
      answers: the right answers: one label, score or text, or all answers to a question; None =
        they are not known.
    """

    row: int
    id: str
    answers: tuple[str, ...] | None


def write_references(
    folder: str | os.PathLike, split: str, references: Iterable[Reference]
) -> dict[str, str]:
    """Writes references in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    return _write(folder, f"references-{split}.jsonl", map(_known, references))


def read_references(
    folder: str | os.PathLike, split: str, content: Manifest
) -> dict[int, Reference]:
    """Reads the references of a split, by the `row` of the example.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = "a task of text to text; make them with build_task_shards --text_to_text"
    references = {}
    for values in _read(folder, f"references-{split}.jsonl", content, advice):
        answers = tuple(values["answers"]) if "answers" in values else None
        references[values["row"]] = Reference(values["row"], values["id"], answers)
    return references


class TaggedText(NamedTuple):
    """One text of a tagging task.

    Predictions are written beside the words, and are scored against the tags.

    Attributes:
      words: the words.
      tags: the tag of each word; None = they are not known.
      text: the text that was split into the words; None = the words were given.
      offsets: the first character of each word in `text`, and the character after its last one.
      spans: the start, the end and the type of each entity in characters, where the tags have some
        of them widened to whole words; None = the tags have them as they are.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    spans: tuple[tuple[int, int, str], ...] | None = None


def write_tagged(
    folder: str | os.PathLike, split: str, texts: Iterable[TaggedText]
) -> dict[str, str]:
    """Writes texts in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    return _write(folder, f"words-{split}.jsonl", map(_tagged_record, texts))


def _tagged_record(text: TaggedText) -> dict[str, Any]:
    record: dict[str, Any] = {"words": text.words}
    if text.tags is not None:
        record["tags"] = text.tags
    if text.text is not None:
        record |= {"text": text.text, "offsets": text.offsets}
    if text.spans is not None:
        record["spans"] = text.spans
    return record


def read_tagged(folder: str | os.PathLike, split: str, content: Manifest) -> list[TaggedText]:
    """Reads the texts of a split; the `row` of an example is the index of its text.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = "a tagging task; make them with build_task_shards --task=tagging"
    return [
        TaggedText(
            tuple(each["words"]),
            tuple(each["tags"]) if "tags" in each else None,
            each.get("text"),
            tuple(map(tuple, each.get("offsets", ()))),
            tuple(map(tuple, each["spans"])) if "spans" in each else None,
        )
        for each in _read(folder, f"words-{split}.jsonl", content, advice)
    ]


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidates of a split of a ranking.

    Each split but `train` has them. The example with row r is on line r + 1 of `SPLIT.run`.

    Attributes:
      pairs: the (query, document) of each example, by its `row`.
      qrels: the grades of the documents of these queries; empty if none are known.
    """

    pairs: tuple[tuple[str, str], ...]
    qrels: trec.Qrels

    def run(self, rows: np.ndarray, scores: np.ndarray) -> trec.Run:
        """Returns the scores [B] of some rows [B] as a run, with the queries in order."""
        run: dict[str, dict[str, float]] = {}
        for row, score in sorted(zip(rows.tolist(), scores, strict=True), key=lambda pair: pair[0]):
            query, document = self.pairs[row]
            run.setdefault(query, {})[document] = score
        return run


def write_candidates(
    folder: AnyPath, split: str, run: trec.Run, qrels: trec.Qrels
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """Writes the candidates of a split.

    Returns:
      The pairs in the order of their rows, and the SHA-256 of each file by name.
    """
    with (folder / f"{split}.run").open("w", encoding="utf-8") as stream:
        trec.write_run(stream, run, "candidates")
    names = [f"{split}.run"]
    judged = {query: qrels[query] for query in run if qrels.get(query)}
    if judged:
        names.append(f"{split}.qrels")
        with (folder / names[-1]).open("w", encoding="utf-8") as stream:
            trec.write_qrels(stream, judged)
    return _pairs(folder / names[0]), {name: checksums.hash_file(folder / name) for name in names}


def read_candidates(folder: AnyPath, manifest: Manifest, split: str) -> Candidates:
    """Reads the candidates of a split.

    Raises:
      UserError: the split has no candidates, or a file is missing or has changed.
    """
    digests = manifest.candidates
    if f"{split}.run" not in digests:
        others = sorted({name.partition(".")[0] for name in digests})
        raise UserError(
            f"{folder}: the {split} split has no candidates to rank"
            + (f": name --split={' or '.join(others)}" if others else "")
        )
    for name, expected in digests.items():
        if name.startswith(f"{split}."):
            checksums.check(folder / name, expected, ADVICE)
    known = f"{split}.qrels" in digests
    return Candidates(
        _pairs(folder / f"{split}.run"),
        trec.read_qrels(folder / f"{split}.qrels") if known else {},
    )


def _pairs(path: AnyPath) -> tuple[tuple[str, str], ...]:
    try:
        with path.open(encoding="utf-8") as stream:
            return tuple((cells[0], cells[2]) for cells in map(str.split, stream))
    except (IndexError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a run in TREC's format ({error}): {ADVICE}") from None


def _known(row: Reference) -> dict[str, Any]:
    """Returns the fields of a row that are not None."""
    return {name: value for name, value in row._asdict().items() if value is not None}


def _write(
    folder: str | os.PathLike, name: str, records: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Writes one record per line, in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    with (paths.path(folder) / name).open("wb") as stream:
        for record in records:
            stream.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())
    return {name: checksums.hash_file(paths.path(folder) / name)}


def _read(
    folder: str | os.PathLike, name: str, content: Manifest, advice: str
) -> Iterator[dict[str, Any]]:
    """Yields the records of a file.

    Args:
      folder: the shard folder.
      name: the name of the file.
      content: the manifest of the folder.
      advice: what the message about a missing file says of the shards.

    Raises:
      UserError: the file is missing or has changed.
    """
    if name not in content.files:
        raise UserError(f"{folder} has no {name}: its shards are not those of {advice}")
    path = paths.path(folder) / name
    checksums.check(path, content.files[name], ADVICE)
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not JSON ({error}): {ADVICE}") from None
