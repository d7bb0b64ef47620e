"""The tabs say what the methods of `official.load(DIR)` say."""

import io

import numpy as np
import pytest
from matplotlib.image import imread

import official
from official.plots import attention
from official.utils.errors import UserError
from official.web import results, tabs
from tests.official.conversion import test_multi_vector_encoders as late
from tests.official.serving.vectors import test_sparse
from tests.official.web import models

TEXT = "The cat sat on a mat. 😀\nA quick dog ran."
DOCUMENTS = "the cat\n\n  \na mat on a dog\r\nA quick fox."
SIZES = {"doc_stride": 4, "max_query_length": 5}
LINES = ["the cat", "a mat on a dog", "A quick fox."]


def able(model):
    return [name for name, tab in tabs.TABS.items() if tab.able(model)]


def apply(name, model, **form):
    return tabs.TABS[name].results(model, form)


@pytest.mark.parametrize("name", models.HEADS)
def test_a_head_has_its_tab(tmp_path, name):
    assert able(models.head(name, tmp_path / "model")) == [*models.HEADS[name][1], *models.ENCODER]


def test_language_models_have_their_tabs(tmp_path):
    masked = official.load(models.masked_lm(tmp_path / "masked"))
    assert able(masked) == ["fill_mask", *models.ENCODER]
    assert able(models.causal_lm(tmp_path / "causal")) == [
        *(*models.ALWAYS, "generate", "attention")
    ]
    assert able(models.t5(tmp_path / "t5")) == [
        *("fill_mask", *models.ALWAYS, "generate", "attention", "cross_attention")
    ]
    elmo = models.elmo(tmp_path / "elmo")
    assert able(elmo) == models.ALWAYS


def test_a_text_of_a_field_is_read():
    assert tabs.Field("x", "X", "text").read("a\r\nb ") == "a\nb "
    assert tabs.Field("x", "X", "lines").read(DOCUMENTS) == LINES
    assert tabs.Field("x", "X", "whole").read(" 7 ") == 7
    assert tabs.Field("x", "X", "decimal").read("0.5") == 0.5
    for kind, text, message in (
        ("lines", " \r\n", "X: there is no text: write one on each line"),
        ("whole", "1.5", "X: '1.5' is not a whole number"),
        ("decimal", "<b>", "X: '<b>' is not a number"),
    ):
        with pytest.raises(UserError) as error:
            tabs.Field("x", "X", kind).read(text)
        assert str(error.value) == message


def test_masks_of_other_models_stand_for_that_of_the_model():
    for mask in ("[MASK]", "<mask>", "<extra_id_0>", "<hole>"):
        field = tabs.Field("text", "Text", "text", f"a {mask}.", mask=mask)
        assert field.text({}) == f"a {mask}."
        for other in ("[MASK]", "<mask>", "<extra_id_0>"):
            assert field.text({"text": f"the {other} sat"}) == f"the {mask} sat"
        # A text with its own mask stays as it is.
        own = f"{mask} [MASK] <mask> <extra_id_7>"
        assert field.text({"text": own}) == own
    two = {"text": "a <mask> [MASK] [mask] <extra_id_1>"}
    field = tabs.Field("text", "Text", "text", mask="<extra_id_0>")
    assert field.text(two) == "a <extra_id_0> <extra_id_1> [mask] <extra_id_2>"
    assert tabs.Field("text", "Text", "text").text(two) == two["text"]


def test_the_shade_of_a_number_is_its_part_of_the_largest():
    matrix = results.Matrix("", ["x", "y"], ["1", "2", "3"], [[0.5, 0.26, 0.0], [-1.0, 0.02, 0.1]])
    assert matrix.shaded == [
        ("x", [(0.5, 10), (0.26, 5), (0.0, 0)]),
        ("y", [(-1.0, 0), (0.02, 0), (0.1, 2)]),
    ]
    assert results.Matrix("", ["x"], ["1"], [[0.0]]).shaded == [("x", [(0.0, 0)])]
    # Of a model whose weights are not numbers.
    broken = results.Matrix("", ["x"], ["1", "2", "3"], [[float("nan"), 0.5, float("inf")]])
    assert [shade for _, shade in broken.shaded[0][1]] == [0, 10, 0]


