"""The names of the dtypes: NumPy's scalar types (bfloat16 is ml_dtypes'), which make scalars and equal the dtypes."""

import ml_dtypes
import numpy as np

__all__ = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "bool_", "intp", "uintp", "int_", "uint", "half", "single", "double",
    "csingle", "cdouble", "byte", "ubyte", "short", "ushort", "intc", "uintc", "longlong", "ulonglong", "long", "ulong",
]  # fmt: skip

bool = bool_ = np.bool
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
bfloat16 = ml_dtypes.bfloat16
float16, float32, float64, complex64, complex128 = np.float16, np.float32, np.float64, np.complex64, np.complex128

intp, uintp, int_, uint, half, single, double = int64, uint64, int64, uint64, float16, float32, float64
csingle, cdouble, byte, ubyte, short, ushort = complex64, complex128, int8, uint8, int16, uint16
intc, uintc, longlong, ulonglong, long, ulong = int32, uint32, int64, uint64, int64, uint64
