"""Tags of words: those that mark entities (BIO and BIOES), and others (parts of speech).

`O` is outside of all entities. In BIO, `B-X` begins an entity of type X and `I-X` continues it
(Ramshaw and Marcus 1995; Tjong Kim Sang and De Meulder 2003). BIOES also has `E-X` for the last
word of an entity and `S-X` for an entity of one word.

An entity is (type, first word, last word + 1). Tags of which none has the form of BIO or BIOES are
labels of single words, and there are no entities.
"""

import itertools
from collections.abc import Iterable, Sequence

from official.utils.errors import UserError

OUTSIDE = "O"
BIO, BIOES = "IOB2", "IOBES"  # the names of seqeval
PLAIN = "labels"  # the scheme of tags that mark no entities
PREFIXES = {BIO: "BI", BIOES: "BIES"}
OPEN, CONTINUING = "BI", "IE"  # an entity goes on after the first, with the second

Entity = tuple[str, int, int]


def split(tag: str) -> tuple[str, str]:
    """Returns the prefix and the type of a tag; ("O", "") for `O`.

    Raises:
      UserError: the tag is neither `O` nor one of `B-X`, `I-X`, `E-X` and `S-X`.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, kind = tag.partition("-")
    if not dash or not kind or prefix not in tuple(PREFIXES[BIOES]):
        raise UserError(
            f"tag {tag!r}: is neither 'O' nor 'B-TYPE' or 'I-TYPE' (BIO), 'E-TYPE' or 'S-TYPE' "
            "(BIOES), as other tags here are: write all tags in one of these schemes, or none"
        )
    return prefix, kind


def marks(tag: str) -> bool:
    """Returns whether a tag has the form of BIO or BIOES, and is not `O`."""
    prefix, _, kind = tag.partition("-")
    return bool(kind) and prefix in tuple(PREFIXES[BIOES])


def scheme(tags: Iterable[str]) -> str:
    """Returns the scheme of tags.

    Returns:
      "IOBES" if a tag is `E-X` or `S-X`; "labels" if no tag has the form of these schemes and one
      is not `O`; "IOB2" otherwise.

    Raises:
      UserError: some tags have the form of a scheme and others do not, or a tag is empty.
    """
    tags = set(tags)
    if tags - {OUTSIDE} and "" not in tags and not any(map(marks, tags)):
        return PLAIN
    prefixes = {split(tag)[0] for tag in sorted(tags)}
    return BIOES if prefixes & {"E", "S"} else BIO


scheme_of = scheme  # for functions with an argument of that name


def names(tags: Iterable[str]) -> tuple[str, ...]:
    """Returns the different tags: `O` first, then the others sorted.

    `O` is always there, except among tags that mark no entities.
    """
    tags = set(tags)
    outside = OUTSIDE in tags or scheme(tags) != PLAIN
    return (*[OUTSIDE] * outside, *sorted(tags - {OUTSIDE}))


def entities(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities by the rule of conlleval, which is seqeval's default mode.

    `I-X` or `E-X` begins an entity after `O`, after another type and after the end of an entity. An
    entity ends before a word that does not continue it. Tags of no scheme are outside of all.
    """
    found: list[Entity] = []
    last, open_type = OUTSIDE, ""
    for i, tag in enumerate(tags):
        prefix, kind = split(tag) if marks(tag) else (OUTSIDE, "")
        if prefix != OUTSIDE:
            if prefix in CONTINUING and last in OPEN and kind == open_type:
                found[-1] = (kind, found[-1][1], i + 1)
            else:
                found.append((kind, i, i + 1))
        last, open_type = prefix, kind
    return found


def write(found: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of a text of `length` words with the entities, which do not overlap."""
    tags = [OUTSIDE] * length
    for kind, start, end in found:
        tags[start:end] = [f"{prefix}-{kind}" for prefix in _prefixes(end - start, scheme)]
    return tags


def repair(tags: Sequence[str], scheme: str = "") -> tuple[list[str], int]:
    """Writes the entities that conlleval finds as tags of the scheme.

    Tags in IOB1, where `B-X` is only between two entities of one type, become BIO.

    Args:
      tags: the tags of a text.
      scheme: "IOB2" or "IOBES", or "labels", where nothing is changed; "" = that of the tags.

    Returns:
      The tags, and the number of tags that are changed.
    """
    wanted = scheme or scheme_of(tags)
    if wanted == PLAIN:
        return list(tags), 0
    repaired = write(entities(tags), len(tags), wanted)
    return repaired, sum(a != b for a, b in zip(tags, repaired, strict=True))


def _prefixes(length: int, scheme: str) -> list[str]:
    if scheme == BIO:
        return ["B", *itertools.repeat("I", length - 1)]
    return ["S"] if length == 1 else ["B", *itertools.repeat("I", length - 2), "E"]
