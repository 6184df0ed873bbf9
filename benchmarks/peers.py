"""The libraries under test.  A peer turns a row into a call that computes it and returns when the result is there."""

from __future__ import annotations

import importlib.metadata
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from workloads import (
    ATTENTION,
    BARE,
    MATMULS,
    NARROW,
    QUOTIENTS,
    Row,
    causal_attention,
    chain,
    gelu_matmul,
    layernorm,
    matmul,
    matmul_f8,
    matmul_int8,
    matmul_nt,
    matmul_tn,
    matmul_tt,
    softmax,
    sum_0,
    sum_1,
    sum_all,
)

Call = Callable[[], Any]

#: Rows that torch.compile is also asked to measure kernels for.
AUTOTUNED = ("matmul 4095x4097x4099 bf16", "gelu(a @ b + c) 8192 bf16", "attention 4x16x4096x64 bf16")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # run from its source
        return "from source"


class Peer:
    """A library, and how it is called.  `fresh` and `reused` give None for a row that it cannot express."""

    packages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    #: Whether it takes part only if asked for by name, since its rows take long.
    slow = False

    @classmethod
    def supports(cls, row: Row) -> bool:
        """Whether the library has the row's types and functions."""
        return True

    def __init__(self, device: str, threads: int) -> None:
        self.device = device
        self.threads = threads

    def versions(self) -> str:
        return ", ".join(f"{name} {_version(name)}" for name in self.packages)

    def put(self, array: np.ndarray) -> Any:
        """The input on the device, in the library's own type."""
        return array

    def host(self, result: Any) -> np.ndarray:
        return np.asarray(result)

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        """The row with a new output at each call, as a user writes it."""
        raise NotImplementedError

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        """The row into one output made beforehand, where the library has a way to say so."""
        return None

    def bare(self, row: Row, args: list[Any]) -> Call | None:
        """The product alone of a row that has something behind it."""
        alone = BARE.get(row.function)
        return None if alone is None else self.fresh(replace(row, function=alone), args)

    def plan(self, row: Row, args: list[Any]) -> str:
        """How the row is computed, in words, where the library tells."""
        return ""

    def synchronize(self) -> None:
        """Wait for the device after a burst of calls."""

    def stream(self) -> int | None:
        """The driver's handle of the stream on which the device works, None if the library does not tell."""
        return None

    def clear(self) -> None:
        """Give memory that no array holds back to the device."""


def with_out(xp: Any, row: Row, args: list[Any]) -> Callable[[Any], Any] | None:
    """The rows whose last function has an `out` argument."""
    x = args[0]
    if row.function is chain:
        return lambda out: xp.add(xp.exp(-(x * x) * 0.5) * 0.3989, xp.sin(x) * 0.5, out=out)
    if row.function in QUOTIENTS:
        return lambda out: xp.divide(*QUOTIENTS[row.function](xp, x), out=out)
    if row.function is sum_0:
        return lambda out: xp.sum(x, axis=0, out=out)
    if row.function is sum_1:
        return lambda out: xp.sum(x, axis=1, out=out)
    if row.function is matmul:
        return lambda out: xp.matmul(x, args[1], out=out)
    return None


class Eager(Peer):
    """A library that runs a row's functions as they are called."""

    xp: Any

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        return lambda: row.function(self.xp, *args)

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        call = with_out(self.xp, row, args)
        if call is None:
            return None
        out = row.function(self.xp, *args)
        return lambda: call(out)


class NumPy(Eager):
    packages = ("numpy",)
    xp = np


class NumExpr(Peer):
    packages = ("numexpr",)

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import numexpr

        numexpr.set_num_threads(threads)
        self.evaluate = numexpr.evaluate

    def call(self, row: Row, args: list[Any], out: np.ndarray | None) -> Call | None:
        d1 = "((log(a / b) + drift * c) / (vol * sqrt(c)))"
        d2 = f"({d1} - vol * sqrt(c))"
        cdf = "(half * (one + tanh(k1 * ({0} + k2 * {0} * {0} * {0}))))"
        expression = {
            "chain": "exp(-(a * a) * half) * k0 + sin(a) * half",
            "black_scholes": f"a * {cdf.format(d1)} - b * exp(-rate * c) * {cdf.format(d2)}",
            "small": "(" * 4 + "a * step + half" + ") * step + half" * 4,
            "sum_all": "sum(a)",
        }.get(row.function.__name__)
        if expression is None:
            return None
        # Literals are float64 to numexpr and would make the whole expression so.
        constants = {"half": 0.5, "one": 1, "k0": 0.3989, "k1": 0.7978845608, "k2": 0.044715, "step": 1.01}
        constants |= {"rate": 0.02, "vol": 0.3, "drift": 0.02 + 0.3 * 0.3 * 0.5}
        operands: dict[str, Any] = {k: np.dtype(row.dtype).type(v) for k, v in constants.items()}
        operands |= dict(zip("abc", args, strict=False))
        return lambda: self.evaluate(expression, operands, out=out)

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        return self.call(row, args, None)

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        return None if row.function is sum_all else self.call(row, args, np.empty_like(args[0]))


