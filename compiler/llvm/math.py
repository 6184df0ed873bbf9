"""LLVM IR for every elementwise op of the table, on any number of lanes (0: scalars)."""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from . import complex as complex_
from . import draws, floats, integers, polynomials  # noqa: F401  (registers its emitters)
from .convert import Register, constant, convert, from_memory, memory_type, register_type, round_to, to_memory
from .lanes import Lanes
from .target import MathTarget
from .text import Text, V

__all__ = [
    "Register", "constant", "convert", "emit", "from_memory", "memory_type", "register_type", "round_to", "to_memory",
]  # fmt: skip


def emit(
    t: Text, name: str, args: Sequence[Register], operands: Sequence[str], out: str, target: MathTarget
) -> Register:
    """The op `name` of values in registers, rounded to its result's dtype.

    Parameters
    ----------
    t : Text
        Where to write.  Some ops end in another block than they begin in (see `Text.block`).
    name : str
        An elementwise op of `ops.TABLE`, not `cast` (see `convert`).
    args : sequence of Register
        The operands, of one number of lanes.
    operands : sequence of str
        The operands' IR dtypes, as `ops.resolve` asks for them.
    out : str
        The IR dtype of the result, see `ops.result_dtype`.
    target : MathTarget
        Knows the mathematical functions that there are to call.
    """
    if name == "where":
        return _where(t, *args)
    if out in dtypes.COMPLEX or operands[0] in dtypes.COMPLEX:
        return complex_.emit(t, name, args, operands, out, target)
    values = [Lanes(t, a) for a in args if isinstance(a, V)]
    dtype = operands[0]
    if name == "fraction":
        return draws.fraction(*values, signed=dtype in dtypes.SIGNED).v
    if name in draws.EMITTERS:
        return draws.EMITTERS[name](*values).v
    if name in draws.OF_REALS:
        return draws.OF_REALS[name](floats.Real(out, target), *values).v
    if dtype in dtypes.FLOAT:
        result = floats.Real(dtype, target)(name, *values).v
        rounded = out in dtypes.NARROW and name not in floats.EXACT
        return round_to(t, result, out) if rounded else result
    if len(set(operands)) == 2:
        return integers.compare_mixed(name, *values, signed_first=dtype in dtypes.SIGNED).v
    return integers.emitter(name, dtype)(*values).v


def _where(t: Text, cond: Register, a: Register, b: Register) -> Register:
    assert isinstance(cond, V)
    if isinstance(a, V):
        assert isinstance(b, V)
        return t.select(cond, a, b)
    assert not isinstance(b, V)
    return t.select(cond, a[0], b[0]), t.select(cond, a[1], b[1])
