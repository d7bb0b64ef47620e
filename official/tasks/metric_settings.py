"""The settings of metrics of generated texts; `official.evaluation.text_metrics` follows them."""

# How BLEU splits texts into words, by the names of sacrebleu. The first is that of T5.
TOKENIZATIONS = ("intl", "13a", "zh", "char", "ja-mecab", "ko-mecab", "spm")
TOKENIZATION = TOKENIZATIONS[0]
# What a word of ROUGE is. The first is that of T5.
WORDS_OF_ROUGE = ("english", "unicode")
ROUGE_WORDS = WORDS_OF_ROUGE[0]
