"""Arrays on several devices: where results live, what mixes, copies, late errors, exports.

On a machine without a GPU, or with the CPU as the tests' device, two GPUs are faked; see tests/fake_gpu.py.
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from blockarray import dlpack
from blockarray.runtime.config import TINY, config
from tests import fake_gpu
from tests.support import needs_lazy, xp

pytestmark = needs_lazy


@pytest.fixture(autouse=True)
def devices(pytestconfig: pytest.Config) -> Iterator[None]:
    if pytestconfig.getoption("--device") == "cpu":
        with fake_gpu.installed(2):
            yield
    else:
        with xp.device("cpu"):
            yield


@pytest.fixture
def gpu() -> Any:
    return xp.devices()[1]


@pytest.fixture
def other() -> Any:
    if len(xp.devices()) < 3:
        pytest.skip("needs two GPUs")
    return xp.devices()[2]


def test_names_and_defaults(gpu: Any) -> None:
    assert gpu == "cuda:0" and xp.Device("cuda") is gpu
    assert xp.ones(2).device == "cpu"
    with xp.device("cuda:0") as inside:
        assert inside is gpu is xp.get_default_device() is xp.ones(2).device
        assert xp.asarray(1.5).device is gpu and xp.asarray([1]).device is gpu
        with xp.device("cpu"):
            assert xp.ones(2).device == "cpu"
    assert xp.get_default_device() == "cpu"
    with pytest.raises(ValueError, match="available: cpu, cuda:0"):
        xp.zeros(2, device="cuda:99")


CREATIONS = {
    "asarray": lambda d: xp.asarray([1, 2], device=d),
    "asarray scalar": lambda d: xp.asarray(2.5, device=d),
    "array": lambda d: xp.array(np.arange(3), device=d),
    "zeros": lambda d: xp.zeros((2, 3), device=d),
    "ones": lambda d: xp.ones(3, device=d),
    "empty": lambda d: xp.empty((0, 3), device=d),
    "full": lambda d: xp.full((2, 2), 7, device=d),
    "full array": lambda d: xp.full((2, 2), np.arange(2), device=d),
    "arange": lambda d: xp.arange(2, 9, 3, device=d),
    "arange empty": lambda d: xp.arange(0, device=d),
    "arange bool": lambda d: xp.arange(2, dtype=bool, device=d),
    "linspace": lambda d: xp.linspace(0, 1, 5, device=d),
    "eye": lambda d: xp.eye(3, k=1, device=d),
    "fftfreq": lambda d: xp.fft.fftfreq(4, device=d),
    "zeros_like": lambda d: xp.zeros_like(xp.ones(2), device=d),
    "full_like": lambda d: xp.full_like([1, 2], 3, device=d),
    "from_dlpack": lambda d: xp.from_dlpack(np.arange(3.0), device=d),
    "astype": lambda d: xp.astype(xp.ones(2), xp.float32, device=d),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation(name: str, gpu: Any) -> None:
    here, there = CREATIONS[name]("cpu"), CREATIONS[name](gpu)
    assert here.device == "cpu" and there.device is gpu
    assert here.tolist() == there.tolist() and here.dtype == there.dtype
    assert there.device is gpu
    with xp.device(gpu):
        # What comes by DLPack stays where it is.
        assert CREATIONS[name](None).device == ("cpu" if name == "from_dlpack" else gpu)


def test_likes_follow_their_model(gpu: Any) -> None:
    x = xp.ones(3, device=gpu)
    for y in (
        xp.zeros_like(x),
        xp.full_like(x, 2),
        xp.asarray(x),
        xp.array(x),
        x.copy(),
        copy.deepcopy(x),
        x.astype(int),
    ):
        assert y.device is gpu


FUNCTIONS = {
    "operators": lambda x: (x + 1) * 2 - x / x.max(),
    "numpy operand": lambda x: x + np.arange(6.0).reshape(2, 3),
    "numpy scalar": lambda x: np.float32(2) * x,
    "list operand": lambda x: xp.add(x, [[1.0], [2.0]]),
    "0-d cpu": lambda x: x * xp.asarray(3.0, device="cpu"),
    "0-d cpu computed": lambda x: x + xp.ones(4, device="cpu").sum(),
    "sum": lambda x: xp.sum(x, axis=0),
    "softmax": lambda x: xp.exp(x - x.max(1, keepdims=True)),
    "argmax": lambda x: x.argmax(1),
    "cumsum": lambda x: xp.cumsum(x, axis=1),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "matmul": lambda x: x @ x.T,
    "einsum": lambda x: xp.einsum("ij,kj->ik", x, np.ones((4, 3))),
    "where": lambda x: xp.where(x > 2, x, 0),
    "clip": lambda x: xp.clip(x, 1, [2.0, 3.0, 4.0]),
    "view": lambda x: x[1:, ::-1].T,
    "reshape": lambda x: x.T.reshape(-1),
    "take": lambda x: xp.take(x, [2, 0], axis=1),
    "gather": lambda x: x[[1, 0], [2, 1]],
    "numpy index": lambda x: x[np.array([1, 1])],
    "mask": lambda x: x[x > 2],
    "numpy mask": lambda x: x[np.array([True, False])],
    "nonzero": lambda x: xp.nonzero(x > 2)[0],
    "flatnonzero": lambda x: xp.flatnonzero(x),
    "take_along_axis": lambda x: xp.take_along_axis(x, xp.argsort(-x, axis=1), axis=1),
    "sort": lambda x: xp.sort(-x, axis=0),
    "searchsorted": lambda x: xp.searchsorted([0.0, 2.0, 4.0], x),
    "unique": lambda x: xp.unique(x // 2),
    "isin": lambda x: xp.isin(x, [1, 2]),
    "median": lambda x: xp.median(x, axis=1),
    "quantile": lambda x: xp.quantile(x, [0.25, 0.5]),
    "histogram": lambda x: xp.histogram(x, 4)[0],
    "bincount": lambda x: xp.bincount(xp.astype(x.reshape(-1), int)),
    "interp": lambda x: xp.interp(x, [0.0, 5.0], [0.0, 10.0]),
    "gradient": lambda x: xp.gradient(x)[0],
    "fft": lambda x: xp.fft.fft(x),
    "solve": lambda x: xp.linalg.solve(x @ x.T + xp.eye(2, device=x.device), [1.0, 2.0]),
    "svd": lambda x: xp.linalg.svd(x, full_matrices=False)[1],
    "matrix_power": lambda x: xp.linalg.matrix_power(x @ x.T, 0),
    "norm": lambda x: xp.linalg.norm(x),
    "concatenate": lambda x: xp.concatenate((x, np.zeros((1, 3)))),
    "stack": lambda x: xp.stack([x, x + 1]),
    "pad": lambda x: xp.pad(x, 1),
    "pad linear": lambda x: xp.pad(x, 1, "linear_ramp"),
    "pad reflect": lambda x: xp.pad(x, 1, "reflect"),
    "roll": lambda x: xp.roll(x, 1, axis=1),
    "repeat": lambda x: xp.repeat(x, 2, axis=0),
    "tile": lambda x: xp.tile(x, 2),
    "insert": lambda x: xp.insert(x, 1, 9.0, axis=0),
    "delete": lambda x: xp.delete(x, 1, axis=1),
    "tril": lambda x: xp.tril(x),
    "triu": lambda x: xp.triu(x, 1),
    "diag": lambda x: xp.diag(x[0]),
    "vander": lambda x: xp.vander(x[0]),
    "meshgrid": lambda x: xp.meshgrid(x[0], x[1])[1],
    "linspace": lambda x: xp.linspace(x[0], 10, 4),
    "select": lambda x: xp.select([x > 3, x > 1], [x, -x], 0),
    "choose": lambda x: xp.choose(xp.astype(x, int) % 2, [x, -x]),
    "resize": lambda x: xp.resize(x, (3, 3)),
    "nan_to_num": lambda x: xp.nan_to_num(x / (x - 1)),
    "cov": lambda x: xp.cov(x),
    "average": lambda x: xp.average(x, weights=[1.0, 2.0, 3.0], axis=1),
    "sum where": lambda x: xp.sum(x, where=[True, False, True]),
    "diff": lambda x: xp.diff(x, prepend=0.0),
    "broadcast_to": lambda x: xp.broadcast_to(x, (2, 2, 3)),
    "real": lambda x: (x + 1j).imag,
    "power": lambda x: x**2 + x**0.5,
    "comparison beyond": lambda x: xp.astype(x, xp.int8) < 1000,
    "numpy function": lambda x: np.sum(x, axis=0),
    "numpy ufunc": lambda x: np.sqrt(x),
    "gcd": lambda x: xp.gcd(xp.astype(x, int), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_live_where_the_operands_are(name: str, gpu: Any) -> None:
    function = FUNCTIONS[name]
    here = xp.reshape(xp.arange(6.0), (2, 3)) * 1
    want, got = function(here), function(here.to_device(gpu))
    assert want.device == "cpu" and got.device is gpu
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12)
    assert got.device is gpu and got.dtype == want.dtype


def test_devices_do_not_mix(gpu: Any) -> None:
    x, y = xp.ones(3), xp.ones(3, device=gpu)
    attempts = [
        lambda: x + y, lambda: xp.add(y, x), lambda: xp.where(x > 0, y, y), lambda: xp.concatenate((x, y)),
        lambda: x @ y, lambda: y[xp.arange(2)], lambda: y[x > 0], lambda: xp.searchsorted(x, y),
        lambda: xp.interp(y, x, x),
        lambda: xp.union1d(x, y), lambda: y.__setitem__(slice(None), x), lambda: y.__iadd__(x),
        lambda: xp.sum(x, out=y[0]), lambda: xp.copyto(y, x),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"cpu.*cuda:0|cuda:0.*cpu"):
            attempt()
    assert x.tolist() == y.tolist() == [1, 1, 1]


def test_to_device(gpu: Any, other: Any) -> None:
    x = xp.arange(12.0, device=gpu).reshape(3, 4)
    assert x.to_device(gpu) is x
    for source in (x, x * 2, x[1:, ::2], x.T, x[:0], x[1, 1]):
        for target in (other, xp.Device("cpu")):
            moved = source.to_device(target)
            assert moved.device is target and moved.tolist() == source.tolist()
            back = moved.to_device(gpu)
            assert back.device is gpu and back.tolist() == source.tolist()
    moved = x.to_device(other)
    moved[0] = 5
    assert x[0].tolist() == [0, 1, 2, 3] and moved[0].tolist() == [5] * 4
    with pytest.raises(ValueError):
        x + moved


def test_views_and_writes(gpu: Any) -> None:
    x = xp.arange(12.0, device=gpu).reshape(3, 4)
    rows, before = x[1:], x + 1
    rows[0] = [9, 8, 7, 6]
    x[:, 1] = np.array([1, 2, 3])
    x[x > 8] = -1
    x[[0, 0], [0, 2]] += 10
    x[2] = xp.asarray(4.0, device="cpu")
    rows[0, 0] *= 2
    want = np.arange(12.0).reshape(3, 4)
    rows_ = want[1:]
    rows_[0] = [9, 8, 7, 6]
    want[:, 1] = [1, 2, 3]
    want[want > 8] = -1
    want[[0, 0], [0, 2]] += 10
    want[2] = 4
    rows_[0, 0] *= 2
    assert x.tolist() == want.tolist() and rows.tolist() == rows_.tolist()
    assert before.tolist() == (np.arange(12.0).reshape(3, 4) + 1).tolist()
    assert x.device is rows.device is gpu
    x[...] = 3
    assert x.device is gpu and (x + 1).device is gpu and x.tolist() == [[3.0] * 4] * 3
    x[1:] = x[:-1] + np.arange(4)
    assert x[1].tolist() == [3, 4, 5, 6]


def test_reads(gpu: Any) -> None:
    x = xp.arange(6, device=gpu).reshape(2, 3)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x[1, 1].item() == 4 and x.item(5) == 5
    assert bool(x[0, 1]) and int(x[1, 0]) == 3 and float(x.sum()) == 15 and [1, 2, 3][x[0, 2]] == 3
    assert repr(x) == repr(np.arange(6).reshape(2, 3)) and str(x[0]) == "[0 1 2]" and f"{x[0, 1]:03}" == "001"
    assert 4 in x and x.tobytes() == np.arange(6).reshape(2, 3).tobytes()
    assert xp.asarray(2 + 3j, device=gpu).item() == 2 + 3j
    host = np.asarray(x)
    x[0, 0] = 7
    assert host[0, 0] == 0 and not host.flags.writeable
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, copy=False)
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    wide = xp.zeros((500, 500), device=gpu) + 1
    wide[:, 3] = 2
    assert wide[:, 3].tolist() == [2.0] * 500 and wide[::250, ::499].tolist() == [[1, 1], [1, 1]]


def test_results_are_queued_and_errors_come_late(gpu: Any) -> None:
    x = xp.arange(5, device=gpu)
    i = xp.asarray([1, 9], device=gpu)
    y = x[i] + 1
    xp.evaluate(y)
    with pytest.raises(IndexError, match="out of bounds"):
        xp.synchronize()
    xp.synchronize()
    z = xp.sum(y * 2)
    assert (x * 2).tolist() == [0, 2, 4, 6, 8]
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds"):
            z.tolist()
    x[0] = 0
    for _ in range(200):
        i = x[i % 5]
    assert i.tolist() == [1, 4]
    assert x.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError):
        x[[1, 9]]
    with pytest.raises(IndexError):
        x[7]


def test_roots_of_several_devices(gpu: Any, other: Any) -> None:
    arrays = [xp.arange(4, device=d) + k for k, d in enumerate((gpu, "cpu", other, gpu, "cpu"))]
    xp.evaluate(arrays)
    assert [a.tolist()[0] for a in arrays] == [0, 1, 2, 3, 4]
    assert [str(a.device) for a in arrays] == ["cuda:0", "cpu", "cuda:1", "cuda:0", "cpu"]
    with pytest.raises(ValueError, match="one device"):
        xp.explain(arrays[0] + 1, arrays[1] + 1)


def test_pending_work_is_bounded(gpu: Any) -> None:
    x = xp.ones(4, device=gpu)
    for k in range(1000):
        x = x + k % 3
    assert x.tolist() == [1 + sum(k % 3 for k in range(1000))] * 4


def test_profile_and_explain(gpu: Any) -> None:
    x = xp.arange(8.0, device=gpu)
    xp.evaluate(x)
    y = xp.sort(x * 2)
    text = str(xp.explain(y))
    assert "cuda:0" in text and "routine sort" in text
    assert "library call on the host interp" in str(xp.explain(xp.interp(y, y, y)))
    with xp.profile() as p:
        xp.evaluate(y)
        xp.unique(y)
        xp.evaluate(x + 1)
    names = [k.name for k in p.kernels]
    assert "sort" in names and "unique" in names and "add" in names
    assert "copy from cuda:0" in [c.name for c in p.copies]
    assert all(k.seconds > 0 for k in p.kernels)
    here = xp.arange(8.0, device="cpu")
    with xp.profile() as p:
        xp.fft.fft(here)
    assert "fft.fft" in [k.name for k in p.kernels]
    assert "on cpu" in str(xp.explain(here + 1))


def test_float16_and_bool_and_complex(gpu: Any) -> None:
    for dtype in (xp.float16, xp.bfloat16, xp.bool, xp.complex64, xp.complex128, xp.uint8):
        x = xp.asarray(np.arange(5)).astype(dtype).to_device(gpu)
        y = xp.where(x == x, x, x)
        assert y.device is gpu and y.dtype == dtype
        assert np.array_equal(np.asarray(y).astype(complex), np.asarray(x.to_device("cpu")).astype(complex))
        assert (x * xp.asarray(1, dtype=dtype)).tolist() == x.tolist()


# -- other libraries --------------------------------------------------------------------------------------------------
class Foreign:
    """Somebody else's array over the memory of one of ours."""

    def __init__(self, base: Any, interface: bool = False) -> None:
        self.base = base
        if interface:
            self.__cuda_array_interface__ = base.__cuda_array_interface__
        else:
            self.__dlpack__, self.__dlpack_device__ = base.__dlpack__, base.__dlpack_device__


