"""LLVM IR text -> PTX -> cubin."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

from . import libdevice, tools
from .target import DATA_LAYOUT, SYMBOL, TRIPLE, Target

#: Registers of a thread with which a processor runs as many threads as it can, and from which on fewer are worth a try.
FULL, NEARLY_FULL = 32, 40
#: That a thread can have.
MOST = 255
#: Registers of a processor, and the threads with which it hides what it waits for; by how much a kernel may need more
#: registers to be made again, so that one more block fits.
REGISTERS, ENOUGH, NEARLY = 64 << 10, 1024, 1.5
#: Threads of a block of which a processor can run so many that it is full: it runs 32 blocks at most.
SMALLEST = 64

#: LLVM's pass managers and target machines are not safe to share; one compilation runs at a time.
_lock = threading.Lock()

#: Intrinsics outside llvm.nvvm that NVPTX selects.  On others, LLVM may end the process.
_SELECTED = re.compile(
    r"llvm\.(?:abs|bswap|bitreverse|ceil|copysign|ctlz|ctpop|cttz|fabs|floor|fma|fmuladd|fpto[su]i\.sat|fsh[lr]|maximum|maxnum"
    r"|minimum|minnum|nearbyint|rint|roundeven|[su](?:min|max)|[su](?:add|sub|mul)\.(?:sat|with\.overflow)|sqrt|trunc"
    r"|vector\.reduce\.(?:or|and|xor|add|[su]m(?:in|ax))|masked\.(?:load|store)|memcpy|memset|memmove|lifetime\.\w+|assume"
    r"|nvvm)\b"
)
_DECLARATION = re.compile(r"^declare [^@\n]*@([^\s(]+)\(", re.MULTILINE)
_UNSELECTABLE = re.compile(r"\b(frem|fp128|x86_fp80|ppc_fp128|invoke|landingpad|va_arg)\b")
#: Instructions on floats of 8 bits that a version of PTX brought.
_LATER, _LATER_PTX = re.compile(r"(?:mma\.sync|cvt)\.[^;]*\.e[45]m[23]"), 84
_RESOURCES = re.compile(r"Used (\d+) registers")
_THREADS = re.compile(r"^\.reqntid .*$", re.MULTILINE)
_BOUNDS = re.compile(r"\.(minnctapersm|maxnreg)\b")
_COUNT = re.compile(r"^\.reqntid (\d+)\s*$", re.MULTILINE)
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


class Assembled(NamedTuple):
    """A kernel's machine code, the registers of a thread, and the bytes that a thread stores because it has too few."""

    cubin: bytes
    registers: int
    spills: int


@lru_cache(maxsize=4)
def _tools(target: Target) -> tuple[llvm.TargetMachine, llvm.PassBuilder, llvm.ModulePassManager]:
    machine = target.machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    # The back end shares subexpressions and addresses itself.
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return machine, builder, passes


def check(text: str) -> list[str]:
    """The library functions that a module calls.

    Raises
    ------
    RuntimeError
        If the module holds something that LLVM cannot generate PTX for.  Only for much of that does LLVM have an error;
        on the rest it ends the process.
    """
    functions = []
    for name in _DECLARATION.findall(text):
        if name.startswith("__nv_"):
            functions.append(name)
        elif not _SELECTED.match(name) and name != "vprintf":
            raise RuntimeError(f"no PTX for a call of {name}")
    found = _UNSELECTABLE.search(text)
    if found:
        raise RuntimeError(f"no PTX for {found[1]}")
    return functions


