"""The names of the rules of `official.tokenizers.text_words`, which splits raw text into words.

They are here because a command checks its flags before it loads TensorFlow.
"""

RULES = {
    "unicode": "runs between blanks, cut at the marks of all scripts, hyphens, slashes, CJK "
    "ideographs and the endings of names ('s, 'nın)",
    "words": "runs between blanks, cut at the marks at their ends, hyphens, slashes, 's and CJK "
    "ideographs",
    "edges": "runs between blanks, cut at the marks at their ends and CJK ideographs",
    "blanks": "runs between blanks",
    "basic": "runs between blanks, cut at all signs and CJK ideographs, as BERT does",
    "characters": "each character with its combining marks",
    "graphemes": "each character as readers see it, with decomposed Hangul and flags",
    "tokens": "each token of the tokenizer",
}
DEFAULT = "unicode"
# Shards and model folders name their rule, so a new default does not change old folders.
EARLIER = "edges"  # of shards and model folders that name no rule
