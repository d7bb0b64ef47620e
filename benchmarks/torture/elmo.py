"""A folder of ELMo's release, with weights at random."""

import dataclasses
from pathlib import Path

from official import config as configs
from official.config.encoders import BilmConfig
from official.convert import elmo
from official.saving import model_folder
from official.tokenizers import Characters
from official.tokenizers.word_characters import SPECIALS
from official.utils import host_seeding


def write(folder: Path) -> None:
    """Writes the files of a tiny model."""
    encoder = BilmConfig(
        vocab_size=5,
        character_size=4,
        filters=((1, 8), (2, 8)),
        highway_layers=1,
        cell_size=64,
        projection_size=16,
    )
    config = dataclasses.replace(configs.from_dict({"name": "elmo"}), encoder=encoder)
    rng = host_seeding.numpy_rng(0)
    shapes = model_folder.shapes(config)
    weights = {path: rng.normal(0, 0.1, shape) for path, shape in shapes.items()}
    elmo.write_release(encoder, weights, folder)
    Characters([*SPECIALS, "the", "of"]).save(folder)
