"""Loading code and launching kernels."""

from __future__ import annotations

from typing import Any

from ..device import CudaDevice

ENTRY = b"kernel"
#: Limit of a grid's first axis.
MAX_PROGRAMS = (1 << 31) - 1


class Function:
    """A kernel's code; each device loads it at the first launch.

    Attributes
    ----------
    threads : int
        Threads of a block.
    shared : int
        Bytes of dynamic shared memory of a block.
    header : dict
        What the compiler says of it.
    """

    __slots__ = ("threads", "shared", "header", "code", "_loaded")

    threads: int
    shared: int
    header: dict[str, Any]

    def workspace(self, programs: int) -> int:
        """Bytes of workspace that a launch needs."""
        raise NotImplementedError


def load(blob: bytes) -> Function:
    """A function from a compiler's blob: a 4-byte little-endian length, a JSON header, a cubin or PTX.

    Raises
    ------
    RuntimeError
        If `blob` is not one.  (Code that a device cannot load raises RuntimeError at its first launch there.)
    """
    raise NotImplementedError


def launch(function: Function, device: CudaDevice, address: int, nbytes: int, programs: int) -> None:
    """Queue a kernel on a device's stream.

    Parameters
    ----------
    function : Function
        What to run.
    device : CudaDevice
        Where.
    address, nbytes : int
        Its packed arguments, which are copied before the function returns.
    programs : int
        Size of the linear grid: below 1 nothing is launched; ValueError beyond 2**31 - 1.
    """
    raise NotImplementedError
