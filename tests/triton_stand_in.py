"""A module `triton` of blockarray's names, and what tests of Triton say about texts."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def module(name: str, **content: Any) -> ModuleType:
    """A module, which its parent has as an attribute."""
    made = ModuleType(name)
    made.__dict__.update(content)
    adopt(name, made)
    return made


def adopt(name: str, made: ModuleType) -> None:
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)


class _Word:
    """What may be asked for anything and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return _Word()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Word()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter((_Word(), _Word()))


def install(checkout: Path, device: str, capability: tuple[int, int]) -> ModuleType:
    """Let `import triton` give blockarray's names, in the structure of Triton's; a CPU claims a GPU's capability."""
    import blockarray as ba
    from blockarray import language, testing
    from blockarray.blocks.arguments import Reinterpreted
    from blockarray.language.errors import CompilationError

    torch: Any = importlib.import_module("torch")
    if device == "cpu":
        ba.set_default_device("cpu")
        torch.cuda.get_device_capability = lambda device=None: capability  # many files ask
        torch.cuda.get_device_name = lambda device=None: "none"
        torch.cuda.device = lambda index: contextlib.nullcontext()
        torch.cuda.synchronize = lambda device=None: None
        torch.cpu.set_stream = lambda stream: None
        torch.matmul = _exact(torch.matmul)
    with_texts(device)
    index = torch.cuda.current_device() if device != "cpu" else 0
    major, minor = torch.cuda.get_device_capability() if device != "cpu" else capability
    count = torch.cuda.get_device_properties(index).multi_processor_count if device != "cpu" else 4
    properties = {
        "multiprocessor_count": count, "max_num_regs": 65536, "max_shared_mem": 232448, "warpSize": 32,
    }  # fmt: skip
    active = SimpleNamespace(
        get_active_torch_device=lambda: torch.device("cpu") if device == "cpu" else torch.device("cuda", index),
        get_current_target=lambda: SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=32),
        get_current_device=lambda: index,
        get_device_interface=lambda: torch.cuda,
        utils=SimpleNamespace(get_device_properties=lambda device: properties),
        get_current_stream=lambda device: torch.cuda.current_stream().cuda_stream,
    )  # fmt: skip

    names = (
        "jit", "autotune", "Config", "heuristics", "cdiv", "next_power_of_2", "reinterpret", "JITFunction",
        "must_use_result",
    )  # fmt: skip
    errors = {"CompilationError": CompilationError, "TritonError": ValueError, "OutOfResources": RuntimeError}
    triton = module(
        "triton", __version__="3.6.0", __path__=[], set_allocator=lambda function: None, compile=compiled,
        **errors,
        **{name: getattr(ba, name) for name in names}, constexpr_function=getattr(language, "constexpr_function", None),
    )  # fmt: skip
    adopt("triton.language", language)
    adopt("triton.testing", testing)
    for name in ("core", "math", "random", "standard", "semantic"):
        adopt(f"triton.language.{name}", getattr(language, name, language))
    extra = language.extra
    adopt("triton.language.extra", extra)
    adopt("triton.language.extra.cuda", extra.cuda)
    for name in ("libdevice", "cuda.libdevice"):
        adopt(f"triton.language.extra.{name}", extra.libdevice)
    module("triton.runtime", __path__=[], driver=SimpleNamespace(active=active))
    module("triton.runtime.driver", active=active)
    module(
        "triton.runtime.jit", JITFunction=ba.JITFunction, TensorWrapper=Reinterpreted, reinterpret=ba.reinterpret,
        type_canonicalisation_dict=_Same(), MockTensor=None,
    )  # fmt: skip
    module("triton.runtime.errors", InterpreterError=Exception, OutOfResources=RuntimeError, PTXASError=RuntimeError)
    module("triton.runtime._allocation", NullAllocator=lambda: None)
    module("triton.compiler", __path__=[], CompiledKernel=None, ASTSource=SimpleNamespace)
    module("triton.compiler.errors", CompilationError=CompilationError, CompileTimeAssertionFailure=CompilationError)
    module("triton.compiler.code_generator")
    module("triton.tools", __path__=[])
    module("triton.tools.tensor_descriptor", TensorDescriptor=ba.TensorDescriptor)
    module("triton.backends", __path__=[])
    module("triton.backends.compiler", GPUTarget=lambda backend, arch, warp_size: SimpleNamespace(arch=arch))
    module(
        "triton._filecheck", run_parser=parsed, run_filecheck=lambda *_: differs("text"),
        run_filecheck_test=lambda fn: (parsed(fn), differs("text")), filecheck_test=_checked,
    )  # fmt: skip
    module(
        "triton.profiler",
        __path__=[],
        **dict.fromkeys(("scope", "activate", "deactivate", "start", "finalize"), _Word()),
    )
    module("triton.profiler.viewer", parse=_Word(), print_tree=_Word())
    module("triton._C", __path__=[])
    multiply = SimpleNamespace(matmul=_by_cublas)
    module("triton._C.libtriton", nvidia=SimpleNamespace(cublas=SimpleNamespace(CublasLt=lambda space: multiply)))
    knobs = module(
        "triton.knobs", nvidia=SimpleNamespace(ptxas=SimpleNamespace(version="13.0")), base_knobs=_Word,
        runtime=SimpleNamespace(interpret=False, scope=_Word()), language=_LanguageKnobs(), propagate_env=True,
        compilation=_Word(), cache=_Word(), refresh_knobs=_refresh,
    )  # fmt: skip
    if importlib.util.find_spec("tabulate") is None:
        module("tabulate", tabulate=lambda rows, **_: "\n".join(str(row) for row in rows))
    if not hasattr(language, "_aggregate"):
        language.__dict__["_aggregate"] = lambda cls: cls
    floats = ["fp16", "bf16", "fp32", "fp64"]
    for name, found in (
        ("SINT_TYPES", ["int8", "int16", "int32", "int64"]), ("STANDARD_FP_TYPES", floats),
        ("UINT_TYPES", ["int1", "uint8", "uint16", "uint32", "uint64"]), ("FP_TYPES", ["fp8e4nv", "fp8e5", *floats]),
    ):  # fmt: skip
        if not hasattr(language.dtype, name):
            setattr(language.dtype, name, found)
    if not hasattr(language, "str_to_ty"):
        language.__dict__["str_to_ty"] = lambda name, _: _type_of(language, name)
    for name in ("tools.mxfp", "_internal_testing"):
        path = checkout / "python" / "triton" / (name.replace(".", "/") + ".py")
        if path.exists():
            made: Any = module(f"triton.{name}", __file__=str(path))
            exec(compile(path.read_text(), str(path), "exec"), made.__dict__)
            if hasattr(made, "_fresh_knobs_impl"):
                made._fresh_knobs_impl = lambda skipped=None: (lambda: knobs, knobs.language.reset)
    return triton


