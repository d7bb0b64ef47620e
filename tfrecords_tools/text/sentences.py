"""Splits paragraphs into sentences by rules.

A sentence ends with `.`, `!`, `?` and a blank, or with a stop of another script, which needs no
blank: 。 ｡ ． ！ ？ । ۔ ؟ ։ ။ ។ ። ། and others (Unicode's Sentence_Terminal). The rules need no
model, only lists of abbreviations. In doubt, two sentences stay together: for next-sentence
prediction and packing, a long sentence does less harm than a sentence that is cut.

Thai and Lao have no stops. A long run of them is cut at blanks, which stand between sentences and
between clauses, into pieces of some length.
"""

import functools
import itertools
import re
from typing import NamedTuple

from official.utils import unicode_tables
from official.utils.character_sets import inside_python_class

_SCRIPTS = inside_python_class(unicode_tables.STOPS)
_SPACED = ".!?…‼‽⁇⁈⁉"
_MARK = f"[{_SCRIPTS}{_SPACED};:\u037e]"
# The end of a sentence: the stops, closing marks, and a blank. The stops of other scripts need no
# blank, and a straight quote closes only before one; [1] is the number of a note. ";" is the
# question mark of Greek, and ":" is written for the stop of Armenian. The quantifiers are
# possessive and a match never begins within a run of stops, so that the time is linear in the
# length of any text. It begins with one class, which makes the search fast.
_STOP = re.compile(
    rf"""{_MARK}(?:
            (?<=[{_SPACED}])(?<![{_SPACED}].) [{_SPACED}]*+ ["'”’»)\]]*+ (?=\s)
          | (?<=[{_SCRIPTS}])(?<![{_SCRIPTS}].) [{_SCRIPTS}{_SPACED}]*+ [”’»」』）】〉》)\]፡]*+
            (?:["']++(?=\s|\Z))?+ (?:\[[^\s\[\]]{{1,4}}\])*+
          | (?<=[\u0370-\u03ff\u1f00-\u1fff][;\u037e]) (?=\s)
          | (?<=[\u0531-\u0587]:) (?=\s)
        ) \s*+""",
    re.VERBOSE | re.DOTALL,
)
_ASCII_STOP = re.compile(r"""[.!?](?<![.!?].)[.!?]*+["')\]]*+(?=\s)\s*+""", re.DOTALL)
_OF_SCRIPTS = re.compile(f"[{_SCRIPTS}]").match
_SECOND = re.compile(f"[{_SCRIPTS}](?<!．)").match  # "．" also follows the number of a list
_LAST_WORD = re.compile(r"""[^\s("'“‘«\[]*$""")
_LONGEST_WORD = 40
_OPENING = "\"'“‘«([{¿¡—–-"
_CLOSING = "\"'”’»)]"
# Abbreviations that never end a sentence: a name, a number or the rest of the phrase follows.
_NEVER = frozenset(
    "mr mrs ms messrs mme mlle dr prof st ste sr fr rev hon pres gov sen rep gen col maj capt cmdr "
    "lt sgt cpl pvt adm brig supt insp vs cf eg ie viz al ca approx art fig figs eq sec ch vol nos "
    "pp op ed eds trans dept univ assn bros mt ft ave blvd e.g i.e no p".split()
)
# Abbreviations that end a sentence only if a word follows that often begins one.
_PERHAPS = frozenset(
    "jr inc co corp ltd plc llc etc jan feb mar apr jun jul aug sep sept oct nov dec "
    "mon tue tues wed thu thur thurs fri sat sun est".split()
)
# Abbreviations of other languages that never end a sentence. A paragraph of English has its own.
_ELSEWHERE = frozenset(
    # Hindi and its neighbors, Thai, Vietnamese, Turkish, Russian and Ukrainian
    "डॉ डा श्री श्रीमती कु पं प्रो स्व सं रु मो मि ডা ডঃ ড মো ดร ศ รศ ผศ พล นพ tp ts ths pgs gs bs "
    "ks nxb q tr doç yrd sn av bkz örn yy им ул тыс млн млрд руб проф акад см стр т.е т.к "
    # German, Dutch, Nordic languages and Finnish
    "nr bzw hr frl str bd abs inkl ggf evtl vgl geb gest sog ing dipl z.b d.h u.a dhr mevr bijv "
    "blz mej kl bl.a t.ex fr.o.m mm esim ks ns os "
    # French, Italian, Spanish, Portuguese, Romanian
    "av env chap éd sig dott avv pag sra srta dra ud uds pág núm cap exmo dl dna nr "
    # Polish, Czech, Hungarian, Greek, Indonesian
    "ul np tzw św ks ur zm tzv např pl ún jl bpk drs π.χ".split()
)
# 3. Sınıf, am 3. Oktober, II. Dünya Savaşı: in languages that have one of these letters.
_ORDINAL = re.compile(r"\d{1,2}|[IVX]+")
_OF_ORDINALS = re.compile("[äöüßåøæıİşŞğčČšŠžŽřŘěďťňůľĺłŁąęśŚźżŻćńőűāēģīķļņūÄÖÜÅØÆ]")
# Words that nearly every English paragraph has.
_ENGLISH = re.compile(r"\b(?:the|of|and|to)\b", re.IGNORECASE)
_OTHER_LETTER = re.compile(r"[^\W\d_\x00-\x7f]")
# Scripts with a stop of their own: in a paragraph that has it, "." shortens a word. The stop, and
# the first and last letter.
_OWN_STOPS = (
    ("।", "\u0900", "\u0dff"), ("۔", "\u0600", "\u06ff"), ("։", "\u0531", "\u0587"),
    ("။", "\u1000", "\u109f"), ("។", "\u1780", "\u17ff"), ("።", "\u1200", "\u139f"),
)  # fmt: skip
# A piece of text without stops has so many characters at least.
_SHORTEST_PIECE = 90
_NO_STOPS = f"[{inside_python_class(unicode_tables.NO_STOPS)}]"
_HAS_NO_STOPS = re.compile(_NO_STOPS).search
# Before a blank there may be a vowel sign or a tone.
_BLANK = re.compile(
    rf"\s(?<=[{inside_python_class(unicode_tables.NO_STOPS, unicode_tables.COMBINING)}]\s)\s*+"
    rf"(?={_NO_STOPS})"
)
_OPENERS = frozenset(
    "A After All Although An And Another As At Because Before Both But By Despite During Each For "
    "From He Her His However I If In It Its Later Many Meanwhile Most My No On Once One Our She "
    "Since So Some Such That The Their Then There These They This Those Though Through Thus To "
    "Under Until We What When Where Which While Who With You Your".split()
)


