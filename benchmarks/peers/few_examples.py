"""The sides of `benchmarks.few_examples`.

The setting is `model`, a folder of sentence-transformers. A request has the `train` and `test`
rows, a text and a label each, and the `seed`; the answer has the `labels` of the test rows and the
seconds of CPU time of the training, `cpu`.
"""

import tempfile
import time
from collections.abc import Callable

import server

Rows = list[tuple[str, str]]


def answers(train: Callable[[Rows, int], Callable[[list[str]], list[str]]]) -> None:
    """Answers requests with a function that returns that of the labels of texts."""

    def answer(request: dict) -> dict:
        cpu = time.process_time()
        labels_of = train(request["train"], request["seed"])
        cpu = time.process_time() - cpu
        return {"labels": labels_of([text for text, _ in request["test"]]), "cpu": cpu}

    server.serve(answer)


def ours(settings: dict) -> None:
    """`official.finetune(few=True)`."""
    import official

    def train(rows: Rows, seed: int) -> Callable[[list[str]], list[str]]:
        texts, labels = zip(*rows, strict=True)
        with tempfile.TemporaryDirectory() as folder:
            model = official.finetune(
                list(texts),
                list(labels),
                init=settings["model"],
                model_dir=f"{folder}/model",
                few=True,
                seed=seed,
                report=lambda line: None,
            )
        return lambda given: [found.label for found in model.classify(given)]

    answers(train)


def setfit(settings: dict) -> None:
    """SetFit with its own settings: an epoch of batches of 16."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def train(rows: Rows, seed: int) -> Callable[[list[str]], list[str]]:
        names = sorted({label for _, label in rows})
        columns = {
            "text": [text for text, _ in rows],
            "label": [names.index(label) for _, label in rows],
        }
        model = SetFitModel.from_pretrained(settings["model"])
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder, seed=seed, report_to="none", save_strategy="no"
            )
            trainer = Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns))
            trainer.train()
        return lambda given: [names[int(number)] for number in model.predict(given)]

    answers(train)


def regression(settings: dict) -> None:
    """A logistic regression on the vectors of the model as it is."""
    from sklearn.linear_model import LogisticRegression

    import official

    model = official.load(settings["model"])

    def train(rows: Rows, seed: int) -> Callable[[list[str]], list[str]]:
        texts, labels = zip(*rows, strict=True)
        head = LogisticRegression(max_iter=1000).fit(model.encode(list(texts)), labels)
        return lambda given: head.predict(model.encode(given)).tolist()

    answers(train)


if __name__ == "__main__":
    server.main(ours, setfit, regression)
