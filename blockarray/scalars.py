"""The names of the dtypes: NumPy's scalar types, which make scalars and equal the dtypes.

Those of bfloat16 and of floats of 8 bits are ml_dtypes'.
"""

import ml_dtypes
import numpy as np

__all__ = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool_", "intp", "uintp", "int_", "uint",
    "half", "single", "double", "csingle", "cdouble", "byte", "ubyte", "short", "ushort", "intc", "uintc", "longlong",
    "ulonglong", "long", "ulong",
]  # fmt: skip

bool = bool_ = np.bool
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
bfloat16, float8_e4m3fn, float8_e5m2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
float16, float32, float64, complex64, complex128 = np.float16, np.float32, np.float64, np.complex64, np.complex128

intp, uintp, int_, uint, half, single, double = int64, uint64, int64, uint64, float16, float32, float64
csingle, cdouble, byte, ubyte, short, ushort = complex64, complex128, int8, uint8, int16, uint16
intc, uintc, longlong, ulonglong, long, ulong = int32, uint32, int64, uint64, int64, uint64
