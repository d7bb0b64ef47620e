"""The settings of generation of a Hugging Face folder, as the defaults of a model folder."""

import json
import shutil

import pytest

import official
from official.conversion import converted_model, generation, huggingface
from official.saving import generation_settings
from official.saving.generation_settings import GenerationDefaults, Settings
from official.serving.export import saved_model
from official.utils import json_files
from official.utils.errors import UserError
from tests import GOLDEN, commands
from tests.official.conversion import systems

# Those of T5's release in transformers, shorter.
TASKS = {
    "summarization": {
        "early_stopping": True, "length_penalty": 2.0, "max_length": 9, "min_length": 5,
        "no_repeat_ngram_size": 3, "num_beams": 4, "prefix": "the cat: ",
    },
    "translation_en_to_de": {
        "early_stopping": True, "max_length": 30, "num_beams": 4, "prefix": "a dog: ",
    },
}  # fmt: skip
BEAMS = {"num_beams": 4, "early_stopping": True, "length_rule": "huggingface"}
SUMMARIES = {
    **BEAMS, "length_penalty": 2.0, "max_new_tokens": 8, "min_new_tokens": 4,
    "no_repeat_ngram_size": 3, "repetition_penalty": 1.5,
}  # fmt: skip


def t5(folder, general=None, **config):
    """A folder with settings of generation."""
    shutil.copytree(GOLDEN / "t5" / "silu", folder)
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | config))
    if general is not None:
        (folder / "generation_config.json").write_text(json.dumps(general))
    return folder


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("generation")
    general = {
        "_from_model_config": True, "transformers_version": "4.57.6", "pad_token_id": 0,
        "decoder_start_token_id": 0, "eos_token_id": [1], "repetition_penalty": 1.5,
    }  # fmt: skip
    converted = huggingface.read(t5(path / "t5", general, task_specific_params=TASKS))
    assert not converted.settings_left_out
    converted_model.write(converted, path / "model")
    return path / "model"


def test_settings_of_a_t5_are_kept_in_the_model_folder(model_dir):
    assert json_files.optional(generation_settings.file(model_dir)) == {
        "settings": {"repetition_penalty": 1.5},
        "tasks": {
            "summarization": {"settings": SUMMARIES, "prefix": "the cat: "},
            "translation_en_to_de": {
                "settings": {
                    **BEAMS, "length_penalty": 1.0, "max_new_tokens": 29, "repetition_penalty": 1.5
                },
                "prefix": "a dog: ",
            },
        },
    }  # fmt: skip


def test_they_are_written_back(model_dir, tmp_path):
    huggingface.write(model_dir, tmp_path / "written", "last")
    general = json.loads((tmp_path / "written" / "generation_config.json").read_text())
    assert general == {
        "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "repetition_penalty": 1.5
    }  # fmt: skip
    again = huggingface.read(tmp_path / "written")
    assert again.generation == json_files.optional(generation_settings.file(model_dir))
    drawn = GenerationDefaults({"temperature": 0.5, "top_k": 9, "num_return_sequences": 2})
    assert generation.written(drawn, {})[0] == {
        "do_sample": True, "temperature": 0.5, "top_k": 9, "top_p": 1.0, "num_return_sequences": 2
    }  # fmt: skip
    with pytest.raises(UserError, match="has only length_rule: huggingface: set it, or remove"):
        generation.written(GenerationDefaults({"num_beams": 2}), {})


def test_they_are_the_defaults_of_generate(model_dir, monkeypatch):
    loaded = official.load(model_dir)
    seen = []

    class Writer:
        reader = loaded._generator.reader

        def texts(self, prompts, settings, batch_size, report):
            seen.append((prompts, settings))
            return prompts

    loaded._generator = Writer()

    def asked(**given):
        loaded.generate(["sat"], **given)
        return seen[-1]

    assert asked() == (["sat"], Settings(repetition_penalty=1.5))
    assert asked(repetition_penalty=1.0) == (["sat"], Settings())
    assert asked(task="summarization") == (["the cat: sat"], Settings(**SUMMARIES))
    more = asked(task="summarization", num_beams=2, max_new_tokens=3)[1]
    assert more == Settings(
        **SUMMARIES | {"num_beams": 2, "max_new_tokens": 3, "min_new_tokens": 3}
    )
    assert asked(task="summarization", temperature=0.7)[1].num_beams == 1
    with pytest.raises(UserError, match="task: 'summary' is not a task of this .*'summarization'"):
        asked(task="summary")
    with pytest.raises(UserError, match="num_beam: not a setting.*did you mean 'num_beams'"):
        asked(num_beam=3)
    with pytest.raises(UserError, match="generate: give a list of texts"):
        loaded.generate("sat")


