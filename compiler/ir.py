"""The block IR: structured SSA over scalars and tiles.

A kernel is a function that a grid of programs runs.  A tile's extents are integers (powers of two, in kernels written
by hand and on the GPU) or names of the kernel's `dims` (exact run-time extents, on the CPU).  No extents make a scalar.
Values are immutable; ops with effects are the closed list `EFFECTS`.  Source lines live in `Op.line`, outside printing,
equality and cache keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Type(NamedTuple):
    """A scalar (no extents), a tile, or, with `pointer`, the address of elements of `dtype`."""

    dtype: str
    extents: tuple[int | str, ...] = ()
    pointer: bool = False

    def __str__(self) -> str:
        if self.pointer:
            return f"ptr<{self.dtype}>"
        return f"{self.dtype}[{', '.join(map(str, self.extents))}]" if self.extents else self.dtype


I64 = Type("i64")
BOOL = Type("bool")


class Value:
    """An SSA value: a result of `op`, or (`op` None) a parameter of a block or, with a `name`, of the kernel."""

    __slots__ = ("type", "op", "name")

    def __init__(self, type: Type, op: Op | None = None, name: str = "") -> None:
        self.type = type
        self.op = op
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name or (self.op.name if self.op else 'arg')}: {self.type}>"


class Op:
    """One operation.  `attrs` is a dict of plain values (str, int, float, bool, complex, tuples of them)."""

    __slots__ = ("name", "operands", "attrs", "results", "regions", "line")

    def __init__(
        self,
        name: str,
        operands: tuple[Value, ...],
        result_types: tuple[Type, ...],
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
        line: Any = None,
    ) -> None:
        self.name = name
        self.operands = operands
        self.attrs = attrs or {}
        self.results = tuple([Value(t, self) for t in result_types])
        self.regions = regions
        self.line = line

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value


@dataclass(slots=True)
class Block:
    """A straight line of ops; as a region its last op is `yield`."""

    args: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=list)


class Dim(NamedTuple):
    """A named extent.  `block` None: the whole of `size`.  Else program p of grid axis `axis` holds the positions
    [p*block, min((p+1)*block, size)).

    `bucket`, if known, is a power of two that a whole extent never exceeds: a GPU holds so many positions on chip.
    """

    size: Value
    block: int | None = None
    axis: int | None = None
    bucket: int | None = None


class GridAxis(NamedTuple):
    """ceil(size / block) programs.  The last axis of a grid varies fastest."""

    size: Value
    block: int


@dataclass(slots=True)
class Kernel:
    name: str
    params: tuple[Value, ...]
    grid: tuple[GridAxis, ...]
    dims: dict[str, Dim]
    body: Block
    #: Plain values that steer code generation and are part of the key, such as {"schedule": "gemm"}.
    attrs: dict[str, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        stack = list(reversed(self.body.ops))
        while stack:
            op = stack.pop()
            yield op
            for region in reversed(op.regions):
                stack.extend(reversed(region.ops))


#: Structural ops.  The elementwise ops are the op table's (`ops.TABLE`), by name.
#:
#: name        operands                             attrs             result
#: const       -                                    value             scalar of any dtype
#: program_id  -                                    axis              i64
#: dim_start   -                                    dim               i64: first position of this program's block
#: dim_extent  -                                    dim               i64: positions in this program's tile
#: iota        -                                    -                 i64[extent]: 0, 1, ... (one extent)
#: cast        x                                    -                 x's extents, another dtype
#: broadcast   x                                    dims              result extent dims[k] is x's extent k
#: load_view   ptr, offset, one stride an extent,   bounded, other    tile: element (t0, ...) is
#:             then one bound an extent                               ptr[offset + sum(t_k * stride_k)] where
#:             if `bounded`                                           t_k < bound_k, else `other`
#: store_view  value, ptr, offset, strides,         bounded           - (effect)
#:             then bounds if `bounded`
#: load_ptr    ptr, index[, mask]                   other             tile: ptr[index], `other` where mask is False
#: store_ptr   value, ptr, index[, mask]            combine           - (effect): later lanes win; or "add", "maximum"
#: check       ok                                   message           - (effect): records message if any lane is False
#: reduce      x                                    kind, dims        x without `dims`; kind is a reduction of the table
#: argreduce   x, index (i64)                       kind, dims        i64: index of the winner; kind "argmax", "argmin";
#:                                                                    NaN wins, then the lowest index
#: scan        x[, carry]                           kind, dim,        inclusive scan along dim, from carry on; kind is a
#:                                                  across            scan of the table.  With `across`, along a blocked
#:                                                                    dim, it goes on from where the program before it
#:                                                                    on that grid axis ended
#: dot         a (M,K), b (K,N)[, acc (M,N)]        precision         tile (M, N); precision "tf32", if given, allows to
#:                                                                    multiply f32 with mantissas of 10 bits
#: for         lower, upper, step, inits...         -                 results; region args (index, carried...)
#: if          condition                            -                 results; two regions
#: yield       values...                            -                 -
STRUCTURAL = frozenset((
    "const", "program_id", "dim_start", "dim_extent", "iota", "cast", "broadcast", "load_view", "store_view",
    "load_ptr", "store_ptr", "check", "reduce", "argreduce", "scan", "dot", "for", "if", "yield",
))  # fmt: skip
EFFECTS = frozenset(("store_view", "store_ptr", "check"))
