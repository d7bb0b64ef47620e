"""A mode, and the flags that several of them have."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from official.utils import paths
from official.utils.errors import UserError
from official.utils.flag_table import Flag, Values

if TYPE_CHECKING:
    import tensorflow as tf

    from official import config as configs
    from official.saving.embedding_settings import EmbeddingSettings
    from official.serving import loaded_model


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode of `official.main`.

    Attributes:
      flags: its flags.
      required: the names of those that it needs.
      run: does the work.
    """

    flags: Sequence[Flag]
    required: Sequence[str]
    run: Callable[[Values], None]


MODEL_DIR = Flag("model_dir", str, None, "Model folder: config, checkpoints, metrics, events.")
CHECKPOINT = Flag(
    "checkpoint",
    str,
    "best",
    "The checkpoint to read (of training: that of --init): best, last, a step or a path.",
)
OVERRIDE = Flag(
    "override",
    str,
    [],
    "key.subkey=value, read as YAML, such as encoder.memory_length=N for another memory length "
    "than in training. May be repeated.",
    repeated=True,
)
DEVICES = (
    Flag(
        "distribution_strategy",
        str,
        "one_device",
        "where to compute. multi_worker reads TF_CONFIG.",
        values=("one_device", "mirrored", "multi_worker", "tpu"),
    ),
    Flag("tpu", str, "", "address or name of the TPU."),
    Flag(
        "num_replicas",
        int,
        0,
        "with --distribution_strategy=mirrored: the number of devices. 0 = all GPUs. Without a "
        "GPU, logical CPU devices.",
        least=0,
    ),
)


def folders(text: str) -> list[str] | dict[str, float]:
    """Splits the value of --data into folders, with their shares if it has them."""
    from official.data import mixture

    return mixture.parse(text)


def strategy(
    options: Values, config: "str | configs.Config", *data: str | None
) -> "tf.distribute.Strategy":
    """Returns where to compute.

    Args:
      options: the values of `DEVICES` and `OVERRIDE`.
      config: a config, the path of one, or a model folder.
      *data: the values of --data and --validation_data.
    """
    from official import config as configs
    from official.distribution import strategies

    if options.distribution_strategy == "tpu":
        named = [folder for each in data if each for folder in folders(each)]
        if not isinstance(config, configs.Config):
            config = configs.load(config, options.override)
        recipe = config.recipe
        strategies.check_tpu_data(options.tpu, named, bool(recipe.layer_states))
    return strategies.create(options.distribution_strategy, options.tpu, options.num_replicas)


class Vectors(NamedTuple):
    """What computes the vectors of a command.

    Attributes:
      embedder: computes them.
      settings: their settings, with the values of flags.
    """

    embedder: Any
    settings: "EmbeddingSettings"


def whole_model(options: Values) -> "loaded_model.LoadedModel":
    """Loads a model by TensorFlow."""
    from official.serving import loaded_model

    return loaded_model.load(
        options.model_dir, options.checkpoint, options.precision, options.runtime
    )


def vectors(options: Values, whole: bool) -> Vectors:
    """Loads what computes vectors, without TensorFlow where LiteRT suffices.

    Args:
      options: the values of the flags.
      whole: whether others than the vectors of texts are needed.

    Raises:
      UserError: a flag is not for the vectors of this model.
    """
    from official.serving import loading
    from official.serving.light_model import LightModel

    if whole or options.sparse is not None:
        return _by_tensorflow(options, whole_model(options))
    model = loading.load(options.model_dir, options.checkpoint, options.precision, options.runtime)
    if not isinstance(model, LightModel):
        return _by_tensorflow(options, model)
    settings = _settings(options, model.vectors.settings)
    if not model.vectors.computes(settings):
        return _by_tensorflow(options, model.whole)
    return Vectors(model.vectors, settings)


def model_name(options: Values, embedder: Any) -> str:
    """Returns the name of the model of an embedder; of an export for LiteRT, that of its folder."""
    from official import config as configs
    from official.serving.light import folder as light
    from official.serving.light.embedder import LightEmbedder

    if not isinstance(embedder, LightEmbedder):
        return embedder.config.name
    folder = paths.path(options.model_dir)
    return folder.name if light.is_light(folder) else configs.load(folder).name


def _by_tensorflow(options: Values, model: "loaded_model.LoadedModel") -> Vectors:
    """Checks the flags for vectors of a model; sets `is_sparse`."""
    embedder = model.embedder
    if options.sparse is not None:
        embedder.is_sparse = options.sparse
    wrong = ("pooling", "normalize") if embedder.is_sparse else ("max_active_dims",)
    for name in wrong:
        if options.is_given(name):
            kind = "sparse" if embedder.is_sparse else "dense"
            raise UserError(f"--{name}: not supported for {kind} vectors; remove it")
    return Vectors(embedder, _settings(options, embedder.settings))


def _settings(options: Values, settings: "EmbeddingSettings") -> "EmbeddingSettings":
    """Returns settings with the values of the flags."""
    return settings.with_values(
        options.pooling,
        options.normalize,
        options.max_length,
        max_active_dims=options.max_active_dims,
    )


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)
