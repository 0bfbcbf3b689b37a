"""Typed configuration to plain JSON and back; unknown names are errors with a hint."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.hints import did_you_mean


def to_dict(config: Any) -> Any:  # noqa: ANN401 - recursive over every JSON-able value
    """Turn a configuration into JSON types: dataclasses to dicts, tuples to lists, enums and paths to text.

    Raises:
        TypeError: The configuration holds a value that is none of these.
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: to_dict(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, enum.Enum):
        return config.value
    if isinstance(config, Path):
        return str(config)
    if config is None or isinstance(config, bool | int | float | str):
        return config
    if isinstance(config, Mapping):
        return {str(key): to_dict(value) for key, value in config.items()}
    if isinstance(config, Sequence) and not isinstance(config, bytes):
        return [to_dict(value) for value in config]
    raise TypeError(f"{config!r} of type {type(config).__name__} has no place in a configuration.")


def from_dict[T](cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Build a dataclass from what `to_dict` gave, strictly.

    Args:
        cls: The dataclass; nested dataclasses, unions, tuples, lists, mappings, literals, enums and paths are
            followed from its annotations.
        mapping: Value of each field; fields with a default may be left out.

    Raises:
        ValueError: A name is unknown (the nearest known one is named), a required one is missing, or the
            dataclass refuses a value.
        TypeError: A value has another type than the field.
    """
    return typing.cast("T", _dataclass(cls, mapping, cls.__name__))


def _dataclass(cls: type, mapping: object, where: str) -> object:
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{where} must be a mapping of names to values, not {mapping!r}.")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in mapping:
        if name not in fields:
            hint = did_you_mean(str(name), fields, f"it has {sorted(fields)}.")
            raise ValueError(f"{where} has no field {name!r}; {hint}")
    empty = dataclasses.MISSING
    missing = [
        n for n, f in fields.items() if n not in mapping and f.default is empty and f.default_factory is empty
    ]
    if missing:
        raise ValueError(f"{where} needs a value for {', '.join(map(repr, missing))}.")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _convert(hints[name], value, f"{where}.{name}") for name, value in mapping.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - driven by the annotation
    if isinstance(hint, typing.TypeAliasType):
        hint = hint.__value__
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in _GENERIC:
        return _GENERIC[origin](typing.get_args(hint), value, where)
    if dataclasses.is_dataclass(hint):
        cls = typing.cast("type", hint)
        return value if isinstance(value, cls) else _dataclass(cls, value, where)
    return _plain(hint, value, where)


def _plain(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - driven by the annotation
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise ValueError(f"{where} is {value!r}; allowed: {[member.value for member in hint]}.") from None
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = type(None) if hint is None else (hint if isinstance(hint, type) else object)
    if not isinstance(value, expected) or (isinstance(value, bool) and expected in {int, float}):
        raise TypeError(f"{where} is {value!r} of type {type(value).__name__}; {_name(hint)} is needed.")
    return value


def _union(args: tuple[Any, ...], value: object, where: str) -> object:
    reasons = []
    for option in args:
        try:
            return _convert(option, value, where)
        except (TypeError, ValueError) as error:
            reasons.append(error)
    if len(args) == 2 and type(None) in args and value is not None:
        raise reasons[0 if args[1] is type(None) else 1]
    raise TypeError(f"{where} is {value!r}; one of {', '.join(map(_name, args))} is needed.")


def _literal(args: tuple[Any, ...], value: object, where: str) -> object:
    if value not in args:
        hint = did_you_mean(str(value), map(str, args))
        end = f"; {hint}" if hint else "."
        raise ValueError(f"{where} is {value!r}; allowed: {', '.join(map(repr, args))}{end}")
    return value


def _tuple(args: tuple[Any, ...], value: object, where: str) -> object:
    values = _values(value, where)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(values))
    if len(values) != len(args):
        raise ValueError(f"{where} has {len(values)} values; {len(args)} are needed.")
    return tuple(_convert(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, values, strict=True)))


def _list(args: tuple[Any, ...], value: object, where: str) -> object:
    return [_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(_values(value, where))]


def _mapping(args: tuple[Any, ...], value: object, where: str) -> object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{where} must be a mapping, not {value!r}.")
    return {_convert(args[0], k, where): _convert(args[1], v, f"{where}[{k!r}]") for k, v in value.items()}


def _values(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"{where} must be a list of values, not {value!r}.")
    return value


def _name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


_GENERIC: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    typing.Union: _union,
    types.UnionType: _union,
    typing.Literal: _literal,
    tuple: _tuple,
    list: _list,
    Sequence: _list,
    dict: _mapping,
    Mapping: _mapping,
}
