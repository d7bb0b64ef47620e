import contextlib
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from official import config as configs
from official.commands import parameters
from official.config.encoders import TransformerConfig
from official.modeling import weight_counts
from official.utils.errors import UserError
from tests import CONFIGS, commands, small

PRETRAIN = CONFIGS / "pretrain"
# Weights of the encoders as their releases have them, pooler included where there is one.
PUBLISHED = {
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
    "roberta_base": 124_645_632,
    "roberta_large": 355_359_744,
    "modernbert_base": 149_014_272,
    "modernbert_large": 394_781_696,
    "deberta_v2_xlarge": 884_593_152,
    "deberta_v2_xxlarge": 1_564_549_632,
    "neobert": 221_665_536,
    # Without the output of masked LM, which has as many weights as the token table.
    "eurobert_210m": 310_266_624 - 128_256 * 768,
    "eurobert_610m": 755_625_600 - 128_256 * 1152,
    "eurobert_2_1b": 2_403_092_736 - 128_256 * 2304,
    "albert_base": 11_683_584,
    "albert_large": 17_683_968,
    "albert_xlarge": 58_724_864,
    "albert_xxlarge": 222_595_584,
    "gpt2_small": 124_439_808,
    "xlnet_base": 116_718_336,
    "xlnet_large": 360_268_800,
    "spanbert_base": 108_310_272,
    "electra_small": 13_483_008,
    "electra_base": 108_891_648,
    "electra_large": 334_092_288,
    "elmo_original": 93_600_848,
    "elmo_medium": 28_027_728,
    "elmo_small": 13_593_296,
}
# That of ELECTRA-small was never published: it is what its sizes come to.
GENERATORS = {
    "electra_small": 4_580_928, "electra_base": 33_511_168, "electra_large": 50_999_552,
}  # fmt: skip


NO_FLAGS = {"vocab_size": None, "override": [], "mesh": None, "fsdp": False}


