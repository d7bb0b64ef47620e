"""The whole way, in small: what `make demo` runs, with less text and four steps of training."""

import pytest

from demo import run
from official import config as configs
from tests import ROOT, commands, test_docs


def forked(*arguments):
    """Runs a Python command as `run._command` does, in a process that has TensorFlow already."""
    first, *options = arguments
    module = options.pop(0) if first == "-m" else ROOT / first
    return commands.run(module, *options, status=0).stdout


@pytest.mark.slow
@pytest.mark.long
def test_the_demo_runs_from_text_to_answers(tmp_path, monkeypatch, capsys):
    output = tmp_path / "out"
    monkeypatch.setattr(run, "_command", forked)
    monkeypatch.setattr("sys.argv", ["demo.run", "--quick", f"--output={output}"])
    run.main()
    table = capsys.readouterr().out.partition("== What came of it")[2]
    rows = dict(
        line.split(maxsplit=1) for line in table.replace("masked-LM ", "").split("\n") if line
    )
    assert rows["SavedModel"] == str(output / "saved_model")
    assert (output / "saved_model" / "saved_model.pb").exists()
    before, after = (float(word) for word in rows["loss"].split()[0:3:2])
    assert 8 < before < 9 and after < before  # ln 4000 = 8.3
    answers = [line for line in table.splitlines() if line.startswith("answer ")]
    assert [answer.partition("): ")[2] for answer in answers] == run.QUESTIONS


def test_the_commands_have_their_flags(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(run, "_command", lambda *arguments: lines.append(arguments))
    for step in (run._build_vocabulary, run._build_shards, run._export):
        step(tmp_path)
    for step in (run._pretrain, run._fine_tune):
        step(tmp_path, True)
    (script,) = [words[0] for words in lines if words[0] != "-m"]
    assert (ROOT / script).is_file()
    modules = [words[1:] for words in lines if words[0] == "-m"]
    assert len(modules) == 10
    for module, *options in modules:
        overrides = []
        for option in map(str, options):
            if option.startswith("--"):
                flag, _, value = option.removeprefix("--").partition("=")
                assert test_docs.has_flag(module, flag), f"{module} --{flag}"
                overrides += [value] if flag == "override" else []
        for config in (run.PRETRAIN, run.FINETUNE):
            if f"--config={config}" in options:
                configs.load(ROOT / config, overrides)


def test_a_command_is_shown_with_its_output_and_ends_the_demo_if_it_fails(capsys):
    program = "import sys; print('I0000 00:00:1 x'); print('good'); sys.exit(len(sys.argv) - 1)"
    assert run._command("-c", program) == "good\n"
    assert capsys.readouterr().out.splitlines()[1:] == ["  good"]
    with pytest.raises(SystemExit, match="this command ended with status 2: see above"):
        run._command("-c", program, "a", "b")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit, match="holds something else than a demo"):
        run.empty(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_demo_is_made_anew(tmp_path):
    run.empty(tmp_path / "out")
    (tmp_path / "out" / "old").touch()
    run.empty(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [run.MARKER]
