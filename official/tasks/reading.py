"""Tasks of reading comprehension: the answer is a span of a text, or one of several choices."""

from official.tasks.kinds import METRICS
from official.tasks.task import Columns, Task

TASKS = (
    # Questions, and the spans that answer them (Rajpurkar et al., 2016; 2018).
    Task(
        name="squad1",
        kind="span",
        columns=Columns("question", "context", "answers"),
        metrics=("f1", "exact_match"),
        files={"train": "train-v1.1.json", "validation": "dev-v1.1.json"},
    ),
    Task(
        name="squad2",
        kind="span",
        columns=Columns("question", "context", "answers"),
        metrics=METRICS["span"][2:] + METRICS["span"][:2],
        files={"train": "train-v2.0.json", "validation": "dev-v2.0.json"},
        no_answers=True,
    ),
    # Examinations with an article and four choices (Lai et al., 2017): a folder of articles.
    Task(
        name="race",
        kind="choice",
        columns=Columns("article", "question", "answer"),
        labels=tuple("ABCD"),
        files={"train": "train", "validation": "dev", "test": "test"},
        blank=True,
    ),
    # What happens next, four endings (Zellers et al., 2018); the test file has no answers.
    Task(
        name="swag",
        kind="choice",
        columns=Columns("sent1", "sent2", "label"),
        labels=tuple("ABCD"),
        values=tuple("0123"),
        files={"train": "train.csv", "validation": "val.csv", "test": "test.csv"},
    ),
    # Examinations with a dialogue and three choices (Sun et al., 2019).
    Task(
        name="dream",
        kind="choice",
        columns=Columns("dialogue", "question", "answer"),
        labels=tuple("ABC"),
        files={"train": "train.json", "validation": "dev.json", "test": "test.json"},
        blank=True,
    ),
)
