"""The post-processor of a `tokenizer.json`: the special tokens around texts, and their types.

`read` returns the post-processor of a file in one form for all types. `PostProcessor.of` returns
that of a tokenizer of this project. A file is supported if the two are equal:

  layout     a text         a pair
  cls_first  [CLS] A [SEP]  [CLS] A [SEP] B [SEP]  BERT, and with two [SEP] between texts RoBERTa
  cls_last   A [SEP] [CLS]  A [SEP] B [SEP] [CLS]  XLNet
  no_cls     A [SEP]        A [SEP] B [SEP]        T5
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from official.tokenizers.pair_forms import ONE, TWO, PairForm

LAYOUTS = ("cls_first", "cls_last", "no_cls")
_CLS_TYPE = 2  # of a [CLS] at the end


class Part(NamedTuple):
    """A text or a special token.

    Attributes:
      name: 'A' or 'B' for a text; the text of a special token.
      is_text: whether it is a text.
      type: the type of its tokens.
    """

    name: str
    is_text: bool
    type: int = 0


class Form(NamedTuple):
    """A post-processor, described by the settings of this project.

    Attributes:
      layout: one of `LAYOUTS`.
      cls: the first special token of a text; with `no_cls` None.
      sep: the token that ends a text.
      pairs: the form of a pair; None = its types are neither `two` nor `one` (`pair_forms`).
      separators: the number of `sep` between two texts.
    """

    layout: str
    cls: str | None
    sep: str
    pairs: PairForm | None
    separators: int


@dataclasses.dataclass(frozen=True)
class PostProcessor:
    """The rows of a text and of a pair."""

    single: tuple[Part, ...]
    pair: tuple[Part, ...]

    @classmethod
    def of(cls, first: str, last: str, pairs: PairForm, layout: str) -> Self:
        """Returns the post-processor of a tokenizer of this project.

        Args:
          first: the text of its [CLS].
          last: the text of its [SEP].
          pairs: the form of a pair.
          layout: one of `LAYOUTS`.
        """
        start, end = Part(first, False), Part(last, False)
        second = pairs.type_of(1)
        before = (start,) if layout == "cls_first" else ()
        after = (start._replace(type=pairs.type_of(_CLS_TYPE)),) if layout == "cls_last" else ()
        text, other = Part("A", True), Part("B", True, second)
        between = (end,) * pairs.separators
        return cls(
            (*before, text, end, *after),
            (*before, text, *between, other, end._replace(type=second), *after),
        )

    def untyped(self) -> Self:
        """Returns the post-processor with type 0 for all tokens."""
        single, pair = (
            tuple(part._replace(type=0) for part in row) for row in (self.single, self.pair)
        )
        return dataclasses.replace(self, single=single, pair=pair)

    @property
    def adds_tokens(self) -> bool:
        """Whether it adds special tokens."""
        return not all(part.is_text for part in (*self.single, *self.pair))

    def words(self) -> str:
        """Describes both rows in words; types are shown if they are not 0."""
        single, pair = (
            " ".join(f"{part.name}:{part.type}" if part.type else part.name for part in row)
            for row in (self.single, self.pair)
        )
        return f"{single} and {pair}"

    def form(self) -> Form | None:
        """Returns its form; None = tokenizers of this project have no such form."""
        names = [part.name for part in self.single if not part.is_text]
        if len(names) not in (1, 2):
            return None
        for layout, separators in itertools.product(LAYOUTS, (1, 2)):
            *cls, sep = names[::-1] if layout == "cls_last" else names
            if len(cls) != (layout != "no_cls"):
                continue
            plain = self.of((cls or [sep])[0], sep, PairForm(separators, ONE), layout)
            if plain != self.untyped():
                continue
            first = cls[0] if cls else None
            forms = [PairForm(separators, types) for types in (TWO, ONE)]
            same = [f for f in forms if self.of(first or sep, sep, f, layout) == self]
            return Form(layout, first, sep, same[0] if same else None, separators)
        return None

    def template(self, ids: Mapping[str, int]) -> dict[str, Any]:
        """Returns the `post_processor` of a `tokenizer.json`.

        Args:
          ids: the ids of its special tokens.
        """

        def written(part: Part) -> dict[str, Any]:
            kind = "Sequence" if part.is_text else "SpecialToken"
            return {kind: {"id": part.name, "type_id": part.type}}

        used = dict.fromkeys(part.name for part in self.pair if not part.is_text)
        return {
            "type": "TemplateProcessing",
            "single": [written(part) for part in self.single],
            "pair": [written(part) for part in self.pair],
            "special_tokens": {
                name: {"id": name, "ids": [i], "tokens": [name]}
                for name, i in ids.items()
                if name in used
            },
        }


def read(steps: list[dict[str, Any]]) -> PostProcessor | None:
    """Returns the post-processor of a file.

    Args:
      steps: the steps of the post-processor; empty = the file has none.

    Returns:
      The post-processor; None = its type is not known here.
    """
    steps = [step for step in steps if step["type"] != "ByteLevel"]  # ByteLevel adds no tokens
    if not steps:
        return PostProcessor((Part("A", True),), (Part("A", True), Part("B", True, 1)))
    step = steps[0]
    if len(steps) > 1:
        return None
    if step["type"] in ("BertProcessing", "RobertaProcessing"):
        cls, sep = step["cls"][0], step["sep"][0]
        form = PairForm() if step["type"] == "BertProcessing" else PairForm(2, ONE)
        return PostProcessor.of(cls, sep, form, "cls_first")
    if step["type"] != "TemplateProcessing":
        return None
    named = step.get("special_tokens") or {}

    def part(piece: dict[str, Any]) -> Part:
        [(kind, said)] = piece.items()
        tokens = (named.get(said["id"]) or {}).get("tokens") or [said["id"]]
        name = said["id"] if kind == "Sequence" else " ".join(tokens)
        return Part(name, kind == "Sequence", said.get("type_id", 0))

    return PostProcessor(*(tuple(map(part, step[key])) for key in ("single", "pair")))
