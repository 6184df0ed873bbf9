"""LLVM values with Python's operators, so that emitters read like the arithmetic that they emit."""

from __future__ import annotations

from collections.abc import Callable

from .text import Text, V, element, lanes, vector

_FLOATS = ("float", "double", "half", "bfloat")


class Lanes:
    """A value (a vector or a scalar) being computed in `t`.  Plain numbers beside it become constants of its type.

    Integers compare as signed and `>>` keeps the sign; `shr` and `below` are the unsigned ones.
    """

    __slots__ = ("t", "v")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, t: Text, v: V) -> None:
        self.t = t
        self.v = v

    @property
    def elem(self) -> str:
        return element(self.v.ty)

    @property
    def is_float(self) -> bool:
        return self.elem in _FLOATS

    @property
    def bits(self) -> int:
        """Width of an element."""
        return {"float": 32, "double": 64, "half": 16, "bfloat": 16}.get(self.elem) or int(self.elem[1:])

    def like(self, value: float | int | bool) -> Lanes:
        """A constant of this value's type."""
        return Lanes(self.t, self.t.like(value, self.v))

    def _other(self, x: Operand) -> V:
        return x.v if isinstance(x, Lanes) else self.t.like(x, self.v)

    def _bin(self, of_float: str, of_int: str, x: Operand) -> Lanes:
        return Lanes(self.t, self.t.bin(of_float if self.is_float else of_int, self.v, self._other(x)))

    def _cmp(self, of_float: str, of_int: str, x: Operand) -> Lanes:
        return Lanes(self.t, self.t.cmp(of_float if self.is_float else of_int, self.v, self._other(x)))

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def __add__(self, x: Operand) -> Lanes:
        return self._bin("fadd", "add", x)

    def __sub__(self, x: Operand) -> Lanes:
        return self._bin("fsub", "sub", x)

    def __mul__(self, x: Operand) -> Lanes:
        return self._bin("fmul", "mul", x)

    def __truediv__(self, x: Operand) -> Lanes:
        return self._bin("fdiv", "sdiv", x)

    def __radd__(self, x: float | int) -> Lanes:
        return self.like(x) + self

    def __rsub__(self, x: float | int) -> Lanes:
        return self.like(x) - self

    def __rmul__(self, x: float | int) -> Lanes:
        return self.like(x) * self

    def __rtruediv__(self, x: float | int) -> Lanes:
        return self.like(x) / self

    def __neg__(self) -> Lanes:
        return Lanes(self.t, self.t.fneg(self.v)) if self.is_float else self.like(0) - self

    def __abs__(self) -> Lanes:
        if self.is_float:
            return self.call("fabs")
        # llvm.abs(x, false): the lowest integer is its own absolute value.
        return Lanes(self.t, self.t.intrinsic("abs", self.v, V("false", "i1")))

    def fma(self, x: Operand, y: Operand) -> Lanes:
        """self * x + y, rounded once."""
        return Lanes(self.t, self.t.fma(self.v, self._other(x), self._other(y)))

    def call(self, intrinsic: str, *args: Operand) -> Lanes:
        """llvm.INTRINSIC(self, ...), of this value's type."""
        return Lanes(self.t, self.t.intrinsic(intrinsic, self.v, *map(self._other, args)))

    # -- bits ---------------------------------------------------------------------------------------------------------
    def __and__(self, x: Operand) -> Lanes:
        return self._bin("and", "and", x)

    def __or__(self, x: Operand) -> Lanes:
        return self._bin("or", "or", x)

    def __xor__(self, x: Operand) -> Lanes:
        return self._bin("xor", "xor", x)

    def __invert__(self) -> Lanes:
        return self ^ -1 if self.elem != "i1" else self ^ True

    def __lshift__(self, x: Operand) -> Lanes:
        return self._bin("shl", "shl", x)

    def __rshift__(self, x: Operand) -> Lanes:
        return self._bin("ashr", "ashr", x)

    def shr(self, x: Operand) -> Lanes:
        return self._bin("lshr", "lshr", x)

    # -- comparisons: ordered, but != is true of a NaN ----------------------------------------------------------------
    def __eq__(self, x: Operand) -> Lanes:  # type: ignore[override]
        return self._cmp("oeq", "eq", x)

    def __ne__(self, x: Operand) -> Lanes:  # type: ignore[override]
        return self._cmp("une", "ne", x)

    def __lt__(self, x: Operand) -> Lanes:
        return self._cmp("olt", "slt", x)

    def __le__(self, x: Operand) -> Lanes:
        return self._cmp("ole", "sle", x)

    def __gt__(self, x: Operand) -> Lanes:
        return self._cmp("ogt", "sgt", x)

    def __ge__(self, x: Operand) -> Lanes:
        return self._cmp("oge", "sge", x)

    def below(self, x: Operand) -> Lanes:
        return self._cmp("ult", "ult", x)

    def isnan(self) -> Lanes:
        return Lanes(self.t, self.t.cmp("uno", self.v, self.v))

    def where(self, x: Operand, y: Operand) -> Lanes:
        """x where this i1 is set, else y; one of them at least is a value."""
        model = x if isinstance(x, Lanes) else y
        assert isinstance(model, Lanes)
        return Lanes(self.t, self.t.select(self.v, model._other(x), model._other(y)))

    # -- conversions --------------------------------------------------------------------------------------------------
    def cast(self, opcode: str, elem: str) -> Lanes:
        return Lanes(self.t, self.t.cast(opcode, self.v, elem))

    def to_bits(self) -> Lanes:
        return self.cast("bitcast", f"i{self.bits}")

    def from_bits(self) -> Lanes:
        return self.cast("bitcast", {16: "half", 32: "float", 64: "double"}[self.bits])

    def signbit(self) -> Lanes:
        return self.to_bits() < 0

    def copysign(self, x: Operand) -> Lanes:
        return self.call("copysign", x)


Operand = Lanes | float | int | bool


def branch(cond: Lanes, then: Callable[[], Lanes], otherwise: Lanes) -> Lanes:
    """then() if any lane of `cond` is set, else `otherwise`."""
    t = cond.t
    taken, done = t.new_label("rare"), t.new_label("join")
    flag = t.any(cond.v)
    origin = t.block
    t.br_if(flag, taken, done)
    t.label(taken)
    value = then()
    end = t.block
    t.br(done)
    t.label(done)
    return Lanes(t, t.phi(value.v.ty, (value.v, end), (otherwise.v, origin)))


def pad(t: Text, v: V, width: int) -> V:
    """v in at least `width` lanes: repeated where it has fewer."""
    n = lanes(v.ty)
    if n >= width:
        return v
    return t.splat(v, width) if not n else t.shuffle(v, v, [i % n for i in range(width)])


def unpad(t: Text, v: V, n: int) -> V:
    """The first n lanes (n = 0: the first as a scalar)."""
    if lanes(v.ty) == n:
        return v
    return t.shuffle(v, v, range(n)) if n else t.extract(v, 0)


def per_lane(t: Text, function: Callable[..., V], *args: V) -> V:
    """function of scalars on each lane of vectors (or on scalars)."""
    n = lanes(args[0].ty)
    if not n:
        return function(*args)
    result: V | None = None
    for i in range(n):
        one = function(*(t.extract(a, i) for a in args))
        result = t.insert(result or V("poison", vector(one.ty, n)), one, i)
    assert result is not None
    return result
