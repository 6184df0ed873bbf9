"""Events, and order between a device's stream and streams of others."""

from __future__ import annotations

from ..device import CudaDevice


class Event:
    """A point in a device's stream.

    Parameters
    ----------
    device : CudaDevice
        Whose stream.
    timing : bool
        Whether `elapsed` is wanted.
    """

    def __init__(self, device: CudaDevice, timing: bool = False) -> None:
        raise NotImplementedError

    def record(self) -> Event:
        """Let the event be the stream's present end."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether the device has passed it."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until the device has passed it."""
        raise NotImplementedError

    def elapsed(self, later: Event) -> float:
        """Seconds from this event to a later one; waits for both.  Both must have been made with `timing`."""
        raise NotImplementedError


def stream(device: CudaDevice) -> int:
    """The device's stream, as the driver's handle."""
    raise NotImplementedError


def wait_for(device: CudaDevice, stream: int) -> None:
    """Let work that is queued from now on wait for all that is on another stream of the device.

    `stream` is a handle, or 1 for the legacy default stream and 2 for the calling thread's, as in DLPack.
    """
    raise NotImplementedError


def signal(device: CudaDevice, stream: int) -> None:
    """Let another stream of the device wait for all that is queued now."""
    raise NotImplementedError
