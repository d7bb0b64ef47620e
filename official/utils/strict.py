"""Frozen dataclasses from the plain dicts of YAML and JSON files, and back; checks of their fields.

An unknown key, a missing key and a value of the wrong type raise a UserError that names the file,
the dotted key, and what is expected there. The checks (`one_of`, `at_least`, ...) are for the
constructors of the dataclasses.
"""

import dataclasses
import difflib
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from official.utils.errors import UserError
from official.utils.names import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_OMIT = "omit_default"
_SHOWN = reprlib.Repr()  # of values in messages
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 2, 80, 80
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
    types.NoneType: "null",
}


class Tagged:
    """Base of dataclasses that a dict names by the entry `type`.

    Attributes:
      type: the name.
    """

    type: ClassVar[str]


def omitted(default: Any = None) -> Any:
    """Returns the default of an optional field, which `to_dict` leaves out."""
    return dataclasses.field(default=default, metadata={_OMIT: True})


def keys(names: str) -> Callable[[type[T]], type[T]]:
    """Returns a decorator that sets which fields of a dataclass files have, and in which order.

    Without it, files have all fields, the inherited ones first. A field that is not named here
    always has its default: `build` refuses it, and `to_dict` does not write it.

    Args:
      names: the fields, with spaces between them.
    """

    def decorate(cls: type[T]) -> type[T]:
        fields = cls.__dataclass_fields__
        cls.__dataclass_fields__ = {name: fields[name] for name in names.split()}
        return cls

    return decorate


def build(
    cls: type[T],
    values: Any,
    source: str,
    place: str = "",
    ready: Mapping[str, Any] = types.MappingProxyType({}),
) -> T:
    """Builds a dataclass from a plain dict.

    Args:
      cls: the dataclass. Its annotations are the types of the values; see `typed`.
      values: the dict.
      source: the file, for messages.
      place: the dotted key of the dict within the file; "" is the whole file.
      ready: values of fields that are built already.

    Raises:
      UserError: a key is unknown or missing, a value has the wrong type, or the dataclass itself
        raises a ValueError.
    """
    prefix = f"{place}." if place else ""
    if not isinstance(values, Mapping):
        _refuse("a mapping", values, place, source)
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    built = dict(ready)
    for key, value in values.items():
        if key not in fields:
            known = f"{nearest(key, fields)} (known: {', '.join(fields)})"
            raise UserError(f"{source}: {prefix}{key}: unknown key{known}")
        if key not in ready:
            built[key] = typed(hints[key], value, f"{prefix}{key}", source)
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in built:
            raise UserError(f"{source}: {prefix}{name}: missing, and it has no default")
    try:
        return cls(**built)
    except ValueError as error:
        raise UserError(f"{source}: {prefix}{error}") from None


def build_tagged(table: Mapping[str, type[T]], values: Any, source: str, place: str) -> T:
    """Builds the dataclass of a table that the entry `type` of a dict names.

    Args:
      table: subclasses of `Tagged` by name.
      values: the dict.
      source: the file, for messages.
      place: the dotted key of the dict within the file.

    Raises:
      UserError: the type is missing or unknown, or `build` raises it.
    """
    if not isinstance(values, Mapping):
        raise UserError(
            f"{source}: {place}: expected a mapping with a `type`, got {_described(values)}"
        )
    name = values.get("type")
    if not isinstance(name, str) or name not in table:
        reason = f"unknown type {_SHOWN.repr(name)}{nearest(name, table)}"
        if name is None:
            meant = difflib.get_close_matches("type", map(str, values), n=1)
            reason = "no `type` is given"
            if meant:
                reason = f"unknown key {meant[0]!r} (did you mean 'type'?)"
        raise UserError(f"{source}: {place}: {reason} (known: {', '.join(table)})")
    rest = {key: value for key, value in values.items() if key != "type"}
    return build(table[name], rest, source, place)


