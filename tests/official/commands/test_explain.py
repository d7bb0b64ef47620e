import json

import numpy as np
import pytest

from official import tokenizers
from official.config.corruptions import PermutationConfig, SentinelsConfig
from official.conversion import converted_model, huggingface
from official.modeling.model import Model
from official.plots import attention, corrupted_text
from official.utils.errors import UserError
from tests import ROOT, commands, small

GOLDEN = ROOT / "tests" / "golden" / "hf_files"
CITY = "New York is a city"


def command(*options):
    done = commands.run("official.commands.explain", *options)
    return done.returncode, done.stdout, done.stderr


def write_run(folder, *lines):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.mark.parametrize("seed", range(5))
def test_span_corruption_of_words(seed):
    text = "Thank you for inviting me to your party last week"
    inputs, targets = corrupted_text.sample_target(text, SentinelsConfig(), seed)
    # Of 10 words 2 are removed, as one span at the end.
    assert inputs == [*text.split()[:8], "<extra_id_0>", "</s>"]
    assert targets == ["<extra_id_0>", "last", "week", "</s>"]
    wider = SentinelsConfig(noise_density=0.3, mean_span_length=1.5)
    inputs, targets = corrupted_text.sample_target(text, wider, seed)
    spans = " ".join(targets[:-1]).replace("<extra_id_1>", "<extra_id_0>").split("<extra_id_0>")
    first, second = (span.split() for span in spans[1:])
    read = " ".join(inputs[:-1])
    for i, span in enumerate((first, second)):
        read = read.replace(f"<extra_id_{i}>", " ".join(span))
    assert read == text and len(first) + len(second) == 3


def test_span_corruption_with_a_tokenizer(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokens", sentinels=4))
    config = SentinelsConfig(sentinels=4)
    sampled = corrupted_text.sample_target("ba bebi", config, 0, tokenizer)
    assert sampled == (["ba", "be", "<extra_id_0>", "[SEP]"], ["<extra_id_0>", "##bi", "[SEP]"])
    assert corrupted_text.target_text(sampled) == (
        "input   ba be <extra_id_0> [SEP]\ntarget  <extra_id_0> ##bi [SEP]"
    )
    with pytest.raises(
        UserError, match="--tokenizer has 4 sentinels .*: build the vocabulary with"
    ):
        corrupted_text.sample_target("ba bebi", SentinelsConfig(), 0, tokenizer)
    with pytest.raises(UserError, match="--text='ba' has 1 tokens: two or more are corrupted"):
        corrupted_text.sample_target("ba", config, 0, tokenizer)


def test_cross_attention_is_that_of_the_decoder():
    converted = huggingface.read(ROOT / "tests" / "golden" / "t5" / "v1_0")
    model = Model(converted.config)
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    inputs, targets, layers = attention.cross_weights(
        "the cat sat", "a dog ran", converted.tokenizer, model
    )
    assert inputs[-1] == targets[-1] == "</s>"
    assert "".join(inputs[:-1]).replace("\u2581", " ").split() == ["the", "cat", "sat"]
    assert [layer.shape for layer in layers] == [(3, len(targets), len(inputs))] * 2
    ids = [converted.tokenizer.pieces.index(piece) for piece in inputs]
    decoder = [0, *(converted.tokenizer.pieces.index(piece) for piece in targets[:-1])]
    out = model.encoder(np.array([ids]), decoder_ids=np.array([decoder]), output_all=True)
    for layer, wanted in zip(layers, out["cross_attentions"], strict=True):
        np.testing.assert_allclose(layer, wanted[0], atol=1e-6)
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-5)
    assert len(attention.draw_cross(inputs, targets, layers).axes) >= 6
    bert = Model(small.config())
    with pytest.raises(UserError, match="--what=cross_attention: the model has no decoder"):
        attention.cross_weights("a", "b", converted.tokenizer, bert)


@pytest.mark.slow
def test_span_corruption_command():
    code, out, _ = command("--what=span_corruption", "--text=one two three four five six")
    assert code == 0
    assert out == (
        "input   one two three four five <extra_id_0> </s>\ntarget  <extra_id_0> six </s>\n"
    )
    code, out, _ = command(
        "--what=span_corruption",
        "--text=one two three",
        "--config=configs/pretrain/t5_study_lm.yaml",
    )
    assert code == 0 and out == "input   </s>\ntarget  one two three </s>\n"
    code, _, err = command(
        "--what=span_corruption", "--text=a b", "--config=configs/smoke/bert.yaml"
    )
    assert code == 2 and "corruption: its type is neither sentinels nor denoising" in err


