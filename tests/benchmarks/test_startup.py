import re

import pytest

from benchmarks import startup
from tests import commands


@pytest.mark.slow
@pytest.mark.long
def test_table_of_all_commands():
    done = commands.run(
        "benchmarks.startup", "--megabytes=0.2", "--rounds=1", "--workers=1", status=0
    )
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \| [\d.]+-[\d.]+ \|", done.stdout, re.MULTILINE)
    *helps, build, encode, light, classify = [name for name, _ in rows]
    assert helps == [f"{module} --help" for module in startup.commands()]
    assert build.startswith("build_shards, 0.2 MB")
    answers = ["encode", "encode, LiteRT int8", "classify"]
    assert [encode, light, classify] == [f"official.load, {name}" for name in answers]
    assert all(float(seconds) > 0 for _, seconds in rows)


def test_a_failing_command_ends_the_benchmark():
    with pytest.raises(SystemExit, match="error: false:"):
        startup.timed({"fails": ["false"]}, 1)
