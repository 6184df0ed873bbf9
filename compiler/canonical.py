"""The form in which kernels are compared that say the same in different ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .cpu.squeeze import squeeze
from .ir import I64, Block, Dim, GridAxis, Kernel, Op, Type, Value
from .ops import TABLE
from .passes import run
from .passes.cse import cse
from .passes.dce import dce
from .passes.linear import Atom, Linear, Scalars
from .passes.named import named
from .passes.rewrite import Rewriter

_I32 = Type("i32")
#: Ops whose operands may change places.
_COMMUTE = frozenset(("add", "multiply", "minimum", "maximum", "logical_and", "logical_or", "equal", "not_equal"))


def canonical(kernel: Kernel) -> Kernel:
    """The kernel without what is a matter of spelling, so that kernels that say the same have the same text.

    What is left out, or chosen anew, since it changes nothing of what is stored in a launch that covers the arrays:

    - the names of the kernel, its parameters, dims and values, the order of parameters and of pure ops, the order of
      operands that commute, parameters that are not read, and attributes, which steer code generation;
    - of kernels that are written by hand, that blocks are as long as their bounds allow at most (see `named`), and
      extents of 1;
    - whether integers are i32 or i64, as their sums and products are taken not to overflow;
    - axes of the grid along which programs do the same, and how long an axis is, if programs beyond the end of a dim,
      or of an array's rows, do nothing, or if a loop takes each program from row to row: such an axis is as long as
      what it covers;
    - the bucket of a dim, which says how long a row a block can hold.
    """
    kernel = run(kernel)
    if kernel.attrs.get("schedule") == "blocks":
        kernel = squeeze(dce(cse(named(kernel, 2))))
        kernel = _Softmaxes(kernel).kernel(kernel)
    kernel = _looped(_covered(dce(cse(_Widener(kernel.dims).kernel(kernel)))))
    return dce(cse(_Canonical().kernel(dce(cse(kernel)))))


class _Softmaxes(Rewriter):
    """Makes `max` of a `max_number` that only shifts what a softmax is of, which is NaN in either case."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.users = kernel.uses()

    def op(self, op: Op) -> None:
        if op.name != "reduce" or op.attrs["kind"] != "max_number" or not self._shifts(op):
            return super().op(op)
        made = Op("reduce", self.operands(op), (op.result.type,), {**op.attrs, "kind": "max"}, (), op.line)
        self.out.append(made)
        return self.replace(op, made.results)

    def _uses(self, v: Value) -> Iterator[Op]:
        for op in self.users.get(v, ()):
            if op.name in ("broadcast", "reshape"):
                yield from self._uses(op.result)
            else:
                yield op

    def _shifts(self, top: Op) -> bool:
        for below in self._uses(top.result):
            if below.name != "subtract" or below.operands[0] is not top.operands[0]:
                return False
            for e in self.users.get(below.result, ()):
                if e.name != "exp" or not self._is_weight(e.result, top.attrs["dims"]):
                    return False
        return True

    def _is_weight(self, x: Value, dims: tuple[int, ...]) -> bool:
        """Whether a value is used only by a sum, and divided by it."""
        sums = [op for op in self.users[x] if op.name == "reduce" and op.attrs == {"kind": "sum", "dims": dims}]
        quotients = [use for op in sums for use in self._uses(op.result) if use.operands[0] is x]
        return all(op in sums or (op.name == "divide" and op in quotients) for op in self.users[x])