class compiled:
    """A function compiled for arguments of the types that a signature spells."""

    def __init__(self, src: Any, target: Any = None, options: Any = None) -> None:
        from blockarray.blocks.function import OPTIONS
        from blockarray.language import frontend
        from blockarray.language.types import dtype

        def kind(name: str) -> Any:
            if name.startswith("*"):
                return frontend.Pointer(spelled(name[1:]))
            ir = spelled(name)
            return frontend.Real(ir) if "f" in ir else frontend.Integer(ir)

        def spelled(name: str) -> str:
            return dtype(name).ir if name.startswith(("fp", "bf")) else name

        if isinstance(src, str):
            raise NotImplementedError("kernels are functions here, not texts of Triton's IR (TTGIR)")
        signature = dict(src.signature)
        constants = {n if isinstance(n, str) else src.fn.arg_names[n[0]]: v for n, v in src.constexprs.items()}
        arguments = [frontend.Argument(name, kind(of)) for name, of in signature.items() if of != "constexpr"]
        self.kernel, _ = src.fn._built(arguments, constants, OPTIONS)
        self.target = target or SimpleNamespace(arch=90)

    @property
    def asm(self) -> Any:
        return self

    def __getitem__(self, name: str) -> Any:
        from blockarray.compiler import cuda, passes

        if name not in ("ptx", "cubin"):
            return differs("text")
        target = cuda.make_target(divmod(self.target.arch, 10))
        return (cuda.ptx if name == "ptx" else cuda.compile)(passes.run(self.kernel), target)


def parsed(fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, target: Any = None) -> Any:
    """The block IR of a function whose arguments are constants."""
    from blockarray.language import frontend

    return frontend.build(fn, [], {**dict(zip(fn.arg_names, args)), **(kwargs or {})})


