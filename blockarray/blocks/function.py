"""`jit`: functions of the block language, and how they are launched."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from operator import index
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, cast, overload

import numpy as np

from .. import checks, cuda, flush
from ..array import Array
from ..compiler import dtypes
from ..compiler.ir import Kernel
from ..compiler.printer import text
from ..creation import empty
from ..runtime.config import config
from ..runtime.cuda import streams
from ..runtime.device import CPU, CudaDevice, Device, default_device
from . import interpreted, keys, memory, sources
from .arguments import HOST, Reinterpreted, ir_dtype
from .compiled import Compiled
from .descriptor import TensorDescriptor, describe
from .keys import CONSTANT, GENERAL, ONES, SPECIALIZED
from .quick import Quick, quickly

#: What is said at a launch beside the function's parameters, and what holds if nothing is said.
OPTIONS: dict[str, Any] = {
    "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "enable_fp_fusion": True, "debug": False,
    "launch_pdl": False, "launch_cooperative_grid": False, "sanitize_overflow": True,
}  # fmt: skip


class Entry(NamedTuple):
    """What the arguments of a key need."""

    compiled: Compiled
    #: The kernel's values of those of all arguments, unless they are the same.
    pick: Callable[[list[Any]], Any] | None
    #: Which arguments it may write to.
    written: frozenset[int]
    quick: Quick | None


@dataclass(slots=True, eq=False)
class Form:
    """How the arguments of calls of one kind meet the parameters, whose order they get; options follow."""

    names: tuple[str, ...]
    roles: tuple[int, ...]
    #: Values of the parameters that the call leaves out.
    defaults: tuple[Any, ...]
    #: Where each is among the positional arguments, the keywords and the defaults; None: they are in order.
    order: tuple[int, ...] | None
    #: Names of the arguments that are no constants.
    taken: tuple[str, ...]
    #: What `keys.walker` makes.
    walk: Callable[[tuple[Any, ...], keys.Seen | None], tuple[Any, list[Any], int] | None]
    #: By the keys of `walk`: for calls with arrays of others only, and with our own among them.
    found: tuple[dict[Any, Entry], dict[Any, Entry]] = field(default_factory=lambda: ({}, {}))
    #: That of the entry which was found last.
    quick: Quick | None = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """A call's arguments in order."""
        if not kwargs and not self.defaults:
            return args
        given = (*args, *kwargs.values(), *self.defaults)
        return given if self.order is None else tuple([given[k] for k in self.order])


