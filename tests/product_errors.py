"""Errors of matrix products beside those of cuBLAS, on the CPU of NumPy's BLAS.

python -m tests.product_errors [--device cuda] [--write docs/accuracy.md]

An element's error is measured by the size that a sum of terms as large as its own has when their signs are random,
sqrt(sum of (a b)^2 over k): so badly scaled rows and results that cancel count as much as others.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import blockarray as ba

DEPTHS = (64, 256, 1024, 4096, 16384)
INPUTS = ("random", "badly scaled", "cancelling")
#: Rows and columns of the products, and those of which the elements are compared.  A GPU has enough tiles of as many
#: for all processors: of fewer, libraries add parts of k up by themselves, which is more accurate.
SIDE, SAMPLED = {"cpu": 256, "cuda": 2048}, 64


@dataclass(frozen=True)
class Kind:
    """A type of product: its operands, its result, and the precision in which it adds up."""

    dtype: str
    result: str
    #: Largest relative error of a rounding: of the result, and of a sum.
    rounding: float
    adding: float
    #: Exponents by which rows, columns and positions along k are scaled at most: products stay in range.
    exponents: int
    #: Sums in tensor cores are cut off, not rounded: their errors grow with k, not with its root.
    cut_off: bool = False
    #: How float32 is multiplied.
    precision: str = "highest"


HALF, SINGLE, DOUBLE = 2.0**-11, 2.0**-24, 2.0**-53
KINDS = {
    "f16": Kind("float16", "float16", HALF, SINGLE, 2, True),
    "bf16": Kind("bfloat16", "bfloat16", 2.0**-8 / 2, SINGLE, 20, True),
    "f8 e4m3": Kind("float8_e4m3fn", "bfloat16", 2.0**-8 / 2, 2.0**-13, 1, True),
    "f32": Kind("float32", "float32", SINGLE, SINGLE, 20),
    "f32, ieee": Kind("float32", "float32", SINGLE, SINGLE, 20, precision="ieee"),
    "f64": Kind("float64", "float64", DOUBLE, DOUBLE, 20),
    "c64": Kind("complex64", "complex64", SINGLE, SINGLE, 20),
    "c128": Kind("complex128", "complex128", DOUBLE, DOUBLE, 20),
    "int8": Kind("int8", "int32", 0.0, 0.0, 0),
}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@cache
def normal(rows: int, columns: int, seed: int, dtype: Any) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns), dtype)


def operands(kind: Kind, inputs: str, side: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of (side, depth) and (depth, side), in the product's type."""
    dtype = dtype_of(kind.dtype)
    base = np.float64 if dtype in (np.float64, np.complex128) else np.float32
    a, b = normal(side, depth, 1, base), normal(depth, side, 2, base)
    if dtype.kind == "c":
        a, b = (x + dtype.type(1j) * normal(*x.shape, k, base) for k, x in ((3, a), (4, b)))
    if dtype.kind == "i":
        return tuple(np.clip(np.rint(50 * x), -128, 127).astype(dtype) for x in (a, b))  # pyright: ignore
    if inputs == "badly scaled":
        rng = np.random.default_rng(5)
        rows, columns, along = (rng.integers(-kind.exponents, kind.exponents + 1, n) for n in (side, side, depth))
        a = a * np.exp2(rows[:, None] + along).astype(base)
        b = b * np.exp2(columns).astype(base)
    if inputs == "cancelling":
        # The second half of the terms takes away what the first one adds up to, all but a thousandth.
        half = depth // 2
        a = np.concatenate([a[:, :half], a[:, :half]], 1)
        b = np.concatenate([b[:half], b[:half] * base(-1 - 2.0**-10)], 0)
    return a.astype(dtype), b.astype(dtype)


@dataclass(frozen=True)
class Sample:
    """The elements that are compared: which, what they are exactly, and their sizes."""

    rows: np.ndarray
    columns: np.ndarray
    exact: np.ndarray
    size: np.ndarray

    def errors(self, product: np.ndarray) -> tuple[float, float]:
        """Root of the mean square, and maximum."""
        found = product[np.ix_(self.rows, self.columns)].astype(self.exact.dtype)
        errors = abs(found - self.exact) / self.size
        return float(np.sqrt(np.mean(errors**2))), float(errors.max())


def sample(a: np.ndarray, b: np.ndarray) -> Sample:
    rng = np.random.default_rng(6)
    rows, columns = (np.sort(rng.permutation(n)[:SAMPLED]) for n in (a.shape[0], b.shape[1]))
    a, b = a[rows], b[:, columns]
    # Products of float64 need more.
    wide = {8: np.longdouble, 16: np.clongdouble}.get(a.dtype.itemsize, np.float64)
    if a.dtype.kind == "c":
        wide = np.complex128 if a.dtype.itemsize == 8 else np.clongdouble
    x, y = a.astype(wide), b.astype(wide)
    size = np.sqrt((abs(x) ** 2).astype(np.float64) @ (abs(y) ** 2).astype(np.float64))
    return Sample(rows, columns, x @ y, size)


# -- who multiplies ---------------------------------------------------------------------------------------------------
def ours(kind: Kind, a: np.ndarray, b: np.ndarray, device: str) -> np.ndarray:
    x, y = (ba.asarray(v, device=device) for v in (a, b))
    with ba.matmul_precision(kind.precision):
        result = ba.matmul(x, y, dtype=getattr(ba, kind.result))
    ba.evaluate(result)  # or what is added up would be cast to float32, without a rounding to bfloat16
    return np.asarray(ba.astype(result, ba.float32) if kind.result == "bfloat16" else result)


