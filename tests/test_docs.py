"""README, CONTRIBUTING and the pages of docs/ name what is there: links, files, commands, flags."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = ROOT / "docs" / "commands.md"
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# `python -m MODULE` and `$G -m MODULE`, with what follows on the line; and a command by its name.
MODULE = re.compile(r"(?:python|\$G)\S* -m ([\w.]+)([^\n]*)")
NAMED = re.compile(r"(?<![\w.])((?:official\.)?[a-z]\w+) (--[^\n]*)")
FLAG = re.compile(r"(?<![\w-])--([a-z]\w*)")
OURS = ("official", "tfrecords_tools", "benchmarks", "experiments", "demo", "docs")


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request):
    return request.param


def text_of(page):
    return page.read_text(encoding="utf-8")


def code_of(text):
    """The fenced blocks and the inline code, with continued lines joined."""
    blocks = [re.sub(r"\s*\\\n\s*", " ", block) for block in FENCE.findall(text)]
    inline = re.findall(r"`([^`]+)`", FENCE.sub("", text))
    return [*blocks, *(" ".join(span.split()) for span in inline)]


def anchors(text):
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    kept = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {re.sub(r"\s", "-", heading.strip()) for heading in kept}


def source_of(module):
    """The file that `python -m` runs; None = there is none."""
    path = ROOT / module.replace(".", "/")
    files = [path.with_suffix(".py"), path / "__main__.py"]
    return next((file for file in files if file.is_file()), None)


def documented_flags():
    """The flags of each command on the page that is made from them."""
    sections = re.split(r"^## (.*)$", text_of(COMMANDS), flags=re.MULTILINE)[1:]
    return {
        name: set(re.findall(r"^\| `--(\w+)`", section, re.MULTILINE))
        for name, section in zip(sections[::2], sections[1::2], strict=True)
    }


FLAGS = documented_flags()
SHORT = {name.removeprefix("tfrecords_tools."): flags for name, flags in FLAGS.items()}


def has_flag(module, flag):
    """Whether a command has a flag; those of benchmarks and experiments stand in their source."""
    if module in FLAGS:
        known = FLAGS[module] | {"help", "helpfull", "version", "flagfile"}
        return flag in known or flag.removeprefix("no") in known
    if module == "docs.make_commands":
        return flag == "check"
    source = source_of(module)
    return bool(source and re.search(rf'["\'](--)?{flag}["\']|\b{flag}=', text_of(source)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "maker", ["make_commands", "make_config_keys", "make_stable_names", "make_tokenizer_folders"]
)
def test_the_pages_that_are_made_are_up_to_date(maker):
    done = subprocess.run(
        [sys.executable, "-m", f"docs.{maker}", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_code_fits_into_80_columns(page):
    """A terminal and a narrow window show it without wrapping or scrolling."""
    lines = [line for block in FENCE.findall(text_of(page)) for line in block.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


def test_git_ignores_what_the_commands_of_the_readme_make():
    text = text_of(ROOT / "README.md")
    paths = re.findall(r'(?:-m venv |--output=|(?:--)?model_dir="?)([\w.]+)', text)
    ignored = {line.strip("/") for line in text_of(ROOT / ".gitignore").splitlines()}
    assert {"env", "run"} <= set(paths) <= ignored | {"predictions.tsv"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_first_pages_name_what_integration_runs(name):
    targets = re.findall(r"^step make ([a-z][\w-]*)", text_of(ROOT / ".ci" / "run"), re.MULTILINE)
    text = text_of(ROOT / name)
    assert len(targets) > 4 and [each for each in targets if f"`make {each}`" not in text] == []


def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(page))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(text_of(target)), link


def test_pages_link_only_to_pages(page):
    """The site has the files of docs/ alone."""
    if page.is_relative_to(ROOT / "docs"):
        assert not re.findall(r"\]\(\.\./[^)]*\)", text_of(page))


def test_modules_of_commands_exist(page):
    for code in code_of(text_of(page)):
        for module, _ in MODULE.findall(code):
            if module.partition(".")[0] in OURS:
                assert source_of(module), module
            else:
                assert importlib.util.find_spec(module), module


def test_flags_of_commands_exist(page):
    for code in code_of(text_of(page)):
        for module, rest in MODULE.findall(code):
            if module.partition(".")[0] in OURS:
                own, *_ = rest.partition(" -- ")  # what follows is for an engine
                for flag in FLAG.findall(own):
                    assert has_flag(module, flag), f"{module} --{flag}"
        for name, rest in NAMED.findall(code):
            own, *_ = rest.partition(" -- ")
            for flag in FLAG.findall(own) if name in SHORT else ():
                assert flag in SHORT[name] | {"help"}, f"{name} --{flag}"


def test_flags_that_stand_alone_are_of_some_command(page):
    modules = [
        *FLAGS,
        "experiments.augment",
        "experiments.candidate_lm",
        "experiments.compared_labels",
        "experiments.compared_rows",
        "experiments.downstream",
        "experiments.retrieval",
        "experiments.study",
        "benchmarks.preprocess",
        "benchmarks.torture.conftest",
        "official.utils.ray",  # after `--`
    ]
    for code in code_of(text_of(page)):
        if code.startswith("--"):
            for flag in FLAG.findall(code):
                assert any(has_flag(module, flag) for module in modules), code


def test_files_that_are_named_exist(page):
    known = re.compile(
        r"(?:configs|official|tfrecords_tools|tests|benchmarks|experiments|docs|notebooks)/[\w./]+"
    )
    for code in code_of(text_of(page)):
        for path in known.findall(code):
            if path.endswith((".yaml", ".py", ".md", ".ipynb")) and path == path.lower():
                assert (ROOT / path).exists(), path


def test_modules_of_the_papers_exist():
    named = re.findall(r"`([\w/]+\.py)`", text_of(ROOT / "docs" / "papers.md"))
    assert named
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "official" / path).exists(), path


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for file in (ROOT / "docs").rglob("*.md"):
        assert f": {file.relative_to(ROOT / 'docs')}\n" in navigation, file
