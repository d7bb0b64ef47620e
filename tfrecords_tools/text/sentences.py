"""Splits paragraphs into sentences by rules.

The rules are for running text in languages that end a sentence with `.`, `!`, `?` and a blank, or
with an ideographic full stop, exclamation or question mark. They need no model, only a list of
abbreviations. In doubt, two sentences stay together: for next-sentence prediction and packing, a
long sentence does less harm than a sentence that is cut.
"""

import re

# The end of a sentence: the stops, closing marks, and a blank. Ideographic stops need no blank. The
# quantifiers are possessive and a match never begins within a run of stops, so that the time is
# linear in the length of any text.
_STOP = re.compile(
    r"""(?: (?<![.!?…।؟]) [.!?…।؟]++ ["'”’»)\]]*+ (?=\s)
          | (?<![。！？｡]) [。！？｡]++ [”’」』）】〉》]*+ ) \s*+""",
    re.VERBOSE,
)
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
_OPENERS = frozenset(
    "A After All Although An And Another As At Because Before Both But By Despite During Each For "
    "From He Her His However I If In It Its Later Many Meanwhile Most My No On Once One Our She "
    "Since So Some Such That The Their Then There These They This Those Though Through Thus To "
    "Under Until We What When Where Which While Who With You Your".split()
)


def split(paragraph: str) -> list[str]:
    """Returns the sentences of a paragraph, in order.

    Concatenated, they are the paragraph: the white space between two sentences belongs to the
    second one.
    """
    sentences = []
    start = 0
    for stop in _STOP.finditer(paragraph):
        if stop.end() < len(paragraph) and _ends(paragraph, start, stop):
            end = stop.start() + len(stop.group().rstrip())
            sentences.append(paragraph[start:end])
            start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:])
    return sentences


def _ends(text: str, start: int, stop: re.Match) -> bool:
    mark = stop.group().rstrip()
    if mark[0] in "。！？｡":
        return True
    opening = text[stop.end() : stop.end() + _LONGEST_WORD].lstrip(_OPENING)
    if opening[:1].islower():
        return False
    if mark.rstrip(_CLOSING) != ".":
        return True
    before = text[max(start, stop.start() - _LONGEST_WORD) : stop.start()]
    word = _LAST_WORD.findall(before)[0]
    lower = word.lower()
    if lower in _NEVER:
        # "No." and "p." are abbreviations before a number only.
        return lower in ("no", "p") and not opening[:1].isdigit()
    initial = len(word) == 1 and word.isalpha() and word != "I"
    if initial or "." in word.strip(".") or lower in _PERHAPS:
        return re.split(r"\W", opening, maxsplit=1)[0] in _OPENERS
    return True
