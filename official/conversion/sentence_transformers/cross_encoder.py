"""Folders of rerankers: a Transformer with a head, whose one output is the score of a pair.

The head is that of a classification in transformers (`official.conversion.heads.Ranking`), and the
activation of the scores is the `output` of the objective `ranking`. A model with several labels is
a classification. Folders without `modules.json` (of versions before 6, and of transformers) are
rerankers where the settings, config.json or README.md say so.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official.config.heads import RankingConfig
from official.conversion import heads
from official.conversion.converted_model import Converted, check_types
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind, ReadModel
from official.saving.model_folder import ModelFolder
from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
_PROMPT = "query"  # the name of the prompt before queries
_TAGS, _PIPELINE = ("cross-encoder", "reranker"), "text-ranking"
# The activations of several labels, and what they add to config.json: the classes of a
# classification share a softmax, and the labels of the other one have a sigmoid each.
_OF_LABELS: Mapping[str | None, Mapping[str, Any]] = {
    None: {},
    heads.ACTIVATIONS["logits"]: {},
    "torch.nn.modules.activation.Softmax": {},
    heads.ACTIVATIONS["sigmoid"]: {"problem_type": heads.SEVERAL},
}
_USE = """# {name}

A reranker: it scores a query with a document. Pairs of more than {length} tokens are cut.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{name}")
model.rank("a query", ["one document", "another"])
```
"""


class CrossEncoder(Kind):
    """A model with scores of pairs of texts."""

    model_type = "CrossEncoder"
    chains = (("Transformer",), ())
    modules = "a Transformer alone"
    task = "sequence-classification"

    @override
    def describes(self, folder: Folder) -> bool:
        if folder.modules:
            return super().describes(folder)
        return folder.model_type == self.model_type or _says(folder.path / folders.CARD)

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        place = folder.place("Transformer")
        keys = _keys(folder, place / "config.json")
        converted = read_model(place, keys)
        converted.tokenizer.max_tokens = folders.max_length(folder, converted)
        prompts = folder.prompts()
        default = str(folder.settings.get("default_prompt_name") or "")
        notes = []
        if converted.config.of_types("classification", "multi_label"):
            notes.append("the scores of several labels are those of a classification: see classify")
        if named := [name for name, text in prompts.items() if text and name != default]:
            notes.append(f"prompts that are only taken if named are left out: {', '.join(named)}")
        objectives = tuple(
            dataclasses.replace(objective, prompt=prompts.get(default, ""))
            if isinstance(objective, RankingConfig)
            else objective
            for objective in converted.config.objectives
        )
        config = dataclasses.replace(converted.config, objectives=objectives)
        return dataclasses.replace(converted, config=config, notes=(*converted.notes, *notes))

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return any(isinstance(objective, RankingConfig) for objective in source.config.objectives)

    @override
    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        del variables
        (ranker,) = (o for o in source.config.objectives if isinstance(o, RankingConfig))
        settings = {
            "activation_fn": heads.ACTIVATIONS[ranker.output],
            "default_prompt_name": _PROMPT if ranker.prompt else None,
            "model_type": self.model_type,
            "prompts": {_PROMPT: ranker.prompt} if ranker.prompt else {},
        }
        folders.write(folder, [(_TRANSFORMER, "")], settings, folders.transformer(self.task))
        use = _USE.format(name=source.config.name, length=max_length)
        folders.write_card(folder, _TAGS, _PIPELINE, use)


def _keys(folder: Folder, source: AnyPath) -> Mapping[str, Any]:
    """Returns what the settings of a folder add to config.json, the file `source`."""
    described = json_files.read(source)
    check_types(described, source)
    saved = {heads.RANKER: folder.settings} if folder.settings.get("activation_fn") else described
    try:
        activation = heads.ranker_activation(saved)
        if heads.num_labels(described) == 1:
            return {heads.RANKER: {"activation_fn": activation or heads.ACTIVATIONS["sigmoid"]}}
        if activation in _OF_LABELS:
            return _OF_LABELS[activation]
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    known = ", ".join(filter(None, _OF_LABELS))
    raise UserError(
        f"{folder.source}: activation_fn: {activation!r} is not supported for several labels, only "
        f"{known}"
    )


def _says(card: AnyPath) -> bool:
    """Returns whether the front matter of a README says that the model is a reranker."""
    if not card.is_file():
        return False
    text = paths.read_bytes(card).decode("utf-8", "replace")
    front = text.split("\n---", 1)[0] if text.startswith("---") else ""
    return re.search(rf"^pipeline_tag: *{_PIPELINE}\s*$", front, re.MULTILINE) is not None
