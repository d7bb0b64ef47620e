r"""Translates regular expressions of `tokenizer.json` for TensorFlow.

The `tokenizers` package uses Oniguruma, TensorFlow uses RE2. Both take the first alternative that
matches, from the left, and repeat greedily. So most expressions mean the same in both if their
classes contain the same characters. A class is written with the characters that it has in
Oniguruma: `\s` is the white space of Unicode, and letters are those of a newer version of Unicode.

RE2 has no look-ahead. One is in almost all files, GPT-2's `\s+(?!\S)`: the white space before a
word without its last character. It is replaced by a mark: `Pattern.marked` puts a mark before the
last blank of each run that a word follows. The other parts of the expression match white space with
its mark, and `\s+(?!\S)` matches white space without marks, so its match ends before the mark.

All other forms that RE2 lacks are refused by name.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable

import tensorflow as tf

from official.tokenizers.added_tokens import SPACE
from official.tokenizers.byte_bpe import DIGIT, LETTER, MARKS

# A surrogate in UTF-8, which never occurs in texts: bytes that are not valid UTF-8 have become
# U+FFFD.
MARK = b"\xed\xa0\x80"
_MARK_CODE = r"\x{d800}"
# Other classes by name, and the characters that Unicode 16 has added to them since 15.0.
_NEWER = {
    "Lu": "1c89 a7cb-a7cc a7da a7dc 10d50-10d65",
    "Ll": "1c8a a7cd a7db 10d70-10d85",
    "Lt": "",
    "Lm": "10d4e 10d6f 16d40-16d42 16d6b-16d6c",
    "Lo": (
        "105c0-105f3 10d4a-10d4d 10d4f 10ec2-10ec4 11380-11389 1138b 1138e 11390-113b5 113b7 "
        "113d1 113d3 11bc0-11be0 13460-143fa 16100-1611d 16d43-16d6a 18cff 1e5d0-1e5ed 1e5f0 "
        "2ebf0-2ee5d"
    ),
    "P": "1b4e-1b4f 1b7f 10d6e 113d4-113d5 113d7-113d8 11be1 16d6d-16d6f 1e5ff",
    "S": (
        "2427-2429 2ffc-2fff 31e4-31e5 31ef 10d8e-10d8f 1cc00-1ccef 1cd00-1ceb3 1f8b2-1f8bb "
        "1f8c0-1f8c1 1fa89 1fa8f 1fabe 1fac6 1fadc 1fadf 1fae9 1fbcb-1fbef"
    ),
    "Z": "",
    "Nd": "10d40-10d49 116d0-116e3 11bf0-11bf9 16130-16139 16d70-16d79 1ccf0-1ccf9 1e5f1-1e5fa",
    "Han": "2ebf0-2ee5d",
    "Hiragana": "",
    "Katakana": "",
    "Hangul": "",
    "Thai": "",
    "Arabic": "897 10ec2-10ec4 10efc",
    "Cyrillic": "1c89-1c8a",
    "Latin": "a7cb-a7cd a7da-a7dc",
}
# The content of the classes by their names in expressions.
_NAMED = {"L": LETTER, "N": DIGIT, "M": MARKS} | {
    name: rf"\p{{{name}}}"
    + "".join("-".join(rf"\x{{{code}}}" for code in part.split("-")) for part in newer.split())
    for name, newer in _NEWER.items()
}
_LOOKS_AHEAD = r"\s+(?!\S)"
_BLANKS = [chr(code) for code in (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
           0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]  # fmt: skip
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_REPEATS = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")


class Unsupported(ValueError):
    """An expression that RE2 cannot express; the message names the unsupported part."""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """An expression for RE2.

    Attributes:
      expression: its text.
      marks: whether it matches marks, which `marked` puts into texts.
    """

    expression: str
    marks: bool

    def marked(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8 strings [N] with marks, if the expression needs them."""
        if not self.marks:
            return texts
        return tf.strings.regex_replace(
            texts, f"([{SPACE}])([^{SPACE}])", MARK + rb"\1\2", replace_global=True
        )

    def unmarked(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns strings [N] without marks."""
        return tf.strings.regex_replace(texts, _MARK_CODE, "") if self.marks else texts


def literal(text: str) -> Pattern:
    """Returns the expression that matches a literal text."""
    return Pattern("".join(map(_code, text)), False)


def translated(expression: str) -> Pattern:
    """Translates an expression of Oniguruma to RE2.

    Raises:
      Unsupported: RE2 cannot express it.
    """
    marks = _LOOKS_AHEAD in expression
    parser = _Parser(expression, marks)
    result = parser.alternatives()
    if parser.at < len(expression):
        raise Unsupported(f"{expression[parser.at :]!r} at its end")
    try:
        empty = bool(tf.strings.regex_full_match("", result).numpy())
    except tf.errors.InvalidArgumentError as error:
        raise Unsupported(str(error.message)) from error
    if empty:
        raise Unsupported("a form that matches the empty text")
    return Pattern(result, marks)


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


class _Parser:
    """Parses an expression from the left and writes it for RE2."""

    def __init__(self, text: str, marks: bool):
        self._text, self._marks = text, marks
        self.at = 0

    def _next(self, count: int = 1) -> str:
        return self._text[self.at : self.at + count]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def alternatives(self) -> str:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        parts = []
        while self.at < len(self._text) and self._next() not in "|)":
            if self._marks and self._take(_LOOKS_AHEAD):
                if self.at < len(self._text) and self._next() not in "|)":
                    raise Unsupported(f"{_LOOKS_AHEAD} before {self._next()!r}")
                parts.append(f"[{SPACE}]+")
                continue
            parts.append(self._atom() + self._repeats())
        return "".join(parts)

    def _repeats(self) -> str:
        found = _REPEATS.match(self._text, self.at)
        if not found:
            return ""
        self.at = found.end()
        if self._next() in ("+", "*", "{"):
            raise Unsupported(f"{found[0] + self._next()!r}")
        lazy = "?" if self._take("?") else ""
        if lazy and found[0][0] == "{":
            raise Unsupported(f"{found[0]}?")
        return found[0] + lazy

    def _atom(self) -> str:
        for start in ("(?:", "(?i:"):
            if self._take(start):
                inside = self.alternatives()
                if not self._take(")"):
                    raise Unsupported("a group without an end")
                return f"{start}{inside})"
        if self._next(2) == "(?" or self._next() in ("^", "$"):
            raise Unsupported(f"{self._next(4)!r}")
        if self._take("("):
            inside = self.alternatives()
            if not self._take(")"):
                raise Unsupported("a group without an end")
            return f"(?:{inside})"
        if self._next() == "[":
            items, negated, contains = self._class()
        elif self._take(r"\S"):
            items, negated, contains = SPACE, True, lambda blank: True
        elif self._take("."):
            items, negated, contains = r"\n", True, lambda blank: blank == "\n"
        else:
            items, contains = self._item()
            negated = False
        return self._one(items, negated, contains)

    def _one(self, items: str, negated: bool, contains: Callable[[str], bool]) -> str:
        """Returns the expression that matches one character of a class."""
        sign = "^" if negated else ""
        items += _MARK_CODE if negated else ""
        found = f"[{sign}{items}]"
        takes_blanks = any(contains(blank) != negated for blank in _BLANKS)
        return f"(?:{_MARK_CODE}?{found})" if self._marks and takes_blanks else found

    def _class(self) -> tuple[str, bool, Callable[[str], bool]]:
        self.at += 1
        negated = self._take("^")
        items, tests = [], list[Callable[[str], bool]]()
        while not self._take("]"):
            if self.at >= len(self._text):
                raise Unsupported("a class without an end")
            if self._next() == "[" or self._next(2) == "&&":
                raise Unsupported(f"{self._next(2)!r} inside a class")
            item, test = self._item(inside=True)
            if self._next() == "-" and self._next(2) not in ("-]", "-"):
                first = self._single(item)
                self.at += 1
                last = self._single(self._item(inside=True)[0])
                item, test = f"{_code(first)}-{_code(last)}", _between(first, last)
            items.append(item)
            tests.append(test)
        if not items:
            raise Unsupported("an empty class")
        return "".join(items), negated, lambda blank: any(test(blank) for test in tests)

    def _single(self, item: str) -> str:
        found = re.fullmatch(r"\\x\{([0-9a-f]+)\}", item)
        if not found:
            raise Unsupported("a range with a class at its end")
        return chr(int(found[1], 16))

    def _item(self, inside: bool = False) -> tuple[str, Callable[[str], bool]]:
        """Returns a character or named class, written for inside a class, and its test of members.

        Args:
          inside: whether it is inside a class, where `*`, `+`, `?` and braces are ordinary
            characters.
        """
        character = self._next()
        self.at += 1
        if character != "\\":
            if character in "*+?{" and not inside:
                raise Unsupported(f"{character!r} with nothing before it")
            return _code(character), lambda blank: blank == character
        name = self._next()
        self.at += 1
        if name in ("p", "P"):
            return self._property(negated=name == "P")
        if name == "s":
            return SPACE, lambda blank: True
        if name == "d":
            return _NAMED["Nd"], lambda blank: False
        if name == "x":
            found = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-7][0-9A-Fa-f])").match(
                self._text, self.at
            )
            if not found:
                raise Unsupported(rf"'\x{self._next(4)}'")
            self.at = found.end()
            character = chr(int(found[1] or found[2], 16))
        elif name == "u":
            found = re.compile(r"[0-9A-Fa-f]{4}").match(self._text, self.at)
            if not found:
                raise Unsupported(rf"'\u{self._next(4)}'")
            self.at = found.end()
            character = chr(int(found[0], 16))
        elif name in _ESCAPES:
            character = _ESCAPES[name]
        elif not name or name.isalnum():
            raise Unsupported(rf"'\{name}'")
        else:
            character = name
        return _code(character), lambda blank: blank == character

    def _property(self, negated: bool) -> tuple[str, Callable[[str], bool]]:
        found = re.compile(r"\{(\^?)(\w+)\}").match(self._text, self.at)
        name = found[2] if found else ""
        if not found or name not in _NAMED:
            raise Unsupported(rf"'\p{self._next(12)}'")
        self.at = found.end()
        if negated or found[1]:
            raise Unsupported(rf"'\P{{{name}}}'")
        return _NAMED[name], lambda blank: unicodedata.category(blank).startswith(name)


def _between(first: str, last: str) -> Callable[[str], bool]:
    return lambda blank: first <= blank <= last
