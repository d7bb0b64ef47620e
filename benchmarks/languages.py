"""Measures tools on texts of any language: tokens, sentences, spans and BM25.

  python -m benchmarks.languages [--questions=FOLDER] [--texts=FOLDER] [--languages hi ja]

--questions  files NAME.LANGUAGE.json of SQuAD's form, as those of XQuAD (xquad.hi.json)
--texts      files NAME.LANGUAGE.txt with a paragraph on each line

It prints three tables in Markdown, with a row for each file:

tokens     Each kind of vocabulary is learned from nine of ten paragraphs by `build_vocab`, with
           --vocab_size pieces of --questions and --text_vocab_size of --texts, and makes tokens of
           the tenth. They are counted for each run between blanks, or for each character where runs
           are longer than 12 characters on average: the script has no blanks between words.
           A kind that refuses so many pieces has the number that the text supports.
sentences  The marks inside paragraphs that may end a sentence, and the share of them where
           `--split_sentences` ends one. A mark after an abbreviation or an initial should end none.
spans, BM25  The share of the answers, as spans of a tagger, that begin and end where words do, by
           each rule of `--split_words`; `tokens` are those of the unigram vocabulary above. And the
           share of the questions whose own paragraph has a higher BM25 score than all others.
"""

import argparse
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from official.tasks import bm25
from official.tokenizers import Tokenizer, text_words
from official.utils import word_rules
from official.utils.errors import UserError
from tfrecords_tools.tasks import span
from tfrecords_tools.text import sentences
from tfrecords_tools.vocabulary import builder

HELD_OUT = 10  # every tenth paragraph
# Marks that may end a sentence: marks that need a blank after them, and marks that do not.
BEFORE_BLANK, ALONE = ".!?…؟", "。！？｡．।॥۔။។៕።፧།։"
WORD_SPACE = "\u1361"  # the mark between words of Ethiopic
_STOPS = re.compile(rf"""(?:[{BEFORE_BLANK}]+["'”’»)\]]*(?=\s)|[{ALONE}]+[”’」』）】〉》]*)""")
_SUPPORTED = re.compile(r"lower it to (\d+)")
KINDS: dict[str, dict[str, bool | str]] = {
    "wordpiece": {"kind": "wordpiece"},
    "unigram": {"kind": "unigram"},
    "bpe": {"kind": "bpe"},
    "byte_bpe": {"kind": "byte_bpe"},
}


class Asked(NamedTuple):
    """A question, the index of its paragraph, and the first and last character of its answer."""

    text: str
    paragraph: int
    start: int
    end: int


class Source(NamedTuple):
    """A file: its language, its distinct paragraphs and their questions."""

    language: str
    path: Path
    paragraphs: list[str]
    questions: list[Asked]


def sources(folder: Path, languages: Sequence[str] | None, limit: int) -> Iterator[Source]:
    """Yields the files of a folder, in the order of their languages.

    Args:
      folder: has files NAME.LANGUAGE.json in SQuAD's format and NAME.LANGUAGE.txt of paragraphs.
      languages: the languages that are read; None = all.
      limit: the largest number of paragraphs of a file; the first ones are read.
    """
    files = [path for path in folder.iterdir() if re.search(r"\.\w+\.(json|txt)$", path.name)]
    for path in sorted(files, key=lambda path: (path.suffixes[-2], path.name)):
        language = path.suffixes[-2][1:]
        if languages is None or language in languages:
            read = _asked if path.suffix == ".json" else _plain
            yield Source(language, path, *read(path, limit))


def _asked(path: Path, limit: int) -> tuple[list[str], list[Asked]]:
    numbers: dict[str, int] = {}
    questions = []
    for context, asked, _ in span.paragraphs(path):
        number = numbers.setdefault(context, len(numbers))
        if number >= limit:
            del numbers[context]
            break
        for raw in asked:
            for answer in raw.get("answers", [])[:1]:
                start = answer["answer_start"]
                end = start + len(answer["text"])
                questions.append(Asked(raw["question"], number, start, end))
    return list(numbers), questions


def _plain(path: Path, limit: int) -> tuple[list[str], list[Asked]]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(filter(None, lines)))[:limit], []


def of_letters(paragraphs: Sequence[str]) -> tuple[str, float]:
    """Returns the unit of token counts, "word" or "character", and marks per 100 letters."""
    text = "\n".join(paragraphs)
    runs = text.split()
    categories = [unicodedata.category(each)[0] for each in text]
    unit = "character" if len("".join(runs)) > builder.LONG_RUN * len(runs) else "word"
    return unit, 100 * categories.count("M") / max(1, categories.count("L"))


class Vocabulary(NamedTuple):
    """The results of a kind of vocabulary on text that it was not learned from.

    Attributes:
      rate: tokens per word or character; None = the kind refuses the text.
      unknown: the share of unknown tokens.
      refusal: why the kind refuses the text; "" = it does not.
      tokenizer: the tokenizer; None = the kind refuses the text.
    """

    rate: float | None
    unknown: float
    refusal: str
    tokenizer: Tokenizer | None


