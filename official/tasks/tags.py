"""Tags of words: those that mark entities (BIO and BIOES), and others (parts of speech).

`O` is outside of all entities. In BIO, `B-X` begins an entity of type X and `I-X` continues it
(Ramshaw and Marcus 1995; Tjong Kim Sang and De Meulder 2003). BIOES also has `E-X` for the last
word of an entity and `S-X` for an entity of one word.

An entity is (type, first word, last word + 1). Tags of which none has the form of BIO or BIOES are
labels of single words, and there are no entities.

Files also write these schemes otherwise: BILOU and BMES have other letters, `B_X` another
separator, and B, I, O have no types. `spelling` says how the tags of files are read as these.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from official.utils.errors import UserError

OUTSIDE = "O"
BIO, BIOES = "IOB2", "IOBES"  # the names of seqeval
PLAIN = "labels"  # the scheme of tags that mark no entities
PREFIXES = {BIO: "BI", BIOES: "BIES"}
OPEN, CONTINUING = "BI", "IE"  # an entity may continue after OPEN, and with CONTINUING

NO_TYPE = "_"  # the type of entities whose tags name none, as in seqeval
# The letters of each scheme that a file may have, and the letter of BIO or BIOES that each one is.
LETTERS = {
    "BIO": {"B": "B", "I": "I"},
    "BIOES": {"B": "B", "I": "I", "E": "E", "S": "S"},
    "BILOU": {"B": "B", "I": "I", "L": "E", "U": "S"},
    "BMES": {"B": "B", "M": "I", "E": "E", "S": "S"},
}
_FORM = re.compile(r"([BIESLUM])(?:([-_])(.+))?", re.DOTALL)

Entity = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How tags of files are read as BIO or BIOES.

    Attributes:
      names: the tag that is read in the place of another one; other tags stay as they are.
      note: says to the user which tags are read in which way; "" = all tags stay as they are.
    """

    names: Mapping[str, str]
    note: str = ""

    def __call__(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Returns the tags as they are read."""
        return tuple(self.names.get(tag, tag) for tag in tags)


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


def spelling(tags: Iterable[str]) -> Spelling:
    """Returns how the tags of files are read as BIO or BIOES.

    Read are BILOU (`L-X` ends an entity, `U-X` is an entity of one word), BMES (`M-X` is inside of
    one), `B_X` for `B-X`, and letters alone, which are entities of the type `NO_TYPE`. If some tags
    have none of these forms, and none is of BIO or BIOES, the tags are labels of words and stay.

    Args:
      tags: all tags of the files.

    Raises:
      UserError: the letters are those of no scheme, such as L and E together.
    """
    inside = {tag for tag in tags if tag != OUTSIDE}
    forms = {tag: match.groups() for tag in sorted(inside) if (match := _FORM.fullmatch(tag))}
    separators = {separator for _, separator, _ in forms.values()}
    if "-" in separators:
        if len(forms) < len(inside) and not any(map(marks, inside)):
            return Spelling({})
        forms = {tag: form for tag, form in forms.items() if form[1] == "-"}
    elif len(forms) < len(inside) or len(separators) != 1:
        return Spelling({})
    letters = {letter for letter, _, _ in forms.values()}
    if None in separators and not letters & {"B", "I"}:
        return Spelling({})
    scheme = next((name for name, known in LETTERS.items() if letters <= set(known)), None)
    if scheme is None:
        raise UserError(
            f"the tags {', '.join(forms)} begin with {', '.join(sorted(letters))}, which no scheme "
            f"has together: write all tags in one of {', '.join(LETTERS)}"
        )
    names = {
        tag: f"{LETTERS[scheme][letter]}-{kind or NO_TYPE}"
        for tag, (letter, _, kind) in forms.items()
    }
    return Spelling({tag: name for tag, name in names.items() if tag != name}, _note(forms, scheme))


def _note(forms: Mapping[str, tuple], scheme: str) -> str:
    """Describes for the user how tags are read, if this differs from how they are written."""
    parts = []
    letters = sorted({letter for letter, _, _ in forms.values()})
    if others := [a for a in letters if LETTERS[scheme][a] != a]:
        read = ", ".join(f"{letter} as {LETTERS[scheme][letter]}" for letter in others)
        parts.append(f"the tags are {scheme}: {read}")
    separators = {separator for _, separator, _ in forms.values()}
    if separators == {"_"}:
        example = min(forms)
        parts.append(f"the tags are written with _: {example} is read as {_dashed(example)}")
    elif separators == {None}:
        parts.append(f"the tags name no types: all entities have the type {NO_TYPE!r}")
    return "; ".join(parts)


def _dashed(tag: str) -> str:
    return tag.replace("_", "-", 1)


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


scheme_of = scheme  # for functions with an argument named `scheme`


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
    entity ends before a word that does not continue it. Tags that belong to no scheme are outside
    all entities.
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
