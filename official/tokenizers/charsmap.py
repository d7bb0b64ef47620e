r"""The replacements of a SentencePiece model, applied as by `Precompiled` of `tokenizer.json`.

The table is a trie of UTF-8 keys and their replacements. The `tokenizers` package first looks up
each grapheme cluster of Unicode, such as a letter with its marks. If a cluster has less than 6
bytes and begins with a key, the replacement of the shortest such key replaces the whole cluster:
"\r\n" becomes one blank, and a second accent is lost. In all other cases each character is looked
up alone. SentencePiece itself takes the longest key at each position.

Shapes: N texts, C characters of all texts, Q different clusters; a ragged dimension is written
None.
"""

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets, patterns
from official.tokenizers.byte_bpe import MARKS
from official.utils.character_sets import (
    HANGUL_LEADING,
    HANGUL_TRAILING,
    HANGUL_VOWELS,
    inside_class,
)

_LABEL = 1 << 31 | 0xFF  # the bits of a unit of the trie that equal the byte of its key
_CUT = b"\xff"  # no UTF-8 text has this byte
_MOST_BYTES = 5  # of a cluster that is looked up as a unit
_MOST_CHARACTERS = 3  # of such a cluster: only its base may have one byte
# Characters that extend the cluster of the character before them: marks of Unicode 17, joiners and
# others.
_JOINS = (
    MARKS + r"\x{e33}\x{eb3}\x{200c}-\x{200d}\x{ff9e}-\x{ff9f}\x{1f3fb}-\x{1f3ff}"
    r"\x{e0020}-\x{e007f}\x{1acf}-\x{1add}\x{1ae0}-\x{1aeb}\x{10efa}-\x{10efb}\x{11b60}-\x{11b67}"
    r"\x{1e6e3}\x{1e6e6}\x{1e6ee}-\x{1e6ef}\x{1e6f5}"
)
# Marks that do not extend a cluster, such as vowel signs of Burmese that are separate letters.
_APART = (
    r"\x{102b}-\x{102c}\x{1038}\x{1062}-\x{1064}\x{1067}-\x{106d}\x{1083}\x{1087}-\x{108c}\x{108f}"
    r"\x{109a}-\x{109c}\x{1a61}\x{1a63}-\x{1a64}\x{aa7b}\x{aa7d}\x{11720}-\x{11721}"
)
# Characters that belong to the cluster of the character after them.
_BEFORE = (
    r"\x{600}-\x{605}\x{6dd}\x{70f}\x{890}-\x{891}\x{8e2}\x{d4e}\x{110bd}\x{110cd}"
    r"\x{111c2}-\x{111c3}\x{113d1}\x{1193f}\x{11941}\x{11a84}-\x{11a89}\x{11d46}\x{11f02}"
)
# Characters that no other character extends. Those of four bytes are left out, because with a mark
# they are longer than 5 bytes.
_ALONE = (
    r"\x{0}-\x{1f}\x{7f}-\x{9f}\x{ad}\x{61c}\x{180e}\x{200b}\x{200e}-\x{200f}\x{2028}-\x{202e}"
    r"\x{2060}-\x{206f}\x{feff}\x{fff0}-\x{fffb}"
)
# The parts of Korean syllables, and syllables.
_FIRST, _SYLLABLE = f"[{inside_class(HANGUL_LEADING)}]", r"[\x{ac00}-\x{d7a3}]"
_VOWEL, _LAST = (f"[{inside_class(codes)}]" for codes in (HANGUL_VOWELS, HANGUL_TRAILING))
_KOREAN = rf"{_FIRST}*(?:{_SYLLABLE}{_VOWEL}*|{_VOWEL}+){_LAST}*|{_FIRST}+|{_LAST}+"
_MARK = r"\x{d800}"  # `patterns.MARK`, here before each character of `_APART`
_CLUSTER = (
    rf"\r\n|[{_ALONE}]|[{_BEFORE}]*(?:{_KOREAN}|{_MARK}?[^{_ALONE}{_BEFORE}{_MARK}])[{_JOINS}]*"
    rf"|[{_BEFORE}]+[{_JOINS}]*"
)


def _parts(charsmap: bytes) -> tuple[np.ndarray, bytes]:
    """Returns the units of the trie of a table, int64, and the replacements.

    Raises:
      ValueError: `charsmap` is not a table of replacements.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) < 4 + size or size % 4 or not size:
        raise ValueError(f"a table of {len(charsmap)} bytes has a trie of {size}")
    return np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64), charsmap[4 + size :]


def _children(units: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Returns the places of the children of nodes, each of which is then changed by its byte."""
    found = units[nodes]
    return nodes ^ ((found >> 10) << ((found & 1 << 9) >> 6))


def has_key_with(charsmap: bytes, byte: int) -> bool:
    """Returns whether a key of a table has a byte.

    Raises:
      ValueError: `charsmap` is not a table of replacements.
    """
    units, _ = _parts(charsmap)
    labels = units & _LABEL
    if not (labels == byte).any():  # units that belong to no key have labels too
        return False
    reached = np.zeros(len(units), bool)
    nodes = np.zeros(1, np.int64)
    while len(nodes):
        places = _children(units, nodes)[:, None] ^ np.arange(1, 256)
        inside = places < len(units)
        found = inside & (labels[np.where(inside, places, 0)] == np.arange(1, 256))
        nodes = np.unique(places[found])
        nodes = nodes[~reached[nodes]]
        if (labels[nodes] == byte).any():
            return True
        reached[nodes] = True
    return False


