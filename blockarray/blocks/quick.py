"""The short way of a launch whose arguments are like those of one before: a function that is written out for them.

It compares where the long way looks up: types and dtypes by identity, and at once whether all pointers are multiples of
16.  What is not as it was it leaves to the long way, by returning None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import checks, cuda, flush
from ..array import Array
from ..runtime import profiler
from ..runtime.config import config
from ..runtime.device import CudaDevice
from . import keys, memory
from .arguments import writable_address
from .compiled import Compiled

#: The arguments in order, and the grid -> what ran, or None.
Quick = Callable[[tuple[Any, ...], Any], Compiled | None]

_HEAD = """\
def quick(given, grid):
    [{}] = given
    if profiler.active or config.debug:
        return None
    try:
        if len(grid) == 1:
            [p] = grid
            q = r = 1
        elif len(grid) == 2:
            p, q = grid
            r = 1
        else:
            p, q, r = grid
        programs = p * q * r
        if not (p > 0 and q > 0 and r > 0) or type(programs) is not int or programs >> 31:
            return None
        {}:
"""


def quickly(found: Compiled, given: tuple[Any, ...], roles: Sequence[int], written: frozenset[int]) -> Quick | None:
    """The short way of launches like one.

    Parameters
    ----------
    found : Compiled
        What was launched.
    given : tuple
        The arguments.
    roles : sequence of int
        What is made of each.
    written : frozenset of int
        To which of those that are no constants the kernel may write.

    Returns
    -------
    callable or None
        None if there are arguments, or kinds of arrays side by side, for which there is only the long way.
    """
    tensor, device = keys.space["tensor"], found.device
    on_gpu = isinstance(device, CudaDevice)
    names: dict[str, Any] = {
        **keys.space, "profiler": profiler, "config": config, "found": found, "launch": found._launch, "checks": checks,
        "address": memory.address, "own": memory.own, "buffer": memory.buffer, "forget": cuda.forget,
        "lock": flush.lock, "device": device, "failures": (struct.error, OverflowError, TypeError, ValueError),
    }  # fmt: skip
    tests: list[str] = []
    values: list[str] = []
    aligned: list[str] = []
    changed: list[str] = []
    kinds: set[Any] = set()
    place = -1
    for k, (x, role) in enumerate(zip(given, roles)):
        kind = type(x)
        if role == keys.CONSTANT:
            same = keys.exact(x)
            if same[-1] is x:
                names |= {f"c{k}": x, f"t{k}": kind}
                tests.append(f"(x{k} is c{k} or type(x{k}) is t{k} and x{k} == c{k})")
            else:
                names[f"c{k}"] = same
                tests.append(f"exact(x{k}) == c{k}")
            continue
        place += 1
        if kind is int:
            code = keys.learn(x, role)
            tests.append(f"type(x{k}) is int and codes{role}.get(x{k}) == {code}")
            values += [f"x{k}"] * (code != keys.ONE)
            continue
        if kind is float:
            tests.append(f"type(x{k}) is float")
            values.append(f"x{k}")
            continue
        if kind is tensor:
            test = f"x{k}.get_device() == {x.get_device()} and (v{k} := x{k}.data_ptr())"
            at = x.data_ptr()
        elif kind is np.ndarray:
            test, at = f"(v{k} := writable_address(x{k}))", writable_address(x)
        elif kind is Array:
            test = f"(v{k} := address(x{k}, d{k}, device))"
            at = memory.address(x, x.dtype, device)
            changed += [f"x{k}"] * (place in written)
        else:
            return None
        if not at:
            return None
        kinds.add(kind)
        names |= {f"d{k}": x.dtype, f"t{k}": kind}
        if role == keys.SPECIALIZED and at & 15:
            test += " & 15"
        elif role == keys.SPECIALIZED:
            aligned.append(f"v{k}")
        tests.append(f"type(x{k}) is t{k}{f' and x{k}.dtype is d{k}' * (kind is not Array)} and {test}")
        values.append(f"v{k}")
    if len(kinds) != 1 or found.checked:
        return None
    if aligned:
        tests.append(f"not ({' | '.join(aligned)}) & 15")
    ours = kinds == {Array}
    on_stream = f", stream=torch_stream({device.index})" if on_gpu and not ours else ""
    body = [f"if {' and '.join(tests)}{' and found.queued and not checks.suspects' * (ours and on_gpu)}:"]
    body += [f"    if own({x}): return None" for x in changed]
    body += [f"    launch(programs, {', '.join([*values, 'p', 'q', 'r'])}{on_stream})"]
    body += [f"    forget(buffer({x}))" for x in changed if on_gpu]
    body.append("    return found")
    # No flush takes the memory of others' arrays away.
    head = _HEAD.format(", ".join([f"x{k}" for k in range(len(given))]), "with lock" if ours else "if True")
    lines = [head, *[f"            {line}" for line in body], "    except failures:", "        pass"]
    exec("\n".join(lines), names)
    return names["quick"]
