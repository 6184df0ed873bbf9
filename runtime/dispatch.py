"""The native part of launching: running a kernel's programs on several threads, as LLVM IR.

A pool's threads share a control block.  To start a job, the launching thread writes the job's fields and one ticket for
each member, then changes `epoch`, which the workers watch: at first they spin, then they sleep on it.  The programs are
cut into chunks and each member owns a contiguous run of them, so that a thread meets the same part of the data in
kernel after kernel; whoever has finished its own chunks helps the others.

A ticket is (epoch, chunks not yet claimed); to claim a chunk is to decrement it by compare-and-swap.  A job is done
when all its chunks are, however late a worker wakes up: a late one finds tickets of another epoch, or none left.  It
may have read fields that were being overwritten, but then its compare-and-swap fails, since tickets change with the
epoch.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
from typing import Any

import llvmlite.binding as llvm

from . import cache as disk
from . import jit

#: Offsets in the control block, in bytes.  What different threads write lies on different pairs of cache lines.
EPOCH = 0
STOP = 4
SLEEPERS = 128
BUSY = 256
PENDING = 384
WAITING = 512
THREADS, SPINS = 640, 648
KERNEL, ARGS, PROGRAMS, CHUNKS, SCRATCH, STRIDE, TEAM, MEMBERS = range(656, 720, 8)
TICKETS = 768
TICKET_STRIDE = 128

#: Chunks for each member: more even out the load, fewer cost less.
CHUNKS_PER_THREAD = 6

_FUTEX = {
    "x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98, "ppc64le": 221, "s390x": 238,
}  # fmt: skip

# Wait until the word changes from `old`, be woken early, or return at once; and wake up to n waiters.
_SLEEP_LINUX = """
declare i64 @syscall(i64, ...)
define internal void @sleep(ptr %word, i32 %old) {{
  call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 128, i32 %old, ptr null)
  ret void
}}
define internal void @wake(ptr %word, i32 %n) {{
  call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 129, i32 %n)
  ret void
}}
"""
# Elsewhere sleepers look again from time to time.
_SLEEP_PORTABLE = """
declare i32 @usleep(i32)
define internal void @sleep(ptr %word, i32 %old) {
  call i32 @usleep(i32 200)
  ret void
}
define internal void @wake(ptr %word, i32 %n) {
  ret void
}
"""

#: What a spinning thread tells its core: the declaration and the call.
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

#: The job's fields, as the launching function's values are called.
_FIELDS = {
    "kernel": ("ptr", KERNEL), "args": ("ptr", ARGS), "programs": ("i64", PROGRAMS), "chunks": ("i64", CHUNKS),
    "scratch": ("ptr", SCRATCH), "stride": ("i64", STRIDE), "team": ("i64", TEAM), "members": ("i64", MEMBERS),
}  # fmt: skip

_CODE = """
declare i64 @llvm.umin.i64(i64, i64)
PAUSE_DECLARATION
; All programs on the calling thread.
define void @blockarray_run(ptr %kernel, ptr %args, i64 %programs, ptr %scratch) {
  call void %kernel(ptr %args, i64 0, i64 %programs, ptr %scratch, i64 0)
  ret void
}

; The same, as four words in memory say: kernel, arguments, programs, scratch.
define void @blockarray_serial(ptr %job) {
  %args_at = getelementptr i8, ptr %job, i64 8
  %programs_at = getelementptr i8, ptr %job, i64 16
  %scratch_at = getelementptr i8, ptr %job, i64 24
  %kernel = load ptr, ptr %job, align 8
  %args = load ptr, ptr %args_at, align 8
  %programs = load i64, ptr %programs_at, align 8
  %scratch = load ptr, ptr %scratch_at, align 8
  call void %kernel(ptr %args, i64 0, i64 %programs, ptr %scratch, i64 0)
  ret void
}

; Spin until the word differs from `old`, at most `spins` times; its value then.
define i32 @blockarray_poll(ptr %word, i32 %old, i64 %spins) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %again]
  %now = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %now, %old
  %tired = icmp uge i64 %i, %spins
  %stop = or i1 %changed, %tired
  br i1 %stop, label %done, label %again
again:
  PAUSE
  %next = add i64 %i, 1
  br label %loop
done:
  ret i32 %now
}

