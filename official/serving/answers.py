"""The results of the heads of tasks.

Shapes: K choices.
"""

from typing import NamedTuple

import numpy as np


class Label(NamedTuple):
    """The label of a text.

    Attributes:
      label: the most probable label.
      probabilities: the probability of each label by its name.
    """

    label: str
    probabilities: dict[str, float]


class Labels(NamedTuple):
    """The labels of a text that may have any number of them.

    Attributes:
      labels: those whose probability is at least their threshold, in the order of the model.
      probabilities: the probability of each label by its name.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
      text: `context[start:end]`; empty if there is no answer.
      start: the position of its first character in the context.
      end: the position after its last character.
      score: the score of the best span, even if the answer is empty.
      null_odds: the score of "there is no answer"; None if every question has an answer.
    """

    text: str
    start: int
    end: int
    score: float
    null_odds: float | None


class Choice(NamedTuple):
    """One of several choices.

    Attributes:
      index: the number of the most probable choice, from 0.
      text: the text of this choice.
      probabilities: the probability of each choice, float32 [K].
    """

    index: int
    text: str
    probabilities: np.ndarray


class Entity(NamedTuple):
    """An entity of a text.

    Attributes:
      type: the type that its tags name, such as "PER".
      text: `text[start:end]`, or for a text that is given as words these words joined by blanks.
      start: the position of its first character, or the number of its first word.
      end: the position after its last character, or the number of the word after its last one.
      score: the mean probability of the tags of its words.
    """

    type: str
    text: str
    start: int
    end: int
    score: float
