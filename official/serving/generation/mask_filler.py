"""Fills the masks of texts: a masked LM by its probabilities, an encoder-decoder by generation.

A masked LM has a mask token, such as `[MASK]` or `<mask>`. It gives each token of the vocabulary a
probability at each mask, as if the other masks of the text remained (Devlin et al. 2018, section
3.1). These are the probabilities of the fill-mask pipeline of transformers. As there, the special
tokens that a text spells are special tokens.

T5's gaps are the sentinels `<extra_id_0>`, `<extra_id_1>`, ... (Raffel et al. 2020, section 3.1.4).
The decoder generates the words of all gaps, each after its sentinel. A beam search finds several
such texts.

Shapes: B texts, T tokens of the longest one, R masks of all texts, P masks of the text that has the
most, K words for each mask, V vocabulary, D hidden, N candidates.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official.evaluation.generated_texts import decoded
from official.modeling.layers import kernels
from official.modeling.model import Model
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving.compute import first_call
from official.serving.compute.precision import Weights
from official.serving.generation import generator
from official.serving.generation.generator import Generator, batches
from official.tokenizers import Tokenizer
from official.tokenizers.pair_forms import LEFT
from official.tokenizers.pair_packing import num_specials, pack
from official.utils import atomic, given_texts, paths, unicode_words
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

TOP_K = 5
CHUNK = 256  # texts of a file that are filled together
Span = tuple[int, int]  # the first character of a mask, and the one after its last


class Filling(NamedTuple):
    """What may stand in the place of a mask.

    Attributes:
      word: the text of the tokens, without blanks around it.
      probability: of a masked LM, the probability of the token at this mask; of an encoder-decoder,
        that of the whole generated text, with the words of all gaps.
      token_ids: the tokens; of a masked LM, one.
      text: the text with this mask filled.
    """

    word: str
    probability: float
    token_ids: tuple[int, ...]
    text: str


def masked_head(model: Model) -> tuple[Any, Any] | None:
    """Returns the encoder and the masked LM over it that fill masks; None = the model has none.

    The generator of an ELECTRA is an encoder of its own.
    """
    objective = model.objective("masked_lm", "generator")
    if objective is None:
        return None
    if objective.config.type == "generator":
        return objective.generator, objective.head
    return model.encoder, objective


class MaskFiller:
    """Fills masks with a masked LM.

    Args:
      source: the model and its tokenizer.
      weights: the weights of the encoder and the masked LM as an export stores them; None = the
        variables.

    Attributes:
      source: the model and its tokenizer.
      weights: the weights.
      mask_id: the id of the mask token.
      mask: how a text has it.
      best_of_tokens: the `first_call.Function` from tokens int32 [B, None], and the other arguments
        of `best`, to its results for the masks among them, text by text.

    Raises:
      UserError: the model cannot fill masks.
    """

    def __init__(self, source: ServedModel, weights: Weights | None = None):
        layers, mask_id = masked_head(source.model), source.tokenizer.mask_id
        if layers is None or mask_id is None:
            raise UserError(f"fill_mask: {why_not(source)}")
        self.source = source
        self.mask = source.tokenizer.pieces[mask_id]
        self._encoder, self._head = layers
        self.mask_id = mask_id
        self.weights = weights or Weights([self._encoder, self._head])
        tokens, number = tf.RaggedTensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)
        candidates = tf.TensorSpec([None], tf.int32)
        self._split = first_call.split_with_offsets(source.tokenizer)
        self.best_of_tokens = first_call.Function.of(self._of_tokens, [tokens, number, candidates])

    def tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of strings [B] with the masks that they spell, int32 [B, None]."""
        return self.source.tokenizer.tokenize(texts, special=True)

    def masks(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns where a batch of rows [B, T] has masks, bool [B, T]."""
        return batch["padding_mask"] & tf.equal(batch["token_ids"], self.mask_id)

    def encoded(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the states that the head reads for a batch, [B, T, D]."""
        with kernels.using(gradients=False), self.weights.read():
            return self._head.states(batch, self._encoder)

    def best(
        self, states: tf.Tensor, top_k: tf.Tensor, candidates: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the most probable tokens, the best first.

        The softmax is over all rows of the token table, even if some stand for no token.

        Args:
          states: the states of the masks, [R, D].
          top_k: int32 [], the number of tokens; there may be fewer.
          candidates: the tokens to choose from, int32 [N]; None or empty = all.

        Returns:
          The ids int32 [R, K] and their probabilities float32 [R, K].
        """
        with kernels.using(gradients=False), self.weights.read():
            logits = self._head.logits(states, self._encoder)
        every = tf.range(self.source.tokenizer.vocab_size)
        if candidates is None:
            chosen = every
        else:
            chosen = tf.cond(tf.size(candidates) > 0, lambda: candidates, lambda: every)
        probabilities = tf.gather(tf.nn.softmax(tf.cast(logits, tf.float32)), chosen, axis=1)
        values, indices = tf.math.top_k(probabilities, tf.minimum(top_k, tf.size(chosen)))
        return tf.gather(chosen, indices), values

    def _of_tokens(
        self, tokens: tf.RaggedTensor, top_k: tf.Tensor, candidates: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `best_of_tokens` of the class."""
        source = self.source
        batch = pack([tokens], source.tokenizer, source.max_length, source.config.encoder.layout)
        masks = self.masks(batch)
        return self.best(tf.boolean_mask(self.encoded(batch), masks), top_k, candidates)

    def texts(
        self,
        texts: Sequence[str],
        top_k: int = TOP_K,
        targets: Sequence[str] | None = None,
        batch_size: int = 32,
        report: Report | None = None,
    ) -> list[list[list[Filling]]]:
        """Fills the masks of texts: see `loaded_model.LoadedModel.fill_mask`.

        Raises:
          UserError: as there.
        """
        _check(texts, top_k, batch_size)
        tokenizer = self.source.tokenizer
        candidates = _candidates(targets, tokenizer)
        encoded = self.read(texts)
        tokens = [ids for ids, _ in encoded]
        results: list = [None] * len(texts)
        order = np.argsort([len(ids) for ids in tokens], kind="stable")
        progress = Progress(len(texts), report, unit="texts")
        chosen = tf.constant(candidates, tf.int32)
        alone = len(texts) <= batch_size
        for part in given_texts.slices(len(texts), batch_size):
            rows = order[part]
            values = np.concatenate([tokens[row] for row in rows]).astype(np.int32)
            ragged = tf.RaggedTensor.from_row_lengths(values, [len(tokens[row]) for row in rows])
            outputs = self.best_of_tokens(ragged, tf.constant(top_k), chosen, alone=alone)
            ids, probabilities = (value.numpy() for value in outputs)
            first = 0
            for row in rows:
                spans = encoded[row][1]
                in_text = slice(first, first + len(spans))
                results[row] = self._fillings(
                    texts[row], spans, ids[in_text], probabilities[in_text]
                )
                first += len(spans)
            progress(len(rows))
        return results

    def read(self, texts: Sequence[str], first: int = 1) -> list[tuple[np.ndarray, list[Span]]]:
        """Returns the ids of each text and where its masks are.

        Args:
          texts: the texts.
          first: the number of the first text, for messages.

        Raises:
          UserError: a text has no mask, or one beyond the maximum length.
        """
        tokenizer, length = self.source.tokenizer, self.source.max_length
        room = length - num_specials(1, tokenizer, self.source.config.encoder.layout)
        encoded = tokenizer.encode_with_offsets(list(texts), special=True, split=self._split)
        return _with_masks(texts, encoded, tokenizer, [self.mask_id], room, length, first)

    def _fillings(
        self, text: str, spans: Sequence[Span], ids: np.ndarray, probabilities: np.ndarray
    ) -> list[list[Filling]]:
        """Returns the fillings of the masks of a text."""
        tokenizer = self.source.tokenizer
        return [
            [
                Filling(
                    tokenizer.decode([token]).strip(),
                    probability,
                    (token,),
                    _filled(text, span, tokenizer.spellings[token].decode(errors="replace")),
                )
                for token, probability in zip(*pair, strict=True)
            ]
            for span, *pair in zip(spans, ids.tolist(), probabilities.tolist(), strict=True)
        ]


class SentinelFiller:
    """Fills the sentinels of texts with an encoder-decoder.

    Args:
      source: the model and its tokenizer.

    Attributes:
      mask: the sentinel of the first mask of a text.

    Raises:
      UserError: the model cannot fill sentinels.
    """

    mask = "<extra_id_0>"

    def __init__(self, source: ServedModel):
        if (reason := why_not(source)) is not None:
            raise UserError(f"fill_mask: {reason}")
        self._generator = Generator(source)
        self._max_length = source.max_length
        self._tokenizer = source.tokenizer
        self._split = first_call.split_with_offsets(source.tokenizer)

    def texts(
        self,
        texts: Sequence[str],
        top_k: int = TOP_K,
        targets: Sequence[str] | None = None,
        batch_size: int = 8,
        report: Report | None = None,
    ) -> list[list[list[Filling]]]:
        """Fills the sentinels of texts: see `loaded_model.LoadedModel.fill_mask`.

        Raises:
          UserError: as there; `targets` are given.
        """
        if targets is not None:
            raise UserError(
                "targets: not supported for an encoder-decoder, which generates the words; remove "
                "them"
            )
        _check(texts, top_k, batch_size)
        encoded = self.read(texts)
        rows = [[*ids.tolist(), self._generator.end_id] for ids, _ in encoded]
        length, pad_id = self._max_length, self._tokenizer.pad_id
        settings = Settings(num_beams=top_k, num_return_sequences=top_k, length_penalty=0.0)
        progress, results = Progress(len(rows), report, unit="texts"), []
        for numbers, ids, mask in batches(rows, batch_size, length, pad_id, side="right"):
            searched = self._generator.beams(ids, mask, settings)
            for row, beams, scores in zip(numbers, *searched, strict=True):
                results.append(self._fillings(texts[row], encoded[row][1], beams, scores))
            progress(len(ids))
        return results

    def read(self, texts: Sequence[str], first: int = 1) -> list[tuple[np.ndarray, list[Span]]]:
        """Returns the ids of each text, cut, and where its sentinels are; see `MaskFiller.read`.

        Raises:
          UserError: as there, or the sentinels of a text are not 0, 1, ... in this order.
        """
        tokenizer, length = self._tokenizer, self._max_length
        sentinels = tokenizer.sentinel_ids
        encoded = tokenizer.encode_with_offsets(list(texts), split=self._split)
        found = _with_masks(texts, encoded, tokenizer, sentinels, length - 1, length, first)
        for number, (text, (_, spans)) in enumerate(zip(texts, found, strict=True), first):
            order = [text[slice(*span)] for span in spans]
            if order != [tokenizer.pieces[i] for i in sentinels[: len(order)]]:
                raise UserError(
                    f"texts: text {number} has the sentinels {', '.join(order)}: number them from "
                    "0 in the order of the text, as in training"
                )
        return [(ids[tokenizer.pairs.kept(len(ids), length - 1)], spans) for ids, spans in found]

    def _fillings(
        self, text: str, spans: Sequence[Span], beams: np.ndarray, scores: np.ndarray
    ) -> list[list[Filling]]:
        """Returns the fillings of each sentinel of a text.

        Args:
          text: the text.
          spans: where its sentinels are.
          beams: the generated ids, [K, U].
          scores: their log probabilities, [K].
        """
        tokenizer = self._tokenizer
        results: list[list[Filling]] = [[] for _ in spans]
        starts = tokenizer.word_starts
        found_texts = np.isfinite(scores)  # other places of the search have none
        for ids, probability in zip(beams[found_texts], np.exp(scores[found_texts]), strict=True):
            words = self._words(ids)
            for number, (span, found) in enumerate(zip(spans, results, strict=True)):
                inserted = np.array(words.get(tokenizer.sentinel_ids[number], ()), np.int32)
                word = decoded(inserted, tokenizer).strip()
                begins = len(inserted) and inserted[0] < len(starts) and starts[inserted[0]]
                filled = _filled(text, span, " " * bool(begins) + word)
                found.append(Filling(word, float(probability), tuple(inserted.tolist()), filled))
        return results

    def _words(self, ids: np.ndarray) -> dict[int, list[int]]:
        """Returns the ids that follow each sentinel, up to the next one or the end token."""
        words: dict[int, list[int]] = {}
        current: list[int] | None = None
        for token in ids.tolist():
            if token == self._generator.end_id:
                break
            if token in self._tokenizer.sentinel_ids:
                current = words.setdefault(token, [])
            elif current is not None:
                current.append(token)
        return words


def why_not(source: ServedModel) -> str | None:
    """Returns the reason why a model cannot fill masks, or None if it can."""
    if masked_head(source.model) is not None:
        if source.tokenizer.mask_id is None:
            return "the vocabulary of this model has no mask token"
        return None
    model = source.model
    if generator.objective(model) == "seq2seq_lm" and generator.why_not(model) is None:
        if not source.tokenizer.sentinel_ids:
            return "the vocabulary of this model has no sentinels <extra_id_0>, <extra_id_1>, ..."
        return None
    kinds = ", ".join(o.config.type for o in source.model.objectives) or "none"
    return (
        "masks are filled by the objectives masked_lm, generator and seq2seq_lm, and this model "
        f"has {kinds}"
    )


def make(source: ServedModel) -> MaskFiller | SentinelFiller:
    """Makes what fills the masks of a model.

    Raises:
      UserError: the model cannot fill masks.
    """
    if masked_head(source.model) is None and generator.objective(source.model) == "seq2seq_lm":
        return SentinelFiller(source)
    return MaskFiller(source)


def write(
    filler: MaskFiller | SentinelFiller,
    texts: Sequence[str],
    output: str | os.PathLike,
    top_k: int = TOP_K,
    targets: Sequence[str] | None = None,
    report: Report | None = None,
) -> None:
    """Writes a JSON object for each text, with `text` and `masks`: the fillings of each mask.

    The file appears when it is complete. Arguments and errors are those of `MaskFiller.texts`.
    """
    parts = given_texts.slices(len(texts), CHUNK)
    for part in parts:  # what cannot be filled is found before anything is computed
        filler.read(texts[part], part.start + 1)
    progress = Progress(len(texts), report, unit="texts")
    with atomic.file(output) as stream:
        for part in parts:
            results = filler.texts(texts[part], top_k, targets)
            for text, masks in zip(texts[part], results, strict=True):
                line = {"text": text, "masks": [[f._asdict() for f in mask] for mask in masks]}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            progress(len(results))
    progress.finish()


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that `write` does not write."""
    paths.check_suffix(output, "filled masks", (".jsonl",))


def _check(texts: Sequence[str], top_k: int, batch_size: int) -> None:
    given_texts.check_texts(texts, batch_size, "fill_mask")
    if top_k < 1:
        raise UserError(f"top_k: {top_k} is less than 1")


def _with_masks(
    texts: Sequence[str],
    encoded: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    tokenizer: Tokenizer,
    mask_ids: Sequence[int],
    room: int,
    length: int,
    first: int,
) -> list[tuple[np.ndarray, list[Span]]]:
    """Returns the ids of each text and where its masks are.

    Args:
      texts: the texts.
      encoded: the ids, starts and ends of each text.
      tokenizer: the tokenizer.
      mask_ids: the ids of masks.
      room: the number of tokens of a text that are kept.
      length: the same with special tokens, for messages.
      first: the number of the first text, for messages.

    Raises:
      UserError: a text has no mask, or one that is cut off.
    """
    results = []
    for number, (text, (ids, starts, ends)) in enumerate(zip(texts, encoded, strict=True), first):
        places = np.flatnonzero(np.isin(ids, mask_ids))
        if not len(places):
            raise UserError(
                f"texts: text {number} has no mask: write {tokenizer.pieces[mask_ids[0]]} where a "
                f"word is missing: {text[:60]!r}"
            )
        read = tokenizer.pairs.kept(len(ids), room)
        kept = int(((places >= (read.start or 0)) & (places < read.stop)).sum())
        if kept < len(places):
            which = "last" if tokenizer.pairs.cut_side == LEFT else "first"
            raise UserError(
                f"texts: text {number} has {len(places)} masks, and {kept} of them are within the "
                f"{which} {length} tokens, where texts are cut: shorten it: {text[:60]!r}"
            )
        spans = zip(starts[places].tolist(), ends[places].tolist(), strict=True)
        results.append((ids, list(spans)))
    return results


def _candidates(targets: Sequence[str] | None, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of targets, ascending; [] = there are none.

    A target is a piece of the vocabulary, such as "##s", or a text that is one token.
    """
    if targets is None:
        return []
    given_texts.check_list(targets, "targets")
    if not targets:
        raise UserError("targets: the list is empty; remove it to choose from all tokens")
    numbers = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    ids_of_targets = set()
    for target, ids in zip(targets, tokenizer.encode(list(targets)), strict=True):
        if target not in numbers and len(ids) != 1:
            spelled = " ".join(tokenizer.pieces[i] for i in ids) or "nothing"
            raise UserError(
                f"targets: {target!r} is not one token of this vocabulary, but {spelled}: a mask "
                "stands for one token"
            )
        ids_of_targets.add(numbers.get(target, int(ids[0]) if len(ids) else 0))
    return sorted(ids_of_targets)


def _filled(text: str, span: Span, spelled: str) -> str:
    """Returns a text with a word in the place of a mask.

    `spelled` begins with a blank if it begins a word. What continues a word is joined to it.
    """
    before, word, after = text[: span[0]], spelled.strip(), text[span[1] :]
    if spelled.startswith(" "):
        before += " " * unicode_words.would_join(before, word)
    else:
        before = before.rstrip()
    return before + word + after
