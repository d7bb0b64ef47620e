"""Tagging tasks: named entities in CoNLL files."""

from official.tasks.task import Columns, Task

# The word, and the tag.
COLUMNS = Columns("0", None, "-1", header=False)

TASKS = (
    # Tjong Kim Sang and De Meulder, 2003: word, part of speech, chunk, entity; IOB1.
    Task(
        name="conll2003",
        kind="tagging",
        columns=COLUMNS,
        files={"train": "eng.train", "validation": "eng.testa", "test": "eng.testb"},
    ),
    # Derczynski et al., 2017: word, entity; BIO.
    Task(
        name="wnut17",
        kind="tagging",
        columns=COLUMNS,
        files={"train": "train.conll", "validation": "dev.conll", "test": "test.conll"},
        other_files={
            "train": ("wnut17train.conll",),
            "validation": ("emerging.dev.conll",),
            "test": ("emerging.test.annotated",),
        },
    ),
)
