"""Finds the SentencePiece models that split a text like its words, each of them alone.

A model turns a blank into "▁". Where each "▁" of a text begins a piece, the ids of the text are
those of its parts, if it is cut before each blank.
"""

from sentencepiece import sentencepiece_model_pb2

from official.tokenizers.charsmap import has_key_with, replacements_have
from official.tokenizers.word_starts import BLANK

_KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece
_SIGN = BLANK.encode()


def parts_at_blanks(model: sentencepiece_model_pb2.ModelProto) -> bool:
    """Returns whether the ids of a text are those of its parts before and from each blank.

    It must be a text without a "▁". The conditions are:

    * the model is a unigram model or BPE, and its pieces have a "▁" only at their beginnings;
    * a "▁" comes before a text, and a run of blanks is one "▁";
    * "▁" alone is a piece too, because unknown characters become a single unknown piece with those
      before them;
    * the replacements of characters do not depend on the blanks beside them.
    """
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    if trainer.model_type not in (trainer.UNIGRAM, trainer.BPE):
        return False
    if trainer.treat_whitespace_as_suffix or not (
        normalizer.add_dummy_prefix
        and normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
    ):
        return False
    alone = False
    for piece in model.pieces:
        # A symbol that a user has defined is found before blanks are replaced.
        inside = piece.piece if piece.type == _KINDS.USER_DEFINED else piece.piece[1:]
        if BLANK in inside or " " in piece.piece:
            return False
        alone |= piece.piece == BLANK and piece.type == _KINDS.NORMAL
    charsmap = normalizer.precompiled_charsmap
    if charsmap and (has_key_with(charsmap, ord(" ")) or replacements_have(charsmap, _SIGN)):
        return False
    return alone