class Numba(Peer):
    packages = ("numba",)

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import numba_loops

        self.loops = {dtype: numba_loops.loops(dtype) for dtype in ("float32", "float64")}
        self.output_shape = numba_loops.output_shape

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        name = row.function.__name__
        loop = self.loops[row.dtype].get(name)
        if loop is None:
            return None

        def call() -> np.ndarray:
            out = np.empty(self.output_shape(name, args), row.dtype)
            loop(out, *args)
            return out

        return call

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        name = row.function.__name__
        loop = self.loops[row.dtype].get(name)
        if loop is None:
            return None
        out = np.empty(self.output_shape(name, args), row.dtype)
        loop(out, *args)
        return lambda: (loop(out, *args), out)[1]


class Jax(Peer):
    packages = ("jax", "jaxlib")
    devices = ("cpu", "cuda")

    @classmethod
    def supports(cls, row: Row) -> bool:
        """All but products for which it takes long to choose a kernel, or that are transposes of others."""
        return row.function not in (matmul_f8, matmul_tn, matmul_nt, matmul_tt) and row.name != "matmul 8192 f32"

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", device)
        self.jax = jax
        changed = {
            # A sum with zero makes a copy in the transposed order, which ascontiguousarray does not ask for.
            "ascontiguousarray": lambda x: x + 0,
            "matmul": lambda a, b, dtype=None: jax.numpy.matmul(a, b, preferred_element_type=dtype),
            "arange": lambda n, like: jax.numpy.arange(n),
        }
        self.xp = types.SimpleNamespace(**{**vars(jax.numpy), **changed})
        self.last: Any = None

    def put(self, array: np.ndarray) -> Any:
        return self.jax.numpy.asarray(array)

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        precision = "highest" if row.dtype in ("float32", "float64") else "default"

        def traced(*arrays: Any) -> Any:
            with self.jax.default_matmul_precision(precision):
                return row.function(self.xp, *arrays)

        function = self.jax.jit(traced)
        if self.device == "cpu":
            return lambda: function(*args).block_until_ready()

        def call() -> Any:
            self.last = function(*args)
            return self.last

        return call

    def synchronize(self) -> None:
        if self.last is not None:
            self.last.block_until_ready()


#: Functions that torch names and calls as NumPy does.
TORCH_NAMES = (
    "add", "divide", "exp", "log", "sin", "sqrt", "tanh", "sum", "mean", "matmul", "argmax", "cumsum", "swapaxes",
    "where",
)  # fmt: skip
#: What torch cannot take from NumPy: the type to see it as, and torch's name.
TORCH_TYPES = {NARROW["bfloat16"]: (np.int16, "bfloat16"), NARROW["float8_e4m3fn"]: (np.uint8, "float8_e4m3fn")}