def test_shared_memory_begins_anywhere(gpu: Any) -> None:
    x = xp.zeros(4100, dtype=xp.float32, device=gpu)
    foreign = Foreign(x, True)
    address, readonly = foreign.__cuda_array_interface__["data"]
    foreign.__cuda_array_interface__ |= {"data": (address + 4, readonly), "shape": (4096,)}
    y = xp.asarray(foreign, copy=False)
    value = xp.arange(4096, dtype=xp.float32, device=gpu)
    y[...] = value
    assert x[1:-3].tolist() == value.tolist()
    y[4:1028] = value[:1024]
    assert x[5:1029].tolist() == value[:1024].tolist() and x[0] == x[-1] == 0


@pytest.mark.parametrize("interface", [False, True])
@pytest.mark.parametrize("window", ["whole", "strided", "transposed", "reversed", "element"])
def test_memory_is_shared(interface: bool, window: str, gpu: Any) -> None:
    x = xp.arange(12.0, device=gpu).reshape(3, 4) + 0
    view = {
        "whole": lambda a: a, "strided": lambda a: a[1:, ::2], "transposed": lambda a: a.T,
        "reversed": lambda a: a[:, ::-1], "element": lambda a: a[1, 2],
    }[window]  # fmt: skip
    part = view(x)
    y = xp.from_dlpack(Foreign(part, interface))
    assert y.device is gpu and y.shape == part.shape and y.tolist() == part.tolist()
    twice = y * 2
    part[...] = 5
    assert y.tolist() == part.tolist() == np.full(part.shape, 5.0).tolist()
    y[...] = 7
    assert part.tolist() == np.full(part.shape, 7.0).tolist()
    want = np.arange(12.0).reshape(3, 4)
    assert twice.tolist() == (view(want) * 2).tolist()
    want[np.isin(want, view(want))] = 7
    assert x.tolist() == want.tolist()
    own = xp.asarray(Foreign(part, interface), copy=True)
    part[...] = 0
    assert own.tolist() == np.full(part.shape, 7.0).tolist()


