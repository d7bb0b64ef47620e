"""The rules that compare answers to questions: which answers are equal, and what F1 counts.

| rule | equal are answers without | F1 counts |
|---|---|---|
| `squad` | case, the signs of ASCII, a, an and the | words between blanks |
| `mlqa:LANG` | case, marks of all scripts, the articles of the language | words between blanks; in Chinese also each ideograph |
| `korquad` | case, the signs of ASCII, some quotation marks and brackets | characters |
| `cmrc` | case, the marks of a list | the longest run of the same ideographs and words |
| `characters` | case, repeated blanks, Unicode's two forms of one letter | characters |

The first four are those of released evaluations: of SQuAD (Rajpurkar et al., 2016), MLQA (Lewis et
al., 2020), KorQuAD 1.0 (Lim et al., 2019) and CMRC 2018 (Cui et al., 2019). SQuAD's is of English:
a mark such as ، or 。 beside an answer makes it wrong, and a Chinese sentence is one word. The last
one is for languages without blanks between words that have no evaluation of their own.
"""  # noqa: E501

import dataclasses
import difflib
import functools
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

DEFAULT = "squad"  # of shards that name no rule, too

_ARTICLES = {
    "ar": r"ال",  # anywhere in a word
    "de": r"\b(?:d(?:ie|as|e[rnms])|ein(?:e[nmsr]?)?)\b",
    "en": r"\b(?:an?|the)\b",
    "es": r"\b(?:una?s?|unos|las?|los|el)\b",
    "vi": r"\b(?:của|là|cái|chiếc|những)\b",
}
_LANGUAGES = ("ar", "de", "en", "es", "hi", "vi", "zh")
# KorQuAD puts a blank in place of these.
_KOREAN_BRACKETS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))
# CMRC's list has no ellipsis: its entry of two characters is equal to none.
_CHINESE_MARKS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_IDEOGRAPH = re.compile(r"[\u4e00-\u9fa5]")


@dataclasses.dataclass(frozen=True)
class Rule:
    """How two answers are compared.

    Attributes:
      normalize: returns what is left of an answer; two answers with the same are an exact match.
      parts: returns the parts of an answer that F1 counts.
      runs: whether F1 counts the longest run of parts that both answers have; if not, it counts the
        parts that both have, with repetition.
    """

    normalize: Callable[[str], str]
    parts: Callable[[str], Sequence[str]]
    runs: bool = False

    def equal(self, answer: str, right: str) -> bool:
        """Returns whether two answers are an exact match."""
        return self.normalize(answer) == self.normalize(right)

    def overlap(self, answer: str, right: str, empty: bool = False) -> float:
        """Computes F1 of the parts of two answers.

        With `empty`, the result is 1 if neither answer has a part, as in version 2.0 of SQuAD.
        """
        ours, theirs = self.parts(answer), self.parts(right)
        if empty and not (ours and theirs):
            return float(not ours and not theirs)
        if self.runs:
            matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
            shared = matcher.find_longest_match().size
        else:
            shared = sum((Counter(ours) & Counter(theirs)).values())
        if not shared:
            return 0.0
        precision, recall = shared / len(ours), shared / len(theirs)
        return 2 * precision * recall / (precision + recall)


def _squad(answer: str) -> str:
    return _without(answer.lower().translate(_table(string.punctuation)), "en")


def _mlqa(answer: str, language: str) -> str:
    left = _without(answer.lower().translate(_all_marks()), language)
    return _IDEOGRAPH.sub(r" \g<0> ", left) if language == "zh" else left


def _without(text: str, language: str) -> str:
    """Returns a text with blanks in place of the articles of a language."""
    articles = _ARTICLES.get(language)
    return re.sub(articles, " ", text) if articles else text


def _korquad(answer: str) -> str:
    return answer.translate(_KOREAN_BRACKETS).lower().translate(_table(string.punctuation))


def _cmrc(answer: str) -> str:
    return "".join(c for c in answer.lower().strip() if c not in _CHINESE_MARKS)


def _cmrc_parts(answer: str) -> list[str]:
    """Returns each ideograph, and the words between them, as nltk splits English into words.

    CMRC first cuts what is between two ideographs into sentences, by a model that nltk downloads.
    Here it is one sentence, so a point at the end of an earlier sentence is a part of its last
    word.
    """
    words = _tokenizer()
    parts: list[str] = []
    for piece in re.split(f"({_IDEOGRAPH.pattern})", _cmrc(answer)):
        parts += [piece] if _IDEOGRAPH.fullmatch(piece) else words(piece)
    return parts


def _characters(answer: str) -> str:
    return " ".join(unicodedata.normalize("NFC", answer).lower().split())


@functools.cache
def _tokenizer() -> Callable[[str], list[str]]:
    from nltk.tokenize import NLTKWordTokenizer  # of the extra `eval`

    return NLTKWordTokenizer().tokenize


@functools.cache
def _table(removed: str) -> dict[int, None]:
    return dict.fromkeys(map(ord, removed))


@functools.cache
def _all_marks() -> dict[int, None]:
    """Returns the table that removes Unicode's punctuation, and the signs of ASCII."""
    marks = (c for c in map(chr, range(sys.maxunicode)) if unicodedata.category(c)[0] == "P")
    return _table("".join([*marks, string.punctuation]))


def _words(normalize: Callable[[str], str]) -> Rule:
    """Returns a rule whose parts are words; repeated and outer blanks do not count."""
    return Rule(
        lambda answer: " ".join(normalize(answer).split()), lambda answer: normalize(answer).split()
    )


RULES = {
    DEFAULT: _words(_squad),
    **{
        f"mlqa:{language}": _words(functools.partial(_mlqa, language=language))
        for language in _LANGUAGES
    },
    "korquad": Rule(
        lambda answer: " ".join(_korquad(answer).split()),
        lambda answer: "".join(_korquad(answer).split()),
    ),
    "cmrc": Rule(_cmrc, _cmrc_parts, runs=True),
    "characters": Rule(_characters, _characters),
}


def rule_of(name: str | None) -> Rule:
    """Returns the rule of a task, which may name none."""
    return RULES[name or DEFAULT]
