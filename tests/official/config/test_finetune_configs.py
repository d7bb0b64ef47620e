import re
import string

import numpy as np
import pytest

from official import config, tasks
from official.config.heads import Mix, RankingConfig, TokenClassificationConfig
from official.config.late_interaction import Expansion
from official.config.sentence_embedding import SentenceEmbeddingConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from tests import CONFIGS

FOLDER = CONFIGS / "finetune"


OTHERS = "electra xlnet roberta albert ranking ranking_kernels squad1 squad2 xlnet_squad".split()
OTHERS += ["race", "swag", "dream", "distillation", "tinybert_layers", "tinybert_logits"]
OTHERS += [
    "deberta",
    "modernbert",
    "eurobert",
    "text_to_text",
    "layer_mix",
    "tagging",
    "qnli_ranking",
    "wnli",
    "sentence_embedding",
    "late_interaction",
    "sparse_embedding",
]
# (Those of ELECTRA and XLNet: test_electra_configs.py, test_xlnet_configs.py.)
BERT = sorted(path for path in FOLDER.glob("*.yaml") if path.stem not in OTHERS)


@pytest.mark.parametrize("path", BERT, ids=lambda path: path.stem)
def test_settings_are_those_of_the_paper(path):
    read = config.load(path)
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert read.name == path.stem
    assert (read.encoder, read.segments, read.corruption) == (None, None, None)
    assert (recipe.batch_size, recipe.epochs, recipe.schedule.warmup_fraction) == (32, 3, 0.1)
    assert optimizer.learning_rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    assert not optimizer.bias_correction
    assert recipe.init_weights == "encoder"
    assert recipe.bucket_lengths[-1] == 128
    assert len(read.objectives) == 1 or all(objective.task for objective in read.objectives)
    for objective in read.objectives:
        assert objective.dropout == 0.1
        kind = objective.type
        task = tasks.TASKS.get(getattr(objective, "task", "") or read.name)
        assert kind == (task.kind if task else read.name)


def test_deberta():
    """The cards of DeBERTa-v3's models, for MNLI, and the release's optimizer."""
    read = config.load(FOLDER / "deberta.yaml")
    recipe, optimizer = read.recipe, read.recipe.optimizer
    (objective,) = read.objectives
    assert (objective.type, objective.pooling, objective.dropout) == (
        "classification",
        "pooled",
        0.1,
    )
    assert (recipe.batch_size, recipe.epochs, recipe.bucket_lengths[-1]) == (64, 3, 256)
    assert (recipe.schedule.type, recipe.schedule.warmup_steps) == ("bert", 500)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.epsilon) == (
        2e-5,
        0.01,
        1e-6,
    )
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.clip_norm) == (0.9, 0.999, 1.0)
    assert not optimizer.bias_correction


def test_modernbert():
    """The release's job for MNLI. Its optimizer does not multiply the decay by the rate."""
    read = config.load(FOLDER / "modernbert.yaml")
    recipe, optimizer, (head,) = read.recipe, read.recipe.optimizer, read.objectives
    assert (head.type, head.pooling, head.transform, head.dropout) == (
        "classification", "mean", True, 0.0,
    )  # fmt: skip
    assert (recipe.batch_size, recipe.epochs, recipe.bucket_lengths[-1]) == (64, 2, 256)
    assert (recipe.schedule.type, recipe.schedule.warmup_fraction) == ("xlnet", 0.1)
    assert (optimizer.learning_rate, optimizer.beta_2, optimizer.epsilon) == (5e-5, 0.98, 1e-6)
    np.testing.assert_allclose(optimizer.learning_rate * optimizer.weight_decay, 1e-6)
    assert (optimizer.beta_1, optimizer.clip_norm, optimizer.bias_correction) == (0.9, 0.0, True)


def test_eurobert():
    """The optimizer of the library that the models were trained with, and transformers' head."""
    read = config.load(FOLDER / "eurobert.yaml")
    optimizer, (head,) = read.recipe.optimizer, read.objectives
    assert (head.type, head.pooling, head.dense, head.dropout) == (
        "classification", "mean", "states", 0.0,
    )  # fmt: skip
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.95, 1e-5)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.1, 1.0)