def learned(paragraphs: Sequence[str], size: int, options: dict, unit: str) -> Vocabulary:
    """Learns a vocabulary from some of the paragraphs, and measures it on the others."""
    held_out = paragraphs[::HELD_OUT]
    learned_from = [text for i, text in enumerate(paragraphs) if i % HELD_OUT]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("\n\n".join(learned_from), encoding="utf-8")
        try:
            tokenizer = builder.build(
                str(folder / "text.txt"), folder / "tokenizer", vocab_size=size, **options
            )
        except UserError as error:
            _say(f"{options['kind']}: {error}")
            found = _SUPPORTED.search(str(error))
            return Vocabulary(None, 0.0, f"at most {found[1]}" if found else "refused", None)
    ids = np.concatenate(tokenizer.encode(held_out))
    words = " ".join(held_out).split()
    count = sum(map(len, words)) if unit == "character" else len(words)
    return Vocabulary(len(ids) / count, float((ids == tokenizer.unk_id).mean()), "", tokenizer)


def stops(paragraphs: Sequence[str]) -> tuple[int, int]:
    """Returns the number of marks that may end a sentence, and the number of those that do."""
    marks = found = 0
    for text in paragraphs:
        text = text.strip()
        borders, place = set(), 0
        for sentence in sentences.split(text):
            place += len(sentence)
            borders.add(place)
        for stop in _STOPS.finditer(text):
            behind = stop.end()
            while behind < len(text) and text[behind] == WORD_SPACE:
                behind += 1
            if behind < len(text):
                marks += 1
                found += not borders.isdisjoint(range(stop.end(), behind + 1))
    return marks, found


def accepted(source: Source, rule: str, tokenizer: Tokenizer | None) -> float:
    """Returns the share of the answers whose begin and end are bounds of words."""
    words = text_words.spans(source.paragraphs, rule, tokenizer)
    starts = [{start for start, _ in each} for each in words]
    ends = [{end for _, end in each} for each in words]
    fits = [
        asked.start in starts[asked.paragraph] and asked.end in ends[asked.paragraph]
        for asked in source.questions
    ]
    return sum(fits) / len(fits)


def first_hits(source: Source) -> float:
    """Returns the share of questions whose paragraph alone has the highest BM25 score."""
    scorer = bm25.Scorer(source.paragraphs)
    hits = 0
    rows = scorer.scores(asked.text for asked in source.questions)
    for asked, scores in zip(source.questions, rows, strict=True):
        own = scores[asked.paragraph]
        hits += own > 0 and (scores >= own).sum() == 1
    return hits / len(source.questions)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"| {' | '.join(columns)} |")
    print(f"|{'|'.join('---' if i < 2 else '---:' for i in range(len(columns)))}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(found: Sequence[Source], sizes: Callable[[Source], int]) -> None:
    """Prints the three tables."""
    counted, split, spans = [], [], []
    rules = [rule for rule in word_rules.RULES if rule != "blanks"]
    for source in found:
        _say(f"{source.path.name}: {len(source.paragraphs)} paragraphs")
        name = [source.language, source.path.name]
        unit, marks = of_letters(source.paragraphs)
        size = sizes(source)
        made = {
            kind: learned(source.paragraphs, size, options, unit) for kind, options in KINDS.items()
        }
        characters = sum(map(len, source.paragraphs))
        counted.append(
            [*name, f"{characters:,}", f"{marks:.0f}", f"{size:,}", unit]
            + [each.refusal if each.rate is None else f"{each.rate:.2f}" for each in made.values()]
            + [f"{100 * made['wordpiece'].unknown:.2f}"]
        )
        inside, ended = stops(source.paragraphs)
        split.append([*name, f"{inside:,}", f"{ended / inside:.3f}" if inside else ""])
        if source.questions:
            unigram = made["unigram"].tokenizer
            shares = [
                "" if rule == "tokens" and unigram is None
                else f"{accepted(source, rule, unigram):.3f}"
                for rule in rules
            ]  # fmt: skip
            hits = f"{first_hits(source):.3f}"
            spans.append([*name, f"{len(source.questions):,}", *shares, hits])
    names = ["language", "file"]
    columns = ["characters", "marks to 100 letters", "pieces", "tokens a", *KINDS]
    _table([*names, *columns, "unknown, % (wordpiece)"], counted)
    _table([*names, "stops", "end a sentence"], split)
    if spans:
        _table([*names, "questions", *(f"`{rule}`" for rule in rules), "BM25"], spans)


def main() -> None:
    """Reads the files and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=Path, help="folder of NAME.LANGUAGE.json")
    parser.add_argument("--texts", type=Path, help="folder of NAME.LANGUAGE.txt")
    parser.add_argument("--languages", nargs="+", help="default: those of all files")
    parser.add_argument("--vocab_size", type=int, default=2000, help="default: 2000")
    parser.add_argument("--text_vocab_size", type=int, default=500, help="default: 500")
    parser.add_argument("--paragraphs", type=int, default=240, help="of a file (default: 240)")
    options = parser.parse_args()
    found = [
        source
        for folder in (options.questions, options.texts)
        if folder
        for source in sources(folder, options.languages, options.paragraphs)
    ]
    if not found:
        parser.error("no files NAME.LANGUAGE.json or .txt: name a folder of them")
    measure(
        found,
        lambda source: options.vocab_size if source.questions else options.text_vocab_size,
    )


if __name__ == "__main__":
    main()
