"""SavedModels of a tiny encoder, to be asked with fuzzed texts."""

import tempfile
from pathlib import Path

import numpy as np

from official import config as configs
from official import tokenizers
from official.saving import checkpoints, model_folder
from official.serving import saved_model

LENGTH = 128


def write(tokenizer: Path, objective: str, output: Path) -> None:
    """Exports an encoder with first weights.

    Args:
      tokenizer: its folder.
      objective: `vectors` for the encoder alone, `answer` for questions and contexts.
      output: the folder of the SavedModel.
    """
    loaded = tokenizers.load(tokenizer)
    config = configs.from_dict(
        {
            "name": "served",
            "encoder": {
                "type": "transformer",
                "vocab_size": loaded.vocab_size,
                "hidden_size": 8,
                "num_layers": 1,
                "num_heads": 1,
                "intermediate_size": 8,
                "max_positions": LENGTH,
                "initializer_range": 1.0,  # so that another id gives quite another vector
            },
            "objectives": [{"type": "span_answer"}] if objective == "answer" else [],
        }
    )
    with tempfile.TemporaryDirectory() as scratch:
        model_dir = Path(scratch)
        configs.save(config, model_dir / "config.yaml")
        loaded.save(model_dir / "tokenizer")
        variables = model_folder.build(config).variables_by_path()
        arrays = {path: np.asarray(variable) for path, variable in variables.items()}
        checkpoints.save(model_dir, 0, arrays, {})
        saved_model.export(model_dir, output)