def test_the_longest_bar_is_of_one_or_more():
    for scores, longest in (([0.5, -2.0], 1), ([3.5, 9.0], 9), ([], 1)):
        assert results.Table(("score",), [(x,) for x in scores], share=0).longest == longest


def test_a_label_has_its_color_in_every_text():
    labels = [f"l{i}" for i in range(8)]
    text = results.marked("ab", [(0, 1, "l3")], labels)
    assert [text.color(label) for label in labels] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert results.marked("ab", [(0, 1, "answer")]).color("answer") == 0


def test_spans_are_marked():
    found = results.marked("abcdef", [(4, 6, "y"), (0, 1, "x"), (2, 2, "none")])
    assert found.parts == [("a", "x"), ("bcd", None), ("ef", "y")]
    assert results.marked("", []).parts == [] and results.marked("a", []).parts == [("a", None)]


def test_masks(tmp_path):
    model = official.load(models.masked_lm(tmp_path / "model"))
    text = "the [MASK] sat on [MASK]"
    found = apply("fill_mask", model, text=text, top_k="3")
    [masks] = model.fill_mask([text], top_k=3)
    assert [table.title for table in found] == ["Mask 1", "Mask 2"]
    for table, fillings in zip(found, masks, strict=True):
        # The first call runs without a graph, so its probabilities are rounded differently.
        close = [(f.word, pytest.approx(f.probability, abs=1e-6), f.text) for f in fillings]
        assert table.rows == close
        assert len(table.rows) == 3 and table.columns[table.share] == "probability"
        assert all(0 < row[1] < 1 for row in table.rows)
    [first] = apply("fill_mask", model)  # the text that the form has at first
    assert len(first.rows) == 5 and "capital" in first.rows[0][2]
    with pytest.raises(UserError, match="has no mask"):
        apply("fill_mask", model, text="no mask")


@pytest.mark.slow
def test_labels(tmp_path):
    model = models.head("classification", tmp_path / "one")
    for second, texts in (("", ([TEXT],)), ("a dog", ([TEXT], ["a dog"]))):
        [table] = apply("classify", model, text=TEXT, second=second)
        [label] = model.classify(*texts)
        assert table.title == label.label == table.rows[0][0]
        assert dict(table.rows) == label.probabilities and table.rows[0][1] > table.rows[1][1]
    model = models.head("multi_label", tmp_path / "several")
    [table] = apply("classify", model, text=TEXT)
    [labels] = model.classify([TEXT])
    assert table.title == (", ".join(labels.labels) or "no label")
    assert dict(table.rows) == labels.probabilities


@pytest.mark.slow
def test_a_model_of_several_tasks_has_a_field_for_the_task(tmp_path):
    model = models.head("tasks", tmp_path / "model")
    field = tabs.TABS["classify"].fields(model)[-1]
    assert (field.name, field.value, field.choices) == ("task", "one", ["one", "two"])
    for task, labels in ((None, {"no", "yes"}), ("two", {"0", "1", "2"})):
        [table] = apply("classify", model, text=TEXT, **({"task": task} if task else {}))
        [expected] = model.classify([TEXT], task=task or "one")
        assert (
            dict(table.rows) == expected.probabilities and expected.probabilities.keys() == labels
        )
    with pytest.raises(UserError, match="three"):
        apply("classify", model, text=TEXT, task="three")


@pytest.mark.slow
def test_scores(tmp_path):
    model = models.head("regression", tmp_path / "one")
    [table] = apply("score", model, text=TEXT, second="cats")
    assert table.rows == [(float(model.score([TEXT], ["cats"])[0]),)]
    model = models.head("ranking", tmp_path / "two")
    [table] = apply("rank", model, query="a cat", documents=DOCUMENTS)
    scores = model.rank("a cat", LINES).tolist()
    assert table.rows == [(scores[i], LINES[i]) for i in np.argsort(scores)[::-1]]
    assert len(set(scores)) == 3


