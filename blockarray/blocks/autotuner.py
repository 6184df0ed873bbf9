"""Choosing a kernel's meta-parameters: by measuring (`autotune`), or by rules (`heuristics`)."""

from __future__ import annotations

import difflib
import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, update_wrapper
from time import perf_counter
from typing import Any, cast

from .. import compiling, kernels, testing
from ..array import Array
from ..info import evaluate
from ..runtime import cache as disk
from ..runtime.config import config as settings
from .arguments import library
from .compiled import Compiled
from .descriptor import device_of
from .function import OPTIONS, JITFunction
from .keys import exact

#: Milliseconds of runs of a candidate without and with the clock.
_WARMUP, _REP = 10, 40
_QUANTILES = (0.5, 0.2, 0.8)
#: Seconds of compiling from which on processes that share it are worth their start.
_PROCESSES = 4.0


class Config:
    """Meta-parameters to try.

    Parameters
    ----------
    kwargs : dict
        Values of the kernel's constants.
    num_warps, num_stages, num_ctas, maxnreg
        Options of the launch.
    pre_hook : callable, optional
        Called with the arguments, in a dict, before each launch with this configuration.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        if not isinstance(kwargs, Mapping):
            raise TypeError(f"Config takes a dict of constants, not {kwargs!r}")
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook

    @cached_property
    def options(self) -> dict[str, Any]:
        """All keywords of a launch."""
        found = {"num_warps": self.num_warps, "num_stages": self.num_stages, "num_ctas": self.num_ctas}
        if self.maxnreg is not None:
            found["maxnreg"] = self.maxnreg
        return {**self.kwargs, **found}

    def all_kwargs(self) -> dict[str, Any]:
        """A copy of `options`."""
        return dict(self.options)

    def _identity(self) -> tuple[Any, ...]:
        return exact(self.options), self.pre_hook

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return ", ".join(f"{k}: {v}" for k, v in self.options.items())


class _Around(ABC):
    """What a decorator makes of a kernel: it is launched in the same ways."""

    #: The decorator's name.
    _what: str

    def __init__(self, fn: Any) -> None:
        if not hasattr(fn, "arg_names"):
            raise TypeError(f"{self._what} takes a kernel, not {fn!r}: it stands above jit")
        self.fn: Any = fn
        self.arg_names: list[str] = fn.arg_names
        self.base_fn: JITFunction = getattr(fn, "base_fn", fn)
        update_wrapper(cast("Any", self), fn, updated=())

    def _check(self, what: str, names: Iterable[str], known: Iterable[str]) -> None:
        """Raise ValueError if there are others among the names than known ones."""
        known = list(known)
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise ValueError(f"{self._what} of {self.base_fn.__name__}: {what} {name!r} is unknown: {hint}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __getitem__(self, grid: Any) -> partial[Compiled]:
        return partial(self.launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        return self.warmup(*args, grid=grid, **kwargs) if warmup else self.launch(grid, *args, **kwargs)

    @abstractmethod
    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Compiled:
        """Run the kernel on a grid."""

    @abstractmethod
    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compile the kernel for such arguments."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fn!r})"


class Autotuner(_Around):
    """A kernel that is launched with the fastest of some configurations.

    Attributes
    ----------
    configs : list of Config
    cache : dict
        The fastest by the arguments' key.
    best_config : Config
        That of the last launch.
    configs_timings : dict
        Milliseconds by configuration, of the last key that was measured.
    """

    _what = "autotune"

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None = None,
        reset_to_zero: Iterable[str] | None = None,
        restore_value: Iterable[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool | None = None,
    ) -> None:
        super().__init__(fn)
        if isinstance(configs, Config) or not all(isinstance(c, Config) for c in configs):
            raise TypeError(f"autotune takes a list of Config, not {configs!r}")
        if isinstance(key, str):
            raise TypeError(f"autotune takes a list of names as key: [{key!r}]")
        self.configs = list(configs) or [Config({})]
        self.keys = [name for name in key if name in self.arg_names]
        if unknown := sorted(set(key).difference(self.arg_names)):
            # As Triton's, it goes on without them.
            what = f"autotune of {self.base_fn.__name__}: there is no argument {', '.join(unknown)} for its key"
            warnings.warn(what, stacklevel=3)
        self.prune = dict(prune_configs_by or {})
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        for c in self.configs:
            self._check("the constant of a Config", c.kwargs, [*self.arg_names, *OPTIONS])
            if beaten := [name for name in OPTIONS if c.kwargs.get(name, c.options.get(name)) != c.options.get(name)]:
                raise ValueError(f"Config({c.kwargs}): say {', '.join(beaten)} beside the dict")
        self._check("the argument of prune_configs_by", self.prune, ("early_config_prune", "perf_model", "top_k"))
        self._check("the argument of reset_to_zero", self.reset_to_zero, self.arg_names)
        self._check("the argument of restore_value", self.restore_value, self.arg_names)
        self._saved: dict[str, Any] = {}
        self.pre_hook = pre_hook or self._prepare
        self.post_hook = post_hook or self._restore
        self.do_bench = do_bench or (
            lambda call, quantiles: testing.do_bench(call, warmup=_WARMUP, rep=_REP, quantiles=quantiles)
        )
        #: Whether the measurements are kept on disk; those of another clock are not, unless that was asked for.
        self.cache_results = do_bench is None if cache_results is None else cache_results
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, Any] = {}
        self.best_config = self.configs[0]

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Compiled:
        if len(self.configs) == 1 or settings.interpret:
            chosen = self.configs[0]
        else:
            bound = dict(zip(self.arg_names, args))
            bound.update(kwargs)
            key = tuple([bound.get(name) for name in self.keys] + [getattr(x, "dtype", None) for x in bound.values()])
            try:
                found = self.cache.get(key)
            except TypeError:
                key = self._hashed(key)
                found = self.cache.get(key)
            if found is None:
                found = self.cache[key] = self._tune(key, grid, args, kwargs)
            chosen = found
        self.best_config = chosen
        options = chosen.options
        if chosen.pre_hook is not None:
            chosen.pre_hook({**dict(zip(self.arg_names, args)), **kwargs, **options})
        merged = {**kwargs, **options}
        if len(merged) != len(kwargs) + len(options):
            both = sorted(kwargs.keys() & options.keys())
            raise ValueError(f"{self.base_fn.__name__}: {', '.join(both)}: given at the launch, and by autotune")
        return self.fn.launch(grid, *args, **merged)

    def _hashed(self, key: tuple[Any, ...]) -> Any:
        """A key of which parts have no hash by themselves, as one that has."""
        for name, x in zip(self.keys, key):
            if library(x) is not None:
                raise TypeError(f"autotune of {self.base_fn.__name__}: its key names numbers, and {name} is an array")
        return exact(key)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> list[Compiled]:
        """Compile all configurations for arguments like these."""
        named = dict(zip(self.arg_names, args))
        return [self.fn.warmup(*args, grid=grid, **kwargs, **c.options) for c in self._pruned(named, kwargs)]

    # -- measuring ----------------------------------------------------------------------------------------------------
    def _tune(self, key: tuple[Any, ...], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        """Measure the configurations, unless it is known what that gives."""
        named = dict(zip(self.arg_names, args))
        for c in self.configs:
            if both := sorted(kwargs.keys() & c.options.keys()):
                raise ValueError(f"{self.base_fn.__name__}: {', '.join(both)}: given at the launch, and by autotune")
        candidates = self._pruned(named, kwargs)
        place = self._place(key, candidates, args, kwargs) if self.cache_results else ""
        if place and (stored := disk.get(place)) is not None:
            times = [tuple(t) for t in json.loads(stored)]
            self.configs_timings = dict(zip(candidates, times))
        else:
            self._compile_ahead(candidates, args, kwargs)
            self.configs_timings = self._measured(candidates, grid, args, kwargs)
            if place:
                disk.put(place, json.dumps([list(t) for t in self.configs_timings.values()]).encode())
        best = min(self.configs_timings, key=self.configs_timings.__getitem__)
        if "time" in settings.debug:
            print(f"autotune of {self.base_fn.__name__} for {key}: {best}")
        return best

    def _measured(
        self, candidates: list[Config], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[Config, tuple[float, ...]]:
        """Milliseconds of each candidate: infinite for those that cannot run.

        Raises
        ------
        Exception
            What the first one raised, if none can run.
        """
        found: dict[Config, tuple[float, ...]] = {}
        failures: list[Exception] = []
        for c in candidates:
            started = perf_counter()
            full = {**dict(zip(self.arg_names, args)), **kwargs, **c.options}
            try:
                times = self.do_bench(partial(self._once, c, full, grid, args, kwargs), quantiles=_QUANTILES)
                found[c] = tuple(times) if isinstance(times, list | tuple) else (times,)
            except _cannot_run() as error:
                failures.append(error)
                found[c] = (float("inf"),) * len(_QUANTILES)
            if "time" in settings.debug:
                print(f"autotune {self.base_fn.__name__}: {c}: {found[c][0]:.4g} ms, {perf_counter() - started:.2f} s")
        if len(failures) == len(candidates):
            raise failures[0]
        if self.reset_to_zero:
            _reset({**dict(zip(self.arg_names, args)), **kwargs}, self.reset_to_zero)
        return found

    def _once(self, c: Config, full: dict[str, Any], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if c.pre_hook is not None:
            c.pre_hook(full)
        self.pre_hook(full)
        try:
            self.fn.launch(grid, *args, **kwargs, **c.options)
        except Exception as error:
            self.post_hook(full, exception=error)
            raise
        self.post_hook(full, exception=None)

    def _prepare(self, arguments: dict[str, Any]) -> None:
        _reset(arguments, self.reset_to_zero)
        self._saved = {name: _copy(arguments[name]) for name in self.restore_value}

    def _restore(self, arguments: dict[str, Any], exception: Exception | None) -> None:
        for name, saved in self._saved.items():
            _assign(arguments[name], saved)
        self._saved = {}

    def _pruned(self, named: dict[str, Any], kwargs: dict[str, Any]) -> list[Config]:
        """The configurations worth measuring for some arguments."""
        found = self.configs
        if early := self.prune.get("early_config_prune"):
            found = list(early(self.configs, named, **kwargs))
            if not found:
                raise ValueError(f"autotune of {self.base_fn.__name__}: early_config_prune left no configuration")
        if model := self.prune.get("perf_model"):
            top = self.prune.get("top_k", 1.0)
            if isinstance(top, float) and top <= 1.0:
                top = int(len(self.configs) * top)
            elif not isinstance(top, int):
                raise TypeError("top_k is a number of configurations, or a share of them")
            if len(found) > top:
                found = sorted(found, key=lambda c: model(**{**named, **kwargs, **c.options}))[: max(1, top)]
        return found

    def _compile_ahead(self, candidates: list[Config], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile the candidates side by side, if that pays; what is wrong with one shows when it is run."""
        texts: dict[str, None] = {}
        device = None
        first = 0.0
        for c in candidates:
            try:
                if c.pre_hook is not None:
                    c.pre_hook({**dict(zip(self.arg_names, args)), **kwargs, **c.options})
                if not texts:
                    started = perf_counter()
                    self.fn.warmup(*args, **kwargs, **c.options)
                    first = perf_counter() - started
                text, device = self.fn.lowered(*args, **kwargs, **c.options)
                texts[text] = None
            except Exception:  # whoever measures it meets the same, and says so
                continue
        if device is not None and first * len(texts) > _PROCESSES:
            compiling.compile_ahead(texts, device)

    def _place(self, key: tuple[Any, ...], candidates: list[Config], args: Any, kwargs: Any) -> str:
        """What the measurements are kept under on disk."""
        device = device_of((*args, *kwargs.values()))
        parts = [
            "autotune", kernels.compiler_version(), str(kernels.backend_of(device).target.key),
            getattr(device, "name", ""), self.base_fn.fingerprint(), repr(key), *map(repr, candidates),
        ]  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _cannot_run() -> tuple[type[Exception], ...]:
    from ..language.errors import CompilationError

    return RuntimeError, NotImplementedError, MemoryError, CompilationError


