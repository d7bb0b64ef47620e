"""Joins and splits a discriminator and its generator, which are two models in other tools."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from official import config as configs
from official.config.objectives import GeneratorConfig, MaskedLMConfig
from official.conversion import converted_model
from official.saving import model_folder
from official.utils.errors import UserError

# The name of the generator's objective, path prefix, and folder in the discriminator's folder.
GENERATOR = "generator"
# The token table of an encoder, and its difference to the generator's table.
TABLE = "encoder/embeddings/token_embedding/table"
DELTA = "encoder/embeddings/token_embedding/delta"
_EMBEDDINGS = ("token", "position", "segment", "norm")


def join(
    main: converted_model.Converted,
    small: converted_model.Converted,
    source: str,
    *,
    disentangled: bool = False,
    delta: np.ndarray | None = None,
) -> converted_model.Converted:
    """Combines a discriminator and its generator into one model (ELECTRA, DeBERTa-v3).

    Args:
      main: the discriminator, with or without its head.
      small: the generator, an encoder with a masked LM.
      source: the name of the generator for messages.
      disentangled: whether different token tables are read as gradient-disentangled embeddings
        (`sharing: gdes`): the discriminator's table is the generator's plus differences, and both
        are trained as in DeBERTa-v3's release (`decoupled`).
      delta: the stored differences [V, E]; None = not stored. They are used if their sum with the
        generator's table equals the discriminator's table to the bit; otherwise the differences are
        computed.

    Raises:
      UserError: the generator has no masked LM, or its sizes are not a fraction of those of the
        discriminator.
    """
    encoder, theirs = main.config.encoder, small.config.encoder
    sharing = _sharing(main.variables, small.variables)
    if disentangled and (sharing == "none" or delta is not None):
        sharing = "gdes"
    masked_lm = next((o for o in small.config.objectives if isinstance(o, MaskedLMConfig)), None)
    if masked_lm is None:
        raise UserError(f"{source} has no masked LM, so it is not a generator")
    objective = GeneratorConfig(
        size=theirs.hidden_size / encoder.hidden_size,
        num_layers=theirs.num_layers,
        sharing=sharing,
        enhanced_mask_decoder=masked_lm.enhanced_mask_decoder,
        decoupled=sharing == "gdes",
    )
    try:
        ours = objective.network(encoder)
    except ValueError as error:
        raise UserError(f"{source}: {error}: convert the two separately") from None
    theirs = dataclasses.replace(
        theirs, embedding_size=theirs.embedding_size or theirs.hidden_size, pooler=False
    )
    for field in (field.name for field in dataclasses.fields(ours)):
        if getattr(ours, field) != getattr(theirs, field):
            raise UserError(
                f"{source}: {field} is {getattr(theirs, field)}, where a generator with "
                f"{objective.size:g} of the discriminator's hidden size that shares "
                f"{objective.sharing} has {getattr(ours, field)}: convert the two separately"
            )
    objectives = (objective, *main.config.objectives)
    # The generator's masked LM comes with the settings of pretraining.
    config = dataclasses.replace(
        small.config, name=main.config.name, encoder=encoder, objectives=objectives
    )
    arrays = dict(main.variables)
    if sharing == "gdes":
        arrays[DELTA] = _differences(main.variables[TABLE], small.variables[TABLE], delta)
    variables = {
        path: small.variables[path.removeprefix(f"{GENERATOR}/")]
        if path.startswith(f"{GENERATOR}/")
        else arrays[path]
        for path in model_folder.shapes(config)
    }
    return dataclasses.replace(
        main,
        config=config,
        variables=variables,
        leftover=sorted({*main.leftover, *small.leftover}),
        notes=tuple(dict.fromkeys([*main.notes, *small.notes])),
    )


def split(
    config: configs.ResolvedConfig, variables: Mapping[str, np.ndarray]
) -> dict[str, tuple[configs.ResolvedConfig, dict[str, np.ndarray]]]:
    """Splits a model into its encoder with heads and its generator, by the folder of each.

    Args:
      config: the config of the model.
      variables: the variables of the model by path.

    Returns:
      {folder: (config, variables)}: the encoder with its heads under "", and the generator, if
      there is one, under `generator`.
    """
    generator = next((o for o in config.objectives if isinstance(o, GeneratorConfig)), None)
    objectives = tuple(o for o in config.objectives if o is not generator)
    main = {path: a for path, a in variables.items() if not path.startswith(f"{GENERATOR}/")}
    networks = {"": (dataclasses.replace(config, objectives=objectives), main)}
    if generator is not None:
        encoder = generator.network(config.encoder)
        head = MaskedLMConfig(enhanced_mask_decoder=generator.enhanced_mask_decoder)
        small = dataclasses.replace(config, encoder=encoder, objectives=(head,))
        # Shared variables have the paths of the encoder. Baselines are left out; only training uses
        # them.
        own = {path: a for path, a in main.items() if path.startswith("encoder/")}
        own |= {
            path.removeprefix(f"{GENERATOR}/"): array
            for path, array in variables.items()
            if path.startswith((f"{GENERATOR}/encoder/", f"{GENERATOR}/masked_lm/"))
        }
        networks[GENERATOR] = (small, own)
    return networks


def _sharing(main: Mapping[str, np.ndarray], small: Mapping[str, np.ndarray]) -> str:
    """Returns which variables of the generator's encoder are equal to the discriminator's."""

    def same(prefix: str) -> bool:
        paths = [path for path in small if path.startswith(prefix)]
        return all(path in main and np.array_equal(main[path], small[path]) for path in paths)

    if same("encoder/"):
        return "all"
    if all(same(f"encoder/embeddings/{part}") for part in _EMBEDDINGS):
        return "embeddings"
    return "token" if same("encoder/embeddings/token") else "none"


def _differences(whole: np.ndarray, base: np.ndarray, delta: np.ndarray | None) -> np.ndarray:
    """Returns the differences of a table to its base: the stored ones, if their sum is exact."""
    if delta is not None and delta.shape == base.shape:
        delta = delta.astype(base.dtype)
        if np.array_equal(base + delta, whole):
            return delta
    return whole - base
