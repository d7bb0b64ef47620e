"""Entities of Python texts from the signatures `tag` and `tag_words`."""

from collections.abc import Sequence

import tensorflow as tf

from official.serving.answers import Entity
from official.serving.signatures.inputs import Signature
from official.tokenizers.text_tensors import characters
from official.utils.errors import UserError

TEXTS, WORDS = "tag", "tag_words"


def signature_of(texts: Sequence) -> str:
    """Returns the signature for strings, `TEXTS`, or for lists of words, `WORDS`.

    Raises:
      UserError: a text is neither, or some are strings and others are lists.
    """
    found = {}
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            _check_words(number, text)
        found.setdefault(isinstance(text, str), number)
    if len(found) > 1:
        raise UserError(
            f"texts: text {found[True]} is a string and text {found[False]} is a list of words: "
            "give all as strings or all as lists"
        )
    return WORDS if False in found else TEXTS


def _check_words(number: int, text: Sequence[str]) -> None:
    if not isinstance(text, list | tuple):
        raise UserError(f"texts: text {number} is neither a string nor a list of words: {text!r}")
    for word in text:
        if not isinstance(word, str):
            raise UserError(f"texts: text {number} has a word that is not a string: {word!r}")


def entities(graph: Signature, name: str, texts: Sequence) -> list[list[Entity]]:
    """Returns the entities of each text.

    Args:
      graph: the signature.
      name: `TEXTS` or `WORDS`.
      texts: the texts of a batch, as `name` says.
    """
    if name == TEXTS:
        outputs = graph(characters(texts))
    else:
        words = [word for text in texts for word in text]
        lengths = [len(text) for text in texts]
        outputs = graph(characters(words), tf.constant(lengths, tf.int32))
    values = {key: value.numpy().tolist() for key, value in outputs.items()}
    results = []
    for row, text in enumerate(texts):
        found = []
        for i in range(values["number"][row]):
            start, end = values["starts"][row][i], values["ends"][row][i]
            spelled = text[start:end] if name == TEXTS else " ".join(text[start:end])
            kind, score = values["types"][row][i].decode(), values["scores"][row][i]
            found.append(Entity(kind, spelled, start, end, score))
        results.append(found)
    return results
