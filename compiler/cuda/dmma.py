"""Products of f64 and complex128 in tensor cores, a warp at a time: the instructions of fragments in registers."""

from __future__ import annotations

from collections.abc import Iterator

from .. import dtypes
from ..llvm.text import V
from .warps import Warps

#: Elements of k whose fragments are multiplied at once.
DEPTH = 8
#: A thread's elements of k, in parts.
Fragment = list[list[V]]


class Doubles(Warps):
    """What schedules share that multiply fragments of doubles."""

    #: Rows and elements of k of an instruction; it has 8 columns.
    shape = (16, DEPTH)

    def _add_rows(self, values: list[list[list[V]]], first: int, a: list[Fragment], b: list[Fragment]) -> Iterator[int]:
        """Add products of sixteen rows; gives the numbers of fragments of b that have been used."""
        rows = [[[x[n] for x in half] for half in a] for n in range(len(a[0][0]))]
        #: Parts of a, of b and of the sums.
        passes = [(rows[0], 0, 0)]
        if self.dtype in dtypes.COMPLEX:
            negated = [[self.t.fneg(x) for x in half] for half in rows[1]]
            passes = [(rows[0], 0, 0), (rows[0], 1, 1), (rows[1], 0, 1), (negated, 1, 0)]
        for n, (own, part, total) in enumerate(passes):
            for j, columns in enumerate(b):
                places = [(first + half, 2 * j + c) for half in range(2) for c in range(2)]
                new = self._product(own, [x[part] for x in columns], [values[r][c][total] for r, c in places])
                for (r, c), x in zip(places, new, strict=True):
                    values[r][c][total] = x
                if n == len(passes) - 1:
                    yield j

    def _product(self, a: list[list[V]], b: list[V], sums: list[V]) -> list[V]:
        """Of sixteen rows and eight columns, in as many instructions as that takes."""
        rows, depth = self.shape
        sums = list(sums)
        for k in range(0, DEPTH // 4, depth // 4):
            for half in range(0, 2, rows // 8):
                halves = range(half, half + rows // 8)
                steps = range(k, k + depth // 4)
                own = slice(2 * half, 2 * half + rows // 4)
                sums[own] = self._instruction(
                    [a[h][i] for i in steps for h in halves], [b[i] for i in steps], sums[own]
                )
        return sums

    def _instruction(self, a: list[V], b: list[V], sums: list[V]) -> list[V]:
        t, (rows, depth) = self.t, self.shape
        counts = (len(sums), len(a), len(b), len(sums))
        names = [f"${k}" for k in range(sum(counts))]
        operands = []
        for count in counts:
            operands.append("{" + ", ".join(names[:count]) + "}")
            del names[:count]
        text = f"mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 {', '.join(operands)};"
        ty = "{" + ", ".join(["double"] * len(sums)) + "}"
        args = ", ".join(map(str, [*a, *b, *sums]))
        constraints = ",".join(["=d"] * len(sums) + ["d"] * (len(a) + len(b) + len(sums)))
        found = t.op(f'call {ty} asm sideeffect "{text}", "{constraints}"({args}) convergent nounwind', ty)
        return [t.op(f"extractvalue {found}, {k}", "double") for k in range(len(sums))]
