"""The config of the objective that learns tags of words."""

import dataclasses

from official.config.mix import Mix
from official.config.part import ObjectiveConfig
from official.utils.strict import at_least, dropout_rate, labels_agree, omitted


@dataclasses.dataclass(frozen=True)
class TokenClassificationConfig(ObjectiveConfig):
    """The tag of each word, read from the first token of the word.

    Attributes:
        labels: the names of the tags, in the order of their ids; filled in from the data.
        num_labels: the number of tags; None = as many as `labels`.
        crf: whether the tags of a text are a linear-chain CRF (Lafferty et al., 2001); without one
            each tag is predicted separately, as in BERT.
        bilstm: the number of cells of each direction of a BiLSTM between the encoder and the tags
            (Peters et al., 2018); None = the tags read the states.
        dropout: the dropout rate of the states, and of what the tags read after the BiLSTM.
        mix: the mix of all layers, which is read in place of the last layer; None = no mix.
        output_mix: another mix of all layers, which the tags read beside the output of the BiLSTM
            (Peters et al., 2018, section 3.3); None = no mix.
        weight: factor of this loss in the sum.
    """

    type = "token_classification"

    labels: tuple[str, ...] = ()
    num_labels: int | None = None
    crf: bool = False
    bilstm: int | None = None
    dropout: float = 0.1
    mix: Mix | None = omitted()
    output_mix: Mix | None = omitted()
    weight: float = 1.0

    def __post_init__(self):
        dropout_rate(self, "dropout")
        at_least(self, 2, "num_labels")
        at_least(self, 1, "bilstm")
        if self.output_mix is not None and self.bilstm is None:
            raise ValueError("output_mix: stands beside the output of a BiLSTM: set bilstm, or mix")
        labels_agree(self)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"word_ids", "tag_ids"})


PARTS = (TokenClassificationConfig,)