@pytest.mark.slow
def test_a_task_in_python_in_the_command_and_in_the_export(model_dir, tmp_path):
    loaded = official.load(model_dir)
    text = "sat on the mat"
    expected = loaded.generate([f"the cat: {text}"], **SUMMARIES)
    assert expected != loaded.generate([text], **SUMMARIES)
    asked = {"task": "summarization", "num_return_sequences": 2}
    best = loaded.generate([text], **asked)
    assert best[:1] == expected and len(best) == 2
    done = commands.run(
        "official.main", "--mode=generate", f"--model_dir={model_dir}", f"--prompt={text}",
        "--task=summarization", "--num_return_sequences=2", f"--output={tmp_path}/out.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"prompt": text, "text": x} for x in best]
    parts, kind, name = saved_model.restore(model_dir, max_length=24, **asked)
    found = kind.signatures(parts)[name]([text, "the cat"])
    assert [x.decode() for x in found["text"].numpy()[0]] == best
    assert found["token_ids"].shape == (2, 2, 8)
    with pytest.raises(UserError, match="--num_return_sequences=2: greedy search finds one text"):
        saved_model.restore(model_dir, num_return_sequences=2)


def test_settings_of_an_old_folder_are_in_its_config(tmp_path):
    folder = t5(tmp_path / "t5", num_beams=3, max_length=11, do_sample=False)
    assert huggingface.read(folder).generation["settings"] == {
        "num_beams": 3, "length_penalty": 1.0, "early_stopping": False,
        "length_rule": "huggingface", "max_new_tokens": 10, "temperature": 0.0,
    }  # fmt: skip


def test_what_is_not_here_is_said_and_what_is_not_known_is_refused(tmp_path):
    general = {
        "eos_token_id": [1, 5], "typical_p": 1.0, "encoder_no_repeat_ngram_size": 2,
        "bad_words_ids": [[3]], "num_beam_groups": 1,
    }  # fmt: skip
    folder = t5(tmp_path / "t5", general)
    found = huggingface.read(folder)
    assert found.settings_left_out == (
        "eos_token_id", "encoder_no_repeat_ngram_size", "bad_words_ids"
    )  # fmt: skip
    assert found.generation == {}
    done = commands.run(
        "official.convert", "--source=hf", f"--input={folder}", f"--output={tmp_path}/model"
    )
    assert (
        "not converted, settings of generation that are not supported: eos_token_id, enc"
        in done.stdout
    )
    for bad, message in (
        ({"num_beam": 4}, "generation_config.json: num_beam: not a setting .*mean 'num_beams'"),
        ({"num_beams": "many"}, "generation_config.json: num_beams: expected a whole number"),
        ({"repetition_penalty": -1}, "generation_config.json: repetition_penalty: -1.0 is not a"),
    ):
        (folder / "generation_config.json").write_text(json.dumps(bad))
        with pytest.raises(UserError, match=message):
            huggingface.read(folder)
    (folder / "generation_config.json").write_text("{}")
    described = json.loads((folder / "config.json").read_text())
    described["task_specific_params"] = {"qa": {"length_penal": 1}}
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="task_specific_params.qa: length_penal: not a setting"):
        huggingface.read(folder)


def test_settings_of_a_gpt2(tmp_path):
    config, parts, _ = systems.load("gpt2_causal_lm")
    tasks = {"text-generation": {"do_sample": True, "max_length": 50}}
    folder = systems.write(
        tmp_path / "hf", config | {"task_specific_params": tasks}, parts["weight"]
    )
    found = huggingface.read(folder)
    assert found.settings_left_out == ("text-generation.max_length",)
    draws = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
    assert found.generation == {
        "settings": {}, "tasks": {"text-generation": {"settings": draws, "prefix": ""}}
    }  # fmt: skip


def test_a_broken_file_of_a_model_folder_is_refused(model_dir, tmp_path):
    shutil.copytree(model_dir, tmp_path / "model")
    path = tmp_path / "model" / "generation.json"
    path.write_text('{"settings": {"num_beam": 4}}')
    with pytest.raises(UserError, match="generation.json: settings: num_beam: .*'num_beams'"):
        official.load(tmp_path / "model")
    path.write_text('{"tasks": {"qa": {"settings": {"top_p": 2}}}}')
    with pytest.raises(UserError, match=r"generation.json: tasks.qa.settings: top_p: 2 is not in"):
        official.load(tmp_path / "model")