def test_exports_outlive_their_array(gpu: Any) -> None:
    x = xp.arange(5, device=gpu) + 1
    capsule = x.__dlpack__(max_version=(1, 0))
    y = xp.arange(5, device=gpu) * 3
    del x
    gc.collect()

    class Capsule:
        def __dlpack__(self, **_: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> Any:
            return 2, 0

    z = xp.from_dlpack(Capsule())
    xp.evaluate(xp.ones(5, device=gpu) * 9)
    assert z.tolist() == [1, 2, 3, 4, 5] and y.tolist() == [0, 3, 6, 9, 12]
    with pytest.raises(BufferError):
        xp.from_dlpack(Capsule())


def test_capsules(gpu: Any) -> None:
    x = xp.asarray([1.0, 2.0], device=gpu)
    assert x.__dlpack_device__() == (2, 0) and xp.ones(1).__dlpack_device__() == (1, 0)
    assert not hasattr(xp.ones(1), "__cuda_array_interface__")
    assert np.from_dlpack(x, device="cpu").tolist() == [1, 2]
    with pytest.raises(ValueError, match="ambiguous"):
        x.__dlpack__(stream=0)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    here = xp.asarray([3.0])
    assert xp.from_dlpack(Foreign(here)).device == "cpu" == xp.from_dlpack(x, device="cpu").device
    with pytest.raises(BufferError):
        here.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.from_dlpack(Foreign(x), device="cpu", copy=False)
    copies = x.__dlpack__(max_version=(1, 0), copy=True), here.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    assert [dlpack._managed(c).flags for c in (x.__dlpack__(max_version=(1, 0)), *copies)] == [0, 2, 2]
    for dtype in (xp.bfloat16, xp.float16, xp.bool, xp.complex64, xp.int8, xp.uint64):
        y = xp.asarray([0, 1, 1], device=gpu).astype(dtype)
        z = xp.from_dlpack(Foreign(y))
        assert z.dtype == dtype and (z == y).all()
    empty = xp.from_dlpack(Foreign(xp.zeros((0, 3), device=gpu)))
    assert empty.shape == (0, 3) and empty.device is gpu
    readonly = xp.from_dlpack(Foreign(xp.broadcast_to(x, (3, 2))))
    assert readonly.tolist() == [[1, 2]] * 3
    with pytest.raises(ValueError, match="read-only"):
        readonly[0] = 1
    assert (xp.sin(Foreign(x)) == xp.sin(x)).all()


@pytest.mark.gpu
def test_torch_shares_memory(gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    x = xp.arange(6.0, device=gpu).reshape(2, 3) * 2
    for t in (torch.from_dlpack(x), torch.as_tensor(x, device="cuda")):
        assert t.data_ptr() == x.__cuda_array_interface__["data"][0] and t.tolist() == x.tolist()
        t += 1
        x[0] = 0
        assert x.tolist() == t.tolist()
    t = torch.arange(6.0, device="cuda").reshape(2, 3).T
    y = xp.from_dlpack(t)
    assert y.device is gpu and y.dtype == xp.float32 and y.tolist() == t.tolist()
    y[0] = 9
    t[1] = 7
    assert y.tolist() == t.tolist() == [[9, 9], [7, 7], [2, 5]]
    copied = xp.asarray(t)
    t.zero_()
    assert (copied * 2).tolist() == [[18, 18], [14, 14], [4, 10]]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        big = torch.ones(1 << 24, device="cuda")
        for _ in range(20):
            big = big * 1.0 + 1
        assert float(xp.sum(xp.from_dlpack(big))) == 21.0 * (1 << 24)
    half = torch.ones(3, dtype=torch.bfloat16, device="cuda")
    assert xp.from_dlpack(half).dtype == xp.bfloat16 and xp.sin(half).tolist() == xp.sin(xp.from_dlpack(half)).tolist()
    assert torch.from_dlpack(xp.ones(3, dtype=xp.bfloat16, device=gpu)).dtype is torch.bfloat16


def test_small_arrays_are_read_once(gpu: Any) -> None:
    x = xp.arange(100.0, device=gpu) + 0
    xp.evaluate(x)
    with xp.profile() as p:
        assert [float(v) for v in x[:10]] == list(range(10)) and x[::-3].tolist()[0] == 99
    assert len(p.copies) == 1
    seen = np.asarray(x)
    for k in range(3):
        x[k] = 50
        assert x[k].item() == 50 and seen[k] == k
    y = xp.from_dlpack(Foreign(x))
    assert x[5].item() == 5
    y[5] = 7
    assert x[5].item() == 7


def test_tiny_arrays(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host knows is interpreted there; what kernels or others wrote is not asked for."""
    monkeypatch.setattr(config, "tiny", TINY)
    x = xp.asarray([1.0, 2.0, 3.0], device=gpu)
    y = xp.sum(x[::-1] * 2) + x
    assert "interpreted: 3 elements on cuda:0" in str(xp.explain(y))
    with xp.profile() as p:
        assert y.tolist() == [13, 14, 15] and y.device is gpu
    assert [k.name for k in p.kernels] == ["interpreted"] and [c.name for c in p.copies] == ["copy to cuda:0"]
    assert xp.explain(y + 1).interpreted and not (x * 0 + xp.asarray([], device=gpu)[:, None]).size
    large = xp.sum(xp.ones((TINY, 2), device=gpu), axis=0)
    xp.evaluate(large)
    for _ in range(2):
        assert not xp.explain(large + 1).interpreted
        assert (large + 1).tolist() == [TINY + 1] * 2  # to read it makes no difference
    foreign = xp.from_dlpack(Foreign(x))
    foreign[0] = 5
    assert not xp.explain(x + 1).interpreted and (x + 1).tolist() == [6, 3, 4]
    x[1] = 7
    assert x.tolist() == foreign.tolist() == [5, 7, 3]