class _Widener(Rewriter):
    """Makes sums and products that become i64 sums and products of i64, and says where blocks of dims begin."""

    def __init__(self, dims: dict[str, Dim]) -> None:
        super().__init__()
        self.dims = dims

    def op(self, op: Op) -> None:
        if op.name == "dim_start":
            dim = self.dims[op.attrs["dim"]]
            program = Op("program_id", (), (I64,), {"axis": dim.axis or 0})
            block = Op("const", (), (I64,), {"value": dim.block or 0})
            made = Op("multiply", (program.result, block.result), (I64,))
            self.out += program, block, made
            return self.replace(op, made.results)
        if op.name == "cast" and op.result.type == I64 and op.operands[0].type == _I32:
            self.replace(op, (self._wide(self.operands(op)[0]),))
        elif op.name == "subtract" and op.result.type == I64 and _is_zero(self.operands(op)[1]):
            self.replace(op, (self.operands(op)[0],))
        else:
            super().op(op)
        return None

    def _wide(self, x: Value) -> Value:
        op = x.op
        if op is not None and op.name == "cast" and op.operands[0].type == I64:
            return op.operands[0]
        if op is not None and op.name in ("add", "subtract", "multiply"):
            made = Op(op.name, tuple([self._wide(v) for v in op.operands]), (I64,))
        elif op is not None and op.name == "const":
            made = Op("const", (), (I64,), op.attrs)
        else:
            made = Op("cast", (x,), (I64,))
        self.out.append(made)
        return made.result


def _is_zero(x: Value) -> bool:
    return x.op is not None and x.op.name == "const" and x.op.attrs["value"] == 0


def _looped(kernel: Kernel) -> Kernel:
    """The kernel without the loop that takes its programs from row to row."""
    *before, last = kernel.body.ops
    if last.name != "for" or len(last.operands) > 3 or any(op.regions for op in before):
        return kernel
    scalars, (body,) = Scalars(kernel), last.regions
    first, end, step = (scalars.linear(v) for v in last.operands)
    atoms: list[Atom] = [atom for x in (first, end, step) if x is not None for atom, _ in x.terms]
    if [x for x in (first, end, step) if x is not None] != [Linear(frozenset([(atom, 1)])) for atom in atoms]:
        return kernel
    axis, size, by = atoms
    if not isinstance(axis, int) or size not in scalars.params or kernel.grid[axis] != (by, 1):
        return kernel
    assert isinstance(size, Value)
    row = Op("program_id", (), (I64,), {"axis": axis})
    index = row if body.args[0].type == I64 else Op("cast", (row.result,), (body.args[0].type,))
    renamed = Rewriter()
    renamed.replaced[body.args[0]] = index.result
    ops = renamed.block(Block((), [*before, *dict.fromkeys((row, index)), *body.ops[:-1]])).ops
    grid = tuple([GridAxis(size, 1) if k == axis else own for k, own in enumerate(kernel.grid)])
    return replace(kernel, grid=grid, body=_Widener(kernel.dims).block(Block((), ops)))


def _covered(kernel: Kernel) -> Kernel:
    """The kernel without the condition that a program has something to store: it has, where the grid ends in time."""
    *before, last = kernel.body.ops
    if last.name != "if" or last.results or len(last.regions[1].ops) > 1 or any(op.regions for op in before):
        return kernel
    scalars = Scalars(kernel)
    blocks = {dim.size: dim.block or 1 for dim in kernel.dims.values()}
    sizes: dict[int, GridAxis] = {}
    for test in _conjuncts(last.operands[0]):
        op = test.op
        low, high = (scalars.linear(v) for v in op.operands) if op is not None and op.name == "less" else (None, None)
        bound = None if low is None or high is None else high.minus(low)
        if bound is None or bound.constant or not scalars.is_early(bound):
            return kernel
        size = [atom for atom, factor in bound.terms if factor == 1 and not isinstance(atom, int)]
        axes = [(atom, -factor) for atom, factor in bound.terms if isinstance(atom, int) and factor < 0]
        if len(size) != 1 or len(axes) != len(bound.terms) - 1 or len(axes) > 1:
            return kernel
        if not axes and size[0] not in blocks:
            return kernel
        for axis, block in axes:
            if kernel.grid[axis].block != 1 or axis in sizes:
                return kernel
            sizes[axis] = GridAxis(size[0], block)
    grid = tuple([sizes.get(k, axis) for k, axis in enumerate(kernel.grid)])
    return _covered(replace(kernel, grid=grid, body=Block((), [*before, *last.regions[0].ops[:-1]])))


def _conjuncts(x: Value) -> Iterator[Value]:
    if x.op is not None and x.op.name == "logical_and":
        for v in x.op.operands:
            yield from _conjuncts(v)
    else:
        yield x