@pytest.fixture(scope="module")
def printed():
    """What one command prints of all configs: {name: {part: number}}."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(parameters.flags, "FLAGS", SimpleNamespace(**NO_FLAGS))
        parameters.main(["", *map(str, sorted(PRETRAIN.glob("*.yaml")))])
    actual = {}
    for line in out.getvalue().splitlines():
        if not line.startswith(" "):
            name = Path(line).stem
            actual[name] = {}
        elif not line.startswith("  not counted: encoder"):
            part, number = line.split()
            actual[name][part] = int(number.replace(",", ""))
    return actual


@pytest.mark.slow
@pytest.mark.long
def test_what_a_config_leaves_open_keeps_no_other_from_being_counted(printed):
    assert printed.keys() == {path.stem for path in PRETRAIN.glob("*.yaml")}
    counted = {name for name, counts in printed.items() if counts}
    assert PUBLISHED.keys() <= counted and "roberta_mini" in printed.keys() - counted


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_have_the_published_sizes(name, printed):
    assert printed[name]["encoder"] == PUBLISHED[name]
    assert printed[name].get("generator/encoder") == GENERATORS.get(name)


@pytest.mark.slow
def test_blocks_are_multiplied_as_often_as_they_are_used(printed):
    """ALBERT has one layer of weights, which is used twelve times."""
    layers = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert printed["bert_base"]["multiplied"] == layers + 768 * 768
    assert printed["albert_base"]["multiplied"] == layers + 768 * 768 + 128 * 768
    inner = 256  # ELECTRA's generator, with its projection from 768 to 256
    small = 12 * (4 * inner * inner + 2 * inner * 1024) + 768 * inner
    assert printed["electra_base"]["multiplied"] == layers + small


# Encoders that stand in no config.
SIZES = {
    "DistilBERT": (dict(vocab_size=30522, num_layers=6, segment_types=0, pooler=False), 66_362_880),
}  # fmt: skip


# The output of ELMo's language model, a vector and a bias for each of 793,471 words.
BILM = {"elmo_original": 407_050_623, "elmo_medium": 203_922_047, "elmo_small": 102_357_759}


@pytest.mark.slow
@pytest.mark.parametrize("name", BILM)
def test_outputs_of_language_models_have_the_published_sizes(name, printed):
    assert printed[name]["bilm"] == BILM[name]


@pytest.mark.parametrize("name", SIZES)
def test_encoders_have_the_published_sizes(name):
    sizes, published = SIZES[name]
    config = configs.Config("sizes", encoder=TransformerConfig(**sizes))
    assert weight_counts.count(config) == weight_counts.Counts(
        {"encoder": published}, {}, published, 6 * (4 * 768 * 768 + 2 * 768 * 3072)
    )


def test_the_sum_is_that_of_the_weights_of_a_model():
    from official.modeling.model import Model

    config = small.config()
    counts = weight_counts.count(config)
    result = Model(config).variables_by_path()
    sizes = {path: variable.numpy().size for path, variable in result.items()}
    assert counts.total == sum(sizes.values())
    assert counts.total == counts.encoders["encoder"] + sum(counts.heads.values())
    assert counts.heads == {
        name: sum(size for path, size in sizes.items() if path.startswith(f"{name}/"))
        for name in ("masked_lm", "next_sentence")
    }
    # Kernel and bias of two classes from 16.
    assert counts.heads["next_sentence"] == 34


def run(*arguments):
    return commands.run("official.commands.parameters", *arguments)


@pytest.mark.slow
def test_the_command_prints_them():
    done = run(PRETRAIN / "bert_large.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(PRETRAIN / "bert_large.yaml"),
        "  encoder                        335,141,888",
        "  masked_lm                        1,082,170",
        "  next_sentence                        2,050",
        "  all                            336,226,108",
        "  multiplied                     303,038,464",
    ]


@pytest.fixture
def flags(monkeypatch):
    values = SimpleNamespace(**NO_FLAGS)
    monkeypatch.setattr(parameters.flags, "FLAGS", values)
    return values


def test_a_vocabulary_size_for_a_config_that_has_none(flags, capsys):
    path = str(PRETRAIN.parent / "smoke" / "bert.yaml")
    with pytest.raises(UserError, match="bert.yaml: encoder.vocab_size: .* give --vocab_size=N"):
        parameters.main(["", path])
    flags.vocab_size = 100
    parameters.main(["", path])
    smaller = int(capsys.readouterr().out.splitlines()[1].split()[1].replace(",", ""))
    flags.vocab_size = 101
    flags.override = ["encoder.max_positions=65"]
    parameters.main(["", path])
    larger = int(capsys.readouterr().out.splitlines()[1].split()[1].replace(",", ""))
    assert larger - smaller == 2 * 32  # A row of the token table and one of the positions'.


@pytest.mark.slow
def test_what_a_device_of_a_mesh_has(flags, capsys):
    flags.mesh, flags.fsdp = "8x4", True
    parameters.main(["", str(PRETRAIN / "t5_11b.yaml")])
    # 532,480 bytes of norms and of biases of distances, and 1/32 of all others.
    assert capsys.readouterr().out.splitlines()[-6:] == [
        "  8x4 devices, fsdp",
        "  bytes of the encoder        45,229,285,376",
        "  on a device                  1,413,931,008",
        "  of which every device has          532,480",
        "  with gradients               2,827,862,016",
        "  and the moments of AdamW     5,655,724,032",
    ]
    assert 1_413_931_008 == 532_480 + (45_229_285_376 - 532_480) // 32


def test_meshes_that_cannot_be_used(flags):
    mini = str(PRETRAIN / "t5_mini.yaml")
    flags.mesh, flags.vocab_size = "8x5", 100
    with pytest.raises(UserError, match=r"t5_mini.yaml: encoder/.*: cannot be split into"):
        parameters.main(["", mini])
    flags.mesh = "8"
    with pytest.raises(UserError, match="--mesh=8: not the numbers of two axes, such as 8x4"):
        parameters.main(["", mini])
    flags.mesh, flags.fsdp = None, True
    with pytest.raises(UserError, match="--fsdp is for devices: give --mesh"):
        parameters.main(["", mini])


def test_errors(flags):
    with pytest.raises(
        UserError, match="name configs: python -m official.commands.parameters CONFIG"
    ):
        parameters.main([""])
    sst2 = str(PRETRAIN.parent / "finetune" / "sst2.yaml")
    with pytest.raises(UserError, match="sst2.yaml: encoder: the config has none"):
        parameters.main(["", sst2])
