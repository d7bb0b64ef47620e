"""Finds pronouns of sentences by clauses with a candidate."""

import pytest

from experiments import pronouns_in_clauses

JUG = "I poured water from the jug into the cup until it was full."


@pytest.mark.parametrize(
    "sentence, clause, expected",
    [
        (JUG, "The cup was full.", "I poured water from the jug into the cup until [the cup]"),
        # Of two pronouns, the one with the words of the clause around it.
        ("Ann saw it, but Joe lost it again.", "Joe lost the ring again", "Joe lost [the ring]"),
        ("Ann saw it, but Joe lost it again.", "ANN SAW the ring", "Ann saw [the ring],"),
        # At the start of a sentence, and a possessive.
        ("The drain is full of hair. It must go!", "the hair must go", "hair. [The hair] must"),
        ("Joe met Bo in his new house.", "Joe met Bo in Joe's new house.", "Bo in [Joe's] new"),
        ("Joe met Bo in his new house.", "Bo in Dr. Joe's new house.", "Bo in [Dr. Joe's] new"),
        # What begins the clause may begin no sentence; a name keeps its capital.
        ("Mother woke because she heard Jo.", "Mother heard Jo.", "because [Mother] heard"),
        ("A dog ran as it heard Jo.", "Dog heard Jo.", "ran as [dog] heard"),
        # Four words and more only as the sentence has them.
        (
            "A cup and two old jugs fell, so they broke.",
            "The two old jugs broke",
            "so [the two old",
        ),
        ("A cup and two old jugs fell, so they broke.", "The two big old jugs broke", None),
        ("Jo said he left.", "She thinks that he left.", None),  # another pronoun
        (JUG, "The cup is empty.", None),  # no word next to the pronoun
        ("No such word here.", "The cup was full.", None),
        (JUG, "", None),
        ("", "The cup was full.", None),
    ],
)
def test_the_pronoun_with_the_words_of_the_clause_around_it(sentence, clause, expected):
    found = pronouns_in_clauses.find(sentence, clause)
    if expected is None:
        assert found is None
        return
    filled = f"{sentence[: found.start]}[{found.candidate}]{sentence[found.end :]}"
    assert expected in filled
