"""Tests of the pages of studies: what they may say, and messages about what they may not."""

import dataclasses

import pytest

from experiments import study_page
from official.utils.errors import UserError
from tests import CONFIGS

PAGE = """\
name: mask_rate
about: how many tokens to mask
sizes:
  mini: {config: bert_mini_short.yaml, steps: 1000, seeds: 2, rates: [3.0e-4, 1e-3]}
variants:
  rate_15: {}
  rate_40: {corruption.mask_rate: 0.4}
measures:
  masked_lm: {}
  sst2: {task: sst2}
  mrpc: {task: mrpc, metric: f1, seeds: 3}
  average: {mean_of: [sst2, mrpc]}
  rarely: {metric: masked_lm, evaluation: {corruption.mask_rate: 0.15}, variants: [rate_40]}
claims:
  - {order: rate_40 > rate_15, by: average}
paper: {where: table 1, figures: {GLUE: {rate_15: 82.2}}}
"""


def load(folder, text):
    path = folder / "page.yaml"
    path.write_text(text)
    return study_page.load(path)


def test_a_page_and_its_defaults(tmp_path):
    study = load(tmp_path, PAGE)
    assert list(study.variants) == ["rate_15", "rate_40"]
    assert study.sizes["mini"].rates == (3e-4, 1e-3) and len(study.sizes["mini"].phases) == 1
    higher = {"masked_lm": False, "sst2": True, "mrpc": True, "average": True, "rarely": False}
    assert {name: scale.higher for name, scale in study.scales().items()} == higher
    assert study.vocabulary.vocab_size == 8000 and study.held_out == {"masked_lm": "masked_lm"}
    assert [study.measures["rarely"].evaluates(name) for name in study.variants] == [False, True]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("order: rate_40 > rate_15", "order: rate_41 > rate_15",
         "claims.0.order: 'rate_41' is not one of rate_15, rate_40 (did you mean 'rate_40'"),
        ("by: average", "by: mean", "claims.0.by: 'mean' is not one of"),
        ("{order: rate_40 > rate_15,", "{order: rate_40,", "claims.0.order: 'rate_40': expected"),
        ("[sst2, mrpc]", "[sst2, qqp]", "measures.average.mean_of: 'qqp' is not one of"),
        ("[sst2, mrpc]", "[sst2, masked_lm]", "masked_lm is a mean itself or has another"),
        ("task: sst2", "task: sst3", "measures.sst2.task: 'sst3' is not one of"),
        ("variants: [rate_40]", "variants: [rate_4]",
         "measures.rarely.variants: 'rate_4' is not one of rate_15, rate_40"),
        ("{task: sst2}", "{task: sst2, variants: [rate_15]}",
         "only a measure with an evaluation of its own has them"),
        ("{task: sst2}", "{task: sst2, evaluation: {seed: 1}}",
         "is of the held-out text; a task has"),
        ("seeds: 2", "seed: 2", "sizes.mini.seed: unknown key (did you mean 'seeds'"),
        ("steps: 1000", "steps: 1000, tokens: 5", "expected one of steps, tokens and flops"),
        ("steps: 1000, ", "", "expected one of steps, tokens and flops, got none"),
        ("{rate_15: 82.2}", "{rate_16: 82.2}", "'rate_16' is not one of rate_15, rate_40"),
        ("  rate_40: {corruption.mask_rate: 0.4}\n", "", "variants: a study compares at least"),
        ("{corruption.mask_rate: 0.4}", "0.4", "variants.rate_40: expected a mapping, got 0.4"),
        ("{corruption.mask_rate: 0.4}", "{fine_tuning: 3}",
         "variants.rate_40.fine_tuning: expected a mapping, got 3"),
        ("{corruption.mask_rate: 0.4}", "{after: masked_lm}",
         "variants.rate_40.after: 'masked_lm' is not one of sst2, mrpc"),
        ("{corruption.mask_rate: 0.4}", "{text: 1.5}",
         "variants.rate_40.text: 1.5 is not above 0 and at most 1"),
        ("{corruption.mask_rate: 0.4}", "{budget: -1}",
         "variants.rate_40.budget: -1.0 is negative"),
        ("{corruption.mask_rate: 0.4}", "{like: rate_40}",
         "variants.rate_40.like: 'rate_40' is not a variant that stands before it (rate_15)"),
        ("seeds: 2,", "seeds: 2, text: 0,", "sizes.mini.text"),
        ("by: average}", "by: average}\ncontrols: [{order: rate_15 > rate_1, by: sst2}]",
         "controls.0.order: 'rate_1' is not one of rate_15, rate_40 (did you mean 'rate_15'"),
        ("rate_40 > rate_15", "rate_40 = rate_15",
         "claims.0.order: rate_40 = rate_15 needs measures.average.margin"),
        ("{task: sst2}", "{task: sst2, margin: 0.01}", "because: a margin needs its reason"),
        ("{task: sst2}", "{task: sst2, margin: 0, because: none}", "margin: 0.0 is not above 0"),
        ("{task: sst2}", "{task: sst2, adaptation: {recipe.steps: 9}}",
         "adaptation: is of the held-out text; a task has `override`"),
        ("rates: [3.0e-4, 1e-3]", "rates: [0.002, 0.001]",
         "rates: expected positive numbers, the smallest first"),
        ("seeds: 2,", "seeds: 2, tuning_seed: 1,",
         "tuning_seed: 1 is less than 2"),
        ("about:", "aboot:", "aboot: unknown key (did you mean 'about'"),
    ],
)  # fmt: skip
def test_what_is_not_valid_is_named(tmp_path, old, new, message):
    assert old in PAGE
    with pytest.raises(UserError) as raised:
        load(tmp_path, PAGE.replace(old, new))
    assert message in str(raised.value) and str(tmp_path / "page.yaml") in str(raised.value)