def typed(hint: Any, value: Any, place: str, source: str) -> Any:
    """Converts a plain value to the type of an annotation.

    Lists become tuples, dicts become dataclasses, and text such as "1e-4" becomes a number where
    the annotation is float, because YAML 1.1 reads it as text.

    Args:
      hint: the annotation: bool, int, float, str, Any, a dataclass, `tuple[X, ...]`,
        `Mapping[str, X]`, `X | None` or `str | tuple[X, ...]`.
      value: the value, as it was read.
      place: its dotted key, for messages.
      source: the file, for messages.

    Raises:
      UserError: the value has another type, or is a number that is not finite.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and types.NoneType in args:
            return None
        listed = isinstance(value, list | tuple)
        hints = [a for a in args if a is not types.NoneType]
        hint = next((a for a in hints if (typing.get_origin(a) is tuple) == listed), hints[0])
        return typed(hint, value, place, source)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, source, place)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            _refuse("a list", value, place, source)
        return tuple(typed(args[0], item, f"{place}.{i}", source) for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            _refuse("a mapping", value, place, source)
        return {
            typed(args[0], key, place, source): typed(args[1], item, f"{place}.{key}", source)
            for key, item in value.items()
        }
    if hint is float:
        return _number(value, place, source)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        _refuse(_WORDS[hint], value, place, source)
    return value


def to_dict(value: Any) -> Any:
    """Returns the plain form of a dataclass, from which `build` builds the same again."""
    if dataclasses.is_dataclass(value):
        plain = {"type": value.type} if isinstance(value, Tagged) else {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if item != field.default or not field.metadata.get(_OMIT):
                plain[field.name] = to_dict(item)
        return plain
    if isinstance(value, Mapping):
        return {key: to_dict(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_dict(item) for item in value]
    return value


def one_of(field: str, value: Any, choices: Iterable[Any]) -> None:
    """Checks that a value is one of its choices.

    Raises:
      ValueError: with the field, its value and the choices.
    """
    names = [str(choice) for choice in choices]
    if str(value) not in names:
        raise ValueError(
            f"{field}: {value!r} is not one of {', '.join(names)}{nearest(value, names)}"
        )


def at_least(config: Any, minimum: float, *fields: str) -> None:
    """Checks that fields are not below a minimum; None is allowed.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        value = getattr(config, field)
        if value is not None and not value >= minimum:
            what = "negative" if minimum == 0 else f"less than {minimum}"
            raise ValueError(f"{field}: {value} is {what}")


def at_most(config: Any, maximum: float, *fields: str) -> None:
    """Checks that fields are not above a maximum.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if getattr(config, field) > maximum:
            raise ValueError(f"{field}: {getattr(config, field)} is more than {maximum}")


def above(config: Any, bound: float, *fields: str) -> None:
    """Checks that fields are above a bound.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not getattr(config, field) > bound:
            raise ValueError(f"{field}: {getattr(config, field)} is not above {bound}")


def fraction(config: Any, *fields: str) -> None:
    """Checks that fields are in [0, 1].

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 <= getattr(config, field) <= 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not between 0 and 1")


def positive_fraction(config: Any, *fields: str) -> None:
    """Checks that fields are in (0, 1].

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 < getattr(config, field) <= 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not above 0 and at most 1")


def dropout_rate(config: Any, *fields: str) -> None:
    """Checks that fields are in [0, 1).

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 <= getattr(config, field) < 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not in [0, 1)")


def regular_expression(config: Any, *fields: str) -> None:
    """Checks that the patterns in fields are regular expressions; None is allowed.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        for pattern in getattr(config, field) or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"{field}: {pattern!r} is not a regular expression: {error}"
                ) from None


def labels_agree(config: Any) -> None:
    """Checks that `num_labels` is the number of `labels`, if both are given.

    Raises:
      ValueError: with both numbers.
    """
    if config.num_labels and config.labels and config.num_labels != len(config.labels):
        raise ValueError(
            f"num_labels: {config.num_labels}, but there are {len(config.labels)} labels"
        )


def _number(value: Any, place: str, source: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        _refuse("a number", value, place, source)
    try:
        number = float(value)
    except ValueError:
        _refuse("a number", value, place, source)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        shown = _SHOWN.repr(value)
        raise UserError(f"{source}: {place}: expected a number, got {shown} (not finite)")
    return number


def _refuse(expected: str, value: Any, place: str, source: str) -> NoReturn:
    where = f"{source}: {place}" if place else source
    raise UserError(f"{where}: expected {expected}, got {_described(value)}")


def _described(value: Any) -> str:
    return f"{_SHOWN.repr(value)} ({_WORDS.get(type(value), type(value).__name__)})"
