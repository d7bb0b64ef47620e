"""What may be asked of a model: the methods of `official.load(MODEL)` as bodies of requests.

Nothing that a request says makes a new graph, so that requests cannot fill the memory: settings
that would are those of the model folder.
"""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict, override

from official.evaluation import nearest_vectors
from official.evaluation.sparse_vectors import SparseVectors
from official.serving import zero_shot
from official.serving.exported_model import ExportedModel
from official.serving.generation import mask_filler
from official.serving.loaded_model import LoadedModel
from official.serving.vectors import stored
from official.utils import given_texts
from official.utils.errors import UserError

BATCH_SIZE = 32
_BYTES = 4  # of a text: about a token, in most scripts

Model = LoadedModel | ExportedModel
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Texts = Annotated[list[str], Field(description="Any number of texts.")]
Task = Annotated[str | None, Field(description="The head, for a model of several tasks.")]


class Operation(BaseModel):
    """The body of a request.

    Attributes:
      NAME: the name in the address.
      METHOD: the method of `LoadedModel` that does it.
      RESULT: the type of the result of an item.
    """

    model_config = ConfigDict(extra="forbid")

    NAME: ClassVar[str]
    METHOD: ClassVar[str]
    RESULT: ClassVar[Any]

    @classmethod
    def served(cls, model: Model) -> bool:
        """Whether a model can do it."""
        return cls.METHOD in model.methods

    @classmethod
    def examples(cls, model: Model) -> "list[Operation]":
        """Returns requests, with which a model is tried before it is served."""
        del model
        return [cls(texts=["a text"])]  # type: ignore[call-arg]

    def items(self) -> Sequence[Any]:
        """Returns what has a result each."""
        raise NotImplementedError

    def settings(self) -> Hashable:
        """Returns what is the same for all items: requests with equal settings share batches."""
        return ()

    def run(self, model: Model, items: Sequence[Any]) -> Sequence[Any]:
        """Returns the results of items, of this request and of others with equal settings."""
        raise NotImplementedError

    def finish(self, model: Model, results: Sequence[Any]) -> Sequence[Any]:
        """Returns what the response has of the results of this request."""
        del model
        return results


class _Vectors(Operation):
    """A vector for each text.

    Attributes:
      VECTORS: the kind of the vectors of the models that do it.
    """

    METHOD = "encode"
    VECTORS: ClassVar[str]

    texts: Texts
    prompt: str | None = Field(default=None, description="The name of a prompt of the model.")

    @override
    @classmethod
    def served(cls, model: Model) -> bool:
        return super().served(model) and _vectors_of(model) == cls.VECTORS

    @override
    def items(self) -> Sequence[str]:
        return self.texts

    @override
    def settings(self) -> Hashable:
        return self.prompt


class Embed(_Vectors):
    """A vector for each text: with the pooling, the norm and the prompt of the model folder."""

    NAME, VECTORS, RESULT = "embed", "dense", list[float]

    normalize: bool | None = Field(
        default=None, description="Vectors of length 1. null = as the model."
    )
    size: int | None = Field(
        default=None, ge=1, description="The number of first dimensions. null = as the model."
    )

    @override
    def run(self, model: Model, items: Sequence[str]) -> Sequence[np.ndarray]:
        # Of whole vectors without their norm all others are made.
        settings = dataclasses.replace(model.embedder.settings, size=None, normalize=False)
        vectors = model.embedder.texts(items, settings, batch_size=BATCH_SIZE, prompt=self.prompt)
        return list(vectors)

    @override
    def finish(self, model: Model, results: Sequence[np.ndarray]) -> list[list[float]]:
        return self.vectors(model, results).tolist()

    def vectors(self, model: Model, results: Sequence[np.ndarray]) -> np.ndarray:
        """Cuts the vectors of `run` and divides them by their lengths: float32 [N, D].

        Raises:
          UserError: they have fewer dimensions than `size`.
        """
        settings = model.embedder.settings
        rows = np.stack(results) if results else np.zeros((0, 0), np.float32)
        size = self.size or settings.size
        if results and size is not None and size > rows.shape[1]:
            raise UserError(f"size: {size}, and the vectors of this model have {rows.shape[1]}")
        rows = rows[:, :size]
        if settings.normalize if self.normalize is None else self.normalize:
            rows = nearest_vectors.normalized(rows)
        return rows


class EmbedSparse(_Vectors):
    """The words of each text with their weights, the largest first, of a model that has these."""

    NAME, VECTORS, RESULT = "embed_sparse", "sparse", dict[str, float]

    prompt: str | None = Field(
        default=None, description="The name of a prompt of the model, or query or document."
    )

    @override
    def run(self, model: Model, items: Sequence[str]) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        assert isinstance(model, LoadedModel)  # see `_vectors_of`
        vectors = model.embedder.sparse(items, self.prompt, batch_size=BATCH_SIZE)
        return [vectors.entries(number) for number in range(len(vectors))]

    @override
    def finish(self, model: Model, results: Sequence[Any]) -> Sequence[Any]:
        assert isinstance(model, LoadedModel)
        return [
            dict(named)
            for ids, weights in results
            for named in model.words(SparseVectors(np.array([0, len(ids)]), ids, weights, 0))
        ]


