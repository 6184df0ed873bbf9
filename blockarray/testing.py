"""Measuring kernels, and comparing and plotting what was measured."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

from .array import Array
from .info import evaluate
from .runtime.cuda import copies, memory, streams
from .runtime.device import CudaDevice, Device, default_device

#: More than any GPU's L2 cache holds.
_CACHE = 256 << 20
#: Points along a plot of which each has its label.
_LABELLED = 8
#: Runs by which the time of one is estimated.
_TRIAL = 5
_MODES: dict[str, Callable[[list[float]], Any]] = {
    "mean": fmean, "median": median, "min": min, "max": max, "all": list
}  # fmt: skip


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """How long a function takes, in milliseconds.

    On a GPU, work is timed by events, and the L2 cache is cleared before each run.

    Parameters
    ----------
    fn : callable
        What to run.  If it returns arrays of this library, they are computed.
    warmup, rep : float
        Milliseconds of runs before the clock is on, and with it.
    grad_to_none : sequence of torch tensors, optional
        Their gradients are dropped before each run.
    quantiles : sequence of float, optional
        Return these quantiles.
    return_mode : str
        Else return the "mean", "median", "min", "max" or "all".
    """
    _check_mode(return_mode)
    run = lambda: _computed(fn())

    def prepare() -> None:
        for x in grad_to_none or ():
            x.grad = None

    device = _device()
    with _one_stream(device):
        run()
        clock: Any = _EventClock(device) if isinstance(device, CudaDevice) else _HostClock()
        estimate = fmean(clock.times(run, _TRIAL)) or 1e-4
        for _ in range(max(1, int(warmup / estimate))):
            run()
        times = clock.times(run, max(1, int(rep / estimate)), prepare)
    return _summary(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """How long a function of torch tensors takes on a GPU in a row of calls that torch records as a graph.

    Like `do_bench`, but without the host's share in launches, and with what is left in the L2 cache.
    """
    _check_mode(return_mode)
    cuda = importlib.import_module("torch").cuda
    with cuda.stream(cuda.Stream()):
        before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def clocked(run: Callable[[], Any]) -> float:
            before.record()
            run()
            after.record()
            after.synchronize()
            return before.elapsed_time(after)

        fn()
        count = max(1, int(rep / (clocked(fn) or 1e-3)))
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(count):
                for x in grad_to_none or ():
                    x.grad = None
                fn()
        times = [clocked(graph.replay) / count for _ in range(2 * _TRIAL)]
    return _summary(times, quantiles, return_mode)


def _check_mode(return_mode: str) -> None:
    if return_mode not in _MODES:
        raise ValueError(f"return_mode is one of {', '.join(_MODES)}, not {return_mode!r}")


def _summary(times: list[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    if quantiles is not None:
        found = [float(np.quantile(times, q)) for q in quantiles]
        return found[0] if len(found) == 1 else found
    return _MODES[return_mode](times)


def _computed(x: Any) -> None:
    """Compute what a function returned; a GPU's work is queued, since waiting for it would be timed as well."""
    if isinstance(x, Array):
        evaluate(x)
    elif isinstance(x, tuple | list):
        for item in x:
            _computed(item)


def _device() -> Device:
    """The device that torch works on, if it does, else the default device."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return Device(f"cuda:{torch.cuda.current_device()}")
    return default_device()


class _HostClock:
    def times(self, run: Callable[[], None], count: int, prepare: Callable[[], None] = lambda: None) -> list[float]:
        found = []
        for _ in range(count):
            prepare()
            started = perf_counter()
            run()
            found.append(1e3 * (perf_counter() - started))
        return found


class _EventClock:
    """Events on the device's own stream, where torch works too meanwhile: changes of streams would be timed as well."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.cache = memory.allocate(device, _CACHE)

    def times(self, run: Callable[[], None], count: int, prepare: Callable[[], None] = lambda: None) -> list[float]:
        marks = []
        for _ in range(count):
            prepare()
            copies.clear(self.cache, 0)
            before = self._mark()
            run()
            marks.append((before, self._mark()))
        return [1e3 * before.elapsed(after) for before, after in marks]

    def _mark(self) -> streams.Event:
        return streams.Event(self.device, timing=True).record()


