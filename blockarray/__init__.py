"""NumPy-style arrays that run lazily, as fused kernels."""

from math import e, inf, nan, pi

from numpy import dtype, euler_gamma, newaxis

from . import fft, linalg
from .array import Array
from .creation import *
from .dtypes import *
from .elementwise import *
from .explain import explain
from .indexing import *
from .info import *
from .info import __array_namespace_info__
from .interop import asnumpy
from .linalg import cross, dot, einsum, inner, kron, matmul, outer, tensordot, trace, vdot, vecdot
from .manipulation import *
from .profile import profile
from .reductions import *
from .runtime.device import CPU, Device, devices
from .searching import *
from .statistics import *

ndarray = Array
__array_api_version__ = "2025.12"
__version__ = "0.1.0"
