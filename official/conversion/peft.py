"""Reads LoRA folders of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

`Adapter` has the content of a folder. `Merged` has the tensors of its base with the adapter in
them, by the names of PyTorch's classes, which the tables of all systems map afterwards:

* W' = W + s B A, with s = alpha / r, or alpha / sqrt(r) of `use_rslora`. Patterns of ranks and
  alphas count for the first that matches the end of a module's name.
* DoRA: each row of W + s B A is divided by its L2 norm and multiplied by its magnitude.
* `lora_bias` adds s times the bias of B to that of the layer.
* Biases that were trained (`bias`), and modules that were saved whole, replace those of the base.

`Kept` has the tensors of the base as they are, and the updates become those of
`official.modeling.layers.low_rank`, with which a training goes on. An update of a matrix that is
joined in PyTorch becomes one for each part, with A of its own.

What the config sets beyond that is refused. The update of an embedding is s (B A) transposed.

Shapes: I input size, O output size of a layer, r rank, V rows of an embedding.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from official.config import trainable
from official.conversion import heads as head_kinds
from official.conversion.converted_model import Converted
from official.conversion.heads import TaskHead
from official.conversion.mapping import LazyTensors, Row, numbers
from official.conversion.system import System
from official.conversion.weight_files import Tensors, Weights, current_name
from official.modeling.layers import low_rank
from official.modeling.model import Model
from official.utils import json_files, keras_private, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

CONFIG = "adapter_config.json"
FILES = ("adapter_model.safetensors", "adapter_model.bin")
PREFIX = "base_model.model."
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # of a model of the hub, not the path of a folder
_WAY_OUT = (
    "merge it where it was trained, model.merge_and_unload().save_pretrained(FOLDER), and convert "
    "that folder"
)
# Keys that say how the adapter was trained; the tensors show what came of it.
_OF_TRAINING = frozenset(
    {
        "base_model_name_or_path", "eva_config", "exclude_modules", "fan_in_fan_out",
        "inference_mode", "layers_pattern", "layers_to_transform", "lora_dropout", "megatron_core",
        "peft_version", "qalora_group_size", "revision", "runtime_config", "target_modules",
    }
)  # fmt: skip
# Initial values that leave the weights of the base as they are. Others take a part out of them,
# so that the adapter belongs to weights that no file has.
_INITIALIZERS = (True, False, "gaussian", "eva", "orthogonal", "mica")
# `task_type` → the names of the heads that it may be; the bare encoder has none.
TASKS = {
    "SEQ_CLS": tuple(
        kind.name
        for kind in (
            head_kinds.Classification,
            head_kinds.MultiLabel,
            head_kinds.Regression,
            head_kinds.Ranking,
        )
    ),
    "TOKEN_CLS": (head_kinds.TokenClassification.name,),
    "QUESTION_ANS": (head_kinds.SpanAnswer.name, head_kinds.ConditionalSpanAnswer.name),
    "CAUSAL_LM": (head_kinds.CausalLM.name,),
    "SEQ_2_SEQ_LM": (head_kinds.Seq2SeqLM.name,),
    "FEATURE_EXTRACTION": (),
}
# The tensors of an update, after the name of its module.
_LINEAR = ("lora_A.weight", "lora_B.weight")
_EMBEDDING = ("lora_embedding_A", "lora_embedding_B")
_MAGNITUDE, _BIAS = "lora_magnitude_vector", "lora_B.bias"
_BEFORE = ".original_module."
_PARTS = (*_LINEAR, *_EMBEDDING, _MAGNITUDE, _BIAS)
_PART = re.compile(rf"(?P<module>.+)\.(?P<part>{'|'.join(map(re.escape, _PARTS))})")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The keys of `adapter_config.json` that the weights depend on, with PEFT's defaults.

    Attributes:
      peft_type: the kind of adapter, `LORA`.
      task_type: the kind of task; None = `auto_mapping` names the class, or nothing does.
      auto_mapping: the class of the model, under `base_model_class`.
      r: the rank.
      lora_alpha: alpha.
      rank_pattern: ranks by ends of module names, which are regular expressions.
      alpha_pattern: the same for alpha.
      use_rslora: whether the factor is alpha / sqrt(r) in place of alpha / r.
      use_dora: whether there are magnitudes.
      lora_bias: whether B has a bias.
      bias: the biases that were trained: `none`, `lora_only` or `all`.
      modules_to_save: the ends of the names of modules that were trained and saved whole.
      init_lora_weights: the initial values.
    """

    peft_type: str
    task_type: str | None = None
    auto_mapping: Mapping[str, Any] | None = None
    r: int = 8
    lora_alpha: float = 8.0
    rank_pattern: Mapping[str, int] = dataclasses.field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = dataclasses.field(default_factory=dict)
    use_rslora: bool = False
    use_dora: bool = False
    lora_bias: bool = False
    bias: str = "none"
    modules_to_save: tuple[str, ...] = ()
    init_lora_weights: Any = True

    def __post_init__(self):
        for key, values in {
            "peft_type": ("LORA",),
            "task_type": (None, *TASKS),
            "bias": ("none", "lora_only", "all"),
            "init_lora_weights": _INITIALIZERS,
        }.items():
            if (value := getattr(self, key)) not in values:
                known = ", ".join(repr(each) for each in values if each is not None)
                raise ValueError(f"{key}: {value!r} is not supported (known: {known}): {_WAY_OUT}")
        strict.regular_expression(self, "rank_pattern", "alpha_pattern")
        strict.at_least(self, 1, "r")
        for key, rank in self.rank_pattern.items():
            if rank < 1:
                raise ValueError(f"rank_pattern: {key}: {rank} is less than 1")

    def rank(self, module: str) -> int:
        """Returns the rank of the update of a module."""
        return int(_of_pattern(self.rank_pattern, module, self.r))

    def factor(self, module: str) -> float:
        """Returns the factor s of the update of a module."""
        rank = self.rank(module)
        alpha = _of_pattern(self.alpha_pattern, module, self.lora_alpha)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)

    def saves(self, tensor: str) -> bool:
        """Returns whether a tensor is in a module that was saved whole."""
        parts = tensor.split(".")[:-1]
        modules = [".".join(parts[: end + 1]) for end in range(len(parts))]
        return any(module.endswith(self.modules_to_save) for module in modules)