def _optimised(text: str, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    functions = check(text)
    machine, builder, passes = _tools(target)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = TRIPLE, DATA_LAYOUT
    libdevice.link(module, functions, target)
    module.verify()
    passes.run(module, builder)
    return module, machine


def optimised(text: str, target: Target) -> str:
    """The module after the passes, as text: for debugging."""
    with _lock:
        return str(_optimised(text, target)[0])


def emit(text: str, target: Target) -> str:
    """The PTX of a module given as text.

    Parameters
    ----------
    text : str
        LLVM IR without a target triple and a data layout.  It may call libdevice's functions, which are linked in.
    target : Target
        The architecture.
    """
    if _LATER.search(text) and target.ptx < _LATER_PTX:
        target = replace(target, ptx=_LATER_PTX)
    with _lock:
        module, machine = _optimised(text, target)
        return machine.emit_assembly(module)


def _ptxas(program: str, code: str, target: Target) -> tuple[subprocess.CompletedProcess[str], bytes]:
    with tempfile.TemporaryDirectory(prefix="blockarray-") as folder:
        source, output = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(code)
        command = [program, f"-arch={target.arch}", "-v", "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done, output.read_bytes() if not done.returncode else b""


def assemble(code: str, target: Target) -> Assembled | None:
    """Machine code for PTX, or None without an assembler that knows the architecture, or a disk for its files.

    Raises
    ------
    RuntimeError
        If the assembler refuses the PTX; with its message.
    """
    program = tools.ptxas()
    if program is None:
        return None
    try:
        done, cubin = _ptxas(str(program), code, target)
    except OSError:
        return None
    if done.returncode:
        if "is not defined for option 'gpu-name'" in done.stderr or "Unsupported .version" in done.stderr:
            return None  # older than the GPU
        raise RuntimeError(f"ptxas failed on a kernel for {target.arch}:\n{done.stderr.strip()}")
    # The entry point's section, among those of functions that are not expanded in line.
    report = done.stderr[max(0, done.stderr.rfind(f"entry function '{SYMBOL}'")) :]
    registers, spills = _RESOURCES.search(report), _SPILLS.findall(done.stderr)
    return Assembled(cubin, int(registers[1]) if registers else 0, sum(int(stores) for stores, _ in spills))


def _blocks(code: str, registers: int) -> int:
    """Blocks of a processor for which there are registers."""
    found = _COUNT.search(code)
    threads = int(found[1]) if found else 1
    return REGISTERS // (threads * max(8, -(-registers // 8) * 8))


def _roomier(code: str, registers: int) -> int | None:
    """Registers with which one more block fits, if that may be worth it."""
    found = _COUNT.search(code)
    if found is None or _BOUNDS.search(code):
        return None
    threads, blocks = int(found[1]), _blocks(code, registers)
    bound = REGISTERS // threads // (blocks + 1) // 8 * 8
    return bound if blocks * threads < ENOUGH and registers <= NEARLY * bound else None


def _bounded(code: str, target: Target, registers: int) -> Assembled | None:
    """With a bound on registers, which some instructions do not take."""
    try:
        return assemble(_THREADS.sub(rf"\g<0>\n.maxnreg {registers}", code, count=1), target)
    except RuntimeError:
        return None


def _alone(code: str, target: Target) -> Assembled | None:
    """As ptxas does it where nothing asks for room for other blocks."""
    return assemble(_THREADS.sub(r"\g<0>\n.minnctapersm 1", code, count=1), target)


def assemble_densely(code: str, target: Target, waits: bool = False) -> Assembled | None:
    """As `assemble`, with so few registers that a processor is full of threads, if none more are needed by much.

    Code that mostly `waits` for memory has one more block instead of registers, unless it would spill some; or all the
    registers with which as many blocks fit, so that more loads are under way.
    """
    found = assemble(code, target)
    if found is not None and found.spills > 4 * found.registers and found.registers < MOST and not _BOUNDS.search(code):
        # Left to itself, ptxas may spill more values than it holds, to make room for further blocks.
        alone = _alone(code, target)
        return alone if alone is not None and alone.spills < found.spills else found
    if waits and found is not None and (bound := _roomier(code, found.registers)) is not None:
        bounded = _bounded(code, target, bound)
        if bounded is not None and not bounded.spills:
            return bounded
    if waits and found is not None and found.registers > NEARLY_FULL and not _BOUNDS.search(code):
        alone = _alone(code, target)
        same = alone is not None and _blocks(code, alone.registers) == _blocks(code, found.registers)
        return alone if alone is not None and same and alone.spills <= found.spills else found
    if found is None or not FULL < found.registers <= NEARLY_FULL or ".minnctapersm" in code:
        return found
    if (count := _COUNT.search(code)) and int(count[1]) < SMALLEST:
        return found
    bounded = _bounded(code, target, FULL)
    return bounded if bounded is not None and not bounded.spills else found
