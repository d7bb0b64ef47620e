"""The tabs of the page: each has a form, and makes results of it with a model.

A tab is shown if a model can do what it is about. The results are those of the methods of
`official.load(DIR)`, whose arguments are the fields of the form.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official.plots import attention, figures
from official.serving import predictor
from official.serving.generation import generator, mask_filler
from official.serving.loaded_model import LoadedModel
from official.serving.vectors import stored
from official.tasks import tags
from official.utils.errors import UserError
from official.web.results import Cell, Matrix, Picture, Result, Table, marked

_QUERY = "How much does a ticket cost?"
_DOCUMENTS = (
    "The museum opens at nine.\nAdults pay twelve euros, children nothing.\n"
    "The nearest station is Central.\nDogs are not allowed in the exhibition."
)
_TEXTS = (
    "The cat sleeps on the mat.\nA kitten naps on a rug.\nThe shop closes at noon.\n"
    "The store is open until midday."
)
_SENTENCE = "The cat sleeps on the mat."
_DEFAULT = "the default"
_MASKS = re.compile(r"\[MASK\]|<mask>|<extra_id_\d+>")  # of BERT, RoBERTa and T5
_MOST_TOKENS = 64  # of a table of attention weights; the picture has all
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
      optional: what an empty field stands for, in words; "" = it must be filled in.
      mask: the mask of the model, in a field for a text with masks; "" = in other fields.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    choices: Sequence[str] = ()
    optional: str = ""
    mask: str = ""

    def text(self, form: Mapping[str, str]) -> str:
        """Returns the text of the field in a form, or its first one.

        Masks of other models stand for that of the model, if a text has none of its own.
        """
        text = form.get(self.name, self.value)
        if not self.mask or self.mask in text:
            return text
        numbers = itertools.count()  # T5 has a mask for each number
        return _MASKS.sub(lambda _: self.mask.replace("0", str(next(numbers))), text)

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
      about: what the model does here, in a sentence or two.
      able: whether a model can do what the tab shows.
      fields: gives the fields of the form for a model.
      apply: makes the results from a model and the values of the fields by their names.
    """

    title: str
    about: str
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
            text = field.text(form)
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
        Field("text", f"Text with {mask}", "text", f"The capital of France is {mask}.", mask=mask),
        Field("top_k", "Words for each mask", "whole", str(mask_filler.TOP_K), optional=_DEFAULT),
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
        Field("second", "Second text, for a model of pairs", "text", optional="no text"),
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
        marked(context, [(found.start, found.end, "answer")] if found.text else []),
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
    labels = [
        tags.split(label)[1] if tags.marks(label) else label
        for head in model.config.of_types("token_classification")
        for label in head.labels
        if label != tags.OUTSIDE
    ]
    spans = [(entity.start, entity.end, entity.type) for entity in entities]
    return [
        marked(text, spans, list(dict.fromkeys(labels))),
        Table(("type", "text", "start", "end", "score"), entities, share=4),
    ]


def _rank_fields(model: LoadedModel) -> list[Field]:
    return [
        Field("query", "Query", "line", _QUERY),
        Field("documents", "Documents", "lines", _DOCUMENTS),
    ]


def _rank(model: LoadedModel, query: str, documents: Sequence[str]) -> list[Result]:
    scores = model.rank(query, documents).tolist()
    rows = sorted(zip(scores, documents, strict=True), key=lambda row: -row[0])
    return [Table(("score", "text"), rows)]


def _compare(model: LoadedModel, texts: Sequence[str]) -> list[Result]:
    vectors = model.encode(texts, normalize=True)
    numbers = [str(i) for i in range(1, len(texts) + 1)]
    rows = [f"{i}. {text}" for i, text in zip(numbers, texts, strict=True)]
    return [Matrix("Cosines", rows, numbers, (vectors @ vectors.T).tolist())]


def _search(
    model: LoadedModel, query: str, documents: Sequence[str], top_k: int = 10
) -> list[Result]:
    numbers, scores = model.search([query], documents, top_k)
    found = zip(scores[0].tolist(), numbers[0].tolist(), strict=True)
    rows = [(score, documents[number]) for score, number in found if score > -np.inf]
    return [Table(("score", "text"), rows, share=0)]


def _generation_fields(model: LoadedModel) -> list[Field]:
    tasks = list(model.generation.tasks)
    return [
        Field("prompt", "Prompt", "text", "Once upon a time"),
        *([Field("task", "Task", "choice", "", ["", *tasks], optional="no task")] if tasks else []),
        Field("max_new_tokens", "New tokens at most", "whole", optional=_DEFAULT),
        Field("temperature", "Temperature", "decimal", optional=_DEFAULT),
        Field("top_k", "Top k", "whole", optional=_DEFAULT),
        Field("top_p", "Top p", "decimal", optional=_DEFAULT),
        Field("num_beams", "Beams", "whole", optional=_DEFAULT),
        Field("num_return_sequences", "Texts", "whole", optional=_DEFAULT),
        Field("seed", "Seed", "whole", optional=_DEFAULT),
    ]


def _generate(model: LoadedModel, prompt: str, **options: Any) -> list[Result]:
    return [Table(("text",), [(text,) for text in model.generate([prompt], **options)])]


_LAYER_AND_HEAD = (
    Field("layer", "Layer, from 0", "whole", optional="the last"),
    Field("head", "Head, from 0", "whole", optional="the mean"),
)


