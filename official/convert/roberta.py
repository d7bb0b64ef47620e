"""RoBERTa, XLM-RoBERTa and CamemBERT: the names of their tensors in Hugging Face's files.

The three are one network with different vocabularies. The position table has additional rows, as
many as the id of the padding token plus one (2 in the releases). The hidden layer of the
classification head is our pooler.
"""

from official.convert.bert import encoder_rows, masked_lm_rows, task_heads
from official.convert.encoder_keys import EncoderKeys
from official.convert.heads import MaskedLM, MultipleChoice, table
from official.convert.mapping import linear
from official.convert.system import BOUNDS, System
from official.tokenizers import SentencePiece, Tokenizer
from official.tokenizers.sentencepiece import FAIRSEQ_FILE


def _system(model_type: str, title: str, classes: str, vocabulary: str) -> System:
    return System(
        model_type=model_type,
        encoder=EncoderKeys(title=title, padded_positions=True),
        prefix="roberta.",
        encoder_rows=encoder_rows("roberta."),
        pooler="pooler.dense",
        heads=table(
            MaskedLM(
                masked_lm_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
                f"{classes}ForMaskedLM",
                erf_gelu=True,
            ),
            *task_heads(
                classes,
                "classifier.out_proj",
                hidden="classifier.dense",
                choice=MultipleChoice(
                    linear("multiple_choice/output", "classifier"), f"{classes}ForMultipleChoice"
                ),
            ),
        ),
        architectures={frozenset(): f"{classes}Model"},
        aliases={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
        vocabulary=vocabulary,
        bounds=BOUNDS,
        segments={"format": "full_sentences"},
        corruption={"random_tokens": "non_special"},
    )


SYSTEM = _system("roberta", "a RoBERTa", "Roberta", "vocab.json")
XLM = _system("xlm-roberta", "an XLM-RoBERTa", "XLMRoberta", FAIRSEQ_FILE)
CAMEMBERT = _system("camembert", "a CamemBERT", "Camembert", FAIRSEQ_FILE)


def of_vocabulary(tokenizer: Tokenizer | None) -> System:
    """Returns which of the three systems has the vocabulary of a tokenizer."""
    if not isinstance(tokenizer, SentencePiece):
        return SYSTEM
    return CAMEMBERT if "<s>NOTUSED" in tokenizer.pieces else XLM