class _Canonical(Rewriter):
    """Makes the kernel again: what is needed first stands first."""

    def __init__(self) -> None:
        super().__init__()
        self.params: list[Value] = []
        self.given: set[Value] = set()
        self.dims: dict[str, str] = {}
        self.axes: dict[int, int] = {}
        #: Pure ops of the block that wait to be needed.
        self.waiting: set[Op] = set()

    def kernel(self, kernel: Kernel) -> Kernel:
        self.given = set(kernel.params)
        used = {op.attrs["axis"] for op in kernel.walk() if op.name == "program_id"}
        used |= {dim.axis for dim in kernel.dims.values() if dim.axis is not None}
        self.axes = {axis: k for k, axis in enumerate(sorted(used))}
        tiles = [v for op in kernel.walk() for v in (*op.results, *(a for r in op.regions for a in r.args))]
        for name in dict.fromkeys(e for v in tiles for e in v.type.extents if isinstance(e, str)):
            self.dims[name] = f"d{len(self.dims)}"
        grid = tuple([GridAxis(self.value(kernel.grid[axis].size), kernel.grid[axis].block) for axis in sorted(used)])
        dims = {
            new: Dim(self.value(dim.size), dim.block, None if dim.axis is None else self.axes[dim.axis])
            for old, new in self.dims.items()
            for dim in (kernel.dims[old],)
        }
        body = self.block(kernel.body)
        return Kernel("kernel", tuple(self.params), grid, dims, body)

    def value(self, x: Value) -> Value:
        if x in self.given and x not in self.replaced:
            self.replaced[x] = Value(I64 if x.type == _I32 else x.type, None, f"p{len(self.params)}")
            self.params.append(self.replaced[x])
        return self.replaced.get(x, x)

    def type(self, value: Value) -> Type:
        extents = tuple([self.dims.get(e, e) if isinstance(e, str) else e for e in value.type.extents])
        return Type(value.type.dtype, extents, value.type.pointer)

    def block(self, block: Block) -> Block:
        outer, waiting = self.out, self.waiting
        self.out, self.waiting = [], {op for op in block.ops if _is_free(op)}
        args = tuple([Value(self.type(a), None, a.name) for a in block.args])
        self.replaced.update(zip(block.args, args))
        for op in block.ops:
            if op not in self.waiting and not _is_free(op):
                self.op(op)
        made, self.out, self.waiting = Block(args, self.out), outer, waiting
        return made

    def op(self, op: Op) -> None:
        self._need(op)
        operands = [self.value(v) for v in op.operands]
        if op.name == "cast" and operands[0].type == op.result.type:
            self.replace(op, (operands[0],))
            return
        for k, (old, new) in enumerate(zip(op.operands, operands)):
            if old.type != new.type and old in self.given:
                narrow = Op("cast", (new,), (old.type,))
                self.out.append(narrow)
                operands[k] = narrow.result
        if op.name in _COMMUTE:
            operands.sort(key=lambda v: v.op is None)
        attrs = dict(op.attrs)
        if "axis" in attrs:
            attrs["axis"] = self.axes[attrs["axis"]]
        if op.name in ("dim_start", "dim_extent"):
            attrs["dim"] = self.dims[attrs["dim"]]
        regions = tuple([self.block(r) for r in op.regions])
        made = Op(op.name, tuple(operands), tuple([self.type(v) for v in op.results]), attrs, regions, op.line)
        self.out.append(made)
        self.replace(op, made.results)

    def _need(self, op: Op) -> None:
        """Make what an op reads, wherever in its block it stood: also what its regions read."""
        for x in _read(op):
            if x.op in self.waiting:
                self.waiting.discard(x.op)
                self.op(x.op)


def _read(op: Op) -> Iterator[Value]:
    yield from op.operands
    for region in op.regions:
        for inner in region.ops:
            yield from _read(inner)


def _is_free(op: Op) -> bool:
    """Whether an op may stand anywhere between what it reads and what reads it."""
    return not op.regions and (op.name in TABLE or op.name in (
        "const", "program_id", "dim_start", "dim_extent", "iota", "cast", "bitcast", "broadcast", "reshape", "reduce",
        "argreduce",
    ))  # fmt: skip