class Torch(Eager):
    """torch, the rows as written; attention is left to what does not store all scores."""

    packages = ("torch",)
    devices = ("cpu", "cuda")

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.function not in (*ATTENTION, matmul_f8, matmul_int8)

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import torch

        if threads:
            torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        self.torch = torch
        self.xp = types.SimpleNamespace(
            **{name: getattr(torch, name) for name in TORCH_NAMES},
            ascontiguousarray=lambda x: x.contiguous(),
            arange=lambda n, like: torch.arange(n, device=like.device),
            sort=lambda x: torch.sort(x)[0],
            max=lambda x, axis, keepdims: torch.amax(x, axis, keepdim=keepdims),
            var=lambda x, axis=None: torch.var(x, axis, correction=0),
        )

    def stream(self) -> int | None:
        return self.torch.cuda.current_stream().cuda_stream

    def clear(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def put(self, array: np.ndarray) -> Any:
        if array.dtype in TORCH_TYPES:
            seen, name = TORCH_TYPES[array.dtype]
            return self.torch.from_numpy(array.view(seen)).view(getattr(self.torch, name)).to(self.device)
        return self.torch.from_numpy(array).to(self.device)

    def bare(self, row: Row, args: list[Any]) -> Call | None:
        return Eager.fresh(self, replace(row, function=BARE[row.function]), args) if row.function in BARE else None

    def host(self, result: Any) -> np.ndarray:
        return result.cpu().to(self.torch.float32 if result.dtype == self.torch.bfloat16 else result.dtype).numpy()

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()


class TorchOps(Torch):
    """torch with a library function in place of the row, where it has one that does all of it or more of it."""

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.function in (softmax, layernorm, gelu_matmul, matmul_f8, matmul_int8)

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        torch, functional = self.torch, self.torch.nn.functional
        if row.function is softmax:
            return lambda: torch.softmax(args[0], -1)
        if row.function is layernorm:
            return lambda: functional.layer_norm(args[0], args[0].shape[-1:], eps=1e-5)
        if row.function is gelu_matmul:
            return lambda: functional.gelu(torch.addmm(args[2], args[0], args[1]), approximate="tanh")
        if row.function is matmul_f8:
            one = torch.ones((), device=self.device)
            return lambda: torch._scaled_mm(args[0], args[1].T, one, one, out_dtype=torch.bfloat16)
        if row.function is matmul_int8:
            return lambda: torch._int_mm(args[0], args[1].T)
        return None

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        torch, x = self.torch, args[0]
        if row.function is softmax:
            out = torch.empty_like(x)
            return lambda: torch.softmax(x, -1, out=out)
        if row.function is layernorm:
            # The result, and the means and deviations that come with it.
            arguments = (x, x.shape[-1:], None, None, 1e-5)
            outs = {f"out{k}": part for k, part in enumerate(torch.native_layer_norm(*arguments))}
            return lambda: torch.ops.aten.native_layer_norm.out(*arguments, **outs)
        return None


class TorchCompile(Torch):
    """torch.compile of the rows as written; not for plain products, which compile to the same library call."""

    mode: str | None = None

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.function not in MATMULS

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        self.torch.compiler.reset()  # or the next rows count as recompilations of this lambda, and then run eagerly
        function = self.torch.compile(lambda *a: row.function(self.xp, *a), dynamic=False, mode=self.mode)
        return lambda: function(*args)

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        out = row.function(self.xp, *args)
        function = self.torch.compile(lambda out, *a: out.copy_(row.function(self.xp, *a)), dynamic=False)
        return lambda: function(out, *args)


class TorchAutotuned(TorchCompile):
    """torch.compile that measures kernels of its own beside the library's, for a few rows: a row costs a minute."""

    devices = ("cuda",)
    mode = "max-autotune-no-cudagraphs"
    slow = True

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.name in AUTOTUNED


class CuDNNAttention(Torch):
    """cuDNN's attention."""

    devices = ("cuda",)
    backend = "CUDNN_ATTENTION"

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.function in ATTENTION

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        from torch.nn import attention  # pyright: ignore[reportMissingImports]

        backend = getattr(attention.SDPBackend, self.backend)
        function = self.torch.nn.functional.scaled_dot_product_attention
        causal = row.function is causal_attention

        def call() -> Any:
            with attention.sdpa_kernel(backend):
                return function(*args, is_causal=causal)

        return call


class FlashAttention(CuDNNAttention):
    """FlashAttention-2, as torch has it."""

    backend = "FLASH_ATTENTION"


class CuPy(Eager):
    devices = ("cuda",)

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import cupy

        self.xp = cupy

    def versions(self) -> str:
        return f"cupy {self.xp.__version__}"  # the distribution's name holds the CUDA version

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.dtype not in ("bfloat16", "float8_e4m3fn", "int8")

    def stream(self) -> int | None:
        return self.xp.cuda.get_current_stream().ptr

    def clear(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()

    def put(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def host(self, result: Any) -> np.ndarray:
        return self.xp.asnumpy(result)

    def synchronize(self) -> None:
        self.xp.cuda.Device().synchronize()


class Triton(Torch):
    """A kernel in Triton that keeps a row of softmax on the chip, as its tutorials do."""

    packages = ("triton",)
    devices = ("cuda",)

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import triton_softmax

        self.softmax = triton_softmax.softmax

    @classmethod
    def supports(cls, row: Row) -> bool:
        return row.function is softmax

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        return lambda: self.softmax(args[0])

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        return None


class BlockArray(Peer):
    packages = ("blockarray", "llvmlite")
    devices = ("cpu", "cuda")

    def __init__(self, device: str, threads: int) -> None:
        super().__init__(device, threads)
        import blockarray

        self.blockarray: Any = blockarray
        arange = lambda n, like: blockarray.arange(n, device=like.device)
        self.xp: Any = types.SimpleNamespace(**{**vars(blockarray), "arange": arange})

    def put(self, array: np.ndarray) -> Any:
        return self.blockarray.asarray(array, device=self.device)

    def fresh(self, row: Row, args: list[Any]) -> Call | None:
        return lambda: self.evaluate(row.function(self.xp, *args))

    def reused(self, row: Row, args: list[Any]) -> Call | None:
        call = with_out(self.xp, row, args)
        if call is None:
            return None
        out = self.evaluate(row.function(self.xp, *args))
        return lambda: self.evaluate(call(out))

    def plan(self, row: Row, args: list[Any]) -> str:
        return str(self.blockarray.explain(row.function(self.xp, *args)))

    def evaluate(self, array: Any) -> Any:
        self.blockarray.evaluate(array)
        return array

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.blockarray.synchronize()

    def stream(self) -> int | None:
        from blockarray.runtime.cuda import streams

        return streams.stream(self.blockarray.devices()[1])


PEERS: dict[str, type[Peer]] = {
    "NumPy": NumPy,
    "numexpr": NumExpr,
    "numba": Numba,
    "CuPy": CuPy,
    "JAX": Jax,
    "torch": Torch,
    "torch ops": TorchOps,
    "torch.compile": TorchCompile,
    "max-autotune": TorchAutotuned,
    "cuDNN": CuDNNAttention,
    "FlashAttention": FlashAttention,
    "Triton": Triton,
    "blockarray": BlockArray,
}
