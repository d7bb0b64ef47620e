"""The README.md of a model folder: what the model is, what it learned from, how it is loaded.

Its front matter has the license and the base of the weights that the model began with, if the card
of these named them, and a model that begins with these weights takes them over.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from official import config as configs
from official.tasks import KINDS
from official.utils import paths
from official.utils.paths import AnyPath

FILE = "README.md"
# A file without this line was written by somebody else, and is kept.
MARK = "<!-- Written by Encoder Garden, and anew by each run. Remove this line to keep changes. -->"
_MAX_LABELS = 100
_FRONT = re.compile(r"---\n(.*?\n)---\n+", re.DOTALL)
# The value of a key, or the only one of its list.
_ORIGIN = re.compile(r"^(license|base_model): *(?:\n- )?([\w./+-]+) *\n(?!- )", re.MULTILINE)

# What a method of `official.load` is called with, in an example.
_ARGUMENTS = {
    "classify": '["raw text"]',
    "score": '["raw text"]',
    "rank": '"a query", ["a document", "another"]',
    "answer": '["Where is it?"], ["It is in the box."]',
    "choose": '["It rained."], ["The street is"], [["wet", "dry"]]',
    "tag": '["Ada Lovelace lived in London."]',
    "fill_mask": '["Paris is the {mask} of France."]',
    "generate": '["Once upon a time"]',
    "encode": '["raw text"]',
}
_PAIR = '["a text"], ["another"]'
_METHODS = {
    **{kind: each.method for each in KINDS.values() for kind in each.objectives if each.method},
    "masked_lm": "fill_mask",
    "generator": "fill_mask",
    "causal_lm": "generate",
}


def text(
    name: str,
    config: configs.ResolvedConfig,
    task: Mapping[str, Any],
    state: Mapping[str, Any],
    metrics: Mapping[str, float],
    mask: str | None,
    origin: Mapping[str, str] | None = None,
) -> str:
    """Returns the text of a card.

    Args:
      name: the name of the model folder.
      config: the config of the model.
      task: the content of `task.json`; empty in pretraining.
      state: the content of `state.json` of the last checkpoint; empty if the model was not trained
        here.
      metrics: those of the best evaluation, or else of the last one; empty without evaluations.
      mask: the text of the mask token; None = the vocabulary has none.
      origin: what is known of the weights that it began with, as `origin_of` returns it.
    """
    best = state.get("best") or {}
    step = best.get("step", state.get("step"))
    parts = [MARK, f"# {name}", facts(config, task, state), *measured(metrics, step)]
    calls = "\n".join(f"model.{call}" for call in _calls(config, task, mask))
    parts.append(
        "## Use\n\n```python\nimport official\n\n"
        f'model = official.load("{name}")\n{calls}\n```\n\n'
        "```\npython -m official.export "
        f"--model_dir={name} --output=saved_model\n```"
    )
    return with_front("\n\n".join(parts) + "\n", origin or {})


def origin_of(card: AnyPath) -> dict[str, str]:
    """Returns `license` and `base_model` of the front matter of a card, those that it has."""
    if not card.is_file():
        return {}
    front = _FRONT.match(paths.read_bytes(card).decode("utf-8", "replace").replace("\r\n", "\n"))
    return dict(_ORIGIN.findall(front[1])) if front else {}


def with_front(card: str, values: Mapping[str, str]) -> str:
    """Returns the text of a card with keys added to its front matter."""
    lines = "".join(f"{key}: {value}\n" for key, value in values.items())
    if not lines:
        return card
    front = _FRONT.match(card)
    return f"---\n{front[1] if front else ''}{lines}---\n\n{card[front.end() if front else 0 :]}"


def measured(metrics: Mapping[str, float], step: int | None) -> list[str]:
    """Returns the paragraphs about the metrics of a step; [] = there are none."""
    if not metrics:
        return []
    rows = [(key, f"{value:.4g}") for key, value in metrics.items()]
    return [f"## Metrics\n\nOf the validation data at step {step}:", _table(rows)]


def facts(config: configs.ResolvedConfig, task: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Returns the table of what a model is; the arguments are those of `text`."""
    return _table(_facts(config, task, state))


def _facts(
    config: configs.ResolvedConfig, task: Mapping[str, Any], state: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Returns the rows of the first table."""
    encoder = config.encoder
    facts = [("config", config.name)]
    for name, each in (
        task.get("tasks") or ({task["name"]: task} if "kind" in task else {})
    ).items():
        pairs = ", pairs of texts" if each.get("pair") else ""
        facts.append(("task", f"{name} ({each['kind']}{pairs})"))
        if labels := each.get("labels"):
            facts.append((f"labels of {name}" if "tasks" in task else "labels", _listed(labels)))
    if not task:
        for objective in config.objectives:
            if objective.labels:
                facts.append(("labels", _listed(objective.labels)))
    sizes = f"{encoder.num_layers} layers, hidden size {encoder.hidden_size}"
    facts.append(("encoder", f"{encoder.type}, {sizes}, vocabulary {encoder.vocab_size:,}"))
    if config.objectives:
        facts.append(("objectives", ", ".join(o.type for o in config.objectives)))
    if length := task.get("max_length"):
        facts.append(("longest text", f"{length} tokens"))
    for split, data in state.get("data", {}).items():
        examples, digest = data.get("examples"), data.get("fingerprint")
        facts.append((f"{split} data", f"{examples:,} examples, fingerprint `{digest}`"))
    if state.get("step"):
        recipe = config.recipe
        facts.append(
            (
                "training",
                f"{state['step']:,} of {state.get('total_steps', state['step']):,} steps, batches "
                f"of {recipe.batch_size}, {recipe.optimizer.type} with a learning rate of "
                f"{recipe.optimizer.learning_rate:g}, seed {config.seed}",
            )
        )
    if best := state.get("best"):
        facts.append(("best step", f"{best['step']:,}: {best['metric']} {best['value']:.4g}"))
    return facts


def _calls(config: configs.ResolvedConfig, task: Mapping[str, Any], mask: str | None) -> list[str]:
    """Returns calls of methods that apply the model to text."""
    tasks = [objective.task for objective in config.objectives]
    calls = []
    for objective, head in zip(config.objectives, tasks, strict=True):
        method = _METHODS.get(objective.type)
        if method is None or (method == "fill_mask" and mask is None):
            continue
        about = task.get("tasks", {}).get(head, task)
        arguments = _PAIR if about.get("pair") and method in ("classify", "score") else None
        arguments = arguments or _ARGUMENTS[method].replace("{mask}", mask or "")
        calls.append(f"{method}({arguments}{f', task={head!r}' if head else ''})")
    return list(dict.fromkeys(calls)) or [f"encode({_ARGUMENTS['encode']})"]


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(f"`{label}`" for label in labels[:_MAX_LABELS])
    more = len(labels) - _MAX_LABELS
    return f"{shown} and {more:,} others" if more > 0 else shown


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in rows]
    return "\n".join(lines)
