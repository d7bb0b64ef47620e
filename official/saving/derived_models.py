"""Models that are made from the weights of others.

* A student starts from some layers of its teacher (Sanh et al., 2019, section 3). It has the
  teacher's embeddings, and the output bias of its masked LM. Everything else is fresh.
* An ELMo has a table of the vectors of a vocabulary in place of its character network. The network
  reads a word without its context, so its vector can be computed once (as the token embeddings of
  ELMo's release). A word that the vocabulary lacks has the vector of `<UNK>`.
* A model with another vocabulary gives each piece its old row, or the mean of those that spell it.
* A model with computed positions gets a table of them, for programs that read only tables.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.encoders import TransformerConfig
from official.modeling.layers import embeddings
from official.modeling.layers.positions import Sinusoids
from official.modeling.model import Model
from official.saving import model_folder
from official.tokenizers import extension, word_characters
from official.utils.errors import UserError

# What becomes of the segment table: row 0 is added to the position table, or the table is dropped
# (the release of DistilBERT) or kept.
SEGMENTS = ("add", "drop", "keep")
_ENCODERS = ("transformer", "transformer_xl")
_LAYER = re.compile(r"encoder/layer_(\d+)/")
_POSITIONS = "encoder/embeddings/position_embedding/table"
_SEGMENTS = "encoder/embeddings/segment_embedding/table"
_FRESH = ("masked_lm/transform/", "masked_lm/norm/")
_NETWORK = "encoder/words/"
_AT_ONCE = 1024  # words


@dataclasses.dataclass(frozen=True)
class StudentPlan:
    """What a student takes from its teacher.

    Attributes:
      layers: the layers of the teacher, from 0, that become those of the student, in order.
      hidden_size: the hidden size of the student; None = the teacher's.
      segments: one of `SEGMENTS`.
      pooler: whether the pooler is kept.
      transform: whether the hidden layer of masked LM is copied.
      seed: the seed of the fresh weights.
    """

    layers: tuple[int, ...]
    hidden_size: int | None = None
    segments: str = SEGMENTS[0]
    pooler: bool = False
    transform: bool = False
    seed: int = 0

    def check(self, config: configs.ResolvedConfig, source: str) -> None:
        """Checks that a teacher can give these layers.

        Raises:
          UserError: the student is deeper or of another width, the teacher has no such layer, or
            its layers cannot be taken apart.
        """
        encoder = config.encoder
        groups = encoder.layer_groups
        if encoder.type not in _ENCODERS or groups is not None:
            what = f"encoder.type: {encoder.type}"
            if encoder.type in _ENCODERS:
                what = f"encoder.layer_groups: {groups}: its layers share weights"
            raise UserError(
                f"{source}: {what}: no layers can be copied: take a teacher of the type "
                f"{' or '.join(_ENCODERS)} with weights of its own in each layer"
            )
        positions = getattr(encoder, "positions", "learned")
        if self.segments == "add" and encoder.segment_types and positions != "learned":
            raise UserError(
                f"--segments=add: the teacher {source} has encoder.positions: {positions}, and no "
                "table of positions to add to: take --segments=drop or keep"
            )
        count = encoder.num_layers
        if len(self.layers) > count:
            raise UserError(
                f"--layers: {len(self.layers)} layers, and the teacher {source} has {count}: a "
                "student cannot be deeper than its teacher"
            )
        for layer in self.layers:
            if not 0 <= layer < count or self.layers.count(layer) > 1:
                why = "given twice" if 0 <= layer < count else "not a layer of the teacher"
                raise UserError(
                    f"--layers: {layer} is {why}: {source} has {count} layers, numbered from 0 to "
                    f"{count - 1}: name each at most once"
                )
        for ours, theirs in enumerate(self.layers):
            first = ours == theirs == 0 or (ours > 0 and theirs > 0)
            alike = encoder.reach(ours) == encoder.reach(theirs)
            if not (alike and (encoder.first_norm or first)):
                raise UserError(
                    f"--layers: layer {ours} of the student would be layer {theirs} of {source}, "
                    "which attends to other positions or has other norms: take layers whose "
                    "numbers have the same remainder by encoder.local_attention.global_every, "
                    "layer 0 first"
                )
        if self.hidden_size not in (None, encoder.hidden_size):
            raise UserError(
                f"--hidden={self.hidden_size}: the teacher {source} has hidden_size "
                f"{encoder.hidden_size}, and layers are copied as they are: remove --hidden. A "
                "student of another width starts from fresh weights: give its sizes in the section "
                "`encoder` of the training config"
            )


def make_student(
    config: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    plan: StudentPlan,
    source: str = "teacher",
) -> tuple[configs.ResolvedConfig, dict[str, np.ndarray]]:
    """Returns the config and the variables of a student.

    Args:
      config: the config of the teacher.
      variables: the variables of the teacher by path.
      plan: what the student takes.
      source: the folder of the teacher, for messages.

    Raises:
      UserError: see `StudentPlan.check`.
    """
    plan.check(config, source)
    changes: dict[str, Any] = {
        "num_layers": len(plan.layers),
        "pooler": plan.pooler and config.encoder.pooler,
    }
    if plan.segments != "keep":
        changes["segment_types"] = 0
    try:
        encoder = dataclasses.replace(config.encoder, **changes)
    except ValueError as error:
        raise UserError(f"--layers: a student of {source} has the encoder: {error}") from None
    student = dataclasses.replace(
        config,
        name=f"{config.name}_student",
        seed=plan.seed,
        encoder=encoder,
        objectives=config.of_types("masked_lm", "causal_lm"),
    )
    made = model_folder.build(student).variables_by_path()
    arrays = {path: np.array(variable.numpy()) for path, variable in made.items()}
    for path in arrays:
        if plan.transform or not path.startswith(_FRESH):
            theirs = _LAYER.sub(lambda m: f"encoder/layer_{plan.layers[int(m[1])]}/", path)
            arrays[path] = np.array(variables[theirs])
    if plan.segments == "add" and _SEGMENTS in variables:
        arrays[_POSITIONS] = variables[_POSITIONS] + variables[_SEGMENTS][:1]
    return student, arrays


def with_position_table(
    config: configs.ResolvedConfig, variables: dict[str, np.ndarray]
) -> tuple[configs.ResolvedConfig, dict[str, np.ndarray]]:
    """Returns the config and the variables of a model whose positions have a table.

    It computes what the model computes. Sinusoids are the rows of the table, and the rows of an
    encoder without positions are 0. Other models are returned as they are.

    Raises:
      UserError: the positions are others.
    """
    encoder = config.encoder
    if not isinstance(encoder, TransformerConfig) or encoder.positions == "learned":
        return config, variables
    if encoder.positions not in ("sinusoidal", "none"):
        raise UserError(
            f"encoder.positions: {encoder.positions}: this model cannot be written, since no table "
            "of positions computes the same; official.export keeps them"
        )
    size = encoder.embedding_size or encoder.hidden_size
    rows = encoder.max_positions + encoder.position_offset
    table = np.zeros((rows, size), np.float32)
    if encoder.positions == "sinusoidal":
        table = np.asarray(Sinusoids(size, dtype="float32").first(rows))
    encoder = dataclasses.replace(encoder, positions="learned")
    return dataclasses.replace(config, encoder=encoder), {**variables, _POSITIONS: table}


def parse_layers(text: Sequence[str]) -> tuple[int, ...]:
    """Reads the numbers of layers.

    Raises:
      UserError: there is none, or one is not a whole number.
    """
    if not text or not all(each.strip().isdecimal() for each in text):
        raise UserError(
            f"--layers={','.join(text)}: name layers of the teacher by their numbers from 0, such "
            "as 0,2,4,7,9,11"
        )
    return tuple(int(each) for each in text)


def with_word_table(
    config: configs.ResolvedConfig, tokenizer: tokenizers.Tokenizer, model: Model, source: str
) -> tuple[configs.ResolvedConfig, dict[str, np.ndarray]]:
    """Returns the config and the variables of the model with a table.

    Args:
      config: the config of the model.
      tokenizer: its tokenizer.
      model: the model with its weights.
      source: its folder, for messages.

    Raises:
      UserError: the encoder reads no characters.
    """
    encoder = config.encoder
    if not encoder.reads_characters:
        raise UserError(
            f"--word_table: {source}: encoder.type: {config.encoder.type}: this encoder does not "
            "read the characters of words: take an ELMo (encoder.type: bilm, tokens: characters)"
        )
    rows = []
    ids = _characters(tokenizer)
    for start in range(0, len(ids), _AT_ONCE):
        rows.append(model.encoder.words(ids[start : start + _AT_ONCE][:, None])[:, 0].numpy())
    variables = model.variables_by_path()
    arrays = {p: v.numpy() for p, v in variables.items() if not p.startswith(_NETWORK)}
    # The vocabulary of the language model may have more entries than the tokenizer.
    vectors = np.concatenate(rows)
    table = np.zeros((encoder.vocab_size or len(ids), vectors.shape[1]), np.float32)
    table[: len(ids)] = vectors
    arrays[f"{_NETWORK}table"] = table
    encoder = dataclasses.replace(encoder, tokens="words", vocab_size=len(table))
    return dataclasses.replace(config, name=f"{config.name}_words", encoder=encoder), arrays


def _characters(tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    """Returns the characters of the vocabulary, with the marks of a sentence: int32 [V, C]."""
    ids = word_characters.of_words(tf.constant(tokenizer.pieces)).numpy()
    ids[tokenizer.cls_id] = word_characters.mark(word_characters.SENTENCE_BEGIN)
    ids[tokenizer.sep_id] = word_characters.mark(word_characters.SENTENCE_END)
    return ids


def with_rows(
    config: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    sources: Sequence[Sequence[int]],
) -> tuple[configs.ResolvedConfig, dict[str, np.ndarray]]:
    """Changes the variables with a row for each piece: tables, output biases, and other heads.

    Args:
      config: the config of the model.
      variables: its variables by path.
      sources: for each row of the result, the old rows whose mean it is.

    Returns:
      The new config, and the variables.
    """

    def sized(size: int) -> configs.ResolvedConfig:
        return dataclasses.replace(
            config, encoder=dataclasses.replace(config.encoder, vocab_size=size)
        )

    # Variables that grow with the vocabulary have a row for each piece.
    shapes, larger = (model_folder.shapes(sized(len(sources) + more)) for more in (0, 1))
    first = np.array([source[0] for source in sources])
    means = {i: list(source) for i, source in enumerate(sources) if len(source) > 1}
    result = {}
    for path, shape in shapes.items():
        array = variables[path]
        for axis, count in enumerate(shape):
            if larger[path][axis] == count:
                continue
            old = np.moveaxis(array, axis, 0)
            new = old[first]
            for i, source in means.items():
                new[i] = old[source].mean(axis=0, dtype=np.float64)
            array = np.ascontiguousarray(np.moveaxis(new, 0, axis))
        result[path] = array
    return sized(len(sources)), result


def rows_for_tokenizer(
    config: configs.ResolvedConfig,
    variables: Mapping[str, np.ndarray],
    old: tokenizers.Tokenizer,
    new: tokenizers.Tokenizer,
    size: int,
) -> dict[str, np.ndarray]:
    """Gives each piece of a larger vocabulary its row; known pieces keep their rows.

    A new piece gets the mean of the rows of the old pieces that spell it.

    Args:
      config: the config of the model.
      variables: its variables by path.
      old: the tokenizer of the model.
      new: the larger tokenizer, which may have other ids.
      size: the number of rows, at least those of `new`; rows behind it stay as they are.

    Returns:
      The variables.
    """
    behind = [[i] for i in range(new.vocab_size, size)]
    sources = [*extension.spelled_by(old, new), *behind]
    return embeddings.finished(with_rows(config, variables, sources)[1])


def grown_rows(size: int, pieces: int, rows: Mapping[int, Sequence[int]]) -> list[Sequence[int]]:
    """Returns the sources of a table that keeps its rows.

    Args:
      size: the number of old rows.
      pieces: the number of pieces of the new tokenizer.
      rows: {id of a new piece: ids of the old pieces that spell it}.
    """
    return [rows.get(i, (i,)) for i in range(max(size, pieces))]