def numpy(kind: Kind, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.matmul(a, b, dtype=dtype_of(kind.result))


def torch(kind: Kind, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """cuBLAS, through torch."""
    import torch as t  # pyright: ignore[reportMissingImports]

    t.backends.cuda.matmul.allow_tf32 = False
    t.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    t.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def put(array: np.ndarray) -> Any:
        name = array.dtype.name
        if name in ("bfloat16", "float8_e4m3fn"):
            return t.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(getattr(t, name)).cuda()
        return t.from_numpy(array).cuda()

    x, y = put(a), put(b)
    if kind.dtype == "float8_e4m3fn":
        one = t.ones((), device="cuda")
        result = t._scaled_mm(x, y.T.contiguous().T, one, one, out_dtype=t.bfloat16)
    else:
        result = t._int_mm(x, y) if kind.dtype == "int8" else x @ y
    return result.float().cpu().numpy() if kind.result == "bfloat16" else result.cpu().numpy()


def cupy(kind: Kind, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """cuBLAS, through CuPy."""
    import cupy as c  # pyright: ignore[reportMissingImports]

    return c.asnumpy(c.asarray(a) @ c.asarray(b))


#: What CuPy has of cuBLAS.
CUPY = ("f16", "f32", "f32, ieee", "f64", "c64", "c128")
#: Types that NumPy leaves to its BLAS.
BLAS = ("f32", "f32, ieee", "f64", "c64", "c128")


def peer(name: str, device: str) -> Callable[[Kind, np.ndarray, np.ndarray], np.ndarray] | None:
    """The library that a type's products are compared with on a device, if it is installed."""
    if device == "cpu":
        return numpy if name in BLAS or name == "int8" else None
    for library, names in ((torch, tuple(KINDS)), (cupy, CUPY)):
        try:
            importlib.metadata.version(library.__name__ if library is torch else "cupy-cuda13x")
        except importlib.metadata.PackageNotFoundError:
            continue
        if name in names:
            return library
    return None


def bound(kind: Kind, depth: int) -> float:
    """What the root of the mean square stays below.

    Each of the sums' roundings is random and at most `adding` of a partial sum, which is of the size that errors are
    measured by: their squares add up to less than depth * adding**2 (N. J. Higham and T. Mary, A New Approach to
    Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019).  What tensor cores cut off has the sum's sign
    (M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7,
    2021).
    """
    return kind.rounding + (2 * depth if kind.cut_off else depth**0.5) * kind.adding


def cases(depths: Sequence[int] = DEPTHS) -> list[tuple[str, str, int]]:
    return [
        (name, inputs, depth)
        for name, kind in KINDS.items()
        if hasattr(ba, kind.dtype)
        for inputs in (INPUTS if kind.exponents else INPUTS[:1])
        for depth in depths
    ]


def measured(name: str, inputs: str, depth: int, device: str) -> dict[str, tuple[float, float]]:
    """Errors of ours and of the library's product."""
    kind = KINDS[name]
    a, b = operands(kind, inputs, SIDE[device.split(":")[0]], depth)
    exact = sample(a, b)
    found = {"ours": exact.errors(ours(kind, a, b, device))}
    library = peer(name, device)
    if library is not None:
        found["library"] = exact.errors(library(kind, a, b))
    return found


# -- the document -----------------------------------------------------------------------------------------------------
def document(device: str, machine: str, library: str, depths: Sequence[int]) -> str:
    """Tables of all errors, as Markdown."""
    lines = [
        f"## {machine}",
        "",
        f"| type | inputs | k | RMS, ours | RMS, {library} | max, ours | max, {library} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, inputs, depth in cases(depths):
        found = measured(name, inputs, depth, device)
        shown = [f"{found[who][which]:.2e}" if who in found else "" for which in (0, 1) for who in ("ours", "library")]
        lines.append(f"| {name} | {inputs} | {depth} | " + " | ".join(shown) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


LIBRARY = {"CPU": "NumPy", "GPU": "cuBLAS"}
HEADING = """\
# Accuracy of matrix products

Made by `python -m tests.product_errors`. Errors of a sample of 64 x 64 elements, measured against float64 (products of
float64 against longdouble), by the size that an element has if its terms have random signs, sqrt(sum of (a b)^2): so
elements of badly scaled rows, and those that cancel, count as much as others. "Badly scaled": rows, columns and
positions along k times powers of two up to 2^20 (2^2 and 2^1 for f16 and f8, which have no more room). "Cancelling":
all but a thousandth of each sum is taken away again.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--machine", default="", help="its name, for the heading")
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)), help="values of k")
    parser.add_argument("--write", type=Path, help="the document whose section of this device is made anew")
    args = parser.parse_args()
    where = "GPU" if args.device.startswith("cuda") else "CPU"
    machine = f"{where}{': ' * bool(args.machine)}{args.machine}"
    section = document(args.device, machine, LIBRARY[where], [int(k) for k in args.depths.split(",")])
    if args.write:
        before = args.write.read_text() if args.write.exists() else HEADING
        head, *sections = before.split("\n## ")
        kept = [s for s in sections if not s.startswith(where)]
        sections = sorted([*kept, section.removeprefix("## ").rstrip() + "\n"])
        args.write.write_text("\n## ".join([head.rstrip() + "\n", *(s.rstrip() + "\n" for s in sections)]))


if __name__ == "__main__":
    main()