def _checked(fn: Any) -> Callable[[], None]:
    def test() -> None:
        parsed(fn)
        differs("text")

    test.__name__ = fn.__name__
    return test


#: In what the code or the errors of the test that runs differ from Triton's.
differences: set[str] = set()


def differs(what: str) -> str:
    differences.add(what)
    return ""


def states(what: str, holds: Callable[[], Any]) -> None:
    """A statement of a test about texts, which does not end the test."""
    try:
        if holds():
            return
    except Exception:  # of a pattern that was not found, say
        pass
    differs(what)


def with_texts(device: str) -> None:
    """Let compiled kernels have Triton's stages: no text, and on a CPU, PTX as of a Hopper."""
    from blockarray.blocks import compiled
    from blockarray.compiler import cuda, passes

    stages: Any = compiled._Stages
    known, target = stages.__getitem__, cuda.make_target((9, 0))

    def stage(self: Any, name: str) -> Any:
        if name == "ptx" and device == "cpu":
            return cuda.ptx(passes.run(self._of.kernel), target)
        return known(self, name) if name in self else differs("text")

    stages.__getitem__ = stage
    stages.__contains__ = lambda self, name: name in self._names


#: Statements about code, and about errors.
_TEXT = re.compile(
    r"\b(ttir|ttgir|llir|amdgcn|ptx|sass|cubin|kernel_info|(load|store)_line|file_lines|repro|to_str|source_text)\b"
    r"|\.asm\[|\bpattern\.|The TTGIR does not|\bloop_unroll_factor <= 0"
)
_WORDS = re.compile(
    r"\b(exc_info|__cause__|(expected_)?err_msg|error_msg|assertion_err|exception_out_of_resource)\b|e\.value"
    r"|str\(\s*e\s*\)|in (inner|outer)\b"
)


def softened(text: str) -> str:
    """A test's file, with statements about texts that do not end a test, in the same lines."""
    lines = text.splitlines(keepends=True)
    starts = list(itertools.accumulate((len(line.encode()) for line in lines), initial=0))
    whole = text.encode()
    statements = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Assert)]
    for x in sorted(statements, key=lambda x: -x.lineno):
        assert x.end_lineno is not None and x.end_col_offset is not None
        begin, end = starts[x.lineno - 1] + x.col_offset, starts[x.end_lineno - 1] + x.end_col_offset
        statement = whole[begin:end].decode()
        what = "text" if _TEXT.search(statement) else "words" if _WORDS.search(statement) else ""
        if what:
            test = ast.get_source_segment(text, x.test) or ""
            ends = "\n" * (statement.count("\n") - test.count("\n"))
            soft = f"__import__('builtins').states({what!r}, lambda: ({test}){ends})"
            whole = whole[:begin] + soft.encode() + whole[end:]
    return whole.decode()


class _LanguageKnobs:
    """Of the settings for all kernels, those that are ours, too."""

    def __setattr__(self, name: str, value: Any) -> None:
        from blockarray.blocks.function import OPTIONS

        OPTIONS[{"default_fp_fusion": "enable_fp_fusion"}[name]] = value

    def reset(self) -> None:
        self.default_fp_fusion = True


def _by_cublas(a: Any, b: Any, c: Any) -> None:
    """a @ b.T; of float8 by cuBLAS as well, since tests allow for less than a step of float8."""
    if a.element_size() > 1:
        c.copy_(a @ b.T)
        return
    torch: Any = importlib.import_module("torch")
    one = torch.ones((), device=a.device)
    c.copy_(torch._scaled_mm(a, b.T, one, one, out_dtype=c.dtype, use_fast_accum=True))


def _exact(product: Any) -> Any:
    """A CPU's product of float16 adds up with too little precision for a reference."""
    return lambda a, b: product(a.double(), b.double()).to(a.dtype) if a.itemsize == 2 else product(a, b)


def _refresh() -> None:
    from blockarray.blocks.function import OPTIONS

    OPTIONS["debug"] = os.environ.get("TRITON_DEBUG") == "1"


class _Same(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key


def _type_of(language: Any, name: str) -> Any:
    if name.startswith("*"):
        return language.pointer_type(_type_of(language, name[1:]))
    own = {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
    return getattr(language, own.get(name, name))
