"""The settings of `finetune` and its twins, and those that are published for a family of models."""

import dataclasses
import os
from collections.abc import Callable, Sequence

from official import config as configs
from official.config import yaml_files
from official.conversion import huggingface
from official.conversion.system import USUAL
from official.data import mixture
from official.fine_tuning import continued
from official.saving import model_folder, served_model
from official.shards import manifest
from official.tasks import KINDS
from official.tasks.task import Description
from official.utils import given_texts, paths
from official.utils.errors import UserError

# Fewer examples than these are few (Mosbach et al., 2021, section 6, for RTE, MRPC and CoLA).
FEW = 10_000
_FEW_EPOCHS, _FEW_BATCH = 20, 16
_WARMUP = 0.1  # the largest share of the steps: DeBERTa's cards have a number of them, for MNLI
# The config of a kind of task, for data that no paper has.
_CONFIGS = {
    "classification": "classification",
    "multi_label": "multi_label",
    "regression": "regression",
    "span": "squad2",
    "tagging": "tagging",
}
_BUCKETS = (16, 32, 64, 128, 256, 512)

Report = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of `finetune` and its twins.

    Attributes:
      validation: the share of the examples that chooses the best checkpoint and is measured, drawn
        by `seed`; or other data in the form of the arguments, as (texts, labels) or (table,). 0 =
        none.
      max_length: longer texts are cut to this number of tokens. None = 128, 384 for questions, or
        what the encoder takes if that is less.
      windows: single texts that are longer are read in up to so many windows of this length, whose
        outputs are joined; None = they are cut.
      window_overlap: the number of tokens that two such windows share; None = a quarter of one.
      epochs: passes over the data. None = as published for the family of the model (see
        docs/fine-tuning.md), and 20 for fewer than `FEW` examples (Mosbach et al., 2021).
      batch_size: examples of a step. None = as published.
      learning_rate: the highest learning rate. None = as published.
      seed: decides the share of `validation`, the order of the examples, the initial weights of the
        head and dropout.
      override: further settings, as `--override` takes them: `["recipe.optimizer.type=lamb"]`.
      report: takes the lines that say what is done.
    """

    validation: float | tuple = 0.1
    max_length: int | None = None
    windows: int | None = None
    window_overlap: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0
    override: Sequence[str] = ()
    report: Report = print

    def overrides(self) -> list[str]:
        """Returns the settings that are set, as overrides of a config."""
        given_texts.check_list(self.override, "override")
        settings = {
            "recipe.epochs": self.epochs,
            "recipe.batch_size": self.batch_size,
            "recipe.optimizer.learning_rate": self.learning_rate,
        }
        named = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return [*named, *self.override]

    def reading(self, kind: str) -> dict[str, int]:
        """Returns the settings of the builder of shards that say how long texts are read.

        Args:
          kind: the kind of the task.

        Raises:
          UserError: texts of this kind are not read in windows of that many tokens.
        """
        values = {"windows": self.windows, "window_overlap": self.window_overlap}
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            if name not in KINDS[kind].flags:
                raise UserError(
                    f"{name}: for texts with labels or scores, not for a task of the kind {kind}: "
                    "leave it out"
                )
        return given

    def length(self, kind: str, config: configs.ResolvedConfig) -> int:
        """Returns the length of the longest example in tokens.

        Args:
          kind: the kind of the task.
          config: that of the model to start from.

        Raises:
          UserError: the encoder cannot read texts of `max_length`.
        """
        if self.max_length is None:
            return min(KINDS[kind].max_length, config.encoder.max_positions)
        served_model.check_max_length(self.max_length, config.encoder)
        return self.max_length


def family(config: configs.ResolvedConfig) -> str | None:
    """Returns the name of the config with the settings of a model's family; None = those of BERT.

    It is for texts with labels.
    """
    return huggingface.fine_tuning_of(config).config


def of_shards(
    data: str | os.PathLike,
    init: str | os.PathLike,
    override: Sequence[str] = (),
    report: Report = print,
) -> configs.Config:
    """Returns the settings for shards and the model to start from, and says them.

    Those of a task are learned by the rule of `finetune`. With text the model goes on with its
    pretraining; see `official.fine_tuning.continued`.

    Args:
      data: what --data has: a folder of shards of a task, or one or more of text.
      init: the model folder to start from.
      override: further settings, which win.
      report: takes the line that says what is taken.

    Raises:
      UserError: the shards are those of a task that has no usual settings, or text that the model
        cannot go on with.
    """
    contents = {str(each): manifest.read(each) for each in mixture.parse(str(data))}
    content, *others = contents.values()
    task = content.task
    if all(each.task is None for each in contents.values()):
        return continued.of_text(contents, init, override, report)
    if others or not isinstance(task, Description) or task.kind not in _CONFIGS:
        what = "several tasks" if others else f"a task of the kind {getattr(task, 'kind', None)}"
        raise UserError(
            f"--config is missing: {data} has shards of {what}, whose settings are those of a "
            "config: --list_configs prints the names of the published ones"
        )
    count = sum(s.records for s in content.shards if s.split == "train")
    own = f"configs/finetune/{task.name}.yaml" in yaml_files.published()
    name = task.name if own else _CONFIGS[task.kind]
    known = model_folder.config_of(paths.path(init))
    if KINDS[task.kind].generic:
        name = family(known) or name
    settings = Settings(override=override, report=report)
    return published(name, task.kind, count, content.max_length, known, settings)


def published(
    name: str,
    kind: str,
    count: int,
    max_length: int,
    init: configs.ResolvedConfig,
    settings: Settings,
) -> configs.Config:
    """Returns the published settings for this number of examples, and says them.

    Args:
      name: that of a config in `configs/finetune`.
      kind: the kind of the task.
      count: the number of examples to learn from.
      max_length: the length of the longest example in tokens.
      init: the config of the model to start from.
      settings: what the user has set, which wins.
    """
    path, own = f"configs/finetune/{name}.yaml", settings.overrides()
    chosen, why = [f"seed={settings.seed}", f"objectives.0.type={KINDS[kind].objectives[0]}"], []
    if count < FEW:
        chosen += [f"recipe.epochs={_FEW_EPOCHS}", "recipe.optimizer.bias_correction=true"]
        chosen.append(f"recipe.batch_size={_FEW_BATCH}")
        why.append("those of Mosbach et al. (2021) for few examples")
    if init.encoder.hidden_size < continued.BASE_SIZE:  # narrower ones learn faster
        known = huggingface.fine_tuning_of(init)
        rate = (known if known.config == name else USUAL).small_rate
        chosen.append(f"recipe.optimizer.learning_rate={rate}")
        why.append("the learning rate of a small model")
    recipe = configs.load(path, [*chosen, *own]).recipe
    batch = min(recipe.batch_size, count)
    steps = -(-count // batch)  # of an epoch
    longest = round(_WARMUP * recipe.epochs * steps)
    if recipe.schedule.warmup_steps > longest:
        chosen.append(f"recipe.schedule.warmup_steps={longest}")
    buckets = [*(b for b in _BUCKETS if b < max_length), max_length]
    chosen += [
        f"recipe.eval_every={min(steps, continued.EVAL_EVERY)}",
        f"recipe.bucket_lengths={buckets}",
    ]
    config = configs.load(path, [*chosen, *own, f"recipe.batch_size={batch}"])
    recipe, with_ = config.recipe, f", with {' and '.join(why)}" if why else ""
    settings.report(
        f"settings of {path}{with_}: {recipe.epochs:g} epochs, batches of {recipe.batch_size}, "
        f"learning rate {recipe.optimizer.learning_rate:g}, texts of at most {max_length} tokens"
    )
    return config
