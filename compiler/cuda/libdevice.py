"""NVIDIA's libdevice, linked into modules function by function.

The library is half a megabyte of bitcode.  A function that is called for the first time is cut out of it, with what it
calls, and optimised; such a piece links in a fraction of a millisecond, and is kept in memory and in the cache that
`set_cache` names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache

import llvmlite.binding as llvm

from . import tools
from .target import DATA_LAYOUT, TRIPLE, Target

#: Functions without loops, of at most this many instructions, are expanded where they are called.
INLINE = 128
_DEFINE = re.compile(r"^define [^\n]*?@(\w+)\([^\n]*\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_SYMBOL = re.compile(r"@([\w.]+)")
_REFLECT = re.compile(r"call i32 @__nvvm_reflect\(ptr @(\.str[.\d]*)\)")
_pieces: dict[tuple[str, Target], bytes] = {}
_get: Callable[[str], bytes | None] = lambda key: None
_put: Callable[[str, bytes], object] = lambda key, value: None


def set_cache(get: Callable[[str], bytes | None], put: Callable[[str, bytes], object]) -> None:
    """Keep pieces of the library in a cache on disk.

    Parameters
    ----------
    get : callable
        The bytes stored under a key (64 hexadecimal digits), or None.
    put : callable
        Stores bytes under a key.
    """
    global _get, _put
    _get, _put = get, put


def link(module: llvm.ModuleRef, names: Iterable[str], target: Target) -> None:
    """Add the library's functions to a module that declares them."""
    for name in names:
        module.link_in(llvm.parse_bitcode(piece(name, target)))
        module.get_function(name).linkage = "internal"


def piece(name: str, target: Target) -> bytes:
    """The bitcode of one function of the library."""
    found = _pieces.get((name, target))
    if found is None:
        key = hashlib.sha256(f"libdevice;{name};{INLINE};{target.key}".encode()).hexdigest()
        found = _get(key)
        if found is None:
            found = _extract(name, target)
            _put(key, found)
        _pieces[name, target] = found
    return found


class _Library:
    """The library's text, by symbol."""

    def __init__(self, text: str) -> None:
        self.functions = {m[1]: m[0] for m in _DEFINE.finditer(text)}
        lines = text.splitlines()
        self.declarations = {s[1]: line for line in lines if line.startswith("declare") and (s := _SYMBOL.search(line))}
        self.globals = {s[1]: line for line in lines if line.startswith("@") and (s := _SYMBOL.match(line))}
        self.types = [line for line in lines if re.match(r"%[\w.]+ = type", line)]
        self.metadata = [line for line in lines if re.match(r"!\d+ = ", line)]
        #: What code asks for about its surroundings, by the name of the string.
        self.questions = {k: m[1] for k, line in self.globals.items() if (m := re.search(r'c"(__CUDA_\w+)\\00"', line))}

    def closure(self, name: str) -> list[str]:
        """What a function needs, itself included, as text."""
        found: dict[str, str] = {}
        queue = [name]
        while queue:
            symbol = queue.pop()
            text = self.functions.get(symbol) or self.globals.get(symbol) or self.declarations.get(symbol)
            if text is not None and symbol not in found:
                found[symbol] = text
                queue += _SYMBOL.findall(text)
        return list(found.values())


@cache
def _library() -> _Library:
    path = tools.libdevice()
    if path is None:
        raise RuntimeError(
            "NVIDIA's libdevice (libdevice.10.bc) was not found. Install it with "
            f"{tools.WHEELS}, or set CUDA_HOME to a CUDA toolkit."
        )
    return _Library(str(llvm.parse_bitcode(path.read_bytes())))


def _extract(name: str, target: Target) -> bytes:
    library = _library()
    if name not in library.functions:
        raise RuntimeError(f"libdevice has no function {name}")
    # IEEE denormals, division and roots.
    answers = {"__CUDA_FTZ": 0, "__CUDA_PREC_SQRT": 1, "__CUDA_PREC_DIV": 1, "__CUDA_ARCH": target.sm * 10}
    text = "\n".join((*library.types, *library.closure(name), *library.metadata))
    text = _REFLECT.sub(lambda m: f"add i32 0, {answers[library.questions[m[1]]]}", text)
    # The compiler that made the library left attributes in groups, which ask for frames and for inlining everywhere.
    text = re.sub(r" #\d+", "", text)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = TRIPLE, DATA_LAYOUT
    builder = llvm.create_pass_builder(target.machine(), llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    for _ in range(2):
        passes.add_sroa_pass()
        passes.add_sccp_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    for function in module.functions:
        if not function.is_declaration:
            function.add_function_attribute("alwaysinline" if _is_small(function) else "noinline")
            function.add_function_attribute("nounwind")
    return module.as_bitcode()


def _is_small(function: llvm.ValueRef) -> bool:
    size = 0
    seen = set()
    for block in function.blocks:
        seen.add(block)
        instructions = list(block.instructions)
        size += len(instructions)
        if any(x in seen for x in instructions[-1].operands):
            return False
    return size <= INLINE