@pytest.mark.slow
def test_answers(tmp_path):
    model = models.head("span_answer", tmp_path / "model", no_answers=False, **SIZES)
    context = "The cat sat.\r\nünïcødé 猫 dog 😀 on a mat, a quick dog ran."
    text, table = apply("answer", model, question="which dog?", context=context)
    context = context.replace("\r\n", "\n")
    [found] = model.answer(["which dog?"], context)
    assert "".join(part for part, _ in text.parts) == context
    [place] = [i for i, (_, label) in enumerate(text.parts) if label is not None]
    assert text.parts[place][0] == found.text == context[found.start : found.end] != ""
    assert sum(len(part) for part, _ in text.parts[:place]) == found.start
    assert table.rows == [[*found[:4]]] and table.title == ""
    model = models.head("span_answer", tmp_path / "other", no_answers=True, **SIZES)
    _, table = apply("answer", model, question="which dog?", context="")
    [found] = model.answer(["which dog?"], "")
    assert (found.text, table.title) == ("", "no answer") and table.rows == [[*found]]


@pytest.mark.slow
def test_choices(tmp_path):
    model = models.head("multiple_choice", tmp_path / "model")
    [table] = apply("choose", model, context=TEXT, question="who?", choices=DOCUMENTS)
    [found] = model.choose([TEXT], ["who?"], [LINES])
    assert table.title == found.text
    assert table.rows == list(zip(LINES, found.probabilities.tolist(), strict=True))


@pytest.mark.slow
def test_entities(tmp_path):
    model = models.head("token_classification", tmp_path / "model")
    text, table = apply("tag", model, text=TEXT)
    [entities] = model.tag([TEXT])
    assert table.rows == entities != [] and {"PER", "LOC"} >= {e.type for e in entities}
    assert "".join(part for part, _ in text.parts) == TEXT
    marked = [(part, label) for part, label in text.parts if label is not None]
    assert marked == [(entity.text, entity.type) for entity in entities]
    assert [text.color(label) for label in ("PER", "LOC")] == [0, 1]


def test_vectors_are_compared(tmp_path):
    model = official.load(models.masked_lm(tmp_path / "model"))
    vectors = model.encode(LINES).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    [matrix] = apply("compare", model, texts=DOCUMENTS)
    assert matrix.rows == [f"{i}. {line}" for i, line in enumerate(LINES, 1)]
    assert matrix.columns == ["1", "2", "3"]
    np.testing.assert_allclose(matrix.values, vectors @ vectors.T, atol=1e-5)
    [table] = apply("search", model, query="a cat", documents=DOCUMENTS, top_k="2")
    query = model.encode(["a cat"])[0].astype(np.float64)
    cosines = vectors @ query / np.linalg.norm(query)
    best = np.argsort(-cosines)[:2]
    assert [row[1] for row in table.rows] == [LINES[i] for i in best]
    np.testing.assert_allclose([row[0] for row in table.rows], cosines[best], atol=1e-5)


def test_vectors_that_are_not_dense(tmp_path):
    """Documents without a word of the query are not shown, and no vectors that were not learned."""
    test_sparse.write(tmp_path / "sparse")
    model = official.load(tmp_path / "sparse")
    assert "search" in able(model) and "compare" not in able(model)
    numbers, scores = model.search(["a cat"], LINES)
    [table] = apply("search", model, query="a cat", documents=DOCUMENTS, top_k="10")
    assert [row[1] for row in table.rows] == [LINES[i] for i in numbers[0]]
    np.testing.assert_allclose([row[0] for row in table.rows], scores[0], atol=1e-5)
    [table] = apply("search", model, query="", documents=DOCUMENTS, top_k="10")
    assert not table.rows
    model = official.load(late.model(tmp_path / "late"))
    assert "rank" in able(model) and "compare" not in able(model)
    [table] = apply("rank", model, query="a cat", documents=DOCUMENTS)
    scores = model.rank("a cat", LINES)
    assert [row[1] for row in table.rows] == [LINES[i] for i in np.argsort(-scores)]


@pytest.mark.slow
def test_texts_are_continued(tmp_path):
    model = models.causal_lm(tmp_path / "model")
    form = {"max_new_tokens": "3", "temperature": "0.7", "seed": "3", "num_return_sequences": "2"}
    [table] = apply("generate", model, prompt="the cat", **form)
    settings = dict(max_new_tokens=3, temperature=0.7, seed=3, num_return_sequences=2)
    texts = model.generate(["the cat"], **settings)
    assert [text for (text,) in table.rows] == texts and len(set(texts)) == 2
    with pytest.raises(UserError, match="temperature: -1.0 is not a finite number of at least 0"):
        apply("generate", model, prompt="the cat", temperature="-1")


