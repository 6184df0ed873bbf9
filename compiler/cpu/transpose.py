"""Square blocks of memory transposed into a buffer, for loads whose unit stride is not along the lanes.

Each line of memory is read whole and once, and the nest's own loads are contiguous.
"""

from __future__ import annotations

from ..llvm.text import Text, V, vector
from .loops import Counted
from .memory import i64

#: Rows of the pieces that are transposed in registers.
PIECE = 8


def transpose(
    t: Text, source: V, row_stride: V, rows: V, columns: V, buffer: V, block: int, size: int, vector_bytes: int
) -> None:
    """buffer[c * block + r] = source[r * row_stride + c] for r < rows, c < columns.

    Parameters
    ----------
    source, buffer : V
        Addresses of elements.
    row_stride : V
        In elements.
    rows, columns : V
        At most `block`.
    block : int
        A multiple of 8.
    size : int
        Bytes of an element, up to 8.
    """
    elem = f"i{8 * size}"
    width = min(PIECE, vector_bytes // size)
    whole, part, done = (t.new_label(x) for x in ("whole", "part", "transposed"))
    full = i64(block)
    t.br_if(t.bin("and", t.cmp("eq", rows, full), t.cmp("eq", columns, full)), whole, part)
    t.label(whole)
    step = i64(width)
    with Counted(t, i64(0), full, step) as top, Counted(t, i64(0), full, step) as left:
        corner = t.gep(source, t.bin("add", t.bin("mul", top, row_stride), left), elem)
        lines = []
        for _ in range(width):
            lines.append(t.load(corner, vector(elem, width), size))
            corner = t.gep(corner, row_stride, elem)
        to = t.gep(buffer, t.bin("add", t.bin("mul", left, full), top), elem)
        for k, line in enumerate(in_registers(t, lines)):
            t.store(line, t.gep(to, i64(k * block), elem), size)
    t.br(done)
    t.label(part)
    with Counted(t, i64(0), rows, i64(1)) as row:
        line = t.gep(source, t.bin("mul", row, row_stride), elem)
        with Counted(t, i64(0), columns, i64(1)) as column:
            one = t.load(t.gep(line, column, elem), elem, size)
            t.store(one, t.gep(buffer, t.bin("add", t.bin("mul", column, full), row), elem), size)
    t.br(done)
    t.label(done)


def in_registers(t: Text, lines: list[V]) -> list[V]:
    """Transpose n vectors of n lanes: swap off-diagonal blocks, of half the size each time."""
    n = len(lines)
    lines = list(lines)
    distance = n // 2
    while distance:
        low = [k if not k & distance else n + k - distance for k in range(n)]
        high = [k + distance if not k & distance else n + k for k in range(n)]
        for k in range(n):
            if not k & distance:
                a, b = lines[k], lines[k + distance]
                lines[k], lines[k + distance] = t.shuffle(a, b, low), t.shuffle(a, b, high)
        distance //= 2
    return lines
