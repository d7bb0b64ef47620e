"""The tabs of the page: each has a form, and makes results of it with a model.

A tab is shown if a model can do what it is about. The results are those of the methods of
`official.load(DIR)`, whose arguments are the fields of the form.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official.plots import attention, figures
from official.serving import predictor
from official.serving.generation import generator, mask_filler
from official.serving.loaded_model import LoadedModel
from official.utils.errors import UserError
from official.web.results import Cell, Picture, Result, Table, marked

_DOCUMENTS = "The cat sleeps on the mat.\nA dog runs through the park.\nThe market closes at noon."
_STORY = "Anna Meyer moved from Berlin to Paris in 1998. She works for the museum there."


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a form.

    Attributes:
      name: the argument of the method.
      label: what the page calls it.
      kind: `text` (any number of lines), `line`, `lines` (a text on each line), `whole` or
        `decimal` (a number), or `choice`.
      value: what it contains at first.
      choices: the values of a field of the kind `choice`.
      optional: whether the method's default is taken if the field is empty.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    choices: Sequence[str] = ()
    optional: bool = False

    def read(self, text: str) -> Any:
        """Returns the value that a text of the field stands for.

        Raises:
          UserError: the text is not a number, or there is no line.
        """
        text = text.replace("\r\n", "\n")  # browsers end lines with \r\n
        if self.kind == "lines":
            lines = [line for line in text.split("\n") if line.strip()]
            if not lines:
                raise UserError(f"{self.label}: there is no text: write one on each line")
            return lines
        if self.kind not in _NUMBERS:
            return text
        number, name = _NUMBERS[self.kind]
        try:
            return number(text)
        except ValueError:
            raise UserError(f"{self.label}: {text!r} is not {name}") from None


_NUMBERS: dict[str, tuple[Callable[[str], int | float], str]] = {
    "whole": (int, "a whole number"),
    "decimal": (float, "a number"),
}


@dataclasses.dataclass(frozen=True)
class Tab:
    """What the page can do with a model.

    Attributes:
      title: what the page calls it.
      able: whether a model can do what the tab shows.
      fields: gives the fields of the form for a model.
      apply: makes the results from a model and the values of the fields by their names.
    """

    title: str
    able: Callable[[LoadedModel], bool]
    fields: Callable[[LoadedModel], Sequence[Field]]
    apply: Callable[..., list[Result]]

    def results(self, model: LoadedModel, form: Mapping[str, str]) -> list[Result]:
        """Returns the results of a form.

        Args:
          model: a model for which `able` is true.
          form: the texts of fields by their names. Other fields have their first values.

        Raises:
          UserError: a text is not what its field takes, or the model refuses it.
        """
        arguments = {}
        for field in self.fields(model):
            text = form.get(field.name, field.value)
            if text.strip() or not field.optional:
                arguments[field.name] = field.read(text)
        return self.apply(model, **arguments)


def _has(method: str) -> Callable[[LoadedModel], bool]:
    return lambda model: method in model.methods


def _task(model: LoadedModel, method: str) -> list[Field]:
    """Returns the field of the task of a model of several tasks."""
    names = model.tasks(method)
    return [Field("task", "Task", "choice", names[0], names)] if len(names) > 1 else []


def _mask_fields(model: LoadedModel) -> list[Field]:
    mask = model.filler.mask
    return [
        Field("text", f"Text with {mask}", "text", f"The capital of France is {mask}."),
        Field("top_k", "Words for each mask", "whole", str(mask_filler.TOP_K), optional=True),
    ]


def _fill_mask(model: LoadedModel, text: str, top_k: int = mask_filler.TOP_K) -> list[Result]:
    [masks] = model.fill_mask([text], top_k)
    return [
        Table(
            ("word", "probability", "text"),
            [(filling.word, filling.probability, filling.text) for filling in fillings],
            f"Mask {number}",
            share=1,
        )
        for number, fillings in enumerate(masks, 1)
    ]


def _text_fields(model: LoadedModel, method: str) -> list[Field]:
    return [
        Field("text", "Text", "text", "The film is a delight from its first minute."),
        Field("second", "Second text, for a model of pairs", "text", optional=True),
        *_task(model, method),
    ]


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [text]


def _classify(
    model: LoadedModel, text: str, second: str | None = None, task: str | None = None
) -> list[Result]:
    [found] = model.classify([text], _listed(second), task=task)
    chosen = [found.label] if isinstance(found, predictor.Label) else found.labels
    rows = sorted(found.probabilities.items(), key=lambda row: -row[1])
    title = ", ".join(chosen) or "no label"
    return [Table(("label", "probability"), rows, title, share=1)]


def _score(
    model: LoadedModel, text: str, second: str | None = None, task: str | None = None
) -> list[Result]:
    [score] = model.score([text], _listed(second), task=task).tolist()
    return [Table(("score",), [(score,)])]


def _answer(model: LoadedModel, question: str, context: str) -> list[Result]:
    [found] = model.answer([question], context)
    columns = ["answer", "start", "end", "score"]
    row: list[Cell] = [*found[:4]]
    if found.null_odds is not None:
        columns.append("score of no answer")
        row.append(found.null_odds)
    return [
        marked(context, [(found.start, found.end, "")] if found.text else []),
        Table(columns, [row], "" if found.text else "no answer"),
    ]


def _choose(
    model: LoadedModel, context: str, question: str, choices: Sequence[str]
) -> list[Result]:
    [found] = model.choose([context], [question], [choices])
    rows = list(zip(choices, found.probabilities.tolist(), strict=True))
    return [Table(("choice", "probability"), rows, found.text, share=1)]


def _tag(model: LoadedModel, text: str, task: str | None = None) -> list[Result]:
    [entities] = model.tag([text], task=task)
    return [
        marked(text, [(entity.start, entity.end, entity.type) for entity in entities]),
        Table(("type", "text", "start", "end", "score"), entities, share=4),
    ]


def _rank_fields(model: LoadedModel) -> list[Field]:
    return [
        Field("query", "Query", "line", "Where does the cat sleep?"),
        Field("documents", "Documents", "lines", _DOCUMENTS),
    ]


def _rank(model: LoadedModel, query: str, documents: Sequence[str]) -> list[Result]:
    scores = model.rank(query, documents).tolist()
    rows = sorted(zip(scores, documents, strict=True), key=lambda row: -row[0])
    return [Table(("score", "text"), rows)]


def _compare(model: LoadedModel, texts: Sequence[str]) -> list[Result]:
    vectors = model.encode(texts, normalize=True)
    cosines = (vectors @ vectors.T).tolist()
    rows = [(i, *row, text) for i, (row, text) in enumerate(zip(cosines, texts, strict=True), 1)]
    return [Table(("", *map(str, range(1, len(texts) + 1)), "text"), rows, "Cosines")]


def _search(
    model: LoadedModel, query: str, documents: Sequence[str], top_k: int = 10
) -> list[Result]:
    numbers, scores = model.search([query], documents, top_k)
    found = zip(scores[0].tolist(), numbers[0].tolist(), strict=True)
    return [Table(("score", "text"), [(score, documents[number]) for score, number in found])]


def _generation_fields(model: LoadedModel) -> list[Field]:
    tasks = list(model.generation.tasks)
    return [
        Field("prompt", "Prompt", "text", "Once upon a time"),
        *([Field("task", "Task", "choice", "", ["", *tasks], optional=True)] if tasks else []),
        Field("max_new_tokens", "New tokens at most", "whole", optional=True),
        Field("temperature", "Temperature", "decimal", optional=True),
        Field("top_k", "Top k", "whole", optional=True),
        Field("top_p", "Top p", "decimal", optional=True),
        Field("num_beams", "Beams", "whole", optional=True),
        Field("num_return_sequences", "Texts", "whole", optional=True),
        Field("seed", "Seed", "whole", optional=True),
    ]


def _generate(model: LoadedModel, prompt: str, **options: Any) -> list[Result]:
    return [Table(("text",), [(text,) for text in model.generate([prompt], **options)])]


def _attends(model: LoadedModel) -> bool:
    return model.config.encoder.num_heads > 0


def _attention(model: LoadedModel, text: str) -> list[Result]:
    tokens, layers = attention.weights(text, model.tokenizer, model.model, model.max_length)
    return [_picture(attention.draw(tokens, layers), layers)]


def _reads_and_writes(model: LoadedModel) -> bool:
    return "generate" in model.methods and generator.objective(model.model) == "seq2seq_lm"


def _cross_attention(model: LoadedModel, text: str, target: str) -> list[Result]:
    inputs, targets, layers = attention.cross_weights(
        text, target, model.tokenizer, model.model, model.max_length
    )
    return [_picture(attention.draw_cross(inputs, targets, layers), layers)]


def _picture(figure: Any, layers: Sequence[np.ndarray]) -> Picture:
    description = f"attention weights, {len(layers)} layers × {len(layers[0])} heads"
    return Picture(figures.png(figure, "the attention weights"), description)


# The tabs by their names in the address, in the order of the page.
TABS: dict[str, Tab] = {
    "fill_mask": Tab("Fill masks", _has("fill_mask"), _mask_fields, _fill_mask),
    "classify": Tab(
        "Classify",
        _has("classify"),
        lambda model: _text_fields(model, "classify"),
        _classify,
    ),
    "score": Tab("Score", _has("score"), lambda model: _text_fields(model, "score"), _score),
    "answer": Tab(
        "Answer",
        _has("answer"),
        lambda model: [
            Field("question", "Question", "line", "Where does Anna Meyer live?"),
            Field("context", "Text with the answer", "text", _STORY),
        ],
        _answer,
    ),
    "choose": Tab(
        "Choose",
        _has("choose"),
        lambda model: [
            Field("context", "Text", "text", _STORY),
            Field("question", "Question", "line", "Where does Anna Meyer work?"),
            Field("choices", "Choices", "lines", "in a museum\nin a bank\nin a school"),
        ],
        _choose,
    ),
    "tag": Tab(
        "Tag",
        _has("tag"),
        lambda model: [Field("text", "Text", "text", _STORY), *_task(model, "tag")],
        _tag,
    ),
    "rank": Tab("Rank", _has("rank"), _rank_fields, _rank),
    "compare": Tab(
        "Compare",
        lambda model: True,
        lambda model: [Field("texts", "Texts", "lines", _DOCUMENTS)],
        _compare,
    ),
    "search": Tab(
        "Search",
        lambda model: True,
        lambda model: [
            Field("query", "Query", "line", "Where does the cat sleep?"),
            Field("documents", "Documents", "lines", _DOCUMENTS),
            Field("top_k", "Documents at most", "whole", "10", optional=True),
        ],
        _search,
    ),
    "generate": Tab("Generate", _has("generate"), _generation_fields, _generate),
    "attention": Tab(
        "Attention",
        _attends,
        lambda model: [Field("text", "Text", "text", "The cat sleeps on the mat.")],
        _attention,
    ),
    "cross_attention": Tab(
        "Attention of the decoder",
        _reads_and_writes,
        lambda model: [
            Field("text", "Text", "text", "The cat sleeps on the mat."),
            Field("target", "Text of the decoder", "text", "A cat sleeps."),
        ],
        _cross_attention,
    ),
}
