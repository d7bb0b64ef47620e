"""What YAML names: each part has a module that runs it, and settings have implementations."""

import subprocess
import sys

import pytest

from official.config import encoders, registry
from official.modeling.layers import activation, random


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (registry.CORRUPTIONS, "corrupt"),
        (registry.ENCODERS, "Encoder"),
        (registry.OBJECTIVES, None),
    ],
)
def test_each_part_has_a_module_that_runs_it(table, name):
    for kind, part in table.items():
        result = part()
        module = registry.module_of(result)
        assert result.type == kind and callable(getattr(module, name or result.layer))


def test_masks_that_are_listed_have_the_fields_that_follow():
    for part in registry.CORRUPTIONS.values():
        listed = part.static or part.packs
        assert not listed or callable(registry.module_of(part()).follows), part.type


def test_choices_are_those_that_are_implemented():
    assert set(encoders.ACTIVATIONS) == set(activation.ACTIVATIONS)
    assert set(encoders.POOLER_ACTIVATIONS) == set(activation.POOLER_ACTIVATIONS)
    assert set(encoders.INITIALIZERS) < set(random.INITIALIZERS)


def test_a_config_is_read_without_tensorflow():
    program = (
        "import sys; from official import config;"
        "config.load('configs/pretrain/electra_mini.yaml');"
        "print([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
