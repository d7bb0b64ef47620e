"""Chooses the generator of a model by its objective.

| objective | generator | its texts |
|---|---|---|
| causal_lm | `generator.Generator` | each prompt with its continuation |
| seq2seq_lm | `text_generator.TextGenerator` | the generated texts alone |
"""

from official.modeling.model import Model
from official.serving.generator import Generator
from official.serving.served_model import ServedModel
from official.serving.text_generator import TextGenerator
from official.utils.errors import UserError


def why_not(model: Model) -> str | None:
    """Returns the reason why a model cannot generate text, or None if it can."""
    if getattr(model.encoder.config, "decoder_layers", None) == 0:
        return "this model cannot write: it is an encoder without a decoder"
    if objective(model) is None:
        return "this model cannot write: it has no causal_lm or seq2seq_lm objective"
    return None


def objective(model: Model) -> str | None:
    """Returns the type of the objective that generates text; None = the model has none."""
    types = [objective.config.type for objective in model.objectives]
    return next((name for name in ("causal_lm", "seq2seq_lm") if name in types), None)


def make(source: ServedModel) -> Generator | TextGenerator:
    """Makes the generator of a model.

    Raises:
      UserError: the model cannot generate text.
    """
    if reason := why_not(source.model):
        raise UserError(reason)
    if objective(source.model) == "seq2seq_lm":
        return TextGenerator(source)
    return Generator(source.config, source.tokenizer, source.model)