class Label(TypedDict, total=False):
    """The label of a text, or all labels of a text that may have several."""

    label: str
    labels: list[str]
    probabilities: dict[str, float]


class _OfHeads(Operation):
    """An operation on texts with a head that may be one of several."""

    texts: Any
    task: Task = None

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        return [cls(texts=["a text"], task=task or None) for task in model.tasks(cls.METHOD)]

    @override
    def items(self) -> Sequence[str | Sequence[str]]:
        return self.texts

    @override
    def settings(self) -> Hashable:
        return self.task, bool(self.texts) and isinstance(self.texts[0], str)


class Classify(_OfHeads):
    """The label of each text or pair of texts, and the probabilities of all labels."""

    NAME, METHOD, RESULT = "classify", "classify", Label

    texts: Texts | list[Pair]

    @override
    def run(self, model: Model, items: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        found = model.classify(items, batch_size=BATCH_SIZE, task=self.task)
        return [label._asdict() for label in found]


class ZeroShot(Operation):
    """The label of each text among those of the request, by a model of textual entailment."""

    NAME, METHOD, RESULT = "zero_shot", "classify", Label

    texts: Texts
    labels: list[str] = Field(description="The names of the classes.")
    hypothesis: str = Field(
        default=zero_shot.HYPOTHESIS, description="With {} in the place of a name."
    )
    several: bool = Field(default=False, description="Whether a text may have several labels.")
    task: Task = None

    @override
    @classmethod
    def served(cls, model: Model) -> bool:
        return isinstance(model, LoadedModel) and bool(cls._tasks(model))

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        assert isinstance(model, LoadedModel)  # see `served`
        tasks = cls._tasks(model)
        return [cls(texts=["a text"], labels=["a label"], task=task or None) for task in tasks]

    @staticmethod
    def _tasks(model: LoadedModel) -> list[str]:
        """Returns the names of the heads of textual entailment; that of an only head is ""."""
        heads = model.config.of_types("classification")
        return [head.task for head in heads if zero_shot.entails(head.labels)]

    @override
    def items(self) -> Sequence[tuple[str, str]]:
        return zero_shot.pairs(self.texts, self.labels, self.hypothesis)

    @override
    def settings(self) -> Hashable:
        return self.task

    @override
    def run(self, model: Model, items: Sequence[tuple[str, str]]) -> Sequence[np.ndarray]:
        assert isinstance(model, LoadedModel)  # see `served`
        return list(model.entailment(items, BATCH_SIZE, self.task))

    @override
    def finish(self, model: Model, results: Sequence[np.ndarray]) -> Sequence[Mapping[str, Any]]:
        assert isinstance(model, LoadedModel)
        logits = np.array(results, np.float32)
        found = model.entailed(logits, self.labels, self.several, self.task)
        return [label._asdict() for label in found]


class Score(_OfHeads):
    """A number for each text or pair of texts, of a model that has learned a regression."""

    NAME, METHOD, RESULT = "score", "score", float

    texts: Texts | list[Pair]

    @override
    def run(self, model: Model, items: Sequence[Any]) -> Sequence[float]:
        return model.score(items, batch_size=BATCH_SIZE, task=self.task).tolist()


class Rank(Operation):
    """A score for each document; the higher, the better it answers the query."""

    NAME, METHOD, RESULT = "rank", "rank", float

    query: str
    documents: Texts
    raw: bool = Field(default=False, description="Before the sigmoid of a model that has one.")

    @override
    def settings(self) -> Hashable:
        return self.raw

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        return [cls(query="a query", documents=["a document"])]

    @override
    def items(self) -> Sequence[tuple[str, str]]:
        return [(self.query, document) for document in self.documents]

    @override
    def run(self, model: Model, items: Sequence[tuple[str, str]]) -> Sequence[float]:
        queries, documents = zip(*items, strict=True)
        return model.rank(queries, documents, batch_size=BATCH_SIZE, raw=self.raw).tolist()


class Entity(TypedDict):
    """An entity of a text: `text[start:end]`, in characters, or in words of a list of words."""

    type: str
    text: str
    start: int
    end: int
    score: float


class Tag(_OfHeads):
    """The entities of each text. A text is a string, or the list of its words."""

    NAME, METHOD, RESULT = "tag", "tag", list[Entity]

    texts: Texts | list[list[str]]

    @override
    def run(self, model: Model, items: Sequence[Any]) -> Sequence[Any]:
        found = model.tag(items, batch_size=BATCH_SIZE, task=self.task)
        return [[entity._asdict() for entity in entities] for entities in found]


class Span(TypedDict):
    """An answer: `context[start:end]`, empty if there is none."""

    text: str
    start: int
    end: int
    score: float
    null_odds: float | None


class Answer(Operation):
    """The answer to each question from its context, which may have any length."""

    NAME, METHOD, RESULT = "answer", "answer", Span

    questions: Texts
    contexts: str | list[str] = Field(description="One for all questions, or one for each.")

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        return [cls(questions=["a question"], contexts="a text")]

    @override
    def items(self) -> Sequence[tuple[str, str]]:
        contexts = self.contexts
        if isinstance(contexts, str):
            contexts = [contexts] * len(self.questions)
        return _together(questions=self.questions, contexts=contexts)

    @override
    def run(self, model: Model, items: Sequence[tuple[str, str]]) -> Sequence[Any]:
        questions, contexts = zip(*items, strict=True)
        return [found._asdict() for found in model.answer(questions, contexts)]


class Chosen(TypedDict):
    """The most probable choice, and the probabilities of all."""

    index: int
    text: str
    probabilities: list[float]


class Choose(Operation):
    """One of the choices of each question."""

    NAME, METHOD, RESULT = "choose", "choose", Chosen

    contexts: Texts
    questions: Texts
    choices: list[Annotated[list[str], Field(min_length=1)]]

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        return [cls(contexts=["a text"], questions=["a question"], choices=[["one", "another"]])]

    @override
    def items(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        return _together(contexts=self.contexts, questions=self.questions, choices=self.choices)

    @override
    def run(self, model: Model, items: Sequence[Any]) -> Sequence[Any]:
        contexts, questions, choices = zip(*items, strict=True)
        found = model.choose(contexts, questions, choices)
        return [{**one._asdict(), "probabilities": one.probabilities.tolist()} for one in found]


class Filling(TypedDict):
    """A filling of a mask, and the text with it."""

    word: str
    probability: float
    token_ids: list[int]
    text: str


class FillMask(Operation):
    """The most probable fillings of each mask of each text."""

    NAME, METHOD, RESULT = "fill_mask", "fill_mask", list[list[Filling]]

    texts: Texts
    top_k: int = Field(
        default=mask_filler.TOP_K, ge=1, le=100, description="The number of fillings."
    )
    targets: list[str] | None = Field(
        default=None, description="The words to choose from. null = all."
    )

    @override
    @classmethod
    def examples(cls, model: Model) -> list[Operation]:
        assert isinstance(model, LoadedModel)  # an export has no such method
        return [cls(texts=[f"a {model.filler.mask} text"])]

    @override
    def items(self) -> Sequence[str]:
        return self.texts

    @override
    def settings(self) -> Hashable:
        return self.top_k, None if self.targets is None else tuple(self.targets)

    @override
    def run(self, model: Model, items: Sequence[str]) -> Sequence[Any]:
        assert isinstance(model, LoadedModel)
        found = model.fill_mask(items, self.top_k, self.targets, BATCH_SIZE)
        return [[[filling._asdict() for filling in mask] for mask in text] for text in found]


class Generate(Operation):
    """Continues texts, or generates texts from them.

    The number of tokens and the search are those of the model folder, or of the task.
    """

    NAME, METHOD, RESULT = "generate", "generate", list[str]

    texts: Texts
    task: Annotated[str | None, Field(description="A task of the model folder.")] = None
    temperature: float | None = Field(
        default=None, ge=0, description="0 = the most probable tokens."
    )
    top_k: int | None = Field(default=None, ge=0, description="0 = all tokens.")
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None

    @override
    def items(self) -> Sequence[str]:
        return self.texts

    @override
    def settings(self) -> Hashable:
        # The draws for a text depend on its number among those of a call.
        return (object() if self._draws() else ()), self.task

    @override
    def run(self, model: Model, items: Sequence[str]) -> Sequence[list[str]]:
        written = model.generate(items, task=self.task, **self._draws())
        copies = len(written) // len(items)
        return [written[i : i + copies] for i in range(0, len(written), copies)]

    def _draws(self) -> dict[str, Any]:
        """Returns the settings of sampling that the request has."""
        given = self.model_dump(include={"temperature", "top_k", "top_p", "seed"})
        return {name: value for name, value in given.items() if value is not None}


def _vectors_of(model: Model) -> str:
    """Returns the kind of the vectors of a model; exports serve dense ones alone."""
    return stored.kind_of(model.embedder) if isinstance(model, LoadedModel) else "dense"


def _together(**lists: Sequence[Any]) -> list[tuple]:
    """Returns the tuples of lists after a check that they have the same length."""
    given_texts.check_lengths(**lists)
    return list(zip(*lists.values(), strict=True))


OPERATIONS: tuple[type[Operation], ...] = (
    Embed, EmbedSparse, Classify, ZeroShot, Score, Rank, Tag, Answer, Choose, FillMask, Generate,
)  # fmt: skip


def size(item: Any) -> int:
    """Returns about how many tokens an item has."""
    if isinstance(item, str):
        return 1 + len(item.encode("utf-8", "replace")) // _BYTES
    return sum(map(size, item))