def _of_pattern(pattern: Mapping[str, float], module: str, default: float) -> float:
    """Returns the value of the first key that is the end of a module's name."""
    found = (value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", module))
    return next(found, default)


def _settings(path: AnyPath) -> tuple[Settings, str]:
    """Reads the config of an adapter; returns the settings, and the name of its base or "".

    Raises:
      UserError: a key is missing, of the wrong type or not supported.
    """
    advice = "is this a folder of PEFT?"
    described = json_files.read(path, advice)
    if "peft_type" not in described:
        raise UserError(f"{path}: peft_type is missing: {advice}")
    fields = {field.name for field in dataclasses.fields(Settings)}
    for key, value in described.items():
        if value and key not in fields | _OF_TRAINING:
            raise UserError(f"{path}: {key}: {value!r} is not supported: {_WAY_OUT}")
    given = {key: value for key, value in described.items() if key in fields and value is not None}
    settings = strict.build(Settings, given, str(path))
    return settings, str(described.get("base_model_name_or_path") or "")


@dataclasses.dataclass(frozen=True)
class Update:
    """The update of one module.

    Attributes:
      a: A [r, I], of an embedding [r, V].
      b: B [O, r].
      factor: s.
      magnitude: the magnitudes of DoRA [O]; None = it is no DoRA.
      bias: the bias of B [O]; None = it has none.
      embeds: whether the module is an embedding.
    """

    a: np.ndarray
    b: np.ndarray
    factor: float
    magnitude: np.ndarray | None = None
    bias: np.ndarray | None = None
    embeds: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix, [O, I]."""
        return len(self.b), self.a.shape[1]

    def merged(self, matrix: np.ndarray) -> np.ndarray:
        """Returns W' of the matrix W [O, I], in float64."""
        wide = (x.astype(np.float64) for x in (matrix, self.b, self.a))
        weight, b, a = wide
        weight = weight + self.factor * (b @ a)
        if self.magnitude is not None:
            norms = np.linalg.norm(weight, axis=1)
            weight *= (self.magnitude / norms)[:, None]
        return weight


class Adapter:
    """The content of a folder of PEFT.

    Attributes:
      source: the file of the tensors.
      form: what the tensors of its base become.
      settings: its config.
      base: the name of its base there; "" = it names none.
      updates: the updates by the names of their modules.
      replaced: tensors that replace those of the base, by name.
      copies: those of them that the config does not name. They have to be as in the base: PEFT
        saves token tables too, in case tokens were added.
    """

    def __init__(self, folder: AnyPath, form: "type[Merged] | None" = None):
        """Reads the folder.

        Args:
          folder: the folder.
          form: what the tensors of its base become: `Merged` or `Kept`; None = `Merged`.

        Raises:
          UserError: a file is missing or damaged, the config has something that is not supported,
            or the tensors are not those that it describes.
        """
        self.config, self.form = folder / CONFIG, form or Merged
        self.settings, self.base = _settings(self.config)
        files = [folder / name for name in FILES]
        self.source = next((path for path in files if path.exists()), files[0])
        with contextlib.closing(Weights(folder, self.source)) as weights:
            stored = {name: numbers(weights[name], name, str(self.source)) for name in weights}
        parts: dict[str, dict[str, np.ndarray]] = {}
        self.replaced: dict[str, np.ndarray] = {}
        self.copies: set[str] = set()
        for name, tensor in stored.items():
            if not name.startswith(PREFIX):
                raise UserError(
                    f"{self.source}: the name of tensor {name} does not begin with {PREFIX}: save "
                    "the adapter with save_pretrained of its PeftModel"
                )
            short = name.removeprefix(PREFIX)
            if match := _PART.fullmatch(short):
                parts.setdefault(match["module"], {})[match["part"]] = tensor
            else:
                self._replace(short, tensor)
        self.updates = {module: self._update(module, found) for module, found in parts.items()}
        if not self.updates:
            raise UserError(
                f"{self.source} has no updates (lora_A, lora_B): save the adapter again"
            )

    def _replace(self, name: str, tensor: np.ndarray) -> None:
        """Takes a tensor that replaces one of the base, or repeats it."""
        # with `bias: all`, those of saved modules are there under three names
        if _BEFORE in name:
            return
        plain = name.replace(".base_layer.", ".").replace(".modules_to_save.", ".")
        if "lora_" in plain or not np.array_equal(self.replaced.setdefault(plain, tensor), tensor):
            raise UserError(f"{self.source}: tensor {name} is not supported: {_WAY_OUT}")
        of_bias = self.settings.bias != "none" and plain.endswith(".bias")
        if not (of_bias or self.settings.saves(plain)):
            self.copies.add(plain)

    def _update(self, module: str, parts: Mapping[str, np.ndarray]) -> Update:
        """Makes the update of a module from its tensors.

        Raises:
          UserError: a tensor is missing, there is one too many, or shapes do not agree.
        """
        settings, embeds = self.settings, any("embedding" in part for part in parts)
        pair = _EMBEDDING if embeds else _LINEAR
        more = {} if embeds else {_MAGNITUDE: settings.use_dora, _BIAS: settings.lora_bias}
        wanted = {*pair, *(part for part, is_set in more.items() if is_set)}
        if wrong := sorted(wanted ^ set(parts)):
            raise UserError(
                f"{self.source} {'has' if wrong[0] in parts else 'lacks'} {module}.{wrong[0]}, "
                f"unlike what {self.config.name} says (use_dora, lora_bias): copy both files of "
                "one training"
            )
        a, b = (parts[part] for part in pair)
        rank = settings.rank(module)
        if a.ndim != 2 or b.ndim != 2:
            raise UserError(
                f"{self.source}: {module} is neither a linear layer nor an embedding (A has the "
                f"shape {list(a.shape)}): {_WAY_OUT}"
            )
        if (len(a), b.shape[1]) != (rank, rank):
            raise UserError(
                f"{self.source}: {module} has A {list(a.shape)} and B {list(b.shape)}, but "
                f"{self.config.name} says rank {rank}: copy both files of one training"
            )
        for part in wanted - {*pair}:
            if parts[part].shape != (len(b),):
                raise UserError(
                    f"{self.source}: {module}.{part} has the shape {list(parts[part].shape)}, "
                    f"expected {[len(b)]}: copy both files of one training"
                )
        vectors = parts.get(_MAGNITUDE), parts.get(_BIAS)
        return Update(a, b, settings.factor(module), *vectors, embeds)

    def described(self, config: Mapping[str, Any], system: System) -> dict[str, Any]:
        """Returns the config.json of the base with the class and the number of labels of the task.

        Args:
          config: the parsed config.json of the base.
          system: its system.

        Raises:
          UserError: the system has no such head.
        """
        described = dict(config)
        if (named := self._architecture(system, config)) is not None:
            described["architectures"] = [named]
        heads = [system.heads[name] for name in system.heads_named(described)]
        if self.settings.task_type not in ("SEQ_CLS", "TOKEN_CLS") or not heads[0].rows:
            return described
        (output,) = heads[0].rows[-1].names
        if output in self.replaced:
            count = len(self.replaced[output])
            if count != head_kinds.num_labels(config):
                names = ("id2label", "label2id", "problem_type")
                described = {key: value for key, value in described.items() if key not in names}
                described["num_labels"] = count
        return described

    def _architecture(self, system: System, config: Mapping[str, Any]) -> str | None:
        """Returns the class that the adapter was trained in; None = that of the base."""
        task = self.settings.task_type
        if task is None:
            named = (self.settings.auto_mapping or {}).get("base_model_class")
            known = {head.architecture for head in system.heads.values()}
            return named if named in known | {*system.architectures.values()} else None
        if not TASKS[task]:
            # a whole name is that of a class with a head around the encoder
            of_head = system.prefix and any(m.startswith(system.prefix) for m in self.updates)
            return None if of_head else system.architectures.get(frozenset())
        heads = (system.heads[name] for name in TASKS[task] if name in system.heads)
        classes = [head.architecture for head in heads if head.architecture]
        if not classes:
            raise UserError(
                f"{self.config}: task_type: {task!r}: {system.title} has no such head here: "
                f"{_WAY_OUT}"
            )
        named = config.get("architectures") or ()
        return next((each for each in classes if each in named), classes[0])


class Merged(LazyTensors):
    """The tensors of a model of transformers with an adapter in them, read when accessed.

    Tensors of heads that the class of the adapter does not have are left out.

    Attributes:
      notes: sentences about corrections, and what was merged.
      changed: the names of the tensors that come from the adapter or are changed by it.
    """

    done: ClassVar[str] = "is merged"

    def __init__(
        self,
        tensors: Tensors,
        adapter: Adapter,
        system: System,
        config: Mapping[str, Any],
        aliases: Mapping[str, str],
    ):
        """Finds the tensor of each module.

        Args:
          tensors: the tensors of the base.
          adapter: the adapter.
          system: the table of the system.
          config: the config.json, as `Adapter.described` returns it.
          aliases: {copy: original} for tensors that repeat another one.

        Raises:
          UserError: the base lacks a module, or it has another shape.
        """
        self._base, self._adapter = tensors, adapter
        self.source = f"{tensors.source} with {adapter.source}"
        heads = system.heads_named(config)
        encoder = system.encoder_config(config, self.source, heads)
        self._variables = _rows(system, encoder, heads)
        self._rows = _by_name(self._variables)
        hidden = _by_name(_rows(system, encoder, system.heads)).keys() - self._rows.keys()
        self._index: dict[str, None] = dict.fromkeys(n for n in tensors if n not in hidden)
        self._replaced: dict[str, np.ndarray] = {}
        for name, tensor in adapter.replaced.items():
            current = current_name(name, system)
            if name not in adapter.copies:
                self._replace(current, tensor, aliases)
            elif not np.array_equal(self._of_base(aliases.get(current, current)), tensor):
                raise UserError(
                    f"{adapter.source}: tensor {name} differs from that of {tensors.source}, but "
                    f"neither modules_to_save nor bias of {adapter.config.name} names it (were "
                    f"tokens added?): {_WAY_OUT}"
                )
        self._updates = {
            self._weight(module, system, aliases): update
            for module, update in adapter.updates.items()
        }
        self._biases = {
            f"{name.removesuffix('.weight')}.bias": update.factor * update.bias
            for name, update in self._updates.items()
            if update.bias is not None
        }
        for name in self._biases:
            if name not in self._index:
                raise self._lacks(name)
        self.changed = {*self._updates, *self._biases, *self._replaced}
        if not all(isinstance(system.heads[head], TaskHead) for head in heads):
            self._check_tied(aliases)
        elif heads:
            self._check_task(system.rows(encoder, heads[:1]))
        self.notes = tensors.notes
        says = f"; its config names the base {adapter.base}" if adapter.base else ""
        self.notes.append(
            f"{adapter.source.parent} {self.done}: updates of {len(self._updates)} modules and "
            f"{len(self._replaced)} other tensors{says}"
        )

    def _replace(self, name: str, tensor: np.ndarray, aliases: Mapping[str, str]) -> None:
        """Takes a tensor of the adapter in place of one of the base."""
        original = aliases.get(name, name)
        before = self._replaced.get(original)
        if before is not None and not np.array_equal(before, tensor):
            raise UserError(
                f"{self._adapter.source}: {name} differs from {original}, and both are one tensor "
                f"here: {_WAY_OUT}"
            )
        if original not in self._rows:
            self._of_base(original)
        self._replaced[original] = tensor
        self._index[original] = None

    def _weight(self, module: str, system: System, aliases: Mapping[str, str]) -> str:
        """Returns the name of the matrix of a module."""
        name = current_name(f"{module}.weight", system)
        if name in aliases:
            raise UserError(
                f"{self._adapter.source}: {module} is tied to {aliases[name]}, and an update of "
                "one of both would untie them: train without it (exclude_modules)"
            )
        if name not in self._index:
            raise self._lacks(name)
        return name

    def _of_base(self, name: str) -> np.ndarray:
        """Returns a tensor of the base."""
        if name not in self._base:
            raise self._lacks(name)
        return self._base[name]

    def _lacks(self, name: str) -> UserError:
        known = f", {self._adapter.base!r}" if self._adapter.base else ""
        return UserError(
            f"{self._adapter.source}: {self._base.source} has no tensor {name}: convert the "
            f"adapter with the base that it was trained on{known}"
        )

    def _check_tied(self, aliases: Mapping[str, str]) -> None:
        """Refuses changes of a token table that an output layer shares."""
        tables = {original for original in aliases.values() if original.endswith(".weight")}
        if found := sorted(tables & self.changed):
            raise UserError(
                f"{self._adapter.source} changes {found[0]}, to which the output layer of a "
                "language model is tied in the base but not in the adapter: train without this "
                "module (exclude_modules)"
            )

    def _check_task(self, rows: Sequence[Row]) -> None:
        """Refuses a task whose head is neither in the adapter nor in the base."""
        own = [row for row in rows if not row.path.startswith("encoder/")]
        own += [row for row in rows if row.path.startswith("encoder/pooler/")]
        missing = [name for row in own for name in row.names if name not in self._index]
        if missing:
            module = missing[0].rpartition(".")[0]
            raise UserError(
                f"neither {self._adapter.source} nor {self._base.source} has {missing[0]}: it was "
                "random when the adapter was trained, and PEFT has not saved it. Train with "
                f"{module!r} among modules_to_save, or on a base that has it, or {_WAY_OUT}"
            )

    def completed(self, converted: Converted) -> Converted:
        """Returns the model that was made of these tensors with what else the adapter gives it.

        Raises:
          UserError: the adapter changes tensors that the model here does not have.
        """
        if unread := sorted(self.changed & {*converted.leftover}):
            raise UserError(
                f"{self._adapter.source} changes {unread[0]}, which the model here does not have: "
                "train without this module (exclude_modules, modules_to_save)"
            )
        return converted

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor, and adds its update."""
        tensor = self._replaced[name] if name in self._replaced else self._base[name]
        if name not in self.changed:
            return tensor
        tensor = numbers(tensor, name, str(self._base.source))
        if name in self._biases:
            return (tensor + self._biases[name]).astype(tensor.dtype)
        update = self._updates.get(name)
        if update is None:
            return tensor
        # transposed rows are [O, I] in files; tables and the layers of a GPT-2 are [I, O]
        flip = name in self._rows and not self._rows[name].transposed
        matrix = tensor.T if flip else tensor
        if matrix.shape != update.shape:
            raise UserError(
                f"{self._adapter.source}: the update of {name} has the shape {list(update.shape)}, "
                f"but in {self._base.source} it is {list(matrix.shape)}: convert the adapter with "
                "the base that it was trained on"
            )
        merged = update.merged(matrix)
        return (merged.T if flip else merged).astype(tensor.dtype)


class Kept(Merged):
    """The tensors of a model of transformers as they are, beside the updates of an adapter.

    Modules that were saved whole are those of the adapter. Arguments and attributes are those of
    `Merged`, and the same is refused.
    """

    done = "stays beside the weights"

    def __init__(
        self,
        tensors: Tensors,
        adapter: Adapter,
        system: System,
        config: Mapping[str, Any],
        aliases: Mapping[str, str],
    ):
        """Finds the tensor of each module.

        Raises:
          UserError: as for `Merged`; or the updates are not alike, or of another form than W + B A.
        """
        settings = adapter.settings
        for key in ("use_dora", "lora_bias", "bias"):
            if (value := getattr(settings, key)) not in (False, "none"):
                raise self._merged_only(f"{adapter.config}: {key}: {value!r}")
        sizes = {(len(update.a), update.factor) for update in adapter.updates.values()}
        if len(sizes) > 1:
            shown = ", ".join(f"{rank} and {factor:g}" for rank, factor in sorted(sizes))
            raise self._merged_only(
                f"{adapter.config}: ranks and factors of several values ({shown})"
            )
        super().__init__(tensors, adapter, system, config, aliases)
        ((self._rank, self._factor),) = sizes
        self._beside, self._updates = self._updates, {}
        self.changed -= self._beside.keys()

    @override
    def completed(self, converted: Converted) -> Converted:
        """See `Merged`: adds the updates, and `recipe.trainable.lora` to the config.

        Raises:
          UserError: an update is of another matrix than those that have updates here, or only some
            of the layers have updates.
        """
        converted = super().completed(converted)
        arrays: dict[str, np.ndarray] = {}
        used: set[str] = set()
        for row in self._variables:
            if row.path in converted.variables and row.axes is None:
                for name, layer, a, b in self._of_kernel(row, converted.variables[row.path].shape):
                    used.add(name)
                    arrays |= {f"{layer}/a": a, f"{layer}/b": b}
        if unknown := sorted(self._beside.keys() - used):
            raise self._merged_only(f"{self._adapter.source} updates {unknown[0]}")
        found = {low_rank.target(path) for path in arrays}
        targets = tuple(name for name in trainable.TARGETS if name in found)
        lora = trainable.LoRA(self._rank, self._factor * self._rank, targets)
        recipe = dataclasses.replace(
            converted.config.recipe, trainable=trainable.Trainable(lora=lora)
        )
        config = dataclasses.replace(converted.config, recipe=recipe)
        with keras_private.uninitialized_variables():
            wanted = {*filter(low_rank.is_update, Model(config, lora=lora).variables_by_path())}
        if missing := sorted(wanted - arrays.keys()):
            raise self._merged_only(f"{self._adapter.source} has no update for {missing[0]}")
        self.notes.append(
            "--init with --override=recipe.init_weights=all goes on with the adapter, if "
            f"recipe.trainable.lora is {{rank: {lora.rank}, alpha: {lora.alpha:g}, targets: "
            f"[{', '.join(targets)}]}}; --target=peft writes it"
        )
        variables = {**converted.variables, **arrays}
        return dataclasses.replace(converted, config=config, variables=variables)

    def _of_kernel(
        self, row: Row, shape: Sequence[int]
    ) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        """Yields the tensor, the layer, A [I, r] and B [r, O] of each update of a kernel."""
        layers = low_rank.update_layers(row.path)
        width = shape[-1] // len(row.names)  # columns of each tensor
        size = shape[-1] // max(len(layers), 1)
        for first, layer in zip(range(0, shape[-1], size), layers, strict=False):
            number = first // width
            update = self._beside.get(row.names[number])
            if update is None or first + size > (number + 1) * width:
                continue
            part, _ = row.part or (0, 1)
            start = part * width + first - number * width
            a, b = update.a.T, update.b[start : start + size].T
            yield row.names[number], layer, a.astype(np.float32), b.astype(np.float32)

    @staticmethod
    def _merged_only(what: str) -> UserError:
        return UserError(
            f"{what}: an adapter can stay beside the weights if it updates the same kernels of "
            "attention and feed-forward networks in all layers, with one rank and one factor: "
            "merge it, without --keep_adapter"
        )


def alone(folder: AnyPath) -> UserError:
    """Returns the error about an adapter in the place of a model; it says what to do."""
    _, base = _settings(folder / CONFIG)
    named = f" ({base})" if base else ""
    return UserError(
        f"{folder} is an adapter of PEFT: make a model of it and its base{named} with "
        f"official.convert --source=hf --input=BASE --adapter={folder} --output=DIR"
    )


def _rows(system: System, encoder: Any, heads: Iterable[str]) -> list[Row]:
    """Returns the rows of the encoder and of each of these heads."""
    rows = list(system.rows(encoder, ()))
    for head in heads:
        rows += system.rows(encoder, (head,))
    return rows


def _by_name(rows: Iterable[Row]) -> dict[str, Row]:
    """Returns rows by the names of tensors; of those of a joined tensor, the last."""
    return {name: row for row in rows for name in row.names}