@contextmanager
def _one_stream(device: Device) -> Iterator[None]:
    """Let torch, if it works on a GPU, queue its work on the stream of this library's."""
    torch = sys.modules.get("torch")
    if not isinstance(device, CudaDevice) or torch is None or not torch.cuda.is_initialized():
        yield
        return
    usual = torch.cuda.current_stream(device.index).cuda_stream
    streams.wait_for(device, usual)
    try:
        with torch.cuda.stream(torch.cuda.ExternalStream(streams.stream(device), device.index)):
            yield
    finally:
        streams.signal(device, usual)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Raise AssertionError unless two arrays, of whatever libraries, are close: within 1e-2 by default."""
    a, b = (np.asarray(v.detach().cpu() if hasattr(v, "detach") else v).astype(np.float64) for v in (x, y))
    np.testing.assert_allclose(
        a, b, 1e-2 if rtol is None else rtol, 1e-2 if atol is None else atol, equal_nan=True, err_msg=err_msg
    )


# -- plots ------------------------------------------------------------------------------------------------------------
@dataclass
class Benchmark:
    """What `perf_report` measures: a function's result over one argument's values, a line for each value of another.

    Parameters
    ----------
    x_names, x_vals
        The arguments that vary along the plot, and their values: one for all, or a tuple with one for each.
    line_arg, line_vals, line_names
        The argument that tells the lines apart, its values, and what to call them.
    plot_name : str
        Title, and name of the files.
    args : dict
        The other arguments.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: dict[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None
    rows: list[list[Any]] = field(default_factory=list, init=False, repr=False)

    @property
    def header(self) -> list[str]:
        unit = f" ({self.ylabel})" if self.ylabel else ""
        return [*self.x_names, *[f"{name}{unit}" for name in self.line_names]]

    def measure(self, fn: Callable[..., Any], **kwargs: Any) -> None:
        """Fill in `rows`: the x values, then for each line (value, lowest, highest)."""
        self.rows = []
        for x in self.x_vals:
            at = list(x) if isinstance(x, tuple | list) else [x] * len(self.x_names)
            if len(at) != len(self.x_names):
                raise ValueError(f"{self.plot_name}: {x} has not one value for each of {', '.join(self.x_names)}")
            arguments = {**dict(zip(self.x_names, at)), **self.args, **kwargs}
            row: list[Any] = at
            for line in self.line_vals:
                found = fn(**arguments, **{self.line_arg: line})
                row.append(tuple(found) if isinstance(found, tuple | list) else (found, None, None))
            self.rows.append(row)

    def table(self) -> list[list[Any]]:
        """The rows without their bounds."""
        n = len(self.x_names)
        return [row[:n] + [line[0] for line in row[n:]] for row in self.rows]

    def __str__(self) -> str:
        cells = [self.header] + [[_spelled(x) for x in row] for row in self.table()]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]
        return "\n".join([f"{self.plot_name}:", *lines])

    def plot(self) -> Any:
        """A matplotlib figure."""
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots()
        n = len(self.x_names)
        xs = [row[0] for row in self.rows]
        for k, name in enumerate(self.line_names):
            color, style = self.styles[k] if self.styles else (None, None)
            lines = [row[n + k] for row in self.rows]
            axes.plot(xs, [line[0] for line in lines], label=name, color=color, linestyle=style, marker=".")
            if all(line[1] is not None for line in lines):
                bounds = [[float(bound) for _, *bounds in lines for bound in bounds[i : i + 1]] for i in (0, 1)]
                axes.fill_between(xs, bounds[0], bounds[1], alpha=0.15, color=color)
        axes.legend()
        axes.set(xlabel=self.xlabel or self.x_names[0], ylabel=self.ylabel, title=self.plot_name)
        axes.set_xscale("log" if self.x_log else "linear")
        axes.set_yscale("log" if self.y_log else "linear")
        if not self.y_log:
            axes.set_ylim(bottom=0)
        if len(xs) <= _LABELLED:
            axes.set_xticks(xs, [_spelled(x) for x in xs])
            axes.minorticks_off()
        axes.grid(alpha=0.3)
        return figure


def _spelled(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, float) else str(x)


class Mark:
    """A function with the benchmarks that run it."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        format: str = "png",
        **kwargs: Any,
    ) -> Any:
        """Measure, and print, plot (with matplotlib) or save (as .csv and a picture) the results.

        Returns
        -------
        None, or with `return_df` pandas.DataFrame (a list of them, if there are several benchmarks).
        """
        given = self.benchmarks
        several = not isinstance(given, Benchmark)
        benchmarks = [given] if isinstance(given, Benchmark) else list(given)
        for b in benchmarks:
            b.measure(self.fn, **kwargs)
            if print_data:
                print(b)
            if show_plots or save_path:
                self._draw(b, show_plots, save_path, format)
        if return_df:
            pandas = importlib.import_module("pandas")
            frames = [pandas.DataFrame(b.table(), columns=b.header) for b in benchmarks]
            return frames if several else frames[0]
        return None

    def _draw(self, b: Benchmark, show: bool, folder: str, format: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with open(Path(folder) / f"{b.plot_name}.csv", "w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([b.header, *b.table()])
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            return
        figure = b.plot()
        if show:
            plt.show()
        if folder:
            figure.savefig(Path(folder) / f"{b.plot_name}.{format}")
        plt.close(figure)


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a function that returns what is to be plotted, or (value, lowest, highest); `.run()` measures it."""
    return lambda fn: Mark(fn, benchmarks)
