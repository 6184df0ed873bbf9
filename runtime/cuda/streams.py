"""Events, and order between a device's stream and streams of others."""

from __future__ import annotations

from typing import Any

from ..device import CudaDevice
from . import driver

#: Handles that stand for the default streams.
LEGACY, PER_THREAD = 1, 2


class Event:
    """A point in a device's stream.

    Parameters
    ----------
    device : CudaDevice
        Whose stream.
    timing : bool
        Whether `elapsed` is wanted.
    """

    __slots__ = ("context", "handle", "timing")

    def __init__(self, device: CudaDevice, timing: bool = False) -> None:
        self.handle: Any = None
        self.timing = timing
        self.context = driver.context(device.index)
        self.context.enter()
        try:
            self.handle = self.context.spare[timing].pop()
        except IndexError:
            flags = driver.api.CUevent_flags
            flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
            self.handle = self.context.check(driver.api.cuEventCreate(int(flag)))

    def __del__(self) -> None:
        if self.handle is not None:
            self.context.spare[self.timing].append(self.handle)

    def record(self) -> Event:
        """Let the event be the stream's present end."""
        self.context.enter()
        self.context.check(driver.api.cuEventRecord(self.handle, self.context.stream))
        return self

    def done(self) -> bool:
        """Whether the device has passed it."""
        self.context.enter()
        result = driver.api.cuEventQuery(self.handle)
        if result[0] == driver.api.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self.context.check(result)
        return True

    def wait(self) -> None:
        """Wait until the device has passed it."""
        self.context.enter()
        self.context.check(driver.api.cuEventSynchronize(self.handle))

    def elapsed(self, later: Event) -> float:
        """Seconds from this event to a later one; waits for both.  Both must have been made with `timing`."""
        later.wait()
        return self.context.check(driver.api.cuEventElapsedTime(self.handle, later.handle)) * 1e-3


def stream(device: CudaDevice) -> int:
    """The device's stream, as the driver's handle."""
    return int(driver.context(device.index).stream)


def wait_for(device: CudaDevice, stream: int) -> None:
    """Let work that is queued from now on wait for all that is on another stream of the device.

    Parameters
    ----------
    device : CudaDevice
        The device.
    stream : int
        The driver's handle; 1 is the legacy default stream and 2 the calling thread's, as in DLPack.
    """
    context, foreign = _pair(device, stream)
    if foreign is not None:
        event = Event(device)
        context.check(driver.api.cuEventRecord(event.handle, foreign))
        context.check(driver.api.cuStreamWaitEvent(context.stream, event.handle, 0))


def signal(device: CudaDevice, stream: int) -> None:
    """Let another stream of the device (see `wait_for`) wait for all that is queued now."""
    context, foreign = _pair(device, stream)
    if foreign is not None:
        event = Event(device).record()
        context.check(driver.api.cuStreamWaitEvent(foreign, event.handle, 0))


def _pair(device: CudaDevice, stream: int) -> tuple[driver.Context, Any]:
    context = driver.context(device.index)
    context.enter()
    # The legacy default stream and ours wait for each other anyway.
    if stream in (0, LEGACY, int(context.stream)):
        return context, None
    return context, driver.api.CUstream(stream)
