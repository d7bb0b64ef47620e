"""Small SentencePiece models."""

import io
import json

import pytest
import sentencepiece

from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
PROSE = [row["text"] for row in GOLDEN["cased"][:8]]


@pytest.fixture(scope="session")
def spiece_model():
    def model(kind="unigram", vocab_size=220, controls=("[CLS]", "[SEP]", "[MASK]"), **options):
        data = io.BytesIO()
        settings = {"normalization_rule_name": "nmt_nfkc", **options}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(PROSE * 3),
            model_writer=data,
            model_type=kind,
            vocab_size=vocab_size,
            character_coverage=0.98,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="[PAD]",
            unk_piece="[UNK]",
            control_symbols=list(controls),
            minloglevel=2,
            **settings,
        )
        return data.getvalue()

    return model