@pytest.mark.slow
def test_texts_from_texts(tmp_path):
    model = models.t5(tmp_path / "model")
    fields = {field.name: field for field in tabs.TABS["generate"].fields(model)}
    assert fields["task"].choices == ["", "short"]
    [table] = apply("generate", model, prompt="a dog", task="short")
    assert [text for (text,) in table.rows] == model.generate(["a dog"], task="short")
    [table] = apply("generate", model, prompt="a dog", task="", max_new_tokens="4")
    assert [text for (text,) in table.rows] == model.generate(["a dog"], max_new_tokens=4)
    text = "the <extra_id_0> sat"
    [table] = apply("fill_mask", model, text=text, top_k="2")
    [[fillings]] = model.fill_mask([text], top_k=2)
    assert table.rows == [(f.word, f.probability, f.text) for f in fillings]
    matrix, picture = apply("cross_attention", model, text="the cat", target="a dog")
    read, written, layers = attention.cross_weights(
        "the cat", "a dog", model.tokenizer, model.model
    )
    assert (matrix.rows, matrix.columns) == (written, read)
    np.testing.assert_allclose(matrix.values, layers[-1].mean(0), atol=1e-6)
    shape = f"{len(layers)} layers × {len(layers[0])} heads"
    assert picture.description == f"attention weights, {shape}"
    assert imread(io.BytesIO(picture.png)).shape[2] == 4


def test_attention_is_drawn(tmp_path):
    model = official.load(models.masked_lm(tmp_path / "model"))
    matrix, picture = apply("attention", model, text="the cat sat")
    tokens, layers = attention.weights("the cat sat", model.tokenizer, model.model)
    last = len(layers) - 1
    assert (matrix.title, last > 0) == (f"Layer {last}, mean of the heads", True)
    assert matrix.rows == matrix.columns == tokens
    np.testing.assert_allclose(matrix.values, layers[last].mean(0), atol=1e-6)
    matrix, _ = apply("attention", model, text="the cat sat", layer="0", head="1")
    assert matrix.title == "Layer 0, head 1"
    np.testing.assert_allclose(matrix.values, layers[0][1], atol=1e-6)
    heads = len(layers[0])
    for field, number, largest in (("layer", -1, last), ("head", heads, heads - 1)):
        with pytest.raises(UserError) as error:
            apply("attention", model, text="the cat", **{field: str(number)})
        assert str(error.value) == f"{field.title()}: {number} is not one of 0 to {largest}"
    shape = f"{len(layers)} layers × {len(layers[0])} heads"
    assert picture.description == f"attention weights, {shape}"
    # The darkest cell is the largest weight of all.
    pixels = imread(io.BytesIO(picture.png))[..., :3]
    assert (np.round(255 * pixels) == [8, 48, 107]).all(axis=2).any()
    assert picture.source.startswith("data:image/png;base64,iVBORw0KGgo")
    with pytest.raises(UserError, match="^the text '' has no token: give one of a few words$"):
        apply("attention", model, text="")


def test_a_table_has_the_first_tokens_of_a_long_text(monkeypatch, tmp_path):
    monkeypatch.setattr(tabs, "_MOST_TOKENS", 3)
    model = official.load(models.masked_lm(tmp_path / "model"))
    matrix, picture = apply("attention", model, text="the cat sat")
    tokens, layers = attention.weights("the cat sat", model.tokenizer, model.model)
    assert len(tokens) > 3 and matrix.rows == matrix.columns == tokens[:3]
    assert matrix.title.endswith("mean of the heads, the first 3 tokens")
    np.testing.assert_allclose(matrix.values, layers[-1].mean(0)[:3, :3], atol=1e-6)
    assert picture.description.startswith(f"attention weights, {len(layers)} layers")


@pytest.mark.slow
@pytest.mark.long
def test_the_example_of_each_tab_is_one_that_the_model_takes(tmp_path):
    sizes = {"span_answer": SIZES}
    loaded = [models.head(name, tmp_path / name, **sizes.get(name, {})) for name in models.HEADS]
    loaded += [models.causal_lm(tmp_path / "causal"), models.t5(tmp_path / "t5")]
    seen = set()
    for model in loaded:
        for name in able(model):
            if name not in seen:
                assert apply(name, model)
            seen.add(name)
    assert seen == {*tabs.TABS}
