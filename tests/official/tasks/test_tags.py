"""Tags of words: schemes, entities and repair; seqeval is the reference."""

import random

import pytest
from seqeval.metrics import sequence_labeling
from seqeval.scheme import BILOU, IOB2, IOBES, Entities

from official.tasks import tags
from official.utils.errors import UserError

SCHEMES = {"IOB2": IOB2, "IOBES": IOBES}


def _random(prefixes: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    choices = ["O", *(f"{p}-{t}" for p in prefixes for t in ("PER", "creative-work"))]
    return [rng.choice(choices) for _ in range(rng.randint(0, 12))]


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_entities_are_those_of_seqeval(prefixes):
    for seed in range(500):
        row = _random(prefixes, seed)
        expected = [(t, start, last + 1) for t, start, last in sequence_labeling.get_entities(row)]
        assert tags.entities(row) == expected, row


@pytest.mark.parametrize(
    ("row", "scheme"),
    [([], "IOB2"), (["O", "B-X", "I-X"], "IOB2"), (["S-X", "O"], "IOBES"), (["E-X"], "IOBES")],
)
def test_the_scheme_of_tags(row, scheme):
    assert tags.scheme(row) == scheme


def test_names_have_outside_first():
    assert tags.names(["I-b", "B-a", "B-b"]) == ("O", "B-a", "B-b", "I-b")
    assert tags.names(["O"]) == ("O",)


@pytest.mark.parametrize("tag", ["", "X", "B", "B-", "-X", "BI-X", "b-X", "L-X", "o"])
def test_another_tag_is_refused(tag):
    with pytest.raises(UserError, match="is neither 'O' nor 'B-TYPE'"):
        tags.scheme(["O", "B-X", tag])


def test_tags_that_mark_no_entities():
    row = ["DET", "NOUN", "VERB", "-LRB-", "X-Y"]
    assert tags.scheme(row) == tags.scheme(["O", "PER"]) == tags.PLAIN
    assert tags.names(row) == ("-LRB-", "DET", "NOUN", "VERB", "X-Y")
    assert tags.names(["PER", "O"]) == ("O", "PER")
    assert tags.entities(row) == [] and tags.repair(row) == (row, 0)
    with pytest.raises(UserError, match="tag '': is neither"):
        tags.scheme(["NOUN", ""])


@pytest.mark.parametrize(
    ("row", "repaired", "number"),
    [
        ("O B-X I-X O", "O B-X I-X O", 0),
        ("I-X I-X O", "B-X I-X O", 1),
        ("B-X I-Y", "B-X B-Y", 1),
        ("I-X B-X I-X", "B-X B-X I-X", 1),  # IOB1
        ("B-X I-X S-Y", "B-X E-X S-Y", 1),
        ("B-X O I-X E-X E-X", "S-X O B-X E-X S-X", 3),
    ],
)
def test_repair(row, repaired, number):
    assert tags.repair(row.split()) == (repaired.split(), number)
    assert tags.repair(repaired.split()) == (repaired.split(), 0)


def test_repair_by_the_scheme_of_the_data():
    assert tags.repair(["B-X", "I-X"], "IOBES") == (["B-X", "E-X"], 1)


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES"])
def test_written_entities_are_read_again(scheme):
    for seed in range(200):
        row = _random("BIES", seed)
        written = tags.write(tags.entities(row), len(row), scheme)
        assert tags.entities(written) == tags.entities(row)
        strict = [e.to_tuple()[1:] for e in Entities([written], SCHEMES[scheme]).entities[0]]
        assert strict == tags.entities(row)


BILOU_ROW = "B-A L-A O U-B B-B I-B L-B".split()
BMES_ROW = "B-A E-A O S-B B-B M-B E-B".split()
BIOES_ROW = "B-A E-A O S-B B-B I-B E-B".split()


@pytest.mark.parametrize(
    ("row", "read", "note"),
    [
        (BIOES_ROW, BIOES_ROW, ""),
        (BILOU_ROW, BIOES_ROW, "the tags are BILOU: L as E, U as S"),
        (BMES_ROW, BIOES_ROW, "the tags are BMES: M as I"),
        (["U-A", "O"], ["S-A", "O"], "the tags are BILOU: U as S"),
        (["M-A"], ["I-A"], "the tags are BMES: M as I"),
        (
            ["B_A", "I_A", "O", "B_B_C"],
            ["B-A", "I-A", "O", "B-B_C"],
            "the tags are written with _: B_A is read as B-A",
        ),
        (
            ["B", "I", "O"],
            ["B-_", "I-_", "O"],
            "the tags name no types: all entities have the type '_'",
        ),
        (
            ["U_A", "O"],
            ["S-A", "O"],
            "the tags are BILOU: U as S; the tags are written with _: U_A is read as U-A",
        ),
        (["B", "M", "E", "S"], ["B-_", "I-_", "E-_", "S-_"], "the tags are BMES: M as I; the tags"),
    ],
)
def test_other_spellings_of_the_schemes(row, read, note):
    spelling = tags.spelling(row)
    assert spelling(row) == tuple(read)
    assert spelling.note.startswith(note) and bool(spelling.note) == bool(note)


def test_entities_of_bilou_are_those_of_seqeval():
    for seed in range(200):
        row = tags.write(tags.entities(row := _random("BIES", seed)), len(row), "IOBES")
        given = [tag.replace("E-", "L-").replace("S-", "U-") for tag in row]
        expected = [e.to_tuple()[1:] for e in Entities([given], BILOU).entities[0]]
        assert tags.entities(tags.spelling(["U-PER", *given])(given)) == expected


def test_entities_without_types_are_those_of_seqeval():
    for seed in range(200):
        given = [tag[0] for tag in _random("BI", seed)]
        expected = [(t, a, b + 1) for t, a, b in sequence_labeling.get_entities(given)]
        assert tags.entities(tags.spelling(["B", *given])(given)) == expected


@pytest.mark.parametrize(
    "row", [["NOUN", "VERB"], ["U-boat", "NOUN"], ["S", "O"], ["L", "M", "V"], ["B_X", "NOUN"], []]
)
def test_labels_of_words_stay(row):
    assert tags.spelling(row) == tags.Spelling({})


@pytest.mark.parametrize("row", [["L-A", "E-A", "B-A"], ["U-A", "S-A"], ["M_A", "I_A"], ["I", "M"]])
def test_letters_of_two_schemes_are_refused(row):
    with pytest.raises(UserError, match="which no scheme has together: write all tags in one of"):
        tags.spelling(row)