def test_qnli_ranking():
    """The settings of a ranking with MT-DNN's loss."""
    read, ranking = (config.load(FOLDER / f"{name}.yaml") for name in ("qnli_ranking", "ranking"))
    assert read.recipe == ranking.recipe
    assert read.objectives == (RankingConfig(loss="softmax"),)


def test_wnli():
    """Kocijan et al., 2019, and the settings of RoBERTa's release for SuperGLUE's form of it."""
    read = config.load(FOLDER / "wnli.yaml")
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert (recipe.steps, recipe.batch_size) == (2000, 64)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.no_decay) == (2e-5, 0.01, ())
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-6)
    assert (recipe.schedule.type, recipe.schedule.warmup_steps) == ("xlnet", 250)


def test_layer_mix():
    """Peters et al., 2018: a frozen encoder, small penalty, dropout of half of the features."""
    read = config.load(FOLDER / "layer_mix.yaml")
    (head,) = read.objectives
    assert (read.encoder, read.recipe.freeze_encoder, head.pooling) == (None, True, "mean")
    assert (head.mix.penalty, head.mix.norm, head.mix.dropout) == (0.001, "none", 0.5)
    assert (read.recipe.schedule.type, read.recipe.schedule.warmup_fraction) == ("constant", 0)


def test_tagging():
    """Devlin et al., 2019, appendix A.3, and the tagger of Peters et al., 2018."""
    path = FOLDER / "tagging.yaml"
    line = next(x for x in path.read_text().splitlines() if "--override" in x)
    overrides = [x.strip() for x in line.removeprefix("#").split("--override=")[1:]]
    bert, elmo = config.load(path), config.load(path, overrides)
    recipe, optimizer = bert.recipe, bert.recipe.optimizer
    assert (bert.name, bert.encoder, bert.segments) == ("tagging", None, None)
    assert (recipe.batch_size, recipe.epochs, recipe.schedule.warmup_fraction) == (32, 3, 0.1)
    assert (optimizer.learning_rate, optimizer.layer_decay) == (5e-5, 1)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    (head,) = bert.objectives
    assert head == TokenClassificationConfig(dropout=0.1)
    assert elmo.objectives == (
        TokenClassificationConfig(crf=True, bilstm=200, dropout=0.5, mix=Mix(penalty=0.1)),
    )
    assert elmo.recipe.freeze_encoder and elmo.recipe.optimizer.learning_rate == 1e-3


def test_text_to_text():
    """Raffel et al., 2020, section 3.1.2."""
    read = config.load(FOLDER / "text_to_text.yaml")
    recipe = read.recipe
    assert (read.encoder, read.segments, recipe.init_weights) == (None, None, "all")
    assert [(o.type, o.z_loss) for o in read.objectives] == [("seq2seq_lm", 1e-4)]
    assert (recipe.steps, recipe.batch_size, recipe.eval_every) == (2**18, 128, 5000)
    assert recipe.dropout == 0.1
    assert (recipe.optimizer.type, recipe.optimizer.learning_rate) == ("adafactor", 1e-3)
    assert (recipe.schedule.type, recipe.schedule.warmup_steps) == ("constant", 0)
    lines = (FOLDER / "text_to_text.yaml").read_text().splitlines()
    overrides = [found for line in lines if (found := re.findall(r"--override=(\S+)", line))]
    mixtures = [config.load(FOLDER / "text_to_text.yaml", each).recipe for each in overrides]
    assert [(m.task_sampling, m.task_limit, m.task_temperature) for m in mixtures] == [
        ("proportional", 0, 1), ("proportional", 2**16, 1), ("proportional", 0, 2), ("equal", 0, 1),
    ]  # fmt: skip


def test_rankings():
    pair, kernels = (config.load(FOLDER / f"{n}.yaml") for n in ("ranking", "ranking_kernels"))
    for read, name in ((pair, "ranking"), (kernels, "ranking_kernels")):
        assert (read.name, read.encoder, read.segments) == (name, None, None)
        assert (read.recipe.batch_size, read.recipe.schedule.end_ratio) == (16, 0)
        (objective,) = read.objectives
        assert (objective.loss, objective.margin) == ("pairwise", 1)
    assert pair.objectives[0].type == "ranking"
    assert pair.recipe.optimizer.learning_rate in (2e-5, 3e-5, 5e-5)
    assert kernels.objectives[0].type == "kernel_ranking"
    assert len(kernels.objectives[0].means_and_widths) == 11
    optimizer = kernels.recipe.optimizer
    assert (optimizer.learning_rate, optimizer.epsilon) == (1e-3, 1e-5)


