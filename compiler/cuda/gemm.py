"""Matrix products: block IR with one `dot` -> LLVM IR for NVPTX.

A `reduce` over k of an elementwise function of a[m, k] and b[k, n] takes the place of the dot in a generalised product,
such as a table of distances.

The kernel's dims m and n are blocked by powers of two, and its grid ends with m's and n's axes, so a launch has
ceil(m / block) * ceil(n / block) programs for each batch.  A program takes its block in tiles that the registers hold.
For each tile it walks k in steps: while it multiplies one step's panels, which lie in shared memory, it loads the next
step's into registers, with their prologue applied on the way; operands that need none are copied past the registers,
some steps ahead.  The epilogue takes the finished tile from the registers to memory.
"""

from __future__ import annotations

from .. import ir
from .codegen import Code
from .dequantised import Dequantised, DequantisedParts
from .hopper import Hopper
from .hopper64 import Hopper64
from .mma import Mma
from .mma64 import Mma64
from .parts import Parts
from .promoted import Promoted
from .simt import Simt
from .spread import Spread
from .streamed import Streamed
from .target import Target
from .tf32 import Tf32
from .triples import Triples
from .wgmma import Wgmma


def generate(kernel: ir.Kernel, target: Target) -> Code:
    """The module of a matrix product."""
    order = (
        Triples, Tf32, Parts, Spread, Promoted, Hopper, Dequantised, DequantisedParts, Streamed, Wgmma, Mma, Hopper64,
        Mma64,
    )  # fmt: skip
    schedule = next((s for s in order if s.suits(kernel, target)), Simt)
    return schedule(kernel, target).generate()
