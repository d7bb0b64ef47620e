"""Flags of `official.main`, which has those of all modes."""

from tests import commands


def test_flags_of_other_modes_are_named():
    given = ["--model_dir=none", "--output=out.run", "--prompt=a", "--num_beams=2", "--top_k=3"]
    done = commands.run("official.main", "--mode=search", *given, status=2)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert sorted(warnings) == [
        "warning: --num_beams: --mode=search does not read it; it is for generate",
        "warning: --prompt: --mode=search does not read it; it is for generate",
    ]
    assert "give either --beir=FOLDER or --queries=FILE" in done.stderr


def test_aliases_of_flags_are_those_flags():
    done = commands.run(
        "official.main", "--mode=search", "--config_file=x.yaml", "--output=o.run", status=2
    )
    assert "warning: --config: --mode=search does not read it; it is for train, " in done.stderr
