"""Ops that move, order or count the elements of tiles, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import dtypes

#: (left values, right values) -> joined values, elementwise on arrays of one shape.
Combine = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], Sequence[np.ndarray]]


def move(name: str, attrs: dict[str, Any], shape: tuple[int, ...], x: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The results of a movement; `shape` is that of the first."""
    match name:
        case "reshape":
            return (x[0].reshape(shape),)
        case "trans":
            return (x[0].transpose(attrs["perm"]),)
        case "join":
            return (np.stack(x, axis=-1),)
        case "split":
            return x[0][..., 0], x[0][..., 1]
        case "cat":
            return (np.concatenate(x, axis=attrs["dim"]),)
        case "gather":
            return (np.take_along_axis(x[0], x[1], attrs["dim"]),)
        case "flip":
            return (np.flip(x[0], attrs["dim"]),)
        case "sort":
            narrow = dtypes.name(x[0].dtype) in dtypes.NARROW  # whose NaNs NumPy does not put last
            ordered = np.sort(x[0].astype(np.float32) if narrow else x[0], axis=attrs["dim"]).astype(x[0].dtype)
            return (np.flip(ordered, attrs["dim"]) if attrs["descending"] else ordered,)
    counted = x[0][x[1]] if len(x) > 1 else x[0].ravel()
    (bins,) = shape
    inside = counted[(counted >= 0) & (counted < bins)].astype(np.int64)
    return (np.bincount(inside, minlength=bins).astype(np.int32),)


def reduce_by(combine: Combine, xs: Sequence[np.ndarray], dim: int) -> list[np.ndarray]:
    """Neighbours are joined until one is left, so that the order of operands is kept."""
    parts = [np.moveaxis(x, dim, 0) for x in xs]
    count = len(parts[0])
    if not count:
        raise ValueError("a reduction of no elements by a region")
    while count > 1:
        even = count - count % 2
        joined = combine([p[0:even:2] for p in parts], [p[1:even:2] for p in parts])
        parts = [np.concatenate([j, p[even:]]) for j, p in zip(joined, parts, strict=True)]
        count = len(parts[0])
    return [np.asarray(p[0]) for p in parts]


def scan_by(combine: Combine, xs: Sequence[np.ndarray], dim: int, reverse: bool) -> list[np.ndarray]:
    """What spans of doubling length before each element give is joined with it."""
    parts = [np.moveaxis(np.flip(x, dim) if reverse else x, dim, 0) for x in xs]
    span = 1
    while span < len(parts[0]):
        joined = combine([p[:-span] for p in parts], [p[span:] for p in parts])
        parts = [np.concatenate([p[:span], j]) for j, p in zip(joined, parts, strict=True)]
        span *= 2
    whole = [np.moveaxis(p, 0, dim) for p in parts]
    return [np.flip(p, dim) for p in whole] if reverse else whole


def lines(prefix: str, hex_: bool, program: Sequence[int], x: Sequence[np.ndarray]) -> list[str]:
    """What a program prints: a line an element, operand by operand.  `program` has three numbers, x first."""
    place = "pid ({}, {}, {})".format(*program)
    if not x:
        return [place + prefix]
    found = []
    for k, values in enumerate(x):
        which = f"(operand {k}) " if len(x) > 1 else ""
        widths = [len(str(n - 1)) for n in values.shape]
        for at in np.ndindex(values.shape):
            index = ", ".join(f"{i:{w}}" for i, w in zip(at, widths, strict=True))
            found.append(f"{place} idx ({index}){prefix}{which}{_shown(values[at], hex_)}")
    return found


def _shown(value: Any, hex_: bool) -> str:
    if hex_:
        size = value.dtype.itemsize
        return f"0x{int(value.view(f'u{size}')):0{2 * size}x}"
    if value.dtype.kind in "biu":
        return str(int(value))
    return f"{float(value):f}"