; The first of a member's chunks, or of a chunk's programs: part `i` when `total` is dealt out to `parts`.
define internal i64 @share(i64 %i, i64 %total, i64 %parts) {
  %each = udiv i64 %total, %parts
  %extra = urem i64 %total, %parts
  %start = mul i64 %i, %each
  %few = icmp ult i64 %i, %extra
  %more = select i1 %few, i64 %i, i64 %extra
  %first = add i64 %start, %more
  ret i64 %first
}

; Take part in the job of `epoch` until none of its chunks is unclaimed.
define internal void @take_part(ptr %c, i64 %index, i32 %epoch) {
entry:
  FIELDS
  %offset = mul i64 %index, %stride
  %mine = getelementptr i8, ptr %scratch, i64 %offset
  br label %member
member:
  %k = phi i64 [0, %entry], [%k1, %exhausted]
  %more = icmp ult i64 %k, %members
  br i1 %more, label %owner, label %out
owner:
  %turn = add i64 %index, %k
  %t = urem i64 %turn, %members
  %t1 = add i64 %t, 1
  %limit = call i64 @share(i64 %t1, i64 %chunks, i64 %members)
  %place = mul i64 %t, TICKET_STRIDE
  %first_ticket = getelementptr i8, ptr %c, i64 TICKETS
  %ticket = getelementptr i8, ptr %first_ticket, i64 %place
  br label %claim
claim:
  %v = load atomic i64, ptr %ticket acquire, align 8
  %high = lshr i64 %v, 32
  %of = trunc i64 %high to i32
  %current = icmp eq i32 %of, %epoch
  br i1 %current, label %left, label %out
left:
  %r = and i64 %v, 4294967295
  %none = icmp eq i64 %r, 0
  br i1 %none, label %exhausted, label %try
exhausted:
  %k1 = add i64 %k, 1
  br label %member
try:
  %v1 = sub i64 %v, 1
  %pair = cmpxchg ptr %ticket, i64 %v, i64 %v1 acq_rel monotonic
  %won = extractvalue {i64, i1} %pair, 1
  br i1 %won, label %work, label %claim
work:
  %chunk = sub i64 %limit, %r
  %is_team = icmp ne i64 %team, 0
  br i1 %is_team, label %teamwork, label %range
teamwork:
  call void %kernel(ptr %args, i64 %chunk, i64 %chunks, ptr %mine, i64 %chunk)
  br label %finish
range:
  %begin = call i64 @share(i64 %chunk, i64 %programs, i64 %chunks)
  %chunk1 = add i64 %chunk, 1
  %end = call i64 @share(i64 %chunk1, i64 %programs, i64 %chunks)
  call void %kernel(ptr %args, i64 %begin, i64 %end, ptr %mine, i64 %index)
  br label %finish
finish:
  %pending = getelementptr i8, ptr %c, i64 PENDING
  %before = atomicrmw sub ptr %pending, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %report, label %claim
report:
  %waiting = getelementptr i8, ptr %c, i64 WAITING
  %w = load atomic i32, ptr %waiting seq_cst, align 4
  %asleep = icmp ne i32 %w, 0
  br i1 %asleep, label %ring, label %out
ring:
  call void @wake(ptr %pending, i32 1)
  br label %out
out:
  ret void
}

; A worker's life.
define void @blockarray_worker(ptr %c, i64 %index) {
entry:
  %epoch_at = getelementptr i8, ptr %c, i64 EPOCH
  %stop_at = getelementptr i8, ptr %c, i64 STOP
  %sleepers = getelementptr i8, ptr %c, i64 SLEEPERS
  %spins_at = getelementptr i8, ptr %c, i64 SPINS
  %spins = load i64, ptr %spins_at, align 8
  br label %watch
watch:
  %seen = phi i32 [0, %entry], [%epoch, %job]
  %polled = call i32 @blockarray_poll(ptr %epoch_at, i32 %seen, i64 %spins)
  %new = icmp ne i32 %polled, %seen
  br i1 %new, label %woken, label %lie_down
lie_down:
  atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %look
look:
  %now = load atomic i32, ptr %epoch_at seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %doze, label %rise
doze:
  call void @sleep(ptr %epoch_at, i32 %seen)
  br label %look
rise:
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %woken
woken:
  %epoch = load atomic i32, ptr %epoch_at acquire, align 4
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %job
job:
  call void @take_part(ptr %c, i64 %index, i32 %epoch)
  br label %watch
out:
  ret void
}

