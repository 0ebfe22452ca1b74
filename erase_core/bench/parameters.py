"""Build a frozen configuration from loosely typed parameters, or say exactly what is wrong.

Parameters reach an experiment from a notebook cell, a command line or a YAML file, where a
misspelt name or a quoted number would otherwise be ignored or fail an hour later.
"""

import difflib
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class ParameterError(ValueError):
    """A parameter is unknown, missing, of the wrong type or out of range; the message names it."""


def from_parameters(cls: type[T], parameters: Mapping[str, object]) -> T:
    """Return `cls(**parameters)` after checking every name and type against the dataclass.

    Understood annotations: bool, int, float, str, Literal, `X | None`, `tuple[X, ...]` (a list is
    accepted, for JSON has no tuples) and `Mapping[str, X]`. An int is accepted for a float;
    a bool is never a number, and a string is never parsed.

    Args:
        cls: a dataclass; range checks belong in its `__post_init__`.
        parameters: name to JSON-typed value.

    Raises:
        ParameterError: an unknown name (with the nearest known one), a missing name without
            default, or a value of the wrong type.
    """
    if not is_dataclass(cls):
        raise TypeError(f"from_parameters needs a dataclass, got {cls!r}")
    known = {field.name: field for field in fields(cls) if field.init}
    for name in parameters:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise ParameterError(
                f"unknown parameter `{name}` for {cls.__name__}{hint} Known: {', '.join(known)}."
            )
    missing = [
        name
        for name, field in known.items()
        if name not in parameters and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ParameterError(f"{cls.__name__} needs a value for: {', '.join(missing)}.")
    hints = get_type_hints(cls)
    return cls(**{name: conform(name, value, hints[name]) for name, value in parameters.items()})


def conform_fields(config: Any) -> None:
    """Check, and where needed convert, the fields of a frozen dataclass; for its `__post_init__`.

    With this call a configuration that is constructed directly is held to the same types as one
    from `from_parameters`.

    Raises:
        ParameterError: a field's value does not have its annotated type.
    """
    hints = get_type_hints(type(config))
    for field in fields(config):
        value = conform(field.name, getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)


def require(condition: bool, name: str, value: object, remedy: str) -> None:
    """Raise a ParameterError "`name` (=value) remedy" unless `condition` holds."""
    if not condition:
        raise ParameterError(f"`{name}` (={value!r}) {remedy}")


def conform(name: str, value: object, annotation: Any) -> Any:
    """Return `value` as `annotation` wants it (list to tuple, int to float), or raise.

    Raises:
        ParameterError: the value does not have this type.
        TypeError: the annotation itself is not one of those that are understood.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (Any, object):
        return value
    if origin in (Union, types.UnionType):
        return _conform_union(name, value, arguments)
    if origin is Literal:
        # `1 == True` and `1 == 1.0`: a literal matches in value and in type.
        if not any(type(value) is type(choice) and value == choice for choice in arguments):
            choices = ", ".join(repr(choice) for choice in arguments)
            raise ParameterError(f"`{name}` (={value!r}) must be one of: {choices}.")
        return value
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise _wrong_type(name, value, f"a list of {_describe(arguments[0])}")
        return tuple(conform(f"{name}[{i}]", v, arguments[0]) for i, v in enumerate(value))
    if annotation in (dict, Mapping) or origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong_type(name, value, "a mapping of names to values")
        inner = arguments[1] if arguments else Any
        return {_key(name, key): conform(f"{name}.{key}", v, inner) for key, v in value.items()}
    return _conform_scalar(name, value, annotation)


def _conform_union(name: str, value: object, arguments: tuple[Any, ...]) -> Any:
    if value is None and type(None) in arguments:
        return None
    options = [argument for argument in arguments if argument is not type(None)]
    for option in options:
        try:
            return conform(name, value, option)
        except ParameterError:
            if len(options) == 1:
                raise
    raise _wrong_type(name, value, " or ".join(_describe(argument) for argument in arguments))


def _conform_scalar(name: str, value: object, annotation: Any) -> Any:
    if annotation is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_type(name, value, "a number")
        if not math.isfinite(value):
            raise ParameterError(f"`{name}` (={value!r}) must be a finite number.")
        return float(value)
    if annotation is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(name, value, "an integer")
        return value
    if annotation in (bool, str):
        if not isinstance(value, annotation):
            raise _wrong_type(name, value, _describe(annotation))
        return value
    raise TypeError(f"`{name}` is annotated {annotation!r}, which from_parameters cannot check")


def _key(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise ParameterError(f"`{name}` has the key {key!r}; keys must be strings.")
    return key


def _describe(annotation: Any) -> str:
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    return "null" if annotation is type(None) else names.get(annotation, str(annotation))


def _wrong_type(name: str, value: object, wanted: str) -> ParameterError:
    return ParameterError(
        f"`{name}` (={value!r}) must be {wanted}, but is of type {type(value).__name__}."
    )
