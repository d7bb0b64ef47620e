"""Splits text into words by GPT-2's pattern, inside a graph.

The pattern has a look-ahead, which TensorFlow's regular expressions do not support: of several
blanks before a word, the last one belongs to the word. So that blank is separated first, by a
pattern of its own.

Shapes: N texts.
"""

import re

import tensorflow as tf

# GPT-2's character classes. TensorFlow's regular expressions have Unicode 15.0. The letters and
# digits of 15.1 and 16.0 are listed, so that the classes are those of the `tokenizers` package.
SPACE = r"\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
LETTER = (
    r"\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}"
    r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}"
    r"\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{13460}-\x{143fa}\x{16100}-\x{1611d}"
    r"\x{16d40}-\x{16d6c}\x{18cff}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
DIGIT = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}"
    r"\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
_LAST_BLANK = rf"([{SPACE}]+)([{SPACE}][^{SPACE}])"
# Without a group around it the search is ten times faster.
_WORD = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{LETTER}]+| ?[{DIGIT}]+| ?[^{SPACE}{LETTER}{DIGIT}]+"
    rf"|[{SPACE}]+"
)
_CUT = b"\xff"  # no UTF-8 text has this byte
# Matches characters outside `SPACE`. Python's `\s` also has four control characters.
begins_with_text = re.compile(r"[\S\x1c-\x1f]").match


def words(texts: tf.Tensor, add_prefix_space: bool = False) -> tf.RaggedTensor:
    """Splits texts into words.

    Args:
      texts: UTF-8 strings [N]; bytes that are not UTF-8 become U+FFFD.
      add_prefix_space: whether a blank is put before each text that does not begin with one.

    Returns:
      Strings [N, None]. Joined they are the text. Some of them may be empty.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    if add_prefix_space:
        texts = tf.strings.regex_replace(texts, "^[^ ]", r" \0", replace_global=False)
    texts = tf.strings.regex_replace(texts, _LAST_BLANK, rb"\1" + _CUT + rb"\2")
    return tf.strings.split(tf.strings.regex_replace(texts, _WORD, rb"\0" + _CUT), _CUT)