def test_the_fingerprint_is_of_what_is_settled_before_the_runs(tmp_path):
    first = load(tmp_path, PAGE).fingerprint("mini")
    assert len(first) == 12
    words = PAGE.replace("about: ", "about: another ") + "note: a note\n"
    words += "words: {rate_15: few masks, sst2: the accuracy}\n"
    assert load(tmp_path, words).fingerprint("mini") == first
    # A default that is written down is the same page.
    said = PAGE.replace("{task: sst2}", "{task: sst2, seeds: 1}")
    assert load(tmp_path, said).fingerprint("mini") == first
    for old, new in (
        ("rate_40 > rate_15", "rate_15 > rate_40"),
        ("by: average}", "by: average}\ncontrols: [{order: rate_15 > rate_40, by: sst2}]"),
        ("{task: sst2}", "{task: sst2, margin: 0.01, because: a hundredth}"),
        ("{corruption.mask_rate: 0.4}", "{corruption.mask_rate: 0.5}"),
        ("seeds: 2,", "seeds: 3,"),
    ):
        assert old in PAGE
        assert load(tmp_path, PAGE.replace(old, new)).fingerprint("mini") != first, new


def test_a_variant_has_keys_of_fine_tuning_of_its_own(tmp_path):
    tuned = "{corruption.mask_rate: 0.4, fine_tuning: {objectives.0.bilstm: 8}}"
    page = PAGE.replace("{corruption.mask_rate: 0.4}", tuned).replace(
        "{task: sst2}", "{task: sst2, override: [recipe.epochs=1]}"
    )
    study = load(tmp_path, page)
    assert study.variants["rate_40"].change == {"corruption.mask_rate": 0.4}
    sst2 = study.measures["sst2"]
    size = dataclasses.replace(study.sizes["mini"], fine_tuning={"recipe.batch_size": 8})
    overrides = [study.fine_tuning(size, name, sst2) for name in study.variants]
    shared = ["recipe.batch_size=8", "recipe.epochs=1"]
    assert overrides == [shared, [*shared, "objectives.0.bilstm=8"]]
    measures = page[page.index("measures:") : page.index("paper:")]
    with pytest.raises(UserError, match="variants.rate_40.fine_tuning: no measure has a task"):
        load(tmp_path, page.replace(measures, "measures: {masked_lm: {}}\n"))


def test_a_variant_is_like_another_but_for_its_own_keys(tmp_path):
    more = "  longer: {like: rate_40, budget: 2, corruption.mask_rate: 0.5, text: 0.1}\n"
    more += "  shorter: {like: longer, budget: 0.5}\n"
    page = PAGE.replace("{corruption.mask_rate: 0.4}", "{corruption.mask_rate: 0.4, seed: 3}")
    variants = load(tmp_path, page.replace("measures:\n", more + "measures:\n", 1)).variants
    change = {"corruption.mask_rate": 0.5, "seed": 3}
    assert variants["longer"] == study_page.Variant(change, budget=2.0, text=0.1)
    assert variants["shorter"] == study_page.Variant(change, budget=0.5, text=0.1)


def test_shares_of_phases_add_up(tmp_path):
    with pytest.raises(UserError, match="phases: their shares do not add up to 1"):
        load(tmp_path, PAGE.replace("seeds: 2", "seeds: 2, phases: [{share: 0.5}, {share: 0.4}]"))


@pytest.mark.parametrize("path", sorted((CONFIGS / "studies").glob("*.yaml")), ids=lambda p: p.stem)
def test_published_pages(path):
    """Each page is named as its file, and its variants are configs."""
    study = study_page.load(path)
    assert study.name == path.stem
    for name, size in study.sizes.items():
        config = study_page.base_config(path, size)
        for variant in study.variants:
            for phase in size.phases:
                change = study.variants[variant].change
                overrides = study_page.overrides(size.change, change, phase.change)
                study_page.run_config(config, overrides, f"{name}, {variant}")
