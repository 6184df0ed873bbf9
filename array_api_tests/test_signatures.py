"""Every function, method, attribute and constant of the standard is there, and takes the arguments it must take."""

from __future__ import annotations

import ast
from inspect import Parameter, signature
from typing import Any

import pytest

import blockarray as xp
from array_api_tests.standard import ATTRIBUTES, CONSTANTS, SIGNATURES

WHERE: dict[str, Any] = {
    "linalg": xp.linalg, "fft": xp.fft, "info": xp.__array_namespace_info__(), "methods": xp.Array
}  # fmt: skip
EVERY = [(part, line.strip()) for part, text in SIGNATURES.items() for line in text.strip().splitlines()]


def find(part: str, name: str) -> Any:
    return getattr(xp if name == "__array_namespace_info__" else WHERE.get(part, xp), name)


@pytest.mark.parametrize(("part", "spelled"), EVERY, ids=[f"{part}-{line.split('(')[0]}" for part, line in EVERY])
def test_signature(part: str, spelled: str) -> None:
    (definition,) = ast.parse(f"def {spelled}: ...").body
    assert isinstance(definition, ast.FunctionDef)
    wanted = definition.args
    ours = signature(find(part, definition.name)).parameters
    order = list(ours.values())
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    for k, argument in enumerate(wanted.posonlyargs):
        assert order[k].kind in by_position, argument.arg
    for k, argument in enumerate(wanted.args, len(wanted.posonlyargs)):
        assert order[k].kind is Parameter.POSITIONAL_OR_KEYWORD and order[k].name == argument.arg
    if wanted.vararg is not None:
        assert order[0].kind is Parameter.VAR_POSITIONAL
    for argument in wanted.kwonlyargs:
        assert ours[argument.arg].kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    # What is optional there is optional here and means the same if it is left out; what is only here has a default.
    positional = [*wanted.posonlyargs, *wanted.args]
    first = len(positional) - len(wanted.defaults)
    names = [order[k].name for k in range(first, len(positional))] + [a.arg for a in wanted.kwonlyargs]
    for name, default in zip(names, [*wanted.defaults, *wanted.kw_defaults], strict=True):
        if default is not None and name != "correction":
            assert ours[name].default == ast.literal_eval(default), name
    known = {p.name for p in order[: len(positional)]} | {a.arg for a in wanted.kwonlyargs}
    for p in order:
        variadic = p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        assert p.name in known or variadic or p.default is not Parameter.empty, p.name


def test_attributes_and_constants() -> None:
    x = xp.ones((2, 3))
    assert [name for name in ATTRIBUTES if not hasattr(x, name)] == []
    assert [name for name in CONSTANTS if not hasattr(xp, name)] == []
