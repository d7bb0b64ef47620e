"""The settings of a pretraining shard folder, and their record in its manifest."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from official import config as configs
from official.config.corruptions import OF_WORDS, TextToTextConfig
from official.config.parts import CorruptionConfig
from official.config.segments import TEXT_FORMATS
from official.shards.features import FEATURES, LEXICONS
from official.shards.manifest import PretrainingSettings
from official.shards.text_filters import TextFilters
from official.utils import paths
from official.utils.errors import UserError
from tfrecords_tools.pretraining import tf_models

FORMATS = ("examples", *tf_models.FORMATS)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that the records depend on, except the text.

    Attributes:
      segments: how documents become sequences. For rows of plain text, `max_length` is the number
        of raw tokens.
      corruption: the static masks, or None.
      tokenizer: a tokenizer folder.
      seed: the seed of every draw.
      format: one of `FORMATS`; see `official.shards.features` and `tf_models`.
      split_sentences: whether lines are paragraphs that are split into sentences.
      lexicons: (feature, path) of each file of phrases or entities.
      token_counts: a folder with the count of each vocabulary entry in the corpus, which static
        masks may draw from; "" = none.
      filters: the rules by which documents are left out; None = no rules.
      config: the config that the shards are made for. No record depends on it.
    """

    segments: configs.Segments
    corruption: Any
    tokenizer: str
    seed: int
    format: str = "examples"
    split_sentences: bool = False
    lexicons: tuple[tuple[str, str], ...] = ()
    token_counts: str = ""
    filters: TextFilters | None = None
    config: configs.Config | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def from_config(
        cls,
        config: configs.Config,
        tokenizer: str | os.PathLike,
        seed: int | None = None,
        format: str = "examples",
        split_sentences: bool = False,
        phrases: str | os.PathLike | None = None,
        entities: str | os.PathLike | None = None,
        filters: TextFilters | None = None,
    ) -> "Settings":
        """Returns the settings of a config.

        Args:
          config: the config.
          tokenizer: a tokenizer folder.
          seed: replaces the seed of the config.
          format: one of `FORMATS`.
          split_sentences: whether lines are paragraphs that are split into sentences.
          phrases: a lexicon file (see `tfrecords_tools.pretraining.lexicon`).
          entities: a lexicon file.
          filters: the rules by which documents are left out; None = no rules.

        Raises:
          UserError: the config is not for pretraining, or does not support the format or the
            lexicons.
        """
        if config.segments is None:
            raise UserError(f"config {config.name!r} has no `segments`: it is not for pretraining")
        _check_duplicates(config.segments)
        if format in tf_models.FORMATS:
            tf_models.check(config.name, config.segments, config.corruption)
        seed = config.seed if seed is None else seed
        if seed < 0:
            raise UserError(f"seed: {seed} is negative: the minimum is 0")
        static = config.segments.static_masks or format in tf_models.FORMATS
        segments = config.segments
        if segments.format in TEXT_FORMATS:
            if not isinstance(config.corruption, TextToTextConfig):
                raise UserError(
                    f"segments.format: {segments.format} has rows of plain text, which need a "
                    "corruption that makes inputs and targets: add corruption.type: sentinels or "
                    "denoising"
                )
            length = config.corruption.row_length(segments.max_length)
            segments = dataclasses.replace(segments, max_length=length)
        return cls(
            segments=segments,
            corruption=config.corruption if static else None,
            tokenizer=str(paths.path(tokenizer).resolve()),
            seed=seed,
            format=format,
            split_sentences=split_sentences,
            lexicons=_lexicons(
                segments, config.corruption, {"phrase_inner": phrases, "entity_inner": entities}
            ),
            filters=filters,
            config=config,
        )

    @property
    def words(self) -> tuple[str, str] | None:
        """The unit of masks that hide whole words, and the rule of word starts; None = of tokens.

        Masks may be static or drawn in training.
        """
        corruption = self.corruption
        if corruption is None and self.config is not None:
            corruption = self.config.corruption
        if corruption is None or corruption.unit not in OF_WORDS:
            return None
        return corruption.unit, corruption.word_starts

    @property
    def features(self) -> tuple[str, ...]:
        """The features of every example."""
        if self.format in tf_models.FORMATS:
            return tf_models.FORMATS[self.format]
        names = {"token_ids", "segment_lengths", self.segments.label}
        names |= self.segments.row_features
        if self.segments.packing > 1:
            names.add("part_lengths")
        if self.corruption is not None:
            names |= {"masked_positions", "masked_ids"}
        names |= dict(self.lexicons).keys()
        return tuple(name for name in FEATURES if name in names)

    def to_record(self) -> PretrainingSettings:
        """Returns the settings that the manifest records."""
        return PretrainingSettings(
            segments=self.segments,
            corruption=self.corruption,
            format=self.format,
            split_sentences=self.split_sentences,
            lexicons=tuple(paths.path(path).name for _, path in self.lexicons),
            filters=self.filters,
        )


def _check_duplicates(segments: configs.Segments) -> None:
    copies = segments.duplicates
    whole_sentences = segments.format in ("full_sentences", "doc_sentences")
    if copies > 1 and whole_sentences and not segments.short_seq_prob:
        raise UserError(
            f"segments.duplicates: {copies} copies of {segments.format} with short_seq_prob: 0 are "
            "identical: set duplicates: 1, or another short_seq_prob"
        )


def _lexicons(
    segments: configs.Segments,
    corruption: CorruptionConfig | None,
    files: Mapping[str, str | os.PathLike | None],
) -> tuple[tuple[str, str], ...]:
    """Returns (feature, path) of each given lexicon.

    Raises:
      UserError: the corruption needs another lexicon, or the format cannot use lexicons.
    """
    lexicons = tuple(
        (name, str(paths.path(path).resolve())) for name, path in files.items() if path
    )
    needed = corruption.needs() if corruption else frozenset()
    unit = corruption.unit if corruption else ""
    if segments.format == "stream" and (lexicons or needed):
        flag = LEXICONS[lexicons[0][0]] if lexicons else f"unit: {unit}"
        raise UserError(
            f"{flag}: phrases and entities are not supported for a stream: set another unit, or "
            "another segments.format"
        )
    for name in sorted(needed - dict(lexicons).keys()):
        raise UserError(
            f"corruption.unit: {unit} needs {LEXICONS[name]}=FILE, one {unit} a line "
            "(tfrecords_tools.build_phrases finds phrases)"
        )
    return lexicons