def _reset(arguments: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        x = arguments[name]
        if hasattr(x, "zero_"):
            x.zero_()
        else:
            x[...] = 0


def _copy(x: Any) -> Any:
    if hasattr(x, "clone"):
        return x.clone()
    found = x.copy()
    if isinstance(found, Array):
        evaluate(found)
    return found


def _assign(x: Any, value: Any) -> None:
    if hasattr(x, "copy_"):
        x.copy_(value)
    else:
        x[...] = value


class Heuristics(_Around):
    """A kernel some of whose meta-parameters are computed from its arguments."""

    _what = "heuristics"

    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = dict(values)
        self._check("the constant", self.values, [*self.arg_names, *OPTIONS])
        for name, rule in self.values.items():
            if not callable(rule):
                what = f"{name} is a function of arguments, not {rule!r}"
                raise TypeError(f"heuristics of {self.base_fn.__name__}: {what}")

    def _with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        found = dict(kwargs)
        bound = dict(zip(self.arg_names, args))
        for name, rule in self.values.items():
            found[name] = rule({**bound, **found})
        return found

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Compiled:
        return self.fn.launch(grid, *args, **self._with(args, kwargs))

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        return self.fn.warmup(*args, grid=grid, **self._with(args, kwargs))

    def lowered(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn.lowered(*args, **self._with(args, kwargs))


def autotune(configs: Sequence[Config], key: Sequence[str], **options: Any) -> Callable[[Any], Autotuner]:
    """Launch a kernel with the fastest of some configurations, found by measuring once for each key.

    Parameters
    ----------
    configs : sequence of Config
        What to try.
    key : sequence of str
        Names of parameters: for each set of their values, and of the types of all arrays, it is measured again.
    prune_configs_by : dict, optional
        "early_config_prune": a function (configs, named_args, **kwargs) that returns those worth trying; "perf_model":
        a function of all arguments that estimates a time, and "top_k": how many, or which share, of the fastest by it
        to measure.
    reset_to_zero, restore_value : sequence of str, optional
        Names of arrays that are set to zero before each run, or put back after it: while it is measured, the kernel
        runs many times.
    pre_hook, post_hook : callable, optional
        Called before each run with the arguments in a dict, and after it also with `exception`, instead of that.
    do_bench : callable, optional
        Measures: (call, quantiles=...) -> milliseconds, which compare.
    cache_results : bool, optional
        Whether results are kept on disk, for each device; by default they are unless `do_bench` is given.
    """
    for name in ("warmup", "rep", "use_cuda_graph"):
        options.pop(name, None)
    return lambda fn: Autotuner(fn, configs, key, **options)


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Compute meta-parameters from a kernel's arguments: each rule gets them by name in a dict."""
    return lambda fn: Heuristics(fn, values)
