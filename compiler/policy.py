"""What a target wants of the kernels that a graph becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import dtypes
from .choices import USUAL, Choices
from .expr import Expr
from .ir import Kernel

#: Multiplications of a product of float32 that pay for writing both operands as triples.
TRIPLES_WORK = 3 << 26


@dataclass(frozen=True, slots=True)
class Policy:
    """What a target wants of a partition; sizes in elements unless said otherwise."""

    #: A group that has more work than `small` keeps at least this many programs, or ones of no more work than `each`.
    min_programs: int = 4
    small: int = 1 << 15
    each: int = 0
    #: Innermost parallel positions that one program handles together.
    lane_block: int = 64
    #: Innermost parallel positions that one program of an elementwise kernel holds.
    lane_tile: int = 2048
    #: Additions that may be repeated in place of storing and loading a byte.
    recompute_per_byte: int = 5
    #: Cost of a producer that is fused into a product's operand.
    prologue: int = 40
    #: Cost of a producer from which an operand of float32 is stored before the product, if it is large.
    costly: int = 10
    #: Uses of each element from which an operand of 16-bit elements is stored before the product, which is faster when
    #: it need not pass through registers on the way; 0: it is not.
    reused: int = 0
    #: Elements from which an operand is stored even if it is used less often, where it cannot be computed on the way.
    large: int = 1 << 18
    #: Whether a product's kernel can reduce along its rows, for what is stored by the block of columns.
    rows: bool = False
    max_nodes: int = 192
    max_outputs: int = 16
    max_inputs: int = 24
    #: Reductions and scans in one kernel: each is a pass over the rows.
    max_walks: int = 6
    #: A reduction of more elements than this whose results are reduced again is a kernel of its own, so that its
    #: programs run side by side; 0: it is not.
    nested: int = 0
    #: Bytes of the elements that a program holds at once, beyond which it does not walk an axis inside the walk along
    #: another one and the other way round; 0: it does.
    held: int = 0
    #: Reshapes that no strides can say between a producer and the kernel's axes.
    max_reshapes: int = 2
    #: Multiplications from which a product of float32 is made of products of bfloat16 in tensor cores; 0: none is.
    triples: int = 0
    #: Bytes that both may then take beside the operands.
    room: int = 1 << 40
    #: Bytes that rows of a product's operands had better begin at multiples of; 0: anything will do.
    pitch: int = 0
    #: A reduction is split where fewer than `min_programs` programs would do more than this...
    split: int = 1 << 19
    #: ... of so many columns each, more where tall columns are reduced alone and whole rows are then read,
    split_columns: int = 1024
    tall_columns: int = 4096
    #: ... into blocks of so many elements, of so many rows at least where columns are kept, and into so many at most.
    split_work: int = 1 << 16
    split_rows: int = 256
    split_blocks: int = 1 << 12
    #: ... or, if not 0, so that there are about so many programs.
    split_programs: int = 0
    #: Types of weights and most features of heads whose attention is one kernel (see `online`), and what says of such a
    #: kernel whether there is code for it; None: there is.
    online: tuple[str, ...] = ("f16", "bf16", "f32", "f64")
    head: int = 512
    serves: Callable[[Kernel], bool] | None = None
    #: Blocks of a GPU that may multiply parts of k of one tile of a product together.
    cluster: int = 1
    #: "cpu" or "cuda", and how many programs run at once (of a GPU, its multiprocessors).
    target: str = "cpu"
    processors: int = 0
    #: What is chosen where there are alternatives.
    choices: Choices = USUAL

    def takes_online(self, product: Expr, scores: Expr, values: int) -> bool:
        """Whether there is code for a softmax between two products: over keys, of `values` features, and the scores."""
        if dtypes.name(product.inputs[0].dtype) not in self.online or dtypes.name(scores.dtype) not in dtypes.FLOAT:
            return False
        return max(values, scores.inputs[0].shape[-1]) <= self.head


def gpu_policy(processors: int, capability: tuple[int, int] = (9, 0)) -> Policy:
    """For a GPU: programs enough to fill every processor several times, and columns by the warp."""
    return Policy(
        min_programs=2 * processors, each=1 << 17, lane_block=32, split_columns=32, tall_columns=32,
        split_programs=16 * processors, split_rows=128, nested=1 << 20, held=1 << 16, pitch=128, head=256,
        online=("f16", "bf16") if capability == (9, 0) else (),
        serves=partial(_has_schedule, capability), reused=256, target="cuda", processors=processors,
        cluster=2 if capability == (9, 0) else 1,
        triples=TRIPLES_WORK if capability == (9, 0) else 0, rows=capability == (9, 0),
    )  # fmt: skip


def _has_schedule(capability: tuple[int, int], kernel: Kernel) -> bool:
    from . import cuda, passes  # which a CPU does not need

    if kernel.attrs.get("schedule") == "gemm":
        return cuda.gemm.Hopper.suits(passes.run(kernel), cuda.make_target(capability))
    return cuda.online.Online.suits(passes.run(kernel), cuda.make_target(capability))
