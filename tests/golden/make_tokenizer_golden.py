"""Makes tests/golden/tokenizer.json: a small vocabulary, odd texts, and transformers' ids for them.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_tokenizer_golden.py
"""

import collections
import json
import os
import tempfile
import unicodedata
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import transformers  # noqa: E402

OUTPUT = Path(__file__).with_name("tokenizer.json")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROSE = [
    "The Eresma is a river in central Spain. It flows through Castile and León (specifically "
    "the provinces of Segovia and Valladolid).",
    "He launched and chaired a committee into electric vehicles, reporting bi-partisan "
    "recommendations…",
    "“Don't stop!” — she said; it’s 3.5 km² (½ of 7 km²), i.e. £5/€6 or 100%.",
    "naïve café Ångström façade coöperate Zürich Łódź Ørsted Đorđević Iñárritu",
    'Spase Tous Deiktes (Greek: "Σπάσε Τους Δείκτες") ΑΣ ΑΣΣ Σ',
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка и ёж",
    "中文字 mixed中文en（江铃域虎），日本語のテキスト カタカナ。、！？「」",
    "한국어 텍스트 हिन्दी पाठ ไทย ภาษา שלום עולם مرحبا بالعالم",
]
ODD = [
    "",
    " ",
    "\x00",
    "a\x00b c\x01d\x7fe",
    "tab\tnew\nline\r\x0bx\x0cy\x1cz\x85w",
    "zero\u200bwidth soft\u00adhyphen bidi\u202eword\u202c mark\ufeffed",
    "no\u00a0break line\u2028sep para\u2029sep wide\u3000space ogham\u1680space",
    "\ufffd x a\ufffdb",
    "İstanbul ı I ẞ ß ǅ ŉ ſ Ǆ",
    "ﬁ ﬂ Ⅷ ½ ² ﷺ Ａｂｃ！ Ⓐ",
    "😀 😂👍🏽 👨‍👩‍👧 🇫🇷 ab😀cd",
    "\U0001d400\U0001d401 \U00020000㐀 \ue000private\U000f0000",
    "[MASK] [CLS]a[SEP] [PAD] [UNK] [mask]",
    "don't U.S.A. $5 a_b ^`~|+=<>§©®°±¶·¿×÷€",
    "‘’“”–—…†‡•‰‹›",
    "## ##ing a##b #",
    "x" * 99 + " " + "y" * 100 + " " + "z" * 101 + " " + "ab" * 300,
    "é" * 60 + " " + "中" * 120,
    "ab!" * 60,
]
# Not composed (NFC). The slow tokenizer composes cased text first, the fast one and the release do
# not, and neither do we.
DECOMPOSED = ["e\u0301 cafe\u0301 a\u030a", "I\u0307 a\u0300\u0301b", "\u0041\u0327 n\u0303o"]


def vocabulary() -> list[str]:
    """Letters in both forms, and what the prose has often."""
    forms = []
    for text in PROSE + ODD + DECOMPOSED:
        plain = unicodedata.normalize("NFD", text.lower())
        forms += [text, text.lower(), "".join(c for c in plain if unicodedata.category(c) != "Mn")]
    letters = sorted({c for form in forms for c in form if not c.isspace()})
    letters = [c for c in letters if unicodedata.category(c)[0] in "LMNPS" and c != "\ufffd"]
    counts = collections.Counter()
    for form in forms[: 3 * len(PROSE)]:
        for word in form.split():
            word = word.strip('“”()".,;:!?…')
            counts[word] += 1
            for size in (2, 3, 4):
                counts.update(word[i : i + size] for i in range(len(word) - size + 1))
                counts.update("##" + word[i : i + size] for i in range(1, len(word) - size + 1))
    frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))[:500]
    pieces = SPECIAL + letters + ["##" + c for c in letters] + frequent
    return [piece for piece in dict.fromkeys(pieces) if piece]


def release_ids(slow, text: str) -> list[int]:
    """What the release's two steps give, without the treatment of special tokens around them."""
    words = slow.basic_tokenizer.tokenize(text)
    pieces = [piece for word in words for piece in slow.wordpiece_tokenizer.tokenize(word)]
    return slow.convert_tokens_to_ids(pieces)


def main():
    pieces = vocabulary()
    result = {"transformers": transformers.__version__, "vocabulary": pieces}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
        for name, lower_case in (("uncased", True), ("cased", False)):
            slow = transformers.BertTokenizer(path, do_lower_case=lower_case)
            fast = transformers.BertTokenizerFast(str(path), do_lower_case=lower_case)
            rows = [(text, release_ids(slow, text)) for text in PROSE + ODD]
            rows += [(text, fast.encode(text, add_special_tokens=False)) for text in DECOMPOSED]
            result[name] = [{"text": text, "ids": ids} for text, ids in rows]
    lines = json.dumps(result, ensure_ascii=True, indent=0, separators=(",", ":"))
    # One line for each list of ids and for the vocabulary, not one for each number.
    OUTPUT.write_text(lines.replace(",\n", ",").replace("[\n", "[").replace("\n]", "]") + "\n")
    print(OUTPUT, len(pieces), "pieces", OUTPUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
