from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from erase_core.bench import ParameterError, conform_fields, from_parameters


@dataclass(frozen=True)
class Config:
    name: str
    width: int = 256
    rate: float = 0.1
    kind: Literal["a", "b", 1] = "a"
    arms: tuple[str, ...] = ()
    limit: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    fast: bool = False

    def __post_init__(self) -> None:
        conform_fields(self)


def test_values_are_kept_and_json_types_converted():
    config = from_parameters(
        Config,
        {
            "name": "x",
            "rate": 1,
            "arms": ["p", "q"],
            "limit": None,
            "options": {"k": [1]},
            "kind": 1,
        },
    )
    assert config == Config("x", rate=1.0, arms=("p", "q"), options={"k": [1]}, kind=1)
    assert isinstance(config.rate, float)
    assert isinstance(config.arms, tuple)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"name": "x", "widht": 3}, r"unknown parameter `widht`.*did you mean `width`\?"),
        ({}, "needs a value for: name"),
        ({"name": 3}, r"`name` \(=3\) must be a string"),
        ({"name": "x", "width": "256"}, r"`width` \(='256'\) must be an integer.*type str"),
        ({"name": "x", "width": 2.0}, r"`width` \(=2.0\) must be an integer"),
        ({"name": "x", "width": True}, r"`width` \(=True\) must be an integer"),
        ({"name": "x", "rate": True}, r"`rate` \(=True\) must be a number"),
        ({"name": "x", "rate": float("nan")}, "`rate` .* finite"),
        ({"name": "x", "kind": "c"}, r"`kind` \(='c'\) must be one of: 'a', 'b', 1"),
        ({"name": "x", "kind": True}, "`kind`"),
        ({"name": "x", "arms": "baseline"}, "`arms` .* must be a list of a string"),
        ({"name": "x", "arms": ["p", 1]}, r"`arms\[1\]` \(=1\)"),
        ({"name": "x", "limit": "none"}, "`limit` .* must be an integer"),
        ({"name": "x", "options": [1]}, "`options` .* must be a mapping"),
        ({"name": "x", "options": {1: 2}}, "keys must be strings"),
        ({"name": "x", "fast": "no"}, "`fast` .* must be true or false"),
    ],
)
def test_what_is_wrong_is_named(parameters, message):
    with pytest.raises(ParameterError, match=message):
        from_parameters(Config, parameters)


def test_direct_construction_is_checked_too():
    with pytest.raises(ParameterError, match="`width`"):
        Config("x", width="wide")  # type: ignore[arg-type]


def test_an_annotation_that_cannot_be_checked_is_the_authors_error():
    @dataclass
    class Odd:
        value: complex

    with pytest.raises(TypeError, match="complex"):
        from_parameters(Odd, {"value": 1j})
    with pytest.raises(TypeError, match="dataclass"):
        from_parameters(int, {})
