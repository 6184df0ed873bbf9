"""The block language: `import blockarray.language as tl`.

Kernels are functions of scalars and blocks.  Names and meanings are Triton's.
"""

from . import extra, math, random
from .elementwise import MAX_NUMEL as TRITON_MAX_TENSOR_NUMEL
from .elementwise import (
    PropagateNan,
    abs,
    arange,
    broadcast,
    cast,
    cdiv,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    full,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    to_tensor,
    umulhi,
    where,
    zeros,
    zeros_like,
)  # fmt: skip
from .errors import CompilationError
from .machine import inline_asm_elementwise
from .mapping import map_elementwise
from .memory import (
    TensorDescriptor as tensor_descriptor,
)  # fmt: skip
from .memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from .products import dot, dot_scaled
from .program import (
    assume,
    condition,
    debug_barrier,
    device_assert,
    device_print,
    max_constancy,
    max_contiguous,
    multiple_of,
    num_programs,
    program_id,
    range,
    static_assert,
    static_print,
    static_range,
)  # fmt: skip
from .random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)  # fmt: skip
from .reductions import (
    argmax,
    argmin,
    associative_scan,
    cumprod,
    cumsum,
    max,
    min,
    reduce,
    reduce_or,
    sigmoid,
    softmax,
    sum,
    xor_sum,
)  # fmt: skip
from .shapes import (
    broadcast_to,
    cat,
    expand_dims,
    flip,
    gather,
    histogram,
    interleave,
    join,
    permute,
    ravel,
    reshape,
    sort,
    split,
    squeeze,
    swizzle2d,
    topk,
    trans,
    unsqueeze,
    view,
)  # fmt: skip
from .types import (
    bfloat16,
    block_type,
    const,
    constexpr,
    constexpr_function,
    constexpr_type,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)  # fmt: skip
from .values import Tensor as tensor
from .values import add, mul, sub

#: Tuples of the language are Python's.
tuple = tuple