@pytest.mark.parametrize(
    "name, epochs, steps, batch_size, rate, form",
    [
        ("squad1", 3, 0, 32, 5e-5, "independent"),
        ("squad2", 2, 0, 48, 5e-5, "independent"),
        ("xlnet_squad", 0, 8000, 48, 3e-5, "conditional"),
    ],
)
def test_settings_for_questions_and_spans(name, epochs, steps, batch_size, rate, form):
    read = config.load(FOLDER / f"{name}.yaml")
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert read.name == name and read.encoder is None
    assert (recipe.epochs, recipe.steps, recipe.batch_size) == (epochs, steps, batch_size)
    assert optimizer.learning_rate == rate
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    (objective,) = read.objectives
    assert objective.form == form
    if form == "conditional":
        # Table 8's rate is that of the last layer, and of the head.
        assert (optimizer.layer_decay, optimizer.layer_decay_from) == (0.75, "last_layer")
        assert (objective.start_beam, objective.end_beam, objective.n_best) == (5, 5, 5)
        assert recipe.bucket_lengths[-1] == 512
    else:
        assert optimizer.layer_decay == 1 and recipe.schedule.warmup_fraction == 0.1
        assert (objective.max_answer_length, objective.n_best) == (30, 20)
        assert recipe.bucket_lengths[-1] == 384


@pytest.mark.parametrize(
    "name, length, batch_size, rate, weight_decay",
    [
        ("race", {"steps": 12000, "epochs": 0}, 32, 2e-5, 0),
        ("swag", {"steps": 0, "epochs": 3}, 16, 2e-5, 0.01),
        ("dream", {"steps": 0, "epochs": 4}, 16, 2e-5, 0.01),
    ],
)
def test_choices(name, length, batch_size, rate, weight_decay):
    read = config.load(FOLDER / f"{name}.yaml")
    assert (read.name, read.encoder, read.segments) == (name, None, None)
    recipe, (objective,) = read.recipe, read.objectives
    assert {key: getattr(recipe, key) for key in length} == length
    assert (recipe.batch_size, recipe.schedule.end_ratio) == (batch_size, 0)
    assert recipe.optimizer.learning_rate == rate
    assert (recipe.optimizer.weight_decay, recipe.optimizer.epsilon) == (weight_decay, 1e-6)
    assert (objective.type, objective.dropout) == ("multiple_choice", 0.1)
    assert tasks.TASKS[name].kind == "choice"


def variants(name):
    """The config as it is, and with each line of overrides in its file."""
    path = FOLDER / f"{name}.yaml"
    lines = [re.findall(r"--override=(\S+)", line) for line in path.read_text().splitlines()]
    return [config.load(path, overrides) for overrides in ([], *filter(None, lines))]


def test_roberta():
    """Table 10, and the release's table of GLUE."""
    actual = []
    for read in variants("roberta"):
        recipe, optimizer, (objective,) = read.recipe, read.recipe.optimizer, read.objectives
        assert (read.name, read.encoder, read.segments) == ("roberta", None, None)
        assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-6)
        assert (optimizer.no_decay, optimizer.clip_norm) == ((), 0)
        assert optimizer.bias_correction and objective.dropout == 0.1
        assert (recipe.schedule.type, recipe.schedule.end_ratio) == ("xlnet", 0)
        assert recipe.schedule.warmup_fraction == (0.25 if len(actual) == 6 else 0.06)
        actual.append(
            (
                objective.type, recipe.epochs, recipe.batch_size,
                optimizer.learning_rate, optimizer.weight_decay,
            )
        )  # fmt: skip
    assert actual == [
        ("classification", 10, 32, 1e-5, 0.1),
        ("classification", 10, 16, 1e-5, 0.1),
        ("classification", 10, 16, 2e-5, 0.1),
        ("regression", 10, 16, 2e-5, 0.1),
        ("span_answer", 2, 48, 1.5e-5, 0.01),
        ("multiple_choice", 4, 16, 1e-5, 0.1),
        ("classification", 10, 32, 1e-5, 0.1),
    ]


