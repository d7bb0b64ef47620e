"""Small files of SQuAD's form, and shards of them, for tests."""

import json
from pathlib import Path

import numpy as np

from official import tasks, tokenizers
from tests import small
from tfrecords_tools.tasks import builder as task_builder

SIZES = {"max_length": 32, "doc_stride": 10, "max_query_length": 6}


def document(*paragraphs, title="Title") -> dict:
    """A file's contents of paragraphs: (context, [(id, question, [(answer, start), ...]), ...])."""
    result = []
    for context, asked in paragraphs:
        qas = []
        for key, question, answers in asked:
            actual = [{"text": text, "answer_start": start} for text, start in answers]
            qas.append(
                {"id": key, "question": question, "answers": actual, "is_impossible": not answers}
            )
        result.append({"context": context, "qas": qas})
    return {"version": "test", "data": [{"title": title, "paragraphs": result}]}


def make(count: int, no_answers: bool = False, seed: int = 0) -> dict:
    """Paragraphs of random words, with odd blanks and accents between them.

    A question is the word before its answer, which is one word or two; one without an answer is a
    word that its context lacks.
    """
    rng = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = list(rng.permutation(small.WORDS)[: rng.integers(8, 45)])
        absent = next(word for word in small.WORDS if word not in words)
        accented = [w.replace("a", "á").capitalize() if rng.random() < 0.3 else w for w in words]
        blanks = [str(rng.choice([" ", "  ", "\u3000", " \u200b"])) for _ in words]
        context = "".join(map("".join, zip(blanks, accented, strict=True)))
        asked = []
        for k in range(int(rng.integers(1, 4))):
            place = int(rng.integers(0, len(words) - 2))
            length = int(rng.integers(1, 3))
            start = sum(map(len, accented[: place + 1])) + sum(map(len, blanks[: place + 2]))
            end = start + sum(map(len, accented[place + 1 : place + 1 + length]))
            end += sum(map(len, blanks[place + 2 : place + 1 + length]))
            answers = [(context[start:end], start)]
            if no_answers and k == 0:
                asked.append((f"{number}-{k}", absent, []))
            else:
                asked.append((f"{number}-{k}", words[place], answers))
        paragraphs.append((context, asked))
    return document(*paragraphs)


def shard_folder(folder: Path, no_answers: bool = False, count: int = 24, tokenizer=None) -> Path:
    """Shards with a train and a validation split."""
    files = {}
    for seed, split in enumerate(("train", "validation")):
        files[split] = folder.with_name(f"{folder.name}-{split}.json")
        files[split].parent.mkdir(parents=True, exist_ok=True)
        files[split].write_text(json.dumps(make(count, no_answers, seed)))
    task = tasks.TASKS["squad2" if no_answers else "squad1"]
    if tokenizer is None:
        tokenizer = tokenizers.load(
            small.tokenizer_folder(folder.with_name(folder.name + "-tokenizer"))
        )
    task_builder.build(task, files, tokenizer, folder, **SIZES, report=lambda line: None)
    return folder
