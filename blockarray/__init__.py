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

else:
    #: What belongs to kernels written by hand, which is loaded when it is first asked for.
    _LATE = {
        **dict.fromkeys(("jit", "kernel", "JITFunction", "cdiv", "must_use_result", "next_power_of_2"), "function"),
        **dict.fromkeys(("autotune", "Config", "heuristics"), "autotuner"),
        "TensorDescriptor": "descriptor", "custom_op": "operation", "reinterpret": "arguments",
    }  # fmt: skip

    def __getattr__(name):
        import importlib

        if name in _LATE:
            value = getattr(importlib.import_module(f"{__name__}.blocks.{_LATE[name]}"), name)
        elif name in ("language", "testing", "tools"):
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


ndarray = Array
__version__ = "0.1.0"
