"""Small tasks of texts whose vectors are compared: pairs of texts that begin with the same word."""

import numpy as np

from official import tasks, tokenizers
from official.tasks import Columns, beir, embeddings
from tests import small
from tfrecords_tools.tasks import builder as task_builder

PAIRS = embeddings.of_columns(Columns("first", "second"), name="pairs")
TRIPLES = embeddings.of_columns(Columns("first", "second"), ["third"], name="triples")
ALONE = embeddings.of_columns(Columns("first"), name="alone")
MARGINS = embeddings.of_columns(Columns("first", "second", "margin"), ["third"], name="margins")
LABELS = embeddings.of_task(
    tasks.generic("classification", "first", "second", "label", labels=["0.0", "5.0"]), "labels"
)
SCORES = embeddings.of_task(tasks.find("stsb"), "scores")


def rows(count, seed=0, same=12):
    """Rows of three texts: the first word of two is the same, and few first texts differ."""
    draw = np.random.default_rng(seed)
    words = draw.choice(small.WORDS, (same, 2))
    made = []
    for _ in range(count):
        topic, other = words[draw.integers(same)]
        rest = " ".join(draw.choice(small.WORDS, draw.integers(1, 5)))
        made.append([topic, f"{topic} {rest}", f"{other} {rest}"])
    return made


def table(path, task, count, seed):
    """The file of a task, with as many of the texts as it reads."""
    columns = task.columns
    names = [columns.text, columns.text_pair, *task.negative_columns, columns.label]
    lines = [[name for name in names if name is not None]]
    for number, texts in enumerate(rows(count, seed)):
        kept = texts[: len(lines[0]) - (columns.label is not None)]
        if columns.label is not None and len(kept) == 2:  # half of the pairs do not go together
            kept[1] = texts[1 + number % 2]
        lines.append(kept + [str(5.0 * (1 - number % 2))] * (columns.label is not None))
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


def shards(folder, task, max_length=12, seed=0, **counts):
    """A shard folder of a task; `counts` says how many rows each split has."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = {
        split: table(folder.with_name(f"{folder.name}-{split}.tsv"), task, count, seed + number)
        for number, (split, count) in enumerate(counts.items())
    }
    tokenizer = tokenizers.load(small.tokenizer_folder(folder.with_name("tokenizer")))
    task_builder.build(task, files, tokenizer, folder, max_length, report=lambda line: None)
    return folder


def collection(folder, count=60, same=True):
    """A folder of BEIR: a query is the word that the documents begin with that suit it, or not."""
    texts = {f"d{i}": text for i, (_, text, _) in enumerate(rows(count, seed=5))}
    words = sorted({text.split()[0] for text in texts.values()})
    queries = {f"q{i}": word for i, word in enumerate(words)}
    qrels = {
        query: {name: 1 for name, text in texts.items() if (text.split()[0] == word) == same}
        for query, word in queries.items()
    }
    beir.write(folder, queries, texts.items(), {"validation": qrels})
    return folder


def config(**changes):
    """A tiny encoder for them."""
    return small.config(
        segments=None,
        corruption=None,
        **{"objectives": [{"type": "sentence_embedding"}], **changes},
    )
