"""The block IR: structured SSA over scalars and tiles.

A kernel is a function that a grid of programs runs.  A tile's extents are integers (powers of two, in kernels written
by hand and on the GPU) or names of the kernel's `dims` (exact run-time extents, on the CPU).  No extents make a scalar.
Values are immutable; ops with effects are the closed list `EFFECTS`, and what is `volatile`.  Source lines live in
`Op.line`, outside printing, equality and cache keys.
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

    def uses(self) -> dict[Value, list[Op]]:
        """The ops that read each value, one for each time."""
        found: dict[Value, list[Op]] = {}
        for op in self.walk():
            for v in op.operands:
                found.setdefault(v, []).append(op)
        return found

    def checks(self) -> dict[Op, int]:
        """What each check records: its number, from 1 on.

        Passes copy parts of kernels that are written by hand, whose checks have a message each: copies have one number.
        """
        found = [op for op in self.walk() if op.name == "check"]
        if self.attrs.get("schedule") != "blocks":
            return {op: k + 1 for k, op in enumerate(found)}
        numbers: dict[str, int] = {}
        return {op: numbers.setdefault(op.attrs["message"], len(numbers) + 1) for op in found}


#: Structural ops.  The elementwise ops are the op table's (`ops.TABLE`), by name.
#:
#: name        operands                             attrs             result
#: const       -                                    value             scalar of any dtype
#: program_id  -                                    axis              i64
#: dim_start   -                                    dim               i64: first position of this program's block
#: dim_extent  -                                    dim               i64: positions in this program's tile
#: iota        -                                    -                 i64[extent]: 0, 1, ... (one extent)
#: cast        x                                    -                 x's extents, another dtype
#: bitcast     x                                    -                 the same bits as another dtype of equal size
#: broadcast   x                                    dims              result extent dims[k] is x's extent k
#: load_view   ptr, offset, one stride an extent,   bounded, other,   tile: element (t0, ...) is
#:             then one bound an extent             cache, evict      ptr[offset + sum(t_k * stride_k)] where
#:             if `bounded`                                           t_k < bound_k, else `other`
#: store_view  value, ptr, offset, strides,         bounded, cache,   - (effect)
#:             then bounds if `bounded`             evict
#: load_ptr    ptr, index (i32, i64)[, mask]        other, cache,     tile: ptr[index], `other` where mask is False
#:                                                  evict, volatile
#: store_ptr   value, ptr, index[, mask]            combine, cache,   - (effect): later lanes win; or "add", "maximum"
#:                                                  evict
#: atomic      value, ptr, index[, mask]; with      kind, order,      what was there before (effect); kind is "add",
#:             kind "cas": compare, value, ptr...   scope, masked     "max", "min", "and", "or", "xor", "xchg", "cas"
#: int_to_ptr  x (i64)                              -                 the pointer to address x
#: ptr_to_int  ptr                                  -                 i64: address of element 0
#: check       ok[, mask]                           message           - (effect): records message if any lane is False
#: assume      ok                                   -                 - (effect without code): every lane is True
#: hint        x (integers)                         multiple,         x; an entry an extent, or one for a scalar: the
#:                                                  contiguous,       first of `contiguous` values in a row is a
#:                                                  constancy         multiple of `multiple`; `constancy` are equal
#: inline_asm  x0, x1, ... of equal extents         text,             results of these extents, by instructions of the
#:                                                  constraints,      target on `pack` elements at a time; an effect,
#:                                                  pack, volatile    too, if `volatile`
#: print       values...                            prefix, hex       - (effect): a line an element
#: barrier     -                                    -                 - (effect): accesses are not moved across it
#: reshape     x                                    -                 x's elements in row-major order, other extents
#: trans       x                                    perm              result extent k is x's extent perm[k]
#: join        a, b                                 -                 a and b along a new last extent of 2
#: split       x                                    -                 two results: x[..., 0] and x[..., 1]
#: cat         a, b                                 dim               b after a along dim
#: gather      x, index (integers)                  dim               index's extents: x at index along dim
#: flip        x                                    dim               x backwards along dim
#: sort        x                                    dim, descending   x sorted along dim, NaNs as the largest
#: histogram   x (integers)[, mask]                 -                 i32[bins]: counts of 0 up to bins - 1
#: reduce      x                                    kind, dims        x without `dims`; kind is a reduction of the table
#: argreduce   x, index (i64)                       kind, dims        i64: index of the winner; kind "argmax", "argmin";
#:                                                                    NaN wins, then the lowest index
#: reduce_by   x0, x1, ... of equal extents         dims (one)        each without the dim; the region takes scalars
#:                                                                    (a0, a1, ..., b0, b1, ...) and yields a joined
#:                                                                    with b; it is associative and commutative
#: scan        x[, carry]                           kind, dim,        inclusive scan along dim, from carry on; kind is a
#:                                                  across, reverse   scan of the table.  With `across`, along a blocked
#:                                                                    dim, it goes on from where the program before it
#:                                                                    on that grid axis ended; `reverse` from the end
#: scan_by     x0, x1, ... of equal extents         dim, reverse      inclusive scans by a region as reduce_by's; a is
#:                                                                    what comes earlier in the scan's direction
#: dot         a (M,K), b (K,N)[, acc (M,N)]        precision,        tile (M, N); precision "tf32", if given, allows to
#:             or all with one more first extent    max_num_imprecise multiply f32 with mantissas of 10 bits, "tf32x3"
#:                                                                    in three such products; "ieee" forbids both
#: for         lower, upper, step, inits...         hints             results; region args (index, carried...); index
#:                                                                    i64 or i32, a constant step may be negative
#: while       inits...                             -                 results; region (carried...) yields (condition,
#:                                                                    values...), region (values...) the next carried;
#:                                                                    the values at which the condition fails result
#: if          condition                            -                 results; two regions
#: yield       values...                            -                 -
STRUCTURAL = frozenset((
    "const", "program_id", "dim_start", "dim_extent", "iota", "cast", "bitcast", "broadcast", "load_view", "store_view",
    "load_ptr", "store_ptr", "atomic", "int_to_ptr", "ptr_to_int", "check", "assume", "hint", "print", "barrier",
    "inline_asm",
    "reshape", "trans", "join", "split", "cat", "gather", "flip", "sort", "histogram", "reduce", "argreduce",
    "reduce_by", "scan", "scan_by", "dot", "for", "while", "if", "yield",
))  # fmt: skip
#: An atomic has a result beside its effect.
EFFECTS = frozenset(("store_view", "store_ptr", "atomic", "check", "assume", "print", "barrier"))


def has_effect(op: Op) -> bool:
    """Whether an op does something beside its results: it may wait for others or change memory, if it is `volatile`."""
    return op.name in EFFECTS or bool(op.attrs.get("volatile"))


def written(kernel: Kernel) -> set[Value]:
    """The pointers behind which elements may change while a kernel runs, as far as it says so itself."""
    found: set[Value] = set()
    for op in kernel.walk():
        if has_effect(op):
            found.update(op.operands)
            if op.name == "inline_asm":  # it may have addresses from anywhere
                found.update(p for p in kernel.params if p.type.pointer)
                found.update(v for inner in kernel.walk() for v in inner.results if v.type.pointer)
    return found
