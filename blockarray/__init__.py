"""NumPy-style arrays that run lazily, as fused kernels."""

from math import e, inf, nan, pi
from typing import TYPE_CHECKING

from numpy import dtype, euler_gamma, newaxis

from . import fft, linalg, random
from .array import Array
from .creation import *
from .dtypes import *
from .elementwise import *
from .explain import explain
from .info import *
from .info import __array_namespace_info__
from .interop import asnumpy
from .manipulation import *
from .products import *
from .profile import profile
from .reductions import *
from .runtime.device import CPU, Device, devices
from .scalars import *
from .searching import *
from .selection import *
from .statistics import *
from .tune import tune
from .versions import CURRENT as __array_api_version__

if TYPE_CHECKING:
    from typing import Any

    # The functions that come from the op table.
    def __getattr__(name: str) -> Any: ...


ndarray = Array
__version__ = "0.1.0"