class Sentences(NamedTuple):
    """The sentences of a paragraph.

    Attributes:
      texts: they are the paragraph, concatenated.
      at_blanks: how many of them end at a blank of a text without stops.
    """

    texts: list[str]
    at_blanks: int


def split(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph, in order.

    Concatenated, they are the paragraph: the white space between two sentences belongs to the
    second one.
    """
    return find(paragraph).texts


def find(paragraph: str) -> Sentences:
    """Returns the sentences of a paragraph, as `split` does, and how many end at a blank."""
    context = _Paragraph(paragraph)
    ends = [0]
    for stop in (_ASCII_STOP if paragraph.isascii() else _STOP).finditer(paragraph):
        end = stop.start() + len(stop.group().rstrip())
        between = paragraph[ends[-1] : end]
        if len(ends) > 1 and _SECOND(stop.group()) and not _has_letter(between):
            ends[-1] = end  # a second stop (། །), or the number of a verse (॥१॥)
        elif stop.end() < len(paragraph) and _ends(context, ends[-1], stop):
            ends.append(end)
    if ends[-1] < len(paragraph):
        ends.append(len(paragraph))
    texts = [paragraph[start:end] for start, end in itertools.pairwise(ends)]
    if not _HAS_NO_STOPS(paragraph):
        return Sentences(texts, 0)
    pieces = [piece for text in texts for piece in _at_blanks(text)]
    return Sentences(pieces, len(pieces) - len(texts))


class _Paragraph:
    """A paragraph, and hints about its language."""

    def __init__(self, text: str):
        self.text = text

    @functools.cached_property
    def is_other(self) -> bool:
        """Whether it has letters outside ASCII and none of the most frequent English words."""
        return _OTHER_LETTER.search(self.text) is not None and not _ENGLISH.search(self.text)

    @functools.cached_property
    def has_ordinals(self) -> bool:
        """Whether a number with a "." may be an ordinal."""
        return self.is_other and _OF_ORDINALS.search(self.text) is not None

    @functools.cached_property
    def own_stops(self) -> tuple[tuple[str, str], ...]:
        """The letters, first and last, of scripts whose own stop it has."""
        return tuple((low, high) for stop, low, high in _OWN_STOPS if stop in self.text)


def _ends(context: _Paragraph, start: int, stop: re.Match) -> bool:
    text = context.text
    mark = stop.group().rstrip()
    before = text[max(start, stop.start() - _LONGEST_WORD) : stop.start()]
    if _OF_SCRIPTS(mark):
        return _stop_ends(mark, before, text[(end := stop.start() + len(mark)) : end + 2])
    opening = text[stop.end() : stop.end() + _LONGEST_WORD].lstrip(_OPENING)
    if opening[:1].islower():
        return False
    if mark.rstrip(_CLOSING) != ".":
        return True
    word = _LAST_WORD.findall(before)[0]
    lower = word.lower()
    if lower in _NEVER:
        # "No." and "p." are abbreviations before a number only.
        return lower in ("no", "p") and not opening[:1].isdigit()
    if lower in _ELSEWHERE and context.is_other:
        return False
    if _ORDINAL.fullmatch(word) and context.has_ordinals:
        return False
    if word and any(low <= word[-1] <= high for low, high in context.own_stops):
        return False
    initial = len(word) == 1 and word.isalpha() and word != "I"
    if initial or "." in word.strip(".") or lower in _PERHAPS:
        return re.split(r"\W", opening, maxsplit=1)[0] in _OPENERS
    return True


def _stop_ends(mark: str, before: str, after: str) -> bool:
    """Returns whether a stop of another script ends a sentence.

    Args:
      mark: the stop, with other stops and closing marks after it.
      before: the characters before it.
      after: the next two characters.
    """
    if before[-1:].isdigit() and (mark == "．" or after[:1].isdigit()):  # ３．５, １．序, 10։30
        return False
    if mark in ("．", "۔"):  # initials: Ｊ．Ｋ．, م۔ ر۔
        word = re.split(r"[\s．۔]", before)[-1]
        return not (len(word) == 1 and word.isalpha())
    # ।[citation needed] is a note, and ។ល។ is "and so on" of Khmer.
    if mark == "។" and (after == "ល។" or before.endswith("។ល")):
        return False
    return after[:1] != "["


def _at_blanks(text: str) -> list[str]:
    """Returns the pieces of a sentence that has none of the stops of its script."""
    pieces, start = [], 0
    for blank in _BLANK.finditer(text):
        end = blank.start()
        if min(end - start, len(text) - blank.end()) >= _SHORTEST_PIECE:
            pieces.append(text[start:end])
            start = end
    return [*pieces, text[start:]]


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))