class JITFunction:
    """A function of the block language; `function[grid](...)` launches it.

    Parameters
    ----------
    fn : function
        The Python function.  Its source is compiled; it is never called.
    noinline : bool
        Accepted for Triton's sake: kernels hold a copy of what they call either way.
    do_not_specialize : sequence of str or int
        Parameters, by name or number, for whose values no kernel of its own is compiled: 1, and multiples of 16.
    do_not_specialize_on_alignment : sequence of str or int
        Those for whose multiples of 16 none is.
    debug : bool, optional
        Whether `device_assert` has an effect.
    repr : callable, optional
        What to call a compiled kernel: a function of an object with `signature` (spelled types, or "constexpr") and
        `constants`, both by parameter.
    version, launch_metadata
        Ignored: Triton's profiler and its cache ask for them.

    Attributes
    ----------
    fn : function
    arg_names : list of str
    src : str
        The source from its `def` on.
    starting_line_number : int
        Of the `def` in its file.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        fn: Any,
        *,
        noinline: bool = False,
        do_not_specialize: Iterable[str | int] = (),
        do_not_specialize_on_alignment: Iterable[str | int] = (),
        debug: bool | None = None,
        version: Any = None,
        repr: Any = None,
        launch_metadata: Any = None,
    ) -> None:
        if isinstance(fn, JITFunction):
            fn = fn.fn
        if not inspect.isfunction(fn):
            raise TypeError(f"jit takes a Python function, not a {type(fn).__name__}")
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(f"jit takes a function made by def, and {fn.__name__} is made by async def")
        update_wrapper(self, fn)
        self.fn = fn
        self.noinline = noinline
        self.debug = debug
        self.repr = repr
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        general, ones = self._chosen(do_not_specialize), self._chosen(do_not_specialize_on_alignment)
        #: What it says where a kernel calls it and does not use what it returns, if it does.
        self.must_use_result: bool | str = False
        self.roles: dict[str, int] = {}
        #: The IR's names of the types that annotations give arguments.
        self.types = {name: _typed(p.annotation) for name, p in self.signature.parameters.items()}
        for name, p in self.signature.parameters.items():
            role = GENERAL if name in general or self.types[name] else ONES if name in ones else SPECIALIZED
            self.roles[name] = CONSTANT if _marks_constant(p.annotation) else role
        #: Constants for which there is always a kernel of its own.
        self._contrary = [name for name in self.arg_names if name in general and self.roles[name] == CONSTANT]
        self._forms: dict[tuple[Any, ...], Form] = {}
        #: Compiled kernels by what they are compiled for.
        self._variants: dict[Any, Compiled] = {}
        #: What compiled kernels depend on beside the function's source; and what those were that may change in place.
        self._uses: tuple[sources.Use, ...] = ()
        self._states: tuple[tuple[sources.Use, Any], ...] = ()
        self._watched: set[FunctionType] = set()
        self._source: tuple[str, int] | None = None
        self._compiling = threading.RLock()

    def _chosen(self, some: Iterable[str | int] | None) -> set[str]:
        found = {self.arg_names[x] if isinstance(x, int) else x for x in some or ()}
        if unknown := found.difference(self.arg_names):
            raise ValueError(f"{self.__name__} has no parameter {', '.join(sorted(unknown))}")
        return found

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.interpret:
            return self.fn(*args, **kwargs)
        raise RuntimeError(f"{self.__name__} is a kernel: launch it by {self.__name__}[grid](...)")

    # -- its source ---------------------------------------------------------------------------------------------------
    @property
    def src(self) -> str:
        return self._read_source()[0]

    @property
    def starting_line_number(self) -> int:
        return self._read_source()[1]

    def _read_source(self) -> tuple[str, int]:
        if self._source is None:
            try:
                self._source = sources.source(self.fn)
            except (OSError, TypeError) as error:
                raise ValueError(
                    f"the source of kernel {self.__name__} is not to be had: define it in a file"
                ) from error
        return self._source

    def _unsafe_update_src(self, text: str) -> None:
        """Put another source in the place of the function's."""
        self.fn = sources.remade(self.fn, text)
        self._source = None
        self._forget()

    def uses(
        self, constants: Iterable[Any] = (), known: Collection[FunctionType] = ()
    ) -> Iterator[tuple[FunctionType, sources.Use]]:
        """What it is made of beside its source: globals, and what the functions that it uses, or is given, are made of.

        Each with the function that uses it; those that are `known` are left out.
        """
        met = set(known)
        waiting = [(self.fn, sources.named(self.src))]
        for x in constants:
            waiting += sources.called(x, self.fn)
        while waiting:
            function, names = waiting.pop()
            if function in met:
                continue
            met.add(function)
            for use in sources.uses(function, names):
                yield function, use
                waiting += sources.called(use.value, function)

    def _watch(self, constants: Iterable[Any]) -> None:
        """Remember what a kernel of some constants is made of."""
        found = list(self.uses(constants, self._watched))
        self._watched |= {self.fn, *[function for function, _ in found]}
        self._uses += tuple([use for _, use in found])
        self._remember()

    def _remember(self) -> None:
        self._states = tuple([(use, keys.exact(use.value)) for use in self._uses if keys.changeable(use.value)])

    def _forget(self) -> None:
        for form in self._forms.values():
            for known in form.found:
                known.clear()
            form.quick = None
        self._variants.clear()
        self._uses = self._states = ()
        self._watched.clear()

    def _changed(self) -> bool:
        """Whether what may change in place has."""
        return any(keys.exact(use.value) != state for use, state in self._states)

    def _review(self) -> None:
        """Some global may be another one than before: what was compiled is good if all are equal."""
        if self._changed() or any(not sources.same(use) for use in self._uses):
            self._forget()
        else:
            self._uses = tuple([use._replace(value=use.get(use.name)) for use in self._uses])
            self._remember()

    # -- launching ----------------------------------------------------------------------------------------------------
    def __getitem__(self, grid: Any) -> partial[Any]:
        return partial(self.launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Compiled:
        """Launch it, or (`warmup`) only compile it."""
        return self.warmup(*args, grid=grid, **kwargs) if warmup else self.launch(grid, *args, **kwargs)

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel for every program of a grid.

        Parameters
        ----------
        grid : tuple of int, or callable
            Programs along up to three axes; a callable gets the arguments by name in a dict.
        *args, **kwargs
            The arguments, and options (num_warps, num_stages, ...).

        Returns
        -------
        Compiled
            The kernel that ran, or (on a GPU) was queued; None if it was interpreted.
        """
        form = self._forms.get((len(args), *kwargs))
        if form is None:
            form = self._form(len(args), tuple(kwargs))
        given = form.bind(args, kwargs)
        if config.interpret:
            return self._interpret(grid, form, given)
        for get, name, value in self._uses:
            if get(name) is not value:
                self._review()
                break
        else:
            if self._states and self._changed():
                self._forget()
        if type(grid) is not tuple:
            grid = self._resolved(grid, form, given)
        quick = form.quick  # another thread may forget it meanwhile
        if quick is not None and (found := quick(given, grid)) is not None:
            return found
        walked = form.walk(given, None)
        if walked is None:
            with flush.lock:
                return self._launch_arrays(grid, form, given)
        key, values, gpu = walked
        found, pick, _, _ = self._entry(key, form, given)
        programs, values = self._programs(grid, values if pick is None else pick(values))
        if gpu < 0:
            found.run(values, programs)
        elif not found.checked:
            found.run(values, programs, keys.space["torch_stream"](gpu))
        else:
            self._run_in_order(found, values, programs, (keys.space["torch_stream"](gpu),), ())
        return found

    def _interpret(self, grid: Any, form: Form, given: tuple[Any, ...]) -> None:
        bound = dict(zip(form.names, given))
        _, sizes = self._programs(self._resolved(grid, form, given), [])
        with flush.lock:
            memory.settle(_arrays(given))
            _options(self, bound)
            self._described(bound)  # says what a launch says of arguments that it cannot take
            interpreted.run(self, tuple(sizes), bound)

    def _launch_arrays(self, grid: Any, form: Form, given: tuple[Any, ...]) -> Compiled:
        """Launch with arrays of this library among the arguments; nobody flushes meanwhile."""
        seen = keys.Seen()
        walked = form.walk(given, seen)
        if walked is None:
            memory.settle(_arrays(given))
            seen = keys.Seen()
            walked = form.walk(given, seen)
        if walked is None:
            return self._launch_any(grid, form, given)
        key, values, gpu = walked
        found, pick, written, _ = self._entry(key, form, given, ours=True)
        changed = self._claim(seen, values, written, form.taken)
        programs, values = self._programs(grid, values if pick is None else pick(values))
        if found.device is CPU:
            found.run(values, programs)
        else:
            foreign = (keys.space["torch_stream"](gpu),) if gpu >= 0 else ()
            self._run_in_order(found, values, programs, foreign, seen.arrays, changed)
        return found

    def _launch_any(self, grid: Any, form: Form, given: tuple[Any, ...]) -> Compiled:
        """Launch with any arguments; nobody flushes meanwhile, and all arrays are computed."""
        key: list[Any] = []
        values: list[Any] = []
        seen = keys.Seen()
        for name, x, role in zip(form.names, given, form.roles):
            if role == CONSTANT:
                key += x if type(x) is int else keys.exact(x), type(x)
                continue
            try:
                keys.see(x, role, key, values, seen)
            except (TypeError, ValueError, OverflowError) as error:
                raise type(error)(f"{self._place}: argument {name}: {error}") from None
        found = self._entry(("any", *key), form, given)[0]
        changed = self._claim(seen, values, found.written, found.places)
        programs, values = self._programs(grid, values)
        if not isinstance(found.device, CudaDevice):
            found.run(values, programs)
            return found
        current = {of.stream(found.device.index) for _, of, _ in seen.foreign if of.stream is not None}
        if len(current) == 1 and not seen.arrays and not found.checked:
            found.run(values, programs, *current)
        else:
            self._run_in_order(found, values, programs, current, seen.arrays, changed)
        return found

    def _claim(self, seen: keys.Seen, values: list[Any], written: frozenset[int], names: Sequence[str]) -> list[Array]:
        """See to it that what the kernel writes to may be written to; these arrays of the library."""
        moved = False
        changed = []
        for place, a in seen.arrays:
            if place in written:
                try:
                    moved |= memory.own(a)
                except ValueError as error:
                    raise ValueError(f"{self.__name__} may write to {names[place]}: {error}") from None
                changed.append(a)
        if moved:
            for place, a in seen.arrays:
                buffer, offset = memory.locate(a)
                values[place] = buffer.address + offset
        for place, of, x in seen.foreign:
            if place in written and of.writable is not None and not of.writable(x):
                what = "its memory is read-only" if of.name == "NumPy" else f"arrays of {of.name} cannot be changed"
                raise ValueError(f"{self.__name__} may write to {names[place]}: {what}")
        return changed

    def _run_in_order(
        self,
        found: Compiled,
        values: list[Any],
        programs: int,
        foreign: Iterable[int],
        arrays: Iterable[tuple[int, Array]],
        changed: Iterable[Array] = (),
    ) -> None:
        """Run on the device's stream: after what other streams hold now, and before what they will."""
        device = found.device
        assert isinstance(device, CudaDevice)
        for stream in foreign:
            streams.wait_for(device, stream)
        check = found.run(values, programs)
        for stream in foreign:
            streams.signal(device, stream)
        if not found.queued:
            found.queued = True
            checks.used[device] = None
        targets = [memory.buffer(a) for a in changed]
        if check is not None or checks.suspects:
            checks.spread(check, [memory.buffer(a) for _, a in arrays], targets)
        for buffer in targets:
            cuda.forget(buffer)

    def _entry(self, key: Any, form: Form, given: tuple[Any, ...], ours: bool = False) -> Entry:
        """The compiled kernel of a key, and what is known of it."""
        known = form.found[ours]
        try:
            found = known.get(key)
        except TypeError:  # a constant has no hash
            return self._enter(key, form, given)
        if found is None:
            found = known[key] = self._enter(key, form, given)
        else:
            form.quick = found.quick
        return found

    def _enter(self, key: Any, form: Form, given: tuple[Any, ...]) -> Entry:
        compiled = self._compile(form, given)
        codes = iter(key)
        kept: list[int] = []
        place = 0
        for role in form.roles:
            code = next(codes, None)
            if role == CONSTANT:
                next(codes, None)
            else:
                if type(code) is not int or code != keys.ONE:
                    kept.append(place)
                place += 1
        pick = None if len(kept) == place else lambda values: [values[k] for k in kept]
        written = frozenset([k for j, k in enumerate(kept) if j in compiled.written])
        return Entry(compiled, pick, written, quickly(compiled, given, form.roles, written))

    def _resolved(self, grid: Any, form: Form, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """A grid as a tuple."""
        if callable(grid):
            arguments = dict(zip(form.names, given))
            try:
                grid = grid(arguments)
            except KeyError as error:
                error.add_note(f"{self._place}: its grid may ask for {', '.join(arguments)}")
                raise
        if hasattr(grid, "__index__") and not getattr(grid, "ndim", 0):
            return (grid,)
        return tuple(grid) if isinstance(grid, Iterable) and not isinstance(grid, str | dict) else (grid,)

    def _programs(self, grid: tuple[Any, ...], values: list[Any]) -> tuple[int, list[Any]]:
        """The number of programs of a grid, and the values with its axes behind them."""
        try:
            sizes = [*map(index, grid)]
        except TypeError:
            spelled = ", ".join([type(x).__name__ for x in grid])
            raise TypeError(f"{self._place}: a grid is one to three integers, not ({spelled})") from None
        if not 0 < len(sizes) <= 3 or any(n < 0 for n in sizes):
            raise ValueError(f"{self._place}: a grid is one to three numbers of programs, not {tuple(sizes)}")
        x, y, z = sizes if len(sizes) == 3 else (*sizes, 1) if len(sizes) == 2 else (*sizes, 1, 1)
        programs = x * y * z
        if max(sizes) >> 31 or programs >> 63:
            what = f"a grid of {tuple(sizes)} programs is too large: an axis has 2**31 - 1 at most"
            raise ValueError(f"{self._place}: {what}")
        values += x, y, z
        return programs, values

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Compiled:
        """Compile the kernel for arguments like these, without running it; an element type stands for an array."""
        del grid
        form = self._form(len(args), tuple(kwargs))
        given = form.bind(args, kwargs)
        if self._states or any(get(name) is not value for get, name, value in self._uses):
            self._review()
        # As launches find it: some ask for a kernel's resources before each.
        if not config.interpret and (walked := form.walk(given, None)) is not None:
            return self._entry(walked[0], form, given)[0]
        given = tuple([x if role == CONSTANT else _example(x) for x, role in zip(given, form.roles)])
        with flush.lock:
            memory.settle(_arrays(given))
            return self._compile(form, given)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What compiling for arguments like these gives: registers, spills, shared memory and the block IR."""
        return str(self.warmup(*args, **kwargs))

    # -- binding ------------------------------------------------------------------------------------------------------
    def _form(self, count: int, keywords: tuple[str, ...]) -> Form:
        """How a call of so many positional arguments and of these keywords meets the parameters."""
        form = self._forms.get((count, *keywords))
        if form is not None:
            return form
        parameters = self.signature.parameters
        for name, p in parameters.items():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                star = "*" if p.kind is p.VAR_POSITIONAL else "**"
                what = f"a kernel cannot take {star}{name}: name its parameters, or pass a tuple"
                raise TypeError(f"{self._place}: {what}")
        positional = [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
        if count > len(positional):
            raise TypeError(f"{self._place}: {count} arguments are too many: it takes {len(positional)}")
        del positional[count:]
        for name in keywords:
            if name in positional:
                raise TypeError(f"{self._place}: argument {name} is given twice")
            if name in parameters and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
                raise TypeError(f"{self._place}: argument {name} is taken by its place only, not by its name")
            if name not in self.roles and name not in OPTIONS:
                known = [*self.arg_names, *OPTIONS]
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"{self._place}: there is no argument or option {name}: {hint}")
        names = [*positional, *keywords]
        defaults = []
        missing = []
        for name, p in parameters.items():
            if name not in names:
                if p.default is p.empty:
                    missing.append(name)
                else:
                    names.append(name)
                    defaults.append(p.default)
        if missing:
            raise TypeError(f"{self._place}: missing {', '.join(missing)}")
        ordered = [*self.arg_names, *[name for name in keywords if name not in self.roles]]
        order = None if names == ordered else tuple([names.index(name) for name in ordered])
        roles = tuple([self.roles.get(name, CONSTANT) for name in ordered])
        taken = tuple([name for name, role in zip(ordered, roles) if role != CONSTANT])
        form = Form(tuple(ordered), roles, tuple(defaults), order, taken, keys.walker(roles))
        self._forms[count, *keywords] = form
        return form

    @property
    def _place(self) -> str:
        code = self.fn.__code__
        return f"kernel {self.__name__} ({code.co_filename}:{code.co_firstlineno})"

    # -- compiling ----------------------------------------------------------------------------------------------------
    def _compile(self, form: Form, given: tuple[Any, ...]) -> Compiled:
        """The kernel for a call's arguments, compiled unless one for their like was."""
        bound = dict(zip(form.names, given))
        options = _options(self, bound)
        arguments, constants, places, device = self._described(bound)
        variant = device, keys.exact(arguments), keys.exact(constants), tuple(options.items())
        with self._compiling:
            found = self._variants.get(variant)
            if found is None:
                kernel, messages = self._built(arguments, constants, options)
                self._watch(constants.values())
                signature = dict.fromkeys(constants, "constexpr") | {a.name: a.kind.spelled for a in arguments}
                known = SimpleNamespace(signature=signature, constants=constants)
                found = self._variants[variant] = Compiled(self, kernel, messages, device, options, places, known)
        return found

    def lowered(self, *args: Any, **kwargs: Any) -> tuple[str, Device]:
        """The block IR for arguments like these, as text, and the device that it is for."""
        form = self._form(len(args), tuple(kwargs))
        bound = dict(zip(form.names, form.bind(args, kwargs)))
        with flush.lock:
            memory.settle(_arrays(bound.values()))
            arguments, constants, _, device = self._described(bound)
        return text(self._built(arguments, constants, _options(self, bound))[0]), device

    def fingerprint(self) -> str:
        """A hash of the source of all that it is made of."""
        parts = [self.src, *[f"{use.name} = {sources.spelled(use.value)}" for _, use in self.uses()]]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _built(
        self, arguments: list[Any], constants: dict[str, Any], options: dict[str, Any]
    ) -> tuple[Kernel, list[str]]:
        """The block IR of arguments of some kinds, and what its checks say, which it knows by their numbers."""
        from ..language import frontend
        from ..language.errors import CompilationError

        if self._contrary:
            raise CompilationError(f"{', '.join(self._contrary)}: marked as constexpr and listed in do_not_specialize")
        debug = bool(options["debug"] or self.debug)
        kernel = frontend.build(
            self, arguments, constants, num_warps=options["num_warps"], num_stages=options["num_stages"],
            name=self.__name__, debug=debug, sanitize=debug and bool(options["sanitize_overflow"]),
        )  # fmt: skip
        for name, plain in (("num_ctas", 1), ("maxnreg", None), ("enable_fp_fusion", True)):
            if options[name] != plain:
                kernel.attrs[name] = options[name]
        messages: list[str] = []
        for op in kernel.walk():
            if op.name == "check":
                where = f" ({op.line[0]}:{op.line[1]})" if op.line else ""
                messages.append(f"{self.__name__}: {op.attrs['message']}{where}")
                op.attrs["message"] = str(len(messages) - 1)
        return kernel, messages

    def _described(self, bound: dict[str, Any]) -> tuple[list[Any], dict[str, Any], list[str], Device]:
        """What the front end is told of arguments; what to call each of the values; and where the kernel runs."""
        from ..language.frontend import Argument, Constant

        arguments: list[Any] = []
        constants: dict[str, Any] = {}
        places: list[str] = []
        homes: dict[int, str] = {}
        for name in self.arg_names:
            x, role = bound[name], self.roles[name]
            if role == CONSTANT:
                try:
                    hash(keys.exact(x))
                except TypeError as error:
                    raise TypeError(f"{self._place}: argument {name} cannot be a constexpr: {error}") from None
                constants[name] = _plain(x)
                continue
            try:
                kind = describe(x, role >= ONES, role == SPECIALIZED, name, places, homes)
            except (TypeError, ValueError, OverflowError) as error:
                raise type(error)(f"{self._place}: argument {name}: {error}") from None
            if isinstance(kind, Constant):
                constants[name] = kind.value
            else:
                arguments.append(Argument(name, kind, self.types[name]))
        if len(homes) > 1:
            spelled = [f"{name} on {'the CPU' if n == HOST else f'cuda:{n}'}" for n, name in homes.items()]
            raise ValueError(f"{self._place}: its arrays are on several devices: {', '.join(spelled)}")
        home = next(iter(homes), None)
        device = default_device() if home is None else CPU if home == HOST else Device(f"cuda:{home}")
        return arguments, constants, places, device


def _options(function: JITFunction, bound: dict[str, Any]) -> dict[str, Any]:
    found = {name: bound.get(name, default) for name, default in OPTIONS.items()}
    for name, (accepts, what) in _NUMBERS.items():
        given: Any = found[name]
        if given is None and OPTIONS[name] is None:
            continue
        if isinstance(given, bool | np.bool_) or not hasattr(given, "__index__"):
            raise TypeError(f"{function._place}: {name}={given!r} is {what}")
        found[name] = number = index(cast("Any", given))
        if not accepts(number):
            raise ValueError(f"{function._place}: {name}={given!r} is {what}")
    if found["num_warps"] > 32:  # which autotuners pass over, as whatever a GPU has too little of
        raise RuntimeError(f"{function._place}: num_warps={found['num_warps']} is more than 32")
    return found


#: What options that are numbers may be, and what is said of others.
_NUMBERS: dict[str, tuple[Callable[[int], bool], str]] = {
    "num_warps": (lambda n: n > 0 and not n & (n - 1), "no power of two from 1 to 32"),
    "num_stages": (lambda n: n >= 0, "no number of stages"),
    "num_ctas": (lambda n: n > 0, "no number of blocks"),
    "maxnreg": (lambda n: n > 0, "no number of registers"),
}


def _plain(x: Any) -> Any:
    """A constant without the language's wrapper, or NumPy's."""
    return x.value if type(x).__name__ == "constexpr" else x.item() if isinstance(x, np.generic) else x


def _marks_constant(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2].strip() == "constexpr"
    return getattr(annotation, "__name__", "") == "constexpr" or type(annotation).__name__ == "constexpr"


def _typed(annotation: Any) -> str | None:
    """The IR's name of the type of elements that an annotation gives an argument."""
    if isinstance(annotation, str):
        return _TYPES.get(annotation.strip("'\"").rpartition(".")[2])
    return annotation.ir if type(annotation).__name__ == "dtype" and annotation.ir in _TYPES.values() else None


_TYPES = {
    "int1": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


def _example(x: Any) -> Any:
    """An array for the type of its elements."""
    is_type = isinstance(x, np.dtype) or type(x).__name__ == "dtype"
    return empty(1, dtypes.NUMPY[ir_dtype(x)[0]]) if is_type else x


def _arrays(given: Iterable[Any]) -> Iterator[Array]:
    """The arrays of this library among arguments."""
    for x in given:
        if type(x) is Array:
            yield x
        elif isinstance(x, tuple):
            yield from _arrays(x)
        elif isinstance(x, TensorDescriptor | Reinterpreted):
            yield from _arrays((x.base,))


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[..., Any]], JITFunction]: ...
def jit(fn: Any = None, **options: Any) -> Any:
    """Make a Python function a kernel, or a function that kernels call, of the block language.

    Parameters
    ----------
    fn : function
        It is compiled when it is launched, for the kinds of its arguments.
    **options
        See `JITFunction`.

    Returns
    -------
    JITFunction
        `kernel[grid](*arguments, num_warps=4, ...)` launches it.
    """
    if given := options.keys() & OPTIONS.keys() - {"debug"}:
        raise TypeError(
            f"jit has no option {', '.join(sorted(given))}: say it at the launch, or in a Config of autotune"
        )
    return (lambda fn: JITFunction(fn, **options)) if fn is None else JITFunction(fn, **options)


kernel = jit


def must_use_result(x: Any, is_used: bool | str = True) -> Any:
    """Have kernels that call a function use what it returns: an error says so where they do not.

    Parameters
    ----------
    x : JITFunction or str
        The function, or what the error is to say, too; then the result is a decorator.
    """
    if isinstance(x, str):
        return lambda fn: must_use_result(fn, x)
    x.must_use_result = is_used
    return x


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