@pytest.mark.slow
def test_permutation_command(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pillow (requirements.txt) is not installed")
    config = PermutationConfig(k=2, max_span=2)
    seeds = ((i, corrupted_text.sample_permutation(CITY, config, i)) for i in range(1000))
    seed, sampled = next((seed, actual) for seed, actual in seeds if actual.order == (0, 1))
    image = tmp_path / "permutation.png"
    options = [f"--text={CITY}", f"--seed={seed}", "--k=2", "--max_span=2", f"--output={image}"]
    code, out, _ = command("--what=permutation", *options)
    assert (
        code == 0 and out == f"{corrupted_text.permutation_text(sampled)}\n\n{image}: both masks\n"
    )
    pixels = np.asarray(Image.open(image))
    assert (pixels[..., 3:] == 255).all()  # opaque
    dark, light = (
        (pixels[..., :3] == color).all(axis=2).sum() for color in ([8, 48, 107], [247, 251, 255])
    )
    # As many dark squares, of 22 pixels each way, as there are x in the two grids of 35 squares.
    # The frames of the panels cover the outermost pixels.
    share = (sampled.content.sum() + sampled.query[:2].sum()) / 35
    assert dark / (dark + light) == pytest.approx(share, rel=0.01)
    assert (dark + light) / 22**2 == pytest.approx(35, rel=0.1)


@pytest.mark.slow
def test_attention_command(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pillow (requirements.txt) is not installed")
    converted_model.write(huggingface.read(GOLDEN / "pretraining"), tmp_path / "model")
    image = tmp_path / "attention.png"
    code, out, _ = command(
        "--what=attention", "--text=the cat", f"--model_dir={tmp_path / 'model'}",
        f"--output={image}",
    )  # fmt: skip
    assert code == 0 and out.startswith(f"{image}: ") and out.endswith(" tokens\n")
    assert Image.open(image).width > 100


@pytest.mark.slow
def test_layer_distances_command(tmp_path):
    """Two models side by side; the file has the digits that the table rounds."""
    converted = huggingface.read(GOLDEN / "pretraining")
    for name in "ab":
        converted_model.write(converted, tmp_path / name)
    folders = [str(tmp_path / name) for name in "ab"]
    (tmp_path / "texts.txt").write_text("the cat\n\nthe cat sat on a mat\n")
    output = tmp_path / "distances.jsonl"
    code, out, err = command(
        "--what=layer_distances", f"--texts={tmp_path / 'texts.txt'}", f"--output={output}",
        f"--model_dir={','.join(folders)}", "--batch_size=1",
    )  # fmt: skip
    assert code == 0, err
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    layers = converted.config.encoder.num_layers
    assert [(row["model"], row["layer"]) for row in rows] == [
        (folder, layer) for folder in folders for layer in range(layers)
    ]
    table = [line.split() for line in out.splitlines()]
    assert table[0] == ["model", "layer", "l2", "cosine", "degrees"]
    for row, cells in zip(rows, table[1:], strict=False):
        assert cells[:2] == [row["model"], str(row["layer"])]
        assert cells[2:] == [f"{row[name]:.4f}" for name in ("l2", "cosine", "degrees")]
    assert rows[0] == {**rows[layers], "model": folders[0]} and rows[0]["l2"] > 0
    assert out.endswith(f"{output}: 2 models, 3 texts\n")


@pytest.mark.slow
def test_training_command(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pillow (requirements.txt) is not installed")
    records = [{"step": step, "split": "train", "loss": 1 / step} for step in (2, 4)]
    one = write_run(tmp_path / "one", *records)
    two = write_run(tmp_path / "k=1,l=2", records[0])
    image = tmp_path / "curves.png"
    code, out, _ = command("--what=training", f"--model_dir={one},{two}", f"--output={image}")
    assert code == 0 and out == (
        f"{one}: 2 records, to step 4\n{two}: 1 records, to step 2\n{image}: the curves\n"
    )
    pixels = np.asarray(Image.open(image))[..., :3]
    for color in ([31, 119, 180], [255, 127, 14]):  # of the first and the second run
        assert (pixels == color).all(axis=2).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, message",
    [
        ([], "--text is missing (--what=permutation); see"),
        (["--text=a b", "--k=0"], "--k: 0 is less than 1"),
        (["--text=a b", "--what=attention"], "--model_dir is missing (--what=attention); see"),
        (
            ["--what=attention_patterns", "--model_dir=configs"],
            "give either --text=TEXT or --texts=FILE (--what=attention_patterns); see --help",
        ),
        (
            ["--text=a b", "--config=configs/smoke/bert.yaml"],
            "configs/smoke/bert.yaml: corruption: its type is not permutation",
        ),
        (["--what=training", "--output=x.png"], "--model_dir is missing (--what=training); see"),
        (
            ["--what=training", "--output=x.png", "--model_dir=none"],
            "--model_dir: 'none' is not a folder",
        ),
        (
            ["--what=training", "--output=x.png", "--model_dir=configs"],
            "configs: there is no metrics.jsonl in it: give the model folder of a training run",
        ),
        (
            ["--what=attention", "--text=a", "--output=x.html", "--model_dir=configs"],
            "x.html: figures are written as .png: name such a file",
        ),
        (
            ["--what=span_corruption", "--text=a b", "--output=x.png"],
            "--output: --what=span_corruption writes no file: remove it",
        ),
        (
            ["--what=attention", "--text=a", "--output=x.png", "--model_dir=configs"],
            "configs: not a model folder: there is no config.yaml in it",
        ),
    ],
)
def test_command_errors(options, message):
    code, _, err = command(*options)
    assert code == 2 and f"error: {message}" in err
