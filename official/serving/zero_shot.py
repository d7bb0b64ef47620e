"""Classes that no training has seen, by a model of textual entailment (Yin et al., 2019).

A class becomes a hypothesis ("This example is about sports."), and its score says whether the text
entails it. The scores are those of the pipeline `zero-shot-classification` of transformers.

Shapes: N texts, K classes, C labels of the model.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.special

from official.utils import given_texts
from official.utils.errors import UserError

HYPOTHESIS = "This example is {}."
_PLACE = "{}"
_YES = "entail"  # what the name of its label begins with


class Entailment(NamedTuple):
    """The labels of a model of entailment that decide.

    Attributes:
      yes: the number of the label that says that a text entails a hypothesis.
      no: that of the label that says the opposite.
    """

    yes: int
    no: int

    @classmethod
    def of(cls, labels: Sequence[str]) -> "Entailment":
        """Finds the labels by their names, in any case: the first one that begins with "entail".

        The opposite begins with "contradict", or else with "not"; or else it is the first label, or
        the last if that is the one of entailment.

        Raises:
          UserError: no label begins so.
        """
        names = [label.lower() for label in labels]
        yes = _first(names, _YES)
        if yes is None:
            raise UserError(
                "classify: labels are chosen by a model of textual entailment, with a label "
                f"'entailment', but this one has {', '.join(map(repr, labels))}: take a model that "
                "was trained on MNLI or the like, or call classify without labels"
            )
        no = _first(names, "contradict")
        no = _first(names, "not") if no is None else no
        if no is None:
            no = len(names) - 1 if yes == 0 else 0
        return cls(yes, no)

    def probabilities(self, logits: np.ndarray, several: bool) -> np.ndarray:
        """Returns the probability of each class, float32 [N, K].

        Args:
          logits: of the text and the hypothesis of each class, [N, K, C].
          several: whether a text may have several classes, whose probabilities are independent; if
            not, those of a text add up to 1. A single class has that of `several`.
        """
        if several or logits.shape[1] == 1:
            both = logits[:, :, [self.no, self.yes]]
            return scipy.special.softmax(both, axis=-1)[:, :, 1]
        return scipy.special.softmax(logits[:, :, self.yes], axis=-1)


def entails(labels: Sequence[str]) -> bool:
    """Whether the labels of a model are those of textual entailment; see `Entailment.of`."""
    return _first([label.lower() for label in labels], _YES) is not None


def pairs(texts: Sequence[str], labels: Sequence[str], template: str) -> list[tuple[str, str]]:
    """Returns each text with the hypothesis of each class, the classes of a text in turn."""
    every = hypotheses(labels, template)
    return [(text, hypothesis) for text in texts for hypothesis in every]


def hypotheses(labels: Sequence[str], template: str) -> list[str]:
    """Returns the hypothesis of each class: the template with its name in place of `{}`.

    Raises:
      UserError: a name is empty or there twice, there are none, or the template has no place.
    """
    given_texts.check_list(labels, "labels")
    names = given_texts.plain(labels, "labels")
    if not names:
        raise UserError("labels: there are none: give the names of the classes")
    for number, name in enumerate(names):
        if not name.strip():
            raise UserError(f"labels: label {number} is empty: give each class a name")
        if name in names[:number]:
            raise UserError(f"labels: {name!r} is there twice")
    if template.count(_PLACE) != 1:
        raise UserError(
            f"hypothesis: {template!r} has the place of the label, {_PLACE}, "
            f"{template.count(_PLACE)} times, and needs it once: such as {HYPOTHESIS!r}"
        )
    return [template.replace(_PLACE, name) for name in names]


def _first(names: Sequence[str], beginning: str) -> int | None:
    return next((i for i, name in enumerate(names) if name.startswith(beginning)), None)
