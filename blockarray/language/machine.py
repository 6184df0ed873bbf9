"""Instructions of one target, by the kernel's author."""

from __future__ import annotations

from typing import Any

from ..compiler.ir import Type
from .elementwise import static_int
from .emit import builder, extents
from .errors import CompilationError
from .types import dtype as element
from .types import int64, unwrap
from .values import Tensor, convert, element_type, same_shape, tensor


def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Tensor | tuple[Tensor, ...]:
    """What instructions of the target make of the elements of blocks; a kernel with some runs on GPUs only.

    Parameters
    ----------
    asm : str
        PTX; `$0`, `$1`, ... are the registers, those of the results first.
    constraints : str
        A register each: "=r" of a result, "r" of an argument; "h", "r", "l" hold 16, 32 and 64 bits, "f" and "d"
        floats.
    args : sequence of tensor
    dtype : dtype, or tuple of dtypes
        Of the result, or of several results.
    is_pure : bool
        Whether it does nothing but compute: then it is left out where its results are not used.
    pack : int
        How many elements are done at a time; such of less bits than a register are packed into registers.
    """
    text, names, types, count = unwrap(asm), unwrap(constraints), unwrap(dtype), static_int(pack, "pack")
    if not isinstance(text, str) or not isinstance(names, str):
        raise CompilationError("inline_asm_elementwise takes its instructions and constraints as strings")
    if count < 1 or count & (count - 1):
        raise CompilationError(f"pack is a power of two, not {count}")
    several = isinstance(types, (tuple, list))
    made = [element_type(t) for t in (types if several else (types,))]
    xs = [tensor(x) for x in unwrap(args)]
    xs = [convert(x, int64) if x.dtype.is_ptr() else x for x in xs]
    if xs:
        xs = list(same_shape(*xs))
    if builder().eager:
        raise CompilationError("inline_asm_elementwise cannot be interpreted")
    shape = xs[0].shape if xs else ()
    results = builder().inline_asm(
        text, names, [x.value for x in xs], [Type(t.ir, extents(shape)) for t in made], count, not unwrap(is_pure)
    )
    found = tuple([Tensor(v, t, shape) for v, t in zip(results, made)])
    return found if several else found[0]


def read(register: str, letter: str, type: element) -> Tensor:
    """A special register of this thread's processor."""
    made = inline_asm_elementwise(f"mov.b{type.primitive_bitwidth} $0, %{register};", f"={letter}", (), type, False, 1)
    assert isinstance(made, Tensor)
    return made


__all__ = ["inline_asm_elementwise"]