def _attends(model: LoadedModel) -> bool:
    return model.config.encoder.num_heads > 0


def _attention(
    model: LoadedModel, text: str, layer: int | None = None, head: int | None = None
) -> list[Result]:
    tokens, layers = attention.weights(text, model.tokenizer, model.model, model.max_length)
    matrix = _matrix(tokens, tokens, layers, layer, head)
    return [matrix, _picture(attention.draw(tokens, layers), layers)]


def _reads_and_writes(model: LoadedModel) -> bool:
    return "generate" in model.methods and generator.objective(model.model) == "seq2seq_lm"


def _cross_attention(
    model: LoadedModel, text: str, target: str, layer: int | None = None, head: int | None = None
) -> list[Result]:
    inputs, targets, layers = attention.cross_weights(
        text, target, model.tokenizer, model.model, model.max_length
    )
    matrix = _matrix(targets, inputs, layers, layer, head)
    return [matrix, _picture(attention.draw_cross(inputs, targets, layers), layers)]


def _matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    layers: Sequence[np.ndarray],
    layer: int | None,
    head: int | None,
) -> Matrix:
    """Returns the weights of a layer [N, T, S], by default the last, and a head or their mean."""
    for name, number, count in (("Layer", layer, len(layers)), ("Head", head, len(layers[0]))):
        if number is not None and not 0 <= number < count:
            raise UserError(f"{name}: {number} is not one of 0 to {count - 1}")
    layer = len(layers) - 1 if layer is None else layer
    title = f"Layer {layer}, " + ("mean of the heads" if head is None else f"head {head}")
    if max(len(rows), len(columns)) > _MOST_TOKENS:
        title += f", the first {_MOST_TOKENS} tokens"
    weights = layers[layer].mean(0) if head is None else layers[layer][head]
    rows, columns = rows[:_MOST_TOKENS], columns[:_MOST_TOKENS]
    return Matrix(title, rows, columns, weights[: len(rows), : len(columns)].tolist())


def _picture(figure: Any, layers: Sequence[np.ndarray]) -> Picture:
    description = f"attention weights, {len(layers)} layers × {len(layers[0])} heads"
    return Picture(figures.png(figure, "the attention weights"), description)


# The tabs by their names in the address, in the order of the page.
TABS: dict[str, Tab] = {
    "fill_mask": Tab(
        "Fill masks",
        "A mask hides a word of the text. The model says which words may stand there, and how "
        "probable each one is.",
        _has("fill_mask"),
        _mask_fields,
        _fill_mask,
    ),
    "classify": Tab(
        "Classify",
        "The model gives the text, or the pair of texts, one of its labels or several. It says how "
        "probable each one is.",
        _has("classify"),
        lambda model: _text_fields(model, "classify"),
        _classify,
    ),
    "score": Tab(
        "Score",
        "The model gives the text, or the pair of texts, a number.",
        _has("score"),
        lambda model: _text_fields(model, "score"),
        _score,
    ),
    "answer": Tab(
        "Answer",
        "The model looks for the answer to a question in a text, and marks the place where it is.",
        _has("answer"),
        lambda model: [
            Field("question", "Question", "line", "Where does Anna Meyer live?"),
            Field("context", "Text with the answer", "text", _STORY),
        ],
        _answer,
    ),
    "choose": Tab(
        "Choose",
        "The model reads a text and a question, and chooses one of the answers that you offer.",
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
        "The model marks parts of the text, such as names of people and places, each with its "
        "label.",
        _has("tag"),
        lambda model: [Field("text", "Text", "text", _STORY), *_task(model, "tag")],
        _tag,
    ),
    "rank": Tab(
        "Rank",
        "The model reads the query together with each document, and puts the documents in order, "
        "the best first.",
        _has("rank"),
        _rank_fields,
        _rank,
    ),
    "compare": Tab(
        "Compare",
        "The model makes a vector of each text. The table has the cosines between them: 1 is the "
        "same direction, and texts of similar meaning should come near it.",
        lambda model: stored.kind_of(model.embedder) == "dense",
        lambda model: [Field("texts", "Texts", "lines", _TEXTS)],
        _compare,
    ),
    "search": Tab(
        "Search",
        "The model makes a vector of the query and of each document. The documents whose vectors "
        "are nearest to that of the query come first.",
        lambda model: True,
        lambda model: [
            *_rank_fields(model),
            Field("top_k", "Documents at most", "whole", "10", optional=_DEFAULT),
        ],
        _search,
    ),
    "generate": Tab(
        "Generate",
        "The model continues the prompt, or writes a text for it. Empty fields take the settings "
        "of the model.",
        _has("generate"),
        _generation_fields,
        _generate,
    ),
    "attention": Tab(
        "Attention",
        "How much each token, on the left, reads from each token at the top. The table has one "
        "layer, and the picture below it all layers and heads.",
        _attends,
        lambda model: [
            Field("text", "Text", "text", _SENTENCE),
            *_LAYER_AND_HEAD,
        ],
        _attention,
    ),
    "cross_attention": Tab(
        "Attention of the decoder",
        "How much the decoder reads from each token of the text, at the top, where it writes each "
        "token of its own, on the left.",
        _reads_and_writes,
        lambda model: [
            Field("text", "Text", "text", _SENTENCE),
            Field("target", "Text of the decoder", "text", "A cat sleeps."),
            *_LAYER_AND_HEAD,
        ],
        _cross_attention,
    ),
}
