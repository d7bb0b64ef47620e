import numpy as np
import pytest
import tensorflow as tf

from official import tasks
from official.tasks import text_to_text
from official.utils import strict
from official.utils.errors import UserError


@pytest.mark.parametrize(
    ("name", "texts", "wanted"),
    [
        ("mnli", ("A", "B"), "mnli hypothesis: B premise: A"),
        ("ax", ("A", "B"), "mnli hypothesis: B premise: A"),
        ("qqp", ("A", "B"), "qqp question1: A question2: B"),
        ("qnli", ("A", "B"), "qnli question: A sentence: B"),
        ("mrpc", ("A", "B"), "mrpc sentence1: A sentence2: B"),
        ("rte", ("A", "B"), "rte sentence1: A sentence2: B"),
        ("stsb", ("A", "B"), "stsb sentence1: A sentence2: B"),
        ("cola", ("A",), "cola sentence: A"),
        ("sst2", ("A",), "sst2 sentence: A"),
        ("imdb", ("A",), "imdb text: A"),
        ("ag_news", ("A",), "ag_news text: A"),
    ],
)
def test_inputs_have_the_prefix_and_fields_of_t5(name, texts, wanted):
    task = text_to_text.from_task(tasks.find(name))
    fields = dict(zip(task.fields, texts, strict=True))
    assert text_to_text.input_text(task.prefix, fields) == wanted


def test_form_of_a_task_keeps_its_name_labels_and_metrics():
    task = text_to_text.from_task(tasks.find("mrpc"))
    assert (task.name, task.kind, task.answers) == ("mrpc", "text_to_text", "classification")
    assert task.labels == ("not_equivalent", "equivalent") and task.values == ("0", "1")
    assert task.metrics == ("accuracy", "f1")
    assert text_to_text.from_task(task) is task
    assert text_to_text.from_task(tasks.find("squad2")).metrics == ("f1", "exact_match")
    described = task.description()
    again = tasks.description_from_dict(strict.to_dict(described), "manifest.json")
    assert again == described and again.fields == ("sentence1", "sentence2")


def test_every_named_task_but_wnli_and_tagging_has_a_form():
    for task in tasks.TASKS.values():
        if task.name == "wnli" or task.kind == "tagging":
            continue
        form = text_to_text.from_task(task)
        assert form.answers == task.kind and len(form.fields) in (1, 2)


def test_a_users_columns_name_the_fields():
    task = tasks.generic("classification", "premise", "claim", "label", ["no", "yes"])
    assert text_to_text.from_task(task).fields == ("premise", "claim")
    task = tasks.generic("classification", "0", "1", "2", ["no", "yes"], header=False)
    assert text_to_text.from_task(task).fields == ("sentence1", "sentence2")
    assert text_to_text.from_task(tasks.generic("regression", "0")).fields == ("text",)


def test_what_has_no_form_is_refused():
    with pytest.raises(UserError, match="not supported for ranking, a task of the kind ranking"):
        text_to_text.from_task(tasks.ranking())
    task = tasks.generic("classification", "text", label="label", labels=["not", "no", "nothing"])
    with pytest.raises(UserError, match="wnli has no form of text to text, since T5 leaves it out"):
        text_to_text.from_task(tasks.find("wnli"))
    with pytest.raises(UserError, match="label 'not' begins 'nothing': an answer that ends too"):
        text_to_text.from_task(task)
    with pytest.raises(UserError, match="label 'no' begins 'not', 'nothing': an answer"):
        text_to_text.check_labels(["no", "not", "nothing"])
    text_to_text.check_labels(["entailment", "not_entailment"])  # One ends the other.


def test_metrics_of_texts():
    names = ("bleu", "rouge_1", "rouge_l")
    assert text_to_text.generation("a", "b", metrics=names).metrics == names
    with pytest.raises(UserError, match=r"no metric 'rouge1' \(did you mean 'rouge_1'\?\): their"):
        text_to_text.generation("a", "b", metrics=["rouge1"])
    with pytest.raises(UserError, match="texts have no metric 'accuracy'"):
        text_to_text.generation("a", "b", metrics=["accuracy"])


def test_scores_are_multiples_of_a_fifth():
    for score, wanted in (
        (0, "0.0"), (3.8, "3.8"), (3.25, "3.2"), (2.3, "2.4"), (2.7, "2.8"),
        (2.5, "2.4"), (4.91, "5.0"),
        (np.float32(2.6), "2.6"), (0.0999, "0.0"), (-0.05, "0.0"),
    ):  # fmt: skip
        assert text_to_text.number_text(score) == wanted, score
    # Rows of STS-B's train file. As float32, 1.7 is more than 1.7, and 3.1 less than 3.1.
    for score, wanted in (("1.700", "1.6"), ("3.1", "3.2"), ("3.100", "3.2")):
        assert text_to_text.number_text(float(np.float32(score))) == wanted, score
    for score in np.arange(5001, dtype=np.float32) / 1000:
        rounded = np.round(np.float32(score) * np.float32(5)) / np.float32(5)
        assert text_to_text.number_text(float(score)) == f"{rounded:.1f}", score
    found = {text_to_text.number_text(score) for score in np.linspace(0, 5, 2001)}
    assert found == {f"{n / 5:.1f}" for n in range(26)}


# What the release does with TensorFlow, before and since April 2022.
RELEASED = {"non_word": r"(\W)", "ascii": r"([[:punct:]])"}


@pytest.mark.parametrize("punctuation", RELEASED)
def test_blanks_round_the_punctuation_of_questions(punctuation):
    known = set(text_to_text.PUNCTUATION)
    assert known == set(RELEASED)
    rng = np.random.default_rng(0)
    signs = [*map(chr, range(32, 127)), *"\t\n\x0béÀñß“”–…，。東京हि\u0301\u00a0\u3000€½x"]
    texts = ["".join(rng.choice(signs, rng.integers(0, 30))) for _ in range(300)]
    wanted = tf.strings.regex_replace(texts, RELEASED[punctuation], r" \1 ")
    wanted = tf.strings.regex_replace(wanted, r"\s+", " ").numpy()
    for text, padded in zip(texts, wanted, strict=True):
        assert text_to_text.spaced(text, punctuation) == padded.decode().strip(" "), text


def test_both_rules_of_punctuation_by_hand():
    asked = "Who's  there?", "A (tall)\nman, née a_b “X”."
    assert text_to_text.question_text(*asked, "ascii") == (
        "question: Who ' s there ? context: A ( tall ) man , née a _ b “X” ."
    )
    assert text_to_text.question_text(*asked, "non_word") == (
        "question: Who ' s there ? context: A ( tall ) man , n é e a_b “ X ” ."
    )


def test_answers_outside_the_labels_are_wrong():
    labels = ["not_entailment", "entailment"]
    for text, wanted in (
        ("entailment", 1), ("not_entailment", 0), ("entail", -1), ("Entailment", -1), ("", -1),
        ("entailment entailment", -1), (" entailment", -1),
    ):  # fmt: skip
        assert text_to_text.read_label(text, labels) == wanted, text
    for text, number in (("3.8", 3.8), ("3.85", 3.85), ("five", -1), ("", -1), ("nan", -1),
        ("-1.5", -1.5), ("3.", 3), (".5", 0.5), ("1e3", 1000), ("inf", -1), ("9" * 400, -1),
        ("3,8", -1), ("3.8 3.8", -1),
    ):  # fmt: skip
        assert text_to_text.read_number(text) == number
