"""The README.md of a folder that is written for transformers or sentence-transformers.

Its front matter has the task (`pipeline_tag`), the tags, and the license and the base model where
the card of the model folder knows them. Its text says what the model is and what it learned from,
with the fingerprint of the data, and has the metrics of the checkpoint.
"""

import os

from official.conversion.sentence_transformers import folder as folders
from official.saving import model_card, model_folder
from official.saving.model_folder import ModelFolder
from official.utils import paths
from official.utils.paths import AnyPath

_SENTENCES = "sentence-transformers"
# The names of Hugging Face of what an objective does.
_PIPELINES = {
    "classification": "text-classification",
    "multi_label": "text-classification",
    "regression": "text-classification",
    "ranking": "text-ranking",
    "token_classification": "token-classification",
    "span_answer": "question-answering",
    "multiple_choice": "multiple-choice",
    "masked_lm": "fill-mask",
    "causal_lm": "text-generation",
    "seq2seq_lm": "text2text-generation",
}
_VECTORS = "sentence-similarity"


def write(
    output: AnyPath, model_dir: str | os.PathLike, source: ModelFolder, checkpoint: str
) -> None:
    """Writes the file, or completes that of a kind of sentence-transformers.

    Args:
      output: the folder, which has all other files.
      model_dir: the model folder.
      source: its content.
      checkpoint: the checkpoint of the weights.
    """
    file, model_dir = output / model_card.FILE, paths.path(model_dir)
    if file.exists():
        text = file.read_text("utf-8").rstrip("\n")
    else:
        text = f"{_front(source, (output / folders.MODULES).exists())}# {source.config.name}"
    origin = model_card.origin_of(model_dir / model_card.FILE)
    about = model_folder.described(model_dir, source.config, checkpoint)
    body = "\n\n".join([text, *about])
    file.write_text(model_card.with_front(f"{body}\n", origin), "utf-8")


def _front(source: ModelFolder, sentences: bool) -> str:
    """Returns the front matter of a folder, of sentence-transformers or of transformers alone."""
    types = [objective.type for objective in source.config.objectives]
    known = (_PIPELINES[each] for each in types if each in _PIPELINES)
    pipeline = _VECTORS if sentences else next(known, "feature-extraction")
    library = _SENTENCES if sentences else "transformers"
    tags = [_SENTENCES, "feature-extraction"] if sentences else [source.config.encoder.type]
    listed = "".join(f"- {tag}\n" for tag in tags)
    return f"---\ntags:\n{listed}pipeline_tag: {pipeline}\nlibrary_name: {library}\n---\n\n"