; Let all workers return, and no job start from now on.  0: a job is running and nothing was done.
define i64 @blockarray_stop(ptr %c) {
  %stop_at = getelementptr i8, ptr %c, i64 STOP
  %stopped = load atomic i32, ptr %stop_at acquire, align 4
  %again = icmp ne i32 %stopped, 0
  br i1 %again, label %done, label %seize
seize:
  %busy = getelementptr i8, ptr %c, i64 BUSY
  %pair = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue {i32, i1} %pair, 1
  br i1 %free, label %tell, label %refuse
refuse:
  ret i64 0
tell:
  store atomic i32 1, ptr %stop_at release, align 4
  %epoch_at = getelementptr i8, ptr %c, i64 EPOCH
  atomicrmw add ptr %epoch_at, i32 1 seq_cst
  call void @wake(ptr %epoch_at, i32 2147483647)
  br label %done
done:
  ret i64 1
}

; Run a job on up to `limit` threads, this one among them.  0: the pool is busy and nothing was done.
define i64 @blockarray_launch(ptr %c, ptr %kernel, ptr %args, i64 %programs, ptr %scratch, i64 %stride, i64 %team,
                              i64 %limit) {
entry:
  %busy = getelementptr i8, ptr %c, i64 BUSY
  %pair = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue {i32, i1} %pair, 1
  br i1 %free, label %prepare, label %refuse
refuse:
  ret i64 0
prepare:
  %threads_at = getelementptr i8, ptr %c, i64 THREADS
  %threads = load i64, ptr %threads_at, align 8
  %allowed = call i64 @llvm.umin.i64(i64 %threads, i64 %limit)
  %many = mul i64 %allowed, CHUNKS_PER_THREAD
  %pieces = call i64 @llvm.umin.i64(i64 %many, i64 %programs)
  %is_team = icmp ne i64 %team, 0
  %chunks = select i1 %is_team, i64 %allowed, i64 %pieces
  %members = call i64 @llvm.umin.i64(i64 %allowed, i64 %chunks)
  STORE_FIELDS
  %pending = getelementptr i8, ptr %c, i64 PENDING
  %n = trunc i64 %chunks to i32
  store atomic i32 %n, ptr %pending monotonic, align 4
  %epoch_at = getelementptr i8, ptr %c, i64 EPOCH
  %old = load atomic i32, ptr %epoch_at monotonic, align 4
  %epoch = add i32 %old, 1
  %epoch64 = zext i32 %epoch to i64
  %high = shl i64 %epoch64, 32
  %first_ticket = getelementptr i8, ptr %c, i64 TICKETS
  br label %deal
deal:
  %t = phi i64 [0, %prepare], [%t1, %deal]
  %start = phi i64 [0, %prepare], [%next, %deal]
  %t1 = add i64 %t, 1
  %next = call i64 @share(i64 %t1, i64 %chunks, i64 %members)
  %count = sub i64 %next, %start
  %value = or i64 %high, %count
  %place = mul i64 %t, TICKET_STRIDE
  %ticket = getelementptr i8, ptr %first_ticket, i64 %place
  store atomic i64 %value, ptr %ticket release, align 8
  %dealt = icmp uge i64 %t1, %members
  br i1 %dealt, label %go, label %deal
go:
  store atomic i32 %epoch, ptr %epoch_at seq_cst, align 4
  %sleepers_at = getelementptr i8, ptr %c, i64 SLEEPERS
  %asleep32 = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %asleep = sext i32 %asleep32 to i64
  ; Whoever is awake sees the new epoch; wake only as many as are wanted beyond those.
  %awake = sub i64 %threads, %asleep
  %wanted = sub i64 %members, %awake
  %any = icmp sgt i64 %wanted, 0
  br i1 %any, label %rouse, label %join
rouse:
  %wanted32 = trunc i64 %wanted to i32
  call void @wake(ptr %epoch_at, i32 %wanted32)
  br label %join
join:
  call void @take_part(ptr %c, i64 0, i32 %epoch)
  %spins_at = getelementptr i8, ptr %c, i64 SPINS
  %spins = load i64, ptr %spins_at, align 8
  br label %spin
spin:
  %i = phi i64 [0, %join], [%i1, %again]
  %p = load atomic i32, ptr %pending acquire, align 4
  %done = icmp eq i32 %p, 0
  br i1 %done, label %finish, label %check
check:
  %tired = icmp uge i64 %i, %spins
  br i1 %tired, label %settle, label %again
again:
  PAUSE
  %i1 = add i64 %i, 1
  br label %spin
settle:
  %waiting = getelementptr i8, ptr %c, i64 WAITING
  store atomic i32 1, ptr %waiting seq_cst, align 4
  br label %look
look:
  %q = load atomic i32, ptr %pending seq_cst, align 4
  %over = icmp eq i32 %q, 0
  br i1 %over, label %rise, label %doze
doze:
  call void @sleep(ptr %pending, i32 %q)
  br label %look
rise:
  store atomic i32 0, ptr %waiting monotonic, align 4
  br label %finish
finish:
  store atomic i32 0, ptr %busy release, align 4
  ret i64 1
}
"""


def source(futex: int | None) -> str:
    """The module's text; `futex` is the number of Linux's system call."""
    declaration, pause = _PAUSE.get(_machine(), ("", ""))
    loads, stores = [], []
    for name, (ty, offset) in _FIELDS.items():
        place = f"  %{name}_at = getelementptr i8, ptr %c, i64 {offset}\n"
        loads.append(f"{place}  %{name} = load atomic {ty}, ptr %{name}_at monotonic, align 8")
        stores.append(f"{place}  store atomic {ty} %{name}, ptr %{name}_at monotonic, align 8")
    text = _SLEEP_PORTABLE if futex is None else _SLEEP_LINUX.format(futex=futex)
    text += _CODE
    for word, value in (
        ("PAUSE_DECLARATION", declaration),
        ("STORE_FIELDS", "\n".join(stores).strip()),
        ("FIELDS", "\n".join(loads).strip()),
        ("PAUSE", pause),
        ("CHUNKS_PER_THREAD", CHUNKS_PER_THREAD),
        ("TICKET_STRIDE", TICKET_STRIDE),
        ("TICKETS", TICKETS),
        ("THREADS", THREADS),
        ("SPINS", SPINS),
        ("EPOCH", EPOCH),
        ("STOP", STOP),
        ("SLEEPERS", SLEEPERS),
        ("BUSY", BUSY),
        ("PENDING", PENDING),
        ("WAITING", WAITING),
    ):
        text = text.replace(word, str(value))
    return text


class Native:
    """The compiled functions, callable from Python; each releases the interpreter's lock while it runs.

    Attributes
    ----------
    run : (kernel, args, programs, scratch)
        All programs on the calling thread.
    serial : (job)
        The same, with the address of these four words: one argument takes ctypes a third of the time.
    launch : (control, kernel, args, programs, scratch, stride, team, limit) -> int
        The programs on a pool's threads; 0 if the pool is busy.
    worker : (control, index)
        A worker's life, which `stop` ends.
    stop : (control) -> int
        End the workers; 0 if a job is running, then nothing happened.
    poll : (word, old, spins) -> int
        Spin until the 32-bit word differs from `old`, but at most `spins` times.
    """

    __slots__ = ("run", "serial", "launch", "worker", "stop", "poll", "_library")

    def __init__(self, futex: int | None) -> None:
        symbols = {
            "run": (None, 4), "serial": (None, 1), "launch": (ctypes.c_int64, 8), "worker": (None, 2),
            "stop": (ctypes.c_int64, 1), "poll": (ctypes.c_int32, 3),
        }  # fmt: skip
        self._library = jit.link(_object(source(futex)), [f"blockarray_{name}" for name in symbols])
        for name, (result, arity) in symbols.items():
            # c_void_p is the cheapest conversion of an int that ctypes has, and as wide as i64.
            prototype = ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * arity)
            setattr(self, name, prototype(self._library[f"blockarray_{name}"]))

    run: Any
    serial: Any
    launch: Any
    worker: Any
    stop: Any
    poll: Any


def native_futex() -> int | None:
    """The number of the futex system call, None where there is none."""
    return _FUTEX.get(_machine()) if sys.platform == "linux" else None


def _machine() -> str:
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


def _object(text: str) -> bytes:
    triple = llvm.get_default_triple()
    version = ".".join(map(str, llvm.llvm_version_info))
    key = f"dispatch {triple} {version} {hashlib.sha256(text.encode()).hexdigest()}"
    code = disk.get(key)
    if code is None:
        jit.engine()
        # Unoptimised: a launch waits for cache lines, not for instructions, and this compiles in a quarter of the time.
        machine = llvm.Target.from_triple(triple).create_target_machine(opt=0, jit=True)
        code = machine.emit_object(llvm.parse_assembly(text))
        disk.put(key, code)
    return code
