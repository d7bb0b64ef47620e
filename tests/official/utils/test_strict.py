import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from official.utils import strict
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = 1

    def __post_init__(self):
        if self.size < 0:
            raise ValueError(f"size: {self.size} is negative")


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.5
    flag: bool = False
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limit: int | None = None
    extra: int | None = strict.omitted()
    anything: Any = None
    kind: str = strict.omitted("plain")


@dataclasses.dataclass(frozen=True)
class Small(strict.Tagged):
    type = "small"

    size: int = 1


@strict.keys("weight name size")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Large(Small):
    """Inherits `size`, and leaves out `height`."""

    height: int = 2
    name: str = "x"
    weight: int = 3


TABLE = {"small": Small}


def test_a_dataclass_is_built_and_taken_apart():
    plain = {
        "name": "a",
        "rate": "1e-4",
        "flag": True,
        "inner": {"size": 2},
        "items": [{"size": 3}, {}],
        "counts": {"x": 1},
        "limit": None,
        "extra": 5,
        "anything": [1, {"b": None}],
    }
    built = strict.build(Outer, plain, "file")
    assert built == Outer(
        "a", 1e-4, True, Inner(2), (Inner(3), Inner()), {"x": 1}, None, 5, [1, {"b": None}]
    )
    assert type(built.rate) is float
    taken_apart = {**plain, "rate": 1e-4, "items": [{"size": 3}, {"size": 1}]}
    assert strict.to_dict(built) == taken_apart and [*strict.to_dict(built)] == [*taken_apart]
    assert "extra" not in strict.to_dict(Outer("a")) and "limit" in strict.to_dict(Outer("a"))
    assert "kind" not in strict.to_dict(Outer("a"))
    assert strict.to_dict(Outer("a", kind="other"))["kind"] == "other"


def test_values_that_are_ready_are_kept():
    built = strict.build(Outer, {"name": "a", "inner": 7}, "file", ready={"inner": Inner(4)})
    assert built.inner == Inner(4)


@pytest.mark.parametrize(
    "plain, message",
    [
        ([1], "file: expected a mapping, got [1] (a list)"),
        ({}, "file: name: missing, and it has no default"),
        ({"name": "a", "naem": 1}, "file: naem: unknown key (did you mean 'name'?) (known: name, "),
        ({"name": 5}, "file: name: expected text, got 5 (a whole number)"),
        ({"name": "a", "rate": "x"}, "file: rate: expected a number, got 'x' (text)"),
        ({"name": "a", "rate": True}, "file: rate: expected a number, got True (true or false)"),
        ({"name": "a", "rate": 1e999}, "file: rate: expected a number, got inf (not finite)"),
        ({"name": "a", "flag": 1}, "file: flag: expected true or false, got 1 (a whole number)"),
        ({"name": "a", "inner": None}, "file: inner: expected a mapping, got None (null)"),
        ({"name": "a", "inner": {"size": 1.5}}, "inner.size: expected a whole number, got 1.5 (a "),
        ({"name": "a", "inner": {"siz": 1}}, "inner.siz: unknown key (did you mean 'size'?)"),
        ({"name": "a", "inner": {"size": -1}}, "file: inner.size: -1 is negative"),
        ({"name": "a", "items": {}}, "file: items: expected a list, got {} (a mapping)"),
        ({"name": "a", "items": [{}, {"size": "2"}]}, "file: items.1.size: expected a whole num"),
        ({"name": "a", "counts": [1]}, "file: counts: expected a mapping, got [1] (a list)"),
        ({"name": "a", "counts": {"x": 1.0}}, "file: counts.x: expected a whole number, got 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(plain, message):
    with pytest.raises(UserError) as error:
        strict.build(Outer, plain, "file")
    assert str(error.value).startswith("file: ") and message in str(error.value)


def test_files_have_the_keys_that_a_dataclass_names_in_their_order():
    assert list(strict.to_dict(Large(size=5))) == ["type", "weight", "name", "size"]
    assert strict.build(Large, {"size": 5}, "file") == Large(size=5)
    assert Large(size=5) != Large(size=6)
    assert strict.to_dict(dataclasses.replace(Large(size=5), name="y"))["size"] == 5
    assert Large().height == 2
    with pytest.raises(UserError, match=r"height: unknown key.*\(known: weight, name, size\)"):
        strict.build(Large, {"height": 5}, "file")


def test_the_type_picks_the_dataclass():
    assert strict.build_tagged(TABLE, {"type": "small", "size": 3}, "file", "a.b") == Small(3)
    assert strict.to_dict(Small(3)) == {"type": "small", "size": 3}
    for plain, message in (
        (7, "file: a.b: expected a mapping with a `type`, got 7 (a whole number)"),
        ({}, "file: a.b: no `type` is given (known: small)"),
        ({"tpye": "small"}, "file: a.b: unknown key 'tpye' (did you mean 'type'?) (known: small)"),
        ({"type": "smal"}, "file: a.b: unknown type 'smal' (did you mean 'small'?) (known: small)"),
        ({"type": "small", "sise": 3}, "file: a.b.sise: unknown key (did you mean 'size'?)"),
    ):
        with pytest.raises(UserError) as error:
            strict.build_tagged(TABLE, plain, "file", "a.b")
        assert message in str(error.value)
