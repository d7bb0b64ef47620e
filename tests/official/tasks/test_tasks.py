import pytest

from official import tasks
from official.utils import strict
from official.utils.errors import UserError


def test_table_says_what_glue_distributes():
    mrpc = tasks.find("mrpc")
    assert mrpc.columns == tasks.Columns("#1 String", "#2 String", "Quality")
    assert (mrpc.values, mrpc.labels) == (("0", "1"), ("not_equivalent", "equivalent"))
    assert mrpc.metrics == ("accuracy", "f1")
    assert mrpc.files == {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    sst2 = tasks.find("sst2")
    assert (sst2.values, sst2.labels) == (("0", "1"), ("negative", "positive"))
    assert sst2.columns.text_pair is None
    stsb = tasks.find("stsb")
    assert (stsb.kind, stsb.labels, stsb.metrics) == ("regression", (), ("pearson", "spearman"))


def test_cola_has_a_header_in_its_test_file_alone():
    cola = tasks.find("cola")
    assert cola.columns_for("train") == tasks.Columns("3", None, "1", header=False)
    assert cola.columns_for("test") == tasks.Columns("sentence")


def test_several_files_for_validation_and_test():
    mnli = tasks.find("mnli")
    assert list(mnli.files) == list(tasks.SPLITS)
    assert mnli.files["validation"] == "dev_matched.tsv"
    assert mnli.files["test_mismatched"] == "test_mismatched.tsv"
    assert mnli.columns == tasks.Columns("sentence1", "sentence2", "gold_label")
    ax = tasks.find("ax")
    assert (ax.labels, ax.files, ax.columns.label) == (
        mnli.labels, {"test": "diagnostic.tsv"}, None,
    )  # fmt: skip


def test_what_glue_takes():
    taken = {
        (task.name, split): (submission.file, submission.rows)
        for task in tasks.TASKS.values()
        for split, submission in task.submissions.items()
    }
    assert taken == {
        ("cola", "test"): ("CoLA.tsv", 1063),
        ("sst2", "test"): ("SST-2.tsv", 1821),
        ("mrpc", "test"): ("MRPC.tsv", 1725),
        ("stsb", "test"): ("STS-B.tsv", 1379),
        ("qqp", "test"): ("QQP.tsv", 390_965),
        ("mnli", "test"): ("MNLI-m.tsv", 9796),
        ("mnli", "test_mismatched"): ("MNLI-mm.tsv", 9847),
        ("qnli", "test"): ("QNLI.tsv", 5463),
        ("rte", "test"): ("RTE.tsv", 3000),
        ("wnli", "test"): ("WNLI.tsv", 146),
        ("ax", "test"): ("AX.tsv", 1104),
    }


def test_texts_as_distributed_and_in_tables_with_named_columns():
    named = tasks.Columns("text", None, "label")
    ag_news, imdb = tasks.find("ag_news"), tasks.find("imdb")
    assert ag_news.columns_for("train", "csv") == tasks.Columns("2", None, "0", False, title="1")
    assert ag_news.columns_for("test", "tsv") == ag_news.columns_for("test", "jsonl") == named
    assert imdb.columns_for("train", "folders") == imdb.columns_for("train", "tsv") == named
    assert (imdb.values, imdb.labels) == (("0", "1"), ("neg", "pos"))
    assert (imdb.line_break, ag_news.line_break) == ("<br />", "\\")
    assert tasks.find("yelp_full").line_break == "\\n"
    dbpedia = tasks.find("dbpedia")
    assert (len(dbpedia.labels), dbpedia.labels[8], dbpedia.values[8]) == (14, "Village", "9")
    assert list(tasks.find("trec").files.values()) == ["train_5500.label", "TREC_10.label"]


def test_description_is_what_a_manifest_says():
    assert strict.to_dict(tasks.find("rte").description()) == {
        "name": "rte",
        "kind": "classification",
        "pair": True,
        "labels": ["entailment", "not_entailment"],
        "values": ["entailment", "not_entailment"],
        "metrics": ["accuracy"],
        "columns": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
        "unlabelled": [],
    }


def test_generic_defaults():
    task = tasks.generic("classification", "review", label="stars", labels=["1", "2"])
    assert (task.values, task.metrics) == (("1", "2"), ("accuracy",))
    assert tasks.generic("regression", "a", "b", "score").metrics == ("pearson", "spearman")


def test_a_ranking_has_all_of_its_metrics_and_no_labels():
    task = tasks.ranking()
    assert task.metrics == tasks.METRICS["ranking"]
    assert (task.kind, task.labels, task.description().pair) == ("ranking", (), True)
    assert tasks.ranking(["map"]).metrics == ("map",)
    with pytest.raises(UserError, match="ranking has no metric 'accuracy': its metrics are 'ndcg"):
        tasks.ranking(["accuracy"])


def test_every_metric_of_the_table_can_be_computed():
    rows = pytest.importorskip("official.evaluation.rows")
    for kind in ("classification", "regression"):  # (rankings: test_rankings.py)
        computed = rows.compute(tasks.METRICS[kind], [0, 1, 1], [0, 1, 0])
        assert list(computed) == list(tasks.METRICS[kind])


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: tasks.find("sst-2"),
            "there is no task 'sst-2' (did you mean 'sst2'?): tasks are 'cola', 'sst2', 'mrpc', "
            "'stsb', 'qqp', 'mnli', 'qnli', 'rte', 'wnli', 'ax', 'imdb', 'ag_news', 'dbpedia', "
            "'yelp_polarity', 'yelp_full', 'amazon_polarity', 'amazon_full', 'trec', 'trec_fine', "
            "'squad1', 'squad2', 'race', 'swag', 'dream', 'conll2003', 'wnut17', "
            "'classification', 'multi_label', 'regression', 'tagging', 'ranking', 'choice'",
        ),
        (
            lambda: tasks.generic("parsing", "text"),
            "a task is classification or multi_label or regression or tagging or ranking or "
            "choice, not 'parsing'",
        ),
        (
            lambda: tasks.generic("regression", "a", label="b", labels=["x", "y"]),
            "a regression task has scores and no labels: remove the labels",
        ),
        (
            lambda: tasks.generic("classification", "a", label="b", labels=["x", "y", "x"]),
            "label 'x' is named twice in 'x', 'y', 'x'",
        ),
        (
            lambda: tasks.generic("classification", "a", label="b", labels=["x"]),
            "one label ('x') is not enough: name at least two",
        ),
        (
            lambda: tasks.generic("classification", "a", label="b", labels=["x", ""]),
            "'' cannot be a label",
        ),
        (
            lambda: tasks.generic("classification", "a", label="b", labels=["x", "y\tz"]),
            "'y\\tz' cannot be a label",
        ),
        (
            lambda: tasks.generic("classification", "a", label="b", metrics=["f_1"]),
            "classification has no metric 'f_1' (did you mean 'f1'?): its metrics are 'accuracy', "
            "'f1', 'matthews_correlation'",
        ),
        (
            lambda: tasks.generic("regression", "a", label="b", metrics=["accuracy"]),
            "regression has no metric 'accuracy': its metrics are 'pearson', 'spearman'",
        ),
        (
            lambda: tasks.generic("classification", "a", "a", "b"),
            "column 'a' is given twice: text, second text and label need a column each",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)
