"""Small kernels in LLVM IR, for the tests of the runtime."""

from __future__ import annotations

import llvmlite.binding as llvm

from blockarray.runtime import jit

#: args = (out, scratch bytes to fill, repetitions): adds 1 to out[p] for each program p, `repetitions` times; fills its
#: scratch with the thread's number and adds 1000000 to out[p] if another thread wrote to the scratch meanwhile.
COUNT = """
define void @kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch, i64 %thread) {
entry:
  %out = load ptr, ptr %args
  %bytes_at = getelementptr i64, ptr %args, i64 1
  %bytes = load i64, ptr %bytes_at
  %times_at = getelementptr i64, ptr %args, i64 2
  %times = load i64, ptr %times_at
  %words = udiv i64 %bytes, 8
  br label %program
program:
  %p = phi i64 [%begin, %entry], [%p1, %next]
  %more = icmp slt i64 %p, %end
  br i1 %more, label %fill, label %done
fill:
  %i = phi i64 [0, %program], [%i1, %store]
  %fillmore = icmp slt i64 %i, %words
  br i1 %fillmore, label %store, label %work
store:
  %s = getelementptr i64, ptr %scratch, i64 %i
  store volatile i64 %thread, ptr %s
  %i1 = add i64 %i, 1
  br label %fill
work:
  %q = getelementptr i64, ptr %out, i64 %p
  br label %again
again:
  %k = phi i64 [0, %work], [%k1, %again]
  atomicrmw add ptr %q, i64 1 monotonic
  %k1 = add i64 %k, 1
  %enough = icmp sge i64 %k1, %times
  br i1 %enough, label %check, label %again
check:
  %j = phi i64 [0, %again], [%j1, %test]
  %checkmore = icmp slt i64 %j, %words
  br i1 %checkmore, label %test, label %next
test:
  %u = getelementptr i64, ptr %scratch, i64 %j
  %x = load volatile i64, ptr %u
  %j1 = add i64 %j, 1
  %good = icmp eq i64 %x, %thread
  br i1 %good, label %check, label %bad
bad:
  atomicrmw add ptr %q, i64 1000000 monotonic
  br label %next
next:
  %p1 = add i64 %p, 1
  br label %program
done:
  ret void
}
"""

#: args = (out, workspace): member t of T waits at a barrier in the workspace, then writes T to out[t].
TEAM = """
define void @kernel(ptr %args, i64 %t, i64 %n, ptr %scratch, i64 %thread) {
entry:
  %out = load ptr, ptr %args
  %w_at = getelementptr i64, ptr %args, i64 1
  %w = load ptr, ptr %w_at
  atomicrmw add ptr %w, i64 1 seq_cst
  br label %wait
wait:
  %x = load atomic i64, ptr %w seq_cst, align 8
  %all = icmp sge i64 %x, %n
  br i1 %all, label %go, label %wait
go:
  %q = getelementptr i64, ptr %out, i64 %t
  atomicrmw add ptr %q, i64 %n monotonic
  ret void
}
"""


def build(text: str) -> bytes:
    """The object file of a module for this machine."""
    jit.engine()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True)
    return machine.emit_object(llvm.parse_assembly(text))
