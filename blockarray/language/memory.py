"""Memory: loads and stores, block pointers, tensor descriptors, atomics."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Any

from ..compiler.ir import Value
from .elementwise import block_shape, static_int, where
from .emit import bare, builder, const, constant, elementwise, fitted, is_natural, whole
from .emit import cast as cast_value
from .errors import CompilationError
from .types import block_type, dtype, int1, int32, int64, pointer_type, unwrap
from .values import Tensor, add, broadcast_to, convert, is_number, known_number, member, mul, offset, tensor, truth

_LOAD_CACHES = ("", ".ca", ".cg", ".cv")
_STORE_CACHES = ("", ".wb", ".cg", ".cs", ".wt")
_EVICTIONS = ("", "evict_normal", "evict_first", "evict_last")


def _one_of(what: str, value: Any, allowed: Sequence[str]) -> str | None:
    value = unwrap(value) or ""
    if value not in allowed:
        raise CompilationError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value.removeprefix(".") or None


# -- through pointers -------------------------------------------------------------------------------------------------
def _spelled(x: Any) -> str:
    return str(x.type) if isinstance(x, Tensor) else repr(x)


def _pointer(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor) or not x.dtype.is_ptr():
        raise CompilationError(f"{name} takes a pointer, not {_spelled(x)}")
    if x.dtype.is_const() and (name == "store" or name.startswith("atomic")):
        raise CompilationError(f"{name} changes memory, and its pointer is const: {x.type}")
    return x


def _fit(name: str, what: str, x: Any, pointer: Tensor) -> Tensor:
    """`x` with the shape of the pointers."""
    x = tensor(x)
    if x.shape and not pointer.shape:
        raise CompilationError(f"{name} of one element has a block of shape {list(x.shape)} as {what}")
    if x.shape and len(x.shape) != len(pointer.shape) and name != "load":
        # Added dims would repeat what is written.
        shapes = f"pointers {list(pointer.shape)}, {what} {list(x.shape)}"
        raise CompilationError(f"{name} takes blocks of as many dims ({shapes}): add dims")
    return broadcast_to(x, pointer.shape)


def _condition(mask: Any) -> Any:
    """A mask; None if it is always True."""
    if isinstance(mask, Tensor):
        return None if known_number(mask) is True and not builder().eager else mask
    return None if mask is True else mask


def load(
    pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: str = "",
    cache_modifier: str = "", eviction_policy: str = "", volatile: bool = False,
) -> Tensor:  # fmt: skip
    """The elements that pointers point to.

    Parameters
    ----------
    pointer : tensor of pointers, or block pointer
    mask : tensor of int1, optional
        Elements where it is False are not read.
    other : tensor or number, optional
        What those elements are; by default undefined.
    boundary_check : tuple of int
        For block pointers: the dims along which elements outside the array are not read.
    padding_option : str
        For block pointers: what those elements are: "zero" (also by default) or "nan".
    cache_modifier : str
        "", ".ca", ".cg" or ".cv".
    eviction_policy : str
        "", "evict_first" or "evict_last".
    volatile : bool
        Whether the load is neither moved nor shared.
    """
    given, other = unwrap(mask), unwrap(other)
    mask = _condition(given)
    cache = _one_of("cache_modifier", cache_modifier, _LOAD_CACHES)
    evict = _one_of("eviction_policy", eviction_policy, _EVICTIONS)
    padding = unwrap(padding_option) or ""
    if isinstance(pointer, BlockPointer):
        if given is not None or other is not None:
            raise CompilationError("a block pointer is loaded with boundary_check and padding_option, not with a mask")
        return pointer.load(_dims_checked(boundary_check, pointer), padding)
    pointer = _pointer("load", pointer)
    if padding or len(unwrap(boundary_check)):
        raise CompilationError("boundary_check and padding_option are for block pointers; use mask and other")
    if given is None and other is not None:
        raise CompilationError("load has `other` and no mask")
    other = None if other is None else other if is_number(other) else tensor(other)
    b, element = builder(), pointer.dtype.element_ty
    hints: dict[str, Any] = {"cache": cache, "evict": evict, "volatile": bool(unwrap(volatile))}
    assert pointer.base is not None
    if mask is None:
        value = b.load_ptr(pointer.base, pointer.value, **hints)
        return _loaded(value, element, pointer.shape)
    chosen = _fit("load", "mask", truth(mask), pointer)
    filler = 0 if other is None else other
    if isinstance(filler, Tensor) and not filler.shape and known_number(filler) is not None:
        filler = convert(filler, element)
        filler = constant(filler.value)
    if is_number(filler) and (filler or copysign(1, filler) > 0):
        if element.is_int() and element != int1:
            filler = fitted(int(filler), element.ir)
        value = b.load_ptr(pointer.base, pointer.value, chosen.value, filler, **hints)
        return _loaded(value, element, pointer.shape)
    value = b.load_ptr(pointer.base, pointer.value, chosen.value, 0, **hints)
    filler = _fit("load", "other", convert(tensor(filler), element), pointer)
    return where(chosen, _loaded(value, element, pointer.shape), filler)


def _loaded(value: Value, element: dtype, shape: Sequence[int]) -> Tensor:
    if not element.is_ptr():
        return Tensor(value, element, shape)
    return convert(Tensor(value, int64, shape), element)


def store(
    pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:  # fmt: skip
    """Write elements to where pointers point; see `load`."""
    mask, value = _condition(unwrap(mask)), unwrap(value)
    cache = _one_of("cache_modifier", cache_modifier, _STORE_CACHES)
    evict = _one_of("eviction_policy", eviction_policy, _EVICTIONS)
    if isinstance(pointer, BlockPointer):
        if mask is not None:
            raise CompilationError("a block pointer is stored to with boundary_check, not with a mask")
        return pointer.store(tensor(value), _dims_checked(boundary_check, pointer))
    pointer = _pointer("store", pointer)
    if len(unwrap(boundary_check)):
        raise CompilationError("boundary_check is for block pointers; use mask")
    element = pointer.dtype.element_ty
    stored = _fit("store", "value", _element("store", value, element), pointer)
    chosen = None if mask is None else _fit("store", "mask", truth(mask), pointer).value
    assert pointer.base is not None
    builder().store_ptr(stored.value, pointer.base, pointer.value, chosen, cache=cache, evict=evict)
    return None


def _element(name: str, value: Any, element: dtype) -> Tensor:
    """A value as what lies in memory."""
    if not isinstance(value, Tensor) and not element.is_ptr():
        if not is_number(value):
            raise CompilationError(f"{name} takes a block or a number, not {value!r}")
        return Tensor(const(int(value) if element.is_int() and element != int1 else value, element.ir), element)
    value = tensor(value)
    return convert(value, int64 if element.is_ptr() else element)


# -- windows of arrays ------------------------------------------------------------------------------------------------
class _Window:
    """A block of an array: base, shape and strides (i64 scalars), and the block's shape."""

    def __init__(self, base: Tensor, shape: Sequence[Value], strides: Sequence[Value], block: Sequence[int]) -> None:
        self.base = base
        self.shape_values = tuple(shape)
        self.stride_values = tuple(strides)
        self.block_shape = tuple(block)

    def _offset(self, starts: Sequence[Value]) -> Value:
        total = self.base.value
        for i, s in zip(starts, self.stride_values):
            total = elementwise("add", total, _times(i, s))
        return total

    def read(self, starts: Sequence[Value], checked: Sequence[int], other: float = 0) -> Tensor:
        """The block at `starts`; along the `checked` dims what lies outside the array is `other`."""
        b, block, element = builder(), self.block_shape, self.base.dtype.element_ty
        assert self.base.base is not None
        if any(not is_natural(starts[k]) for k in checked):
            index, inside = self._lanes(starts, checked)
            value = b.load_ptr(self.base.base, index, inside, other)
            return Tensor(value, element, block)
        bounds = self._bounds(starts, checked)
        value = b.load_view(self.base.base, self._offset(starts), self.stride_values, block, bounds, other)
        return Tensor(bare(value), element, block)

    def write(self, value: Tensor, starts: Sequence[Value], checked: Sequence[int]) -> None:
        b, block = builder(), self.block_shape
        value = broadcast_to(convert(value, self.base.dtype.element_ty), block)
        assert self.base.base is not None
        if any(not is_natural(starts[k]) for k in checked):
            index, inside = self._lanes(starts, checked)
            b.store_ptr(value.value, self.base.base, index, inside)
            return
        tile = whole(value.value, block)
        b.store_view(tile, self.base.base, self._offset(starts), self.stride_values, self._bounds(starts, checked))

    def _bounds(self, starts: Sequence[Value], checked: Sequence[int]) -> list[Value] | None:
        if not checked:
            return None
        return [
            elementwise("subtract", n, i) if k in checked else const(extent, "i64")
            for k, (n, i, extent) in enumerate(zip(self.shape_values, starts, self.block_shape))
        ]

    def _lanes(self, starts: Sequence[Value], checked: Sequence[int]) -> tuple[Value, Value]:
        """Index and mask of each element, where a start may be negative."""
        b, block = builder(), self.block_shape
        index, inside = self.base.like(self.base.value), []
        for k, (i, s, n, extent) in enumerate(zip(starts, self.stride_values, self.shape_values, block)):
            shape = tuple([extent if j == k else 1 for j in range(len(block))])
            along = Tensor(b.iota(extent) if extent > 1 else const(0, "i64"), int64, shape)
            at = add(along, Tensor(i, int64))
            index = offset(index, mul(at, Tensor(s, int64)))
            if k in checked:
                inside += [at < Tensor(n, int64)] if is_natural(i) else [at >= 0, at < Tensor(n, int64)]
        both = inside[0]
        for test in inside[1:]:
            both = both & test
        return broadcast_to(index, block).value, broadcast_to(both, block).value

    def wide(self, indices: Any) -> list[Value]:
        indices = unwrap(indices)
        if len(indices) != len(self.block_shape):
            raise CompilationError(f"a block of {len(self.block_shape)} dims has {len(indices)} offsets")
        return [_scalar(i) for i in indices]


