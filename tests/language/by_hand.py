"""A front end whose kernels are written with the builder: launches are tested whatever becomes of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blockarray.compiler.builder import Builder
from blockarray.compiler.ir import I64, Kernel, Type, Value
from blockarray.language import frontend as f


class Writer:
    """A kernel under construction: its parameters by the function's names, and its constants."""

    def __init__(self, b: Builder, values: dict[str, Value], constants: dict[str, Any]) -> None:
        self.b = b
        self.values = values
        self.constants = constants

    def __getitem__(self, name: str) -> Value:
        if name in self.constants:
            value = self.constants[name]
            return self.b.const(value, "f32" if isinstance(value, float) else "i64")
        return self.values[name]

    def program(self, axis: int = 0) -> Value:
        return self.b.program_id(2 - axis)

    def integer(self, name: str) -> Value:
        """An integer as i64."""
        return self.b.cast(self[name], "i64")

    def spread(self, x: Value, n: int) -> Value:
        return self.b.broadcast(x, (), (n,))

    def offsets(self, block: int) -> Value:
        """This program's positions."""
        start = self.b.op("multiply", self.program(), self.b.const(block))
        return self.b.op("add", self.spread(start, block), self.b.iota(block))

    def inside(self, offsets: Value, name: str) -> Value:
        return self.b.op("less", offsets, self.spread(self.integer(name), offsets.type.extents[0]))  # type: ignore[arg-type]


BODIES: dict[str, Callable[[Writer], None]] = {}
#: How often `build` was called for each function.
built: dict[str, int] = {}


def body(write: Callable[[Writer], None]) -> Callable[[Writer], None]:
    """What stands in the block IR of NAME, by a function NAME_body."""
    BODIES[write.__name__.removesuffix("_body")] = write
    return write


def _params(b: Builder, name: str, kind: f.Kind, values: dict[str, Value], aligned: list[str]) -> None:
    match kind:
        case f.Pointer(dtype=dtype, aligned=is_aligned):
            values[name] = b.param(name, Type(dtype, (), True))
        case f.Integer(dtype=dtype, aligned=is_aligned):
            values[name] = b.param(name, Type(dtype))
        case f.Real(dtype=dtype):
            values[name], is_aligned = b.param(name, Type(dtype)), False
        case f.Boolean():
            values[name], is_aligned = b.param(name, Type("bool")), False
        case f.Descriptor(dtype=dtype, rank=rank, aligned=is_aligned):
            values[name] = b.param(name, Type(dtype, (), True))
            for k in range(rank):
                values[f"{name}.shape{k}"] = b.param(f"{name}.shape{k}", I64)
            for k in range(rank - 1):
                values[f"{name}.stride{k}"] = b.param(f"{name}.stride{k}", I64)
        case f.Tuple(items=items):
            is_aligned = False
            for k, item in enumerate(items):
                _params(b, f"{name}.{k}", item, values, aligned)
        case _:
            is_aligned = False
    if is_aligned:
        aligned.append(name)


def build(
    fn: Any, arguments: Sequence[f.Argument], constants: dict[str, Any], *, num_warps: int = 4, num_stages: int = 3,
    name: str = "", debug: bool = False, sanitize: bool = False,
) -> Kernel:  # fmt: skip
    """As `frontend.build`."""
    built[name] = built.get(name, 0) + 1
    b = Builder(name)
    values: dict[str, Value] = {}
    aligned: list[str] = []
    for argument in arguments:
        _params(b, argument.name, argument.kind, values, aligned)
    grid = [b.param(f"grid_{axis}", I64) for axis in range(3)]
    values |= {size.name: size for size in grid}
    if BODIES[name].__doc__ == "checks":
        values["errors"] = b.param("errors", Type("i64", (), True))
    for size in reversed(grid):
        b.grid_axis(size)
    BODIES[name](Writer(b, values, constants))
    b.attrs |= {"schedule": "blocks", "num_warps": num_warps, "num_stages": num_stages, "aligned": tuple(aligned)}
    return b.finish()
