"""The settings of a model that goes on with its pretraining, by its folder and the shards of text.

Gururangan et al. (2020) go on in two ways: DAPT is one pass over much text of a domain (section 3),
and TAPT 100 passes over the little text of a task (section 4). Between the two, the passes here are
as many as read `_TOKENS`.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence

from official import config as configs
from official import tokenizers
from official.config import loader, yaml_files
from official.config.corruptions import (
    PermutationConfig,
    RareTokenMasksConfig,
    SentinelsConfig,
    TextToTextConfig,
    TokenMasksConfig,
)
from official.config.objectives import LABELS, PARTS, SentencePairConfig
from official.config.parts import CorruptionConfig, ObjectiveConfig
from official.config.segments import TEXT_FORMATS
from official.saving import model_folder
from official.shards.manifest import Manifest
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

CONFIG = "configs/pretrain/continued.yaml"
_TOKENS = 10_000_000
_MOST_PASSES = 100
BASE_SIZE = 768  # D of the base models, which published learning rates are for
EVAL_EVERY = 500  # steps
# Configs whose shards suit the objectives that do not read those of `CONFIG`.
_SHARDS = {
    "seq2seq_lm": "configs/pretrain/t5_mini.yaml",
    "bilm": "configs/pretrain/elmo_mini.yaml",
}
_TYPES = frozenset(part.type for part in PARTS)


def of_text(
    contents: Mapping[str, Manifest],
    init: str | os.PathLike,
    override: Sequence[str],
    report: Callable[[str], None],
) -> configs.Config:
    """Returns the settings to go on with on shards of text, and says them.

    Args:
      contents: the manifests of the shards by their folders.
      init: the model folder to go on with.
      override: further settings, which win.
      report: takes the line that says what is taken.

    Raises:
      UserError: the model has no objective of pretraining and cannot learn masked LM, or its
        objective does not suit the shards.
    """
    folders, (content, *_) = ", ".join(contents), contents.values()
    segments = content.segments
    if segments is None:
        raise UserError(
            f"{folders}: the manifest does not say how text became sequences: make the shards "
            "again with tfrecords_tools.build_shards, or give a --config"
        )
    known = model_folder.config_of(paths.path(init))
    own, left_out = _objectives(known, segments, init)
    if not own:
        _check_masked_lm(known, paths.path(init))
    raw = yaml_files.read(CONFIG).values
    base = configs.from_dict(raw, CONFIG)
    corruption = content.corruption if segments.static_masks else _corruption(known, own, base)
    if isinstance(corruption, TextToTextConfig) and segments.format in TEXT_FORMATS:
        segments = _of_inputs(segments, corruption)
    if not segments.static_masks:
        corruption = _fitted(corruption, known, segments)
    raw |= {
        "segments": configs.to_dict(segments),
        "corruption": configs.to_dict(corruption),
        "encoder": configs.to_dict(known.encoder),
        "objectives": [configs.to_dict(each) for each in own or base.objectives],
    }
    count = sum(shard.records for each in contents.values() for shard in each.split("train"))
    size = known.encoder.hidden_size
    rate = base.recipe.optimizer.learning_rate * BASE_SIZE / size
    raw["recipe"]["init_weights"] = "all" if own else "encoder"
    raw["recipe"]["optimizer"]["learning_rate"] = float(f"{rate:.2g}")
    raw["recipe"]["batch_size"] = segments.rows or min(base.recipe.batch_size, count)
    given = {loader.apply_override(raw, each) for each in override}
    if "recipe.epochs" in given and "recipe.steps" not in given:
        del raw["recipe"]["steps"]
    try:
        config = configs.from_dict(raw, f"--init={init}, going on with {folders}")
    except UserError as error:
        suits = _SHARDS.get(own[0].type, CONFIG) if own else CONFIG
        raise UserError(
            f"{error}. Shards that suit the model: python -m tfrecords_tools.build_shards "
            f"--config={suits} --input=TEXT --tokenizer={init}/tokenizer --output=NEW"
        ) from None
    recipe, rule = config.recipe, ""
    tokens = sum(map(_tokens, contents.values()))
    if not given & {"recipe.steps", "recipe.epochs"}:
        passes = min(_MOST_PASSES, max(1.0, _TOKENS / tokens))
        recipe = dataclasses.replace(recipe, steps=math.ceil(passes * count / recipe.batch_size))
        most = f"at least one and at most {_MOST_PASSES}"
        rule = f" (until {_TOKENS:,} are read, but {most}: Gururangan et al., 2020)"
    steps = recipe.total_steps(count)
    if "recipe.eval_every" not in given:
        recipe = dataclasses.replace(recipe, eval_every=min(steps, EVAL_EVERY))
    names = " and ".join(each.name for each in config.objectives)
    source = f"the objective of {init}{left_out}" if own else f"as {init} has no such objective"
    report(
        f"settings of {CONFIG}: {names} ({source}); {steps:,} steps of {recipe.batch_size} rows "
        f"are {steps * recipe.batch_size / count:.3g} passes over {tokens:,} tokens{rule}; "
        f"learning rate {recipe.optimizer.learning_rate:g} for {size} dimensions"
    )
    return dataclasses.replace(config, recipe=recipe)


def _objectives(
    known: configs.ResolvedConfig, segments: configs.Segments, init: str | os.PathLike
) -> tuple[tuple[ObjectiveConfig, ...], str]:
    """Returns the objectives of pretraining that a model has, and words about those left out.

    The relation of two segments is left out where the shards have no label of it.
    """
    found = [each for each in known.objectives if each.type in _TYPES and not each.task]
    types = {each.type for each in found}
    if types & {"replaced_tokens", "all_tokens_lm"} and "generator" not in types:
        raise UserError(
            f"--init={init}: has the discriminator of an ELECTRA, which learns from the draws of a "
            "generator, and no generator: convert it again with the folder of its generator as "
            f"`generator` in that of the discriminator (docs/conversion.md)"
        )
    labels = [LABELS[each.relation] for each in found if isinstance(each, SentencePairConfig)]
    lacking = [label for label in labels if label != segments.label]
    kept = tuple(each for each in found if not each.needs() & {*lacking})
    if found and not kept:
        raise UserError(
            f"--init={init}: its objective is {found[0].name}, and the shards have no label of it: "
            f"make them again with --override=segments.format=pairs "
            f"--override=segments.relation={found[0].name}"
        )
    left_out = ", ".join(each.name for each in found if each not in kept)
    return kept, left_out and f" without {left_out}, of which the shards have no label"


def _check_masked_lm(known: configs.ResolvedConfig, init: AnyPath) -> None:
    """Refuses a model that cannot learn masked LM, and names a config of what it can learn."""
    encoder = known.encoder
    for there, reason, name in (
        (encoder.decoder_layers is not None, "is that of an encoder-decoder", "t5_small"),
        (encoder.reads_characters, "reads characters", "elmo_small"),
        (encoder.query_stream, "has the two streams of XLNet", "xlnet_base"),
        (encoder.causal, "reads from left to right alone", "gpt2_small"),
    ):
        if there:
            raise UserError(
                f"--init={init}: has no objective of pretraining, and cannot learn masked LM, as "
                f"its encoder {reason}: go on with --config=configs/pretrain/{name}.yaml "
                "--override=encoder=null, on shards of this config"
            )
    if tokenizers.load(init / "tokenizer").mask_id is None:
        raise UserError(
            f"--init={init}: has no objective of pretraining, and cannot learn masked LM, as its "
            "tokenizer has no mask token: name one (mask_token in tokenizer_config.json), or give "
            "a --config with another objective and --override=encoder=null"
        )


def _corruption(
    known: configs.ResolvedConfig, own: Sequence[ObjectiveConfig], base: configs.Config
) -> CorruptionConfig | None:
    """Returns the corruption of a model, or that of its objective: a converted one may have none.

    Args:
      known: the config of the model.
      own: its objectives of pretraining.
      base: the config with the masks of masked LM.
    """
    types = {each.type for each in own}
    if not own or known.corruption is None:
        if types & {"causal_lm", "bilm"}:
            return None
        if "permutation_lm" in types:
            return PermutationConfig(unit="token_span")
        return SentinelsConfig() if "seq2seq_lm" in types else base.corruption
    return known.corruption


def _fitted(
    corruption: CorruptionConfig | None,
    known: configs.ResolvedConfig,
    segments: configs.Segments,
) -> CorruptionConfig | None:
    """Returns a corruption with as many predictions as sequences of this length have.

    Of masks they are at least `mask_rate` times the length, and as large a share of it as in the
    model; of a permutation that is not the model's own, as many as its `k` allows.
    """
    length = segments.max_length
    if isinstance(corruption, PermutationConfig) and known.corruption is None:
        size = segments.reuse_length or length
        longest = min(corruption.max_span, size // (1 + corruption.k))
        return dataclasses.replace(
            corruption, num_predict=length // corruption.k, perm_size=size, max_span=longest
        )
    if not isinstance(corruption, TokenMasksConfig | RareTokenMasksConfig):
        return corruption
    number = math.ceil(corruption.mask_rate * length)
    if known.corruption is not None and known.segments is not None:
        share = corruption.max_predictions / known.segments.max_length
        number = max(number, math.ceil(share * length))
    return dataclasses.replace(corruption, max_predictions=number)


def _of_inputs(segments: configs.Segments, corruption: TextToTextConfig) -> configs.Segments:
    """Returns segments with the length of inputs, of which the shards record that of raw rows.

    If rows of no input have this length, the check of the shards says so.
    """
    raw = segments.max_length
    lengths = (length for length in range(8, raw + 2) if corruption.row_length(length) >= raw)
    return dataclasses.replace(segments, max_length=next(lengths, raw))


def _tokens(content: Manifest) -> int:
    """Returns the tokens of the examples of a folder; where they were not counted, its places."""
    counted = sum(length * count for length, count in enumerate(content.length_histogram))
    return counted or content.max_length * sum(shard.records for shard in content.shards)