def test_albert():
    """Table 14."""
    actual = []
    for read in variants("albert"):
        recipe, optimizer, (objective,) = read.recipe, read.recipe.optimizer, read.objectives
        assert (read.name, read.encoder, read.segments) == ("albert", None, None)
        assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
        assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 1.0)
        assert not optimizer.bias_correction and objective.dropout == 0.1
        assert (recipe.schedule.type, recipe.schedule.end_ratio) == ("bert", 0)
        actual.append(
            (
                objective.type, optimizer.learning_rate, recipe.batch_size,
                recipe.steps, recipe.schedule.warmup_steps,
            )
        )  # fmt: skip
    assert actual == [
        ("classification", 1e-5, 32, 20935, 1256),
        ("classification", 1e-5, 16, 5336, 320),
        ("regression", 2e-5, 16, 3598, 214),
        ("classification", 3e-5, 128, 10000, 1000),
        ("classification", 1e-5, 32, 33112, 1986),
        ("classification", 5e-5, 128, 14000, 1000),
        ("classification", 3e-5, 32, 800, 200),
        ("classification", 2e-5, 32, 800, 200),
        ("classification", 2e-5, 16, 2000, 250),
        ("span_answer", 5e-5, 48, 3649, 365),
        ("span_answer", 3e-5, 48, 8144, 814),
        ("multiple_choice", 2e-5, 32, 12000, 1000),
    ]
    forms = [getattr(read.objectives[0], "form", None) for read in variants("albert")]
    assert forms[9:11] == ["independent", "conditional"]


def test_an_electra_that_answers_questions():
    """Table 7."""
    lines = (FOLDER / "squad2.yaml").read_text().splitlines()
    actual = [re.findall(r"--override=(\S+)", line) for line in lines]
    threshold, electra = filter(None, actual)
    assert threshold == ["objectives.span_answer.null_threshold=THRESHOLD"]
    recipe = config.load(FOLDER / "squad2.yaml", electra).recipe
    assert (recipe.epochs, recipe.batch_size, recipe.schedule.type) == (2, 32, "electra")
    optimizer = recipe.optimizer
    assert (optimizer.learning_rate, optimizer.layer_decay) == (1e-4, 0.8)
    assert (optimizer.weight_decay, optimizer.epsilon) == (0, 1e-6)
    assert recipe.schedule.warmup_fraction == 0.1


def test_late_interaction():
    """ColBERT: 32 tokens of queries, 180 of documents without punctuation, vectors of 128."""
    (objective,) = config.load(FOLDER / "late_interaction.yaml").objectives
    assert (objective.size, objective.document_length, objective.scale) == (128, 180, 1)
    assert objective.expansion == Expansion(32, "fixed", attend=False)
    assert sorted(objective.skipped_words) == sorted(string.punctuation)


def test_sentence_embedding():
    """SimCSE's release (supervised, base models) with the pooling and the warm-up of SBERT."""
    read = config.load(FOLDER / "sentence_embedding.yaml")
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert read.objectives == (SentenceEmbeddingConfig(scale=20.0, pooling="mean", cached_rows=32),)
    assert (recipe.epochs, recipe.distinct_texts, recipe.eval_every) == (3, True, 125)
    assert (optimizer.learning_rate, recipe.schedule.warmup_fraction) == (5e-5, 0.1)
    assert (read.encoder, read.segments, recipe.init_weights) == (None, None, "encoder")


def test_sparse_embedding():
    """SPLADE v2's learning rate, and the factors of sentence-transformers."""
    read = config.load(FOLDER / "sparse_embedding.yaml")
    recipe = read.recipe
    expected = SparseEmbeddingConfig(query_flops=5e-5, document_flops=3e-5, cached_rows=32)
    assert read.objectives == (expected,)
    assert (recipe.distinct_texts, recipe.optimizer.learning_rate) == (True, 2e-5)
    assert (read.encoder, read.segments, recipe.init_weights) == (None, None, "encoder")
