"""Small choice tasks: questions whose right choice is made of other words than the wrong ones."""

import json

import numpy as np

from official import tasks, tokenizers
from tests import small
from tfrecords_tools.tasks import builder as task_builder

RIGHT, WRONG, OTHER = small.WORDS[:20], small.WORDS[20:40], small.WORDS[40:]


def rows(count, seed=0, choices=3, longest=12):
    """Questions as JSON Lines have them; texts of 1 to `longest` words."""
    draw = np.random.default_rng(seed)

    def text(words, most):
        return " ".join(draw.choice(words, draw.integers(1, most + 1)))

    result = []
    for _ in range(count):
        answer = int(draw.integers(choices))
        among = [text(RIGHT if i == answer else WRONG, 4) for i in range(choices)]
        result.append(
            {"context": text(OTHER, longest), "question": text(OTHER, 4), "choices": among}
            | {"answer": answer}
        )
    return result


def write(path, questions):
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    return path


def shards(folder, max_length=24, task=None, **splits):
    """A shard folder of questions; `splits` gives those of each."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = {
        split: write(folder.with_name(f"{folder.name}-{split}.jsonl"), questions)
        for split, questions in splits.items()
    }
    tokenizer = tokenizers.load(
        small.tokenizer_folder(folder.with_name(folder.name + "-tokenizer"))
    )
    task_builder.build(
        task or tasks.choice(), files, tokenizer, folder, max_length, report=lambda line: None
    )
    return folder


def config(**changes):
    """A tiny encoder for them."""
    return small.config(
        segments=None, corruption=None, objectives=[{"type": "multiple_choice"}], **changes
    )
