"""A few kernels as PTX, by the compiler's calling convention: every parameter is 8 bytes, the entry is `kernel`."""

from __future__ import annotations

import ctypes
import json
import struct

from blockarray.runtime.cuda.launch import Function, load

_HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"

#: out[i] = a * x[i] for i < n: (x, out, n, a), one element a thread.
SCALE = (
    _HEAD
    + """
.visible .entry kernel(.param .u64 x, .param .u64 out, .param .u64 n, .param .u64 a) {
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .f32 %f<3>;
  .reg .b64 %d<7>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d1, %r1, %r2;
  cvt.u64.u32 %d2, %r3;
  add.u64 %d1, %d1, %d2;
  ld.param.u64 %d3, [n];
  setp.ge.s64 %p, %d1, %d3;
  @%p bra DONE;
  ld.param.u64 %d4, [x];
  ld.param.u64 %d5, [out];
  ld.param.f32 %f1, [a];
  shl.b64 %d6, %d1, 2;
  add.u64 %d4, %d4, %d6;
  add.u64 %d5, %d5, %d6;
  ld.global.f32 %f2, [%d4];
  fma.rn.f32 %f2, %f2, %f1, 0f00000000;
  st.global.f32 [%d5], %f2;
DONE:
  ret;
}
"""
)

#: *out = value: (out, value).
STORE = (
    _HEAD
    + """
.visible .entry kernel(.param .u64 out, .param .u64 value) {
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [value];
  st.global.u64 [%d1], %d2;
  ret;
}
"""
)

#: A store to an address that is none: (address, value).
FAULT = STORE

#: Wait so many nanoseconds, then *out = value: (out, nanoseconds, value).
SPIN = (
    _HEAD
    + """
.visible .entry kernel(.param .u64 out, .param .u64 wait, .param .u64 value) {
  .reg .pred %p;
  .reg .b64 %d<7>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [wait];
  ld.param.u64 %d3, [value];
  mov.u64 %d4, %globaltimer;
LOOP:
  mov.u64 %d5, %globaltimer;
  sub.u64 %d6, %d5, %d4;
  setp.lt.u64 %p, %d6, %d2;
  @%p bra LOOP;
  st.global.u64 [%d1], %d3;
  ret;
}
"""
)

#: *out = 77, by way of byte `place` of the shared memory: (out, place).
SHARED = (
    _HEAD
    + """
.extern .shared .align 16 .b8 memory[];
.visible .entry kernel(.param .u64 out, .param .u64 place) {
  .reg .b32 %r<3>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [place];
  mov.u64 %d3, memory;
  add.u64 %d4, %d3, %d2;
  mov.u32 %r1, 77;
  st.shared.u32 [%d4], %r1;
  bar.sync 0;
  ld.shared.u32 %r2, [%d4];
  st.global.u32 [%d1], %r2;
  ret;
}
"""
)


def blob(code: str, threads: int, shared: int = 0, workspace: tuple[int, int] = (0, 0), **more: int) -> bytes:
    """PTX in the form in which the compiler hands it over."""
    launch = {"threads": threads, "shared": shared, "workspace": workspace, **more}
    header = json.dumps({**launch, "format": "ptx"}).encode()
    return struct.pack("<I", len(header)) + header + code.encode()


def function(code: str, threads: int, shared: int = 0, **more: int) -> Function:
    return load(blob(code, threads, shared, (0, 0), **more))


def pack(*args: int | float) -> ctypes.Array[ctypes.c_char]:
    """An argument block: integers as i64, floats as f32, 8 bytes each."""
    data = b"".join(struct.pack("<f4x" if isinstance(a, float) else "<q", a) for a in args)
    return ctypes.create_string_buffer(data, len(data))