def _times(i: Value, stride: Value) -> Value:
    known = constant(stride)
    if known == 1:
        return i
    if known == 0 or constant(i) == 0:
        return const(0, "i64")
    return elementwise("multiply", i, stride)


def _scalar(x: Any) -> Value:
    """An integer as an i64 scalar."""
    x = tensor(x)
    if x.numel != 1 or not x.dtype.is_int():
        raise CompilationError(f"an offset, a size or a stride is an integer, not a {x.type}")
    return convert(x, int64).value


def _sizes(shape: Any) -> list[Value]:
    """Sizes of an array, which are not negative."""
    values = _strides(shape)
    for v in values:
        _natural(v)
    return values


def _strides(strides: Any) -> list[Value]:
    """Strides of an array.  Those of two windows are one value where they are one parameter."""
    b, values = builder(), [tensor(s) for s in unwrap(strides)]
    standing = [None if b.eager or s.dtype == int64 else b.standing(s.value) for s in values]
    return [_scalar(s) if found is None else found for s, found in zip(values, standing)]


def _natural(value: Value) -> None:
    b = builder()
    while True:
        b.lowest[value] = max(b.lowest.get(value, 0), 0)
        if value.op is None or value.op.name != "cast":
            return
        (value,) = value.op.operands


class BlockPointer(_Window):
    """A pointer to a block of an array; see `make_block_ptr`."""

    def __init__(
        self, base: Tensor, shape: Sequence[Value], strides: Sequence[Value], offsets: Sequence[Tensor],
        block: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(base, shape, strides, block)
        self.offsets = tuple(offsets)

    @property
    def type(self) -> dtype:
        return pointer_type(self.base.dtype.element_ty)

    @property
    def dtype(self) -> dtype:
        return self.base.dtype

    def __repr__(self) -> str:
        return f"block pointer to {block_type(self.base.dtype.element_ty, self.block_shape)}"

    def _starts(self) -> list[Value]:
        return [cast_value(o.value, "i64") for o in self.offsets]

    def load(self, checked: Sequence[int], padding: str) -> Tensor:
        if padding not in ("", "zero", "nan"):
            raise CompilationError(f"padding_option is 'zero' or 'nan', not {padding!r}")
        if padding == "nan" and not self.base.dtype.element_ty.is_floating():
            raise CompilationError(f"there is no NaN of {self.base.dtype.element_ty} for padding_option")
        return self.read(self._starts(), checked, float("nan") if padding == "nan" else 0)

    def store(self, value: Tensor, checked: Sequence[int]) -> None:
        self.write(value, self._starts(), checked)

    def advance(self, offsets: Any) -> BlockPointer:
        """The pointer to the block that many elements on, along each dim."""
        by = unwrap(offsets)
        if len(by) != len(self.offsets):
            raise CompilationError(f"a block pointer of {len(self.offsets)} dims advances by as many, not {len(by)}")
        moved = [convert(add(o, d), int32) for o, d in zip(self.offsets, by)]
        return BlockPointer(self.base, self.shape_values, self.stride_values, moved, self.block_shape)


def _dims_checked(boundary_check: Any, pointer: BlockPointer) -> tuple[int, ...]:
    given = unwrap(boundary_check)
    dims = tuple([static_int(d, "boundary_check") for d in (given if isinstance(given, (tuple, list)) else (given,))])
    for d in dims:
        if not 0 <= d < len(pointer.block_shape):
            raise CompilationError(f"boundary_check has dim {d} of {len(pointer.block_shape)}")
    return dims


def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> BlockPointer:
    """A pointer to a block of an array.

    Parameters
    ----------
    base : pointer
        To the array's first element.
    shape, strides, offsets : tuple of int or scalar
        The array's, and where the block begins.
    block_shape : tuple of int
    order : tuple of int
        The dims from the fastest to the slowest.
    """
    base, sizes = _pointer("make_block_ptr", base), _block(block_shape)
    shape, strides, offsets, order = map(unwrap, (shape, strides, offsets, order))
    if not len(shape) == len(strides) == len(offsets) == len(sizes) == len(order):
        raise CompilationError("shape, strides, offsets, block_shape and order of a block pointer differ in length")
    if base.shape:
        raise CompilationError(f"make_block_ptr takes one pointer, not {base.type}")
    if sorted(static_int(d, "order") for d in order) != list(range(len(sizes))):
        raise CompilationError(f"order has each dim once, not {tuple(order)}")
    starts = [convert(tensor(o), int32) for o in offsets]
    return BlockPointer(base, _sizes(shape), _strides(strides), starts, sizes)


def _block(shape: Any) -> tuple[int, ...]:
    return block_shape(shape, "block_shape")


def advance(base: BlockPointer, offsets: Any) -> BlockPointer:
    """The block pointer, moved."""
    if not isinstance(base, BlockPointer):
        raise CompilationError(
            f"advance takes a block pointer, not {base.type if isinstance(base, Tensor) else repr(base)}"
        )
    return base.advance(offsets)


class TensorDescriptor(_Window):
    """An array with the shape of the blocks that are read of it; see `make_tensor_descriptor`."""

    def __init__(
        self,
        base: Tensor,
        shape: Sequence[Value],
        strides: Sequence[Value],
        block: Sequence[int],
        padding: str = "zero",
    ) -> None:
        super().__init__(base, shape, strides, block)
        self.padding = padding

    @property
    def dtype(self) -> dtype:
        return self.base.dtype.element_ty

    @property
    def type(self) -> block_type:
        return self.block_type

    @property
    def block_type(self) -> block_type:
        return block_type(self.dtype, self.block_shape)

    @property
    def shape(self) -> tuple[Tensor, ...]:
        return tuple([Tensor(cast_value(n, "i32"), int32) for n in self.shape_values])

    @property
    def strides(self) -> tuple[Tensor, ...]:
        return tuple([Tensor(s, int64) for s in self.stride_values])

    def __repr__(self) -> str:
        return f"tensor descriptor of {self.block_type}"

    def _all(self) -> range:
        return range(len(self.block_shape))

    def load(self, offsets: Any) -> Tensor:
        """The block at these offsets; what lies outside the array is 0."""
        return self.read(self.wide(offsets), self._all(), float("nan") if self.padding == "nan" else 0)

    def store(self, offsets: Any, value: Any) -> None:
        """Write the block at these offsets; what lies outside the array is left out."""
        self.write(tensor(value), self.wide(offsets), self._all())

    def _rows(self, x_offsets: Tensor, y_offset: Any) -> tuple[Tensor, Tensor]:
        if len(self.block_shape) != 2 or self.block_shape[0] != 1:
            raise CompilationError("gather and scatter are of descriptors whose blocks are one row")
        if len(x_offsets.shape) != 1:
            raise CompilationError(f"rows are given as a block of one dim, not {x_offsets.type}")
        rows = Tensor(x_offsets.value, x_offsets.dtype, (*x_offsets.shape, 1)).to(int64)
        along = Tensor(builder().iota(self.block_shape[1]), int64, (1, self.block_shape[1]))
        columns = add(along, Tensor(_scalar(y_offset), int64))
        (height, width), (row, column) = self.shape_values, self.stride_values
        inside = (rows >= 0) & (rows < Tensor(height, int64)) & ((columns >= 0) & (columns < Tensor(width, int64)))
        index = add(mul(rows, Tensor(row, int64)), mul(columns, Tensor(column, int64)))
        return offset(self.base, index), inside

    def gather(self, x_offsets: Tensor, y_offset: Any) -> Tensor:
        """Rows of the array, from column y_offset on."""
        pointers, inside = self._rows(x_offsets, y_offset)
        return load(pointers, inside, 0)

    def scatter(self, value: Any, x_offsets: Tensor, y_offset: Any) -> None:
        """Write rows of the array, from column y_offset on."""
        pointers, inside = self._rows(x_offsets, y_offset)
        store(pointers, value, inside)

    def _atomic(self, kind: str, offsets: Any, value: Any) -> None:
        index, inside = self._lanes(self.wide(offsets), self._all())
        pointers = Tensor(index, self.base.dtype, self.block_shape, self.base.base)
        _atomic(kind, pointers, value, Tensor(inside, int1, self.block_shape), "relaxed", None)

    def atomic_add(self, offsets: Any, value: Any) -> None:
        """Add a block to the array."""
        self._atomic("add", offsets, value)

    def atomic_min(self, offsets: Any, value: Any) -> None:
        """Lower elements of the array to those of a block."""
        self._atomic("min", offsets, value)

    def atomic_max(self, offsets: Any, value: Any) -> None:
        """Raise elements of the array to those of a block."""
        self._atomic("max", offsets, value)

    def atomic_and(self, offsets: Any, value: Any) -> None:
        """Bitwise and of a block into the array."""
        self._atomic("and", offsets, value)

    def atomic_or(self, offsets: Any, value: Any) -> None:
        """Bitwise or of a block into the array."""
        self._atomic("or", offsets, value)

    def atomic_xor(self, offsets: Any, value: Any) -> None:
        """Bitwise exclusive or of a block into the array."""
        self._atomic("xor", offsets, value)


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> TensorDescriptor:
    """A descriptor of an array in memory.

    Parameters
    ----------
    base : pointer
        To the array's first element; a multiple of 16 bytes.
    shape, strides : list of int or scalar
        The last stride is 1, the others are multiples of 16 bytes.
    block_shape : list of int
        What `load` reads and `store` writes.
    padding_option : str
        What lies outside the array: "zero" or "nan".
    """
    base, sizes = _pointer("make_tensor_descriptor", base), _block(block_shape)
    shape, strides = unwrap(shape), unwrap(strides)
    if not len(shape) == len(strides) == len(sizes):
        raise CompilationError("shape, strides and block_shape of a descriptor differ in length")
    if not 1 <= len(sizes) <= 5:
        raise CompilationError(f"a descriptor has one to five dims, not {len(sizes)}")
    padding = unwrap(padding_option) or "zero"
    if padding not in ("zero", "nan"):
        raise CompilationError(f"padding_option is 'zero' or 'nan', not {padding!r}")
    last = unwrap(strides[-1])
    if (constant(last.value) if isinstance(last, Tensor) else last) != 1:
        raise CompilationError("the last stride of a descriptor must be a constexpr of 1")
    element = base.dtype.element_ty
    if sizes[-1] * element.itemsize < 16:
        raise CompilationError(
            f"the last dim of a descriptor's blocks has at least 16 bytes, not {sizes[-1] * element.itemsize}"
        )
    return TensorDescriptor(base, _sizes(shape), _strides(strides), sizes, padding)


def load_tensor_descriptor(desc: TensorDescriptor, offsets: Any) -> Tensor:
    """The block at these offsets."""
    return _descriptor("load_tensor_descriptor", desc).load(offsets)


def store_tensor_descriptor(desc: TensorDescriptor, offsets: Any, value: Any) -> None:
    """Write the block at these offsets."""
    _descriptor("store_tensor_descriptor", desc).store(offsets, value)


def _descriptor(name: str, x: Any) -> TensorDescriptor:
    if not isinstance(x, TensorDescriptor):
        raise CompilationError(f"{name} takes a descriptor, not {_spelled(x)}")
    return x


# -- atomics ----------------------------------------------------------------------------------------------------------
_ORDERS = ("acquire", "release", "acq_rel", "relaxed")
_SCOPES = ("gpu", "cta", "sys")


def _ordering(sem: Any, scope: Any) -> tuple[str, str]:
    order, where_ = unwrap(sem) or "acq_rel", unwrap(scope) or "gpu"
    if order not in _ORDERS:
        raise CompilationError(f"sem is one of {', '.join(_ORDERS)}, not {order!r}")
    if where_ not in _SCOPES:
        raise CompilationError(f"scope is one of {', '.join(_SCOPES)}, not {where_!r}")
    return order, where_


def _atomic(kind: str, pointer: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Tensor:
    name = f"atomic_{kind}"
    pointer = _pointer(name, pointer)
    element = pointer.dtype.element_ty
    if element.primitive_bitwidth < (16 if element.is_floating() else 32) or element.is_ptr():
        raise CompilationError(f"{name} does not take {element}")
    if element.is_floating() and kind in ("and", "or", "xor"):
        raise CompilationError(f"{name} takes integers, not {element}")
    value = _fit(name, "value", _element(name, unwrap(val), element), pointer)
    mask = _condition(unwrap(mask))
    chosen = None if mask is None else _fit(name, "mask", truth(mask), pointer).value
    assert pointer.base is not None
    order, where_ = _ordering(sem, scope)
    old = builder().atomic(kind, pointer.base, pointer.value, value.value, chosen, order=order, scope=where_)
    return Tensor(old, element, pointer.shape)


@member
def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Add to what is in memory; what was there before."""
    return _atomic("add", pointer, val, mask, sem, scope)


@member
def atomic_max(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Raise what is in memory to a value; what was there before."""
    return _atomic("max", pointer, val, mask, sem, scope)


@member
def atomic_min(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Lower what is in memory to a value; what was there before."""
    return _atomic("min", pointer, val, mask, sem, scope)


@member
def atomic_and(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Bitwise and into memory; what was there before."""
    return _atomic("and", pointer, val, mask, sem, scope)


@member
def atomic_or(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Bitwise or into memory; what was there before."""
    return _atomic("or", pointer, val, mask, sem, scope)


@member
def atomic_xor(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Bitwise exclusive or into memory; what was there before."""
    return _atomic("xor", pointer, val, mask, sem, scope)


@member
def atomic_xchg(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Tensor:
    """Replace what is in memory; what was there before."""
    return _atomic("xchg", pointer, val, mask, sem, scope)


@member
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> Tensor:
    """Replace what is in memory where it equals `cmp`; what was there before."""
    pointer = _pointer("atomic_cas", pointer)
    element = pointer.dtype.element_ty
    if element.primitive_bitwidth not in (16, 32, 64):
        raise CompilationError(f"atomic_cas does not take {element}")
    value, expected = (
        _fit("atomic_cas", "value", _element("atomic_cas", unwrap(x), element), pointer) for x in (val, cmp)
    )
    assert pointer.base is not None
    order, where_ = _ordering(sem, scope)
    old = builder().atomic(
        "cas", pointer.base, pointer.value, value.value, compare=expected.value, order=order, scope=where_
    )
    return Tensor(old, element, pointer.shape)