def replacements_have(charsmap: bytes, text: bytes) -> bool:
    """Returns whether a replacement of a table has a text; see `has_key_with` for the error."""
    return text in _parts(charsmap)[1]


def keys_of(charsmap: bytes) -> dict[bytes, bytes]:
    """Returns {key: replacement} of a table, without keys that are too long to be looked up.

    Raises:
      ValueError: `charsmap` is not a table of replacements.
    """
    units, texts = _parts(charsmap)

    bytes_ = np.arange(1, 256)
    keys: dict[bytes, bytes] = {}
    names, nodes = [b""], _children(units, np.zeros(1, np.int64))
    for _ in range(_MOST_BYTES):
        places = nodes[:, None] ^ bytes_
        inside = places < len(units)
        labels = units[np.where(inside, places, 0)] & _LABEL
        rows, columns = np.nonzero(inside & (labels == bytes_))
        places = places[rows, columns]
        names = [names[row] + bytes([bytes_[column]])
                 for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]  # fmt: skip
        nodes = _children(units, places)
        for name, place, node in zip(names, places.tolist(), nodes.tolist(), strict=True):
            if units[place] >> 8 & 1:
                begin = int(units[node]) & 0x7FFFFFFF
                keys[name] = texts[begin : texts.index(b"\0", begin)]
    return keys


class Replacements(tf.Module):
    """Looks up clusters and characters.

    Characters that are joined by a joiner or by a virama ("क्ष") are several clusters here. The
    results differ from the package only for a character that has a replacement and a mark of two
    bytes and follows a joiner or virama.
    """

    def __init__(self, charsmap: bytes):
        """Reads a table; see `keys_of` for the error."""
        super().__init__()
        keys = keys_of(charsmap)
        self._numbers = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([*keys, _CUT]), tf.constant([*range(len(keys)), -1], tf.int32)
            ),
            default_value=-1,
        )
        self._values = tf.constant([*keys.values(), b""])

    def clusters(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the clusters (with `_MARK`) of valid UTF-8 strings [N]: string [N, None]."""
        marked = tf.strings.regex_replace(texts, f"[{_APART}]", patterns.MARK + rb"\0")
        cut = tf.strings.regex_replace(marked, _CLUSTER, rb"\0" + _CUT)
        parts = tf.strings.split(cut, _CUT)
        return tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))

    def of_characters(self, clusters: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Replaces the characters of distinct clusters.

        Args:
          clusters: string [Q], with `_MARK`.

        Returns:
          The replacement of each character, string [Q, None]: the replacement of a cluster is at
          its first character, and its other characters become empty; and whether a cluster is
          replaced as a unit, bool [Q].
        """
        clusters = tf.strings.regex_replace(clusters, _MARK, "")
        short = tf.strings.length(clusters) <= _MOST_BYTES
        found = tf.fill(tf.shape(clusters), -1)
        for count in range(1, _MOST_CHARACTERS + 1):
            number = self._numbers.lookup(tf.strings.substr(clusters, 0, count, "UTF8_CHAR"))
            found = tf.where(found < 0, number, found)
        whole = short & (found >= 0)
        characters = tf.strings.unicode_split(clusters, "UTF-8")
        rows = offsets.rows_of(characters)
        first = tf.equal(tf.ragged.range(characters.row_lengths()).values, 0)
        of_cluster = tf.gather(whole, rows)
        number = self._numbers.lookup(characters.values)
        number = tf.where(of_cluster & first, tf.gather(found, rows), number)
        values = tf.where(number >= 0, tf.gather(self._values, number % tf.size(self._values)),
                          characters.values)  # fmt: skip
        values = tf.where(of_cluster & ~first, "", values)
        return characters.with_values(values), whole

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8 strings [N] with their replacements."""
        clusters = self.clusters(texts)
        unique, numbers = tf.unique(clusters.values)
        values, _ = self.of_characters(unique)
        return offsets.joined(clusters.with_values(tf.gather(offsets.joined(values), numbers)))

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Replaces characters of texts that are split into characters; see `text_steps.Step`."""
        clusters = self.clusters(offsets.joined(characters))
        unique, numbers = tf.unique(clusters.values)
        values, whole = self.of_characters(unique)
        values = tf.gather(values, numbers)
        place = tf.ragged.range(values.row_lengths())
        rest = tf.gather(tf.gather(whole, numbers), offsets.rows_of(place)) & (place.values > 0)
        counts = tf.strings.length(characters.values, "UTF8_CHAR")
        owner = tf.repeat(tf.range(tf.size(counts)), counts)
        made = tf.strings.unsorted_segment_join(values.values, owner, tf.size(counts))
        rests = tf.math.unsorted_segment_sum(tf.cast(rest, tf.int32), owner, tf.size(counts))
        gone = (counts > 0) & tf.equal(rests, counts)
        return characters.with_values(made), attached | gone
