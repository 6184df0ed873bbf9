"""Bad calls fail when they are made, as in NumPy; bad indices on the device, at the next host access."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.support import NAMESPACE, assert_same, evaluate, host, needs_lazy, xp

#: Each is evaluated with `xp` and fresh arrays: v (5,), a (3, 4), b (4, 5), e (0,), i (3,) int, m (5,) bool, c complex.
BAD_CALLS = """
    a + b
    v * a.T
    xp.add(a, xp.ones((2, 4)))
    xp.where(m, a, 0)
    xp.broadcast_to(v, (4,))
    xp.broadcast_to(a, (4,))
    xp.broadcast_to(a, (5, 3, 3))
    xp.broadcast_arrays(a, b)
    a @ a
    a @ v
    xp.matmul(a, 2)
    xp.matmul(xp.ones((2, 3, 4)), xp.ones((3, 4, 2)))
    xp.reshape(a, (5, 2))
    xp.reshape(a, (-1, -1))
    xp.reshape(a, (-1, 5))
    a.reshape(13)
    xp.sum(a, axis=2)
    xp.sum(a, axis=-3)
    xp.sum(a, axis=(0, 0))
    xp.max(a, axis=5)
    xp.max(e)
    xp.min(xp.ones((0, 3)), axis=0)
    xp.argmax(e)
    xp.argmin(xp.ones((3, 0)), axis=1)
    xp.argmax(a, axis=2)
    xp.mean(a, axis=3)
    xp.var(a, axis=-4)
    xp.cumsum(a, axis=2)
    xp.concatenate([a, b])
    xp.concatenate([a, v])
    xp.concatenate([])
    xp.stack([a, b])
    xp.stack([])
    xp.expand_dims(a, axis=4)
    xp.squeeze(a, axis=0)
    xp.squeeze(a, axis=3)
    xp.flip(a, axis=2)
    xp.roll(a, 1, axis=2)
    xp.moveaxis(a, 0, 2)
    xp.swapaxes(a, 0, 2)
    xp.transpose(a, (0, 0))
    xp.transpose(a, (0, 1, 2))
    xp.take(a, xp.asarray([0]), axis=2)
    xp.sort(a, axis=2)
    xp.argsort(a, axis=-3)
    v[5]
    v[-6]
    a[3]
    a[0, 4]
    a[0, 0, 0]
    a[..., ...]
    a[1.0]
    a["x"]
    v[xp.asarray([0.5])]
    v[m[:3]]
    a[m]
    a[xp.asarray([0, 1]), xp.asarray([0, 1, 2])]
    v.__setitem__(5, 1)
    v.__setitem__(slice(0, 2), xp.ones(3))
    a.__setitem__(0, xp.ones(3))
    a.__setitem__((0, 0), xp.ones(2))
    a.__setitem__((0, 0, 0), 1)
    v.__setitem__(m, xp.ones(4))
    i.__iadd__(0.5)
    i.__itruediv__(i)
    v.__iadd__(a)
    v.__setitem__(0, "x")
    xp.zeros((-1,))
    xp.zeros((2, 1.5))
    xp.ones(3, dtype="nonsense")
    xp.arange(0, 10, 0)
    xp.eye(-1)
    xp.linspace(0, 1, -1)
    v & v
    v << 1
    ~v
    i ^ 0.5
    xp.bitwise_and(v, m)
    m - m
    -m
    xp.floor_divide(c, c)
    c % 2
    c // 2
    xp.arctan2(c, c)
    xp.floor(c)
    xp.hypot(c, 1)
    xp.logaddexp(c, c)
    v + "x"
    v + object()
    xp.sum(v, dtype="nonsense")
    i + 2**70
    xp.asarray([1], dtype=xp.int8) + 300
    bool(v)
    bool(a == a)
    int(a)
    float(v)
    complex(v)
    v.__index__()
    len(xp.asarray(1.0))
    iter(xp.asarray(1.0))
    range(10)[xp.asarray(1.5)]
    hash(v)
    xp.clip(v, xp.ones(3), 2)
    xp.tensordot(a, b, axes=2)
    xp.einsum("ij,jk->il", a, b)
    xp.add(v, v, out=xp.zeros(3))
    xp.add(v, v, out=xp.arange(5))
""".strip().splitlines()


def arrays(namespace: Any) -> dict[str, Any]:
    env = {
        "xp": namespace,
        "v": namespace.arange(5.0),
        "a": namespace.ones((3, 4)),
        "b": namespace.ones((4, 5)),
        "e": namespace.zeros(0),
        "i": namespace.arange(3),
        "m": namespace.asarray([True, True, False, True, False]),
        "c": namespace.asarray([1j, 2.0]),
    }
    if namespace is xp:
        evaluate(*(x for name, x in env.items() if name != "xp"))
    return env


def numpys_exception(call: str) -> type[BaseException] | None:
    try:
        eval(call, arrays(np))
    except Exception as error:  # whatever it is, it is the oracle
        return type(error)
    return None


def standard(kind: type[BaseException]) -> tuple[type[BaseException], ...]:
    """The built-in exceptions among a class's bases: NumPy's private classes are theirs."""
    base = next(t for t in kind.__mro__ if t.__module__ == "builtins")
    return (kind,) if kind is np.exceptions.AxisError else (base,)


@pytest.mark.parametrize("call", [line.strip() for line in BAD_CALLS])
def test_bad_call_fails_at_the_call(call: str) -> None:
    kind = numpys_exception(call)
    assert kind is not None, "NumPy accepts this: not a bad call"
    env = arrays(xp)
    with pytest.raises(standard(kind)) as caught:
        eval(call, env)
    assert str(caught.value)
    for name in "vabeimc":  # nothing was changed by the failed call
        assert_same(env[name], arrays(np)[name], name)


@pytest.mark.parametrize("call", ["a + b", "xp.sum(a, axis=2)", "xp.reshape(a, (5, 2))", "a @ a", "v[m[:3]]"])
def test_message_names_the_trouble(call: str) -> None:
    """Shapes, axes and sizes that do not fit are in the message."""
    with pytest.raises((ValueError, IndexError)) as caught:
        eval(call, arrays(xp))
    assert any(digit in str(caught.value) for digit in "2345")


DEVICE_READS = {
    "take": lambda x, i: xp.take(x, i, axis=0),
    "index": lambda x, i: x[i],
    "index-rows": lambda x, i: xp.reshape(x, (5, 2))[i],
    "fused": lambda x, i: x[i] * 2 + 1,
    "reduced": lambda x, i: xp.sum(x[i + 0]),
    "second-axis": lambda x, i: xp.reshape(x, (1, 10))[:, i],
}


@pytest.mark.parametrize("bad", [10, -11, 2**40, -(2**62)])
@pytest.mark.parametrize("name", DEVICE_READS)
def test_device_index_out_of_bounds_on_reading(name: str, bad: int) -> None:
    x = xp.asarray(np.arange(10.0))
    index = xp.asarray(np.array([0, 3, bad])) + 0
    with pytest.raises(IndexError):
        host(DEVICE_READS[name](x, index))
    with pytest.raises(IndexError):
        DEVICE_READS[name](x, index).block_until_ready()
    assert_same(x, np.arange(10.0))
    assert_same(x[xp.asarray([9, -10])] + 1, np.array([10.0, 1.0]))


@pytest.mark.parametrize("bad", [10, -11, 2**40])
def test_device_index_out_of_bounds_on_writing(bad: int) -> None:
    x = xp.asarray(np.arange(10.0))
    y = xp.asarray(np.arange(10.0))
    index = xp.asarray(np.array([0, bad])) + 0
    with pytest.raises(IndexError):
        x[index] = 5.0
        host(x)
    assert_same(y + 1, np.arange(10.0) + 1)
    fresh = xp.zeros(4)
    fresh[xp.asarray([1, 2])] = 7
    assert_same(fresh, np.array([0.0, 7, 7, 0]))


@needs_lazy
def test_device_error_is_raised_once() -> None:
    """The error belongs to the flush that met it, not to whatever runs next."""
    x = xp.asarray(np.arange(10.0))
    bad = x[xp.asarray(np.array([99])) + 0]
    with pytest.raises(IndexError):
        host(bad)
    for _ in range(3):
        assert_same(x * 2, np.arange(10.0) * 2)
    with pytest.raises(IndexError):  # and the array that could not be computed still cannot
        host(bad)


@needs_lazy
def test_failed_flush_publishes_nothing() -> None:
    x = xp.asarray(np.arange(10.0))
    good = x + 1
    bad = x[xp.asarray(np.array([-99])) + 0]
    mixed = good[:1] + bad
    with pytest.raises(IndexError):
        evaluate(good, mixed)
        host(mixed)
    assert_same(good, np.arange(10.0) + 1)


def test_errors_on_threads_stay_on_theirs() -> None:
    x = xp.asarray(np.arange(1000.0))
    failures: list[BaseException] = []

    def good() -> None:
        try:
            for k in range(30):
                assert float(host(xp.sum(x + k))) == 499500 + 1000 * k
        except BaseException as error:
            failures.append(error)

    def bad() -> None:
        for _ in range(30):
            try:
                host(x[xp.asarray(np.array([5000])) + 0])
            except IndexError:
                continue
            except BaseException as error:
                failures.append(error)
                return
            failures.append(AssertionError("no IndexError"))

    threads = [threading.Thread(target=f) for f in (good, bad, good, bad)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures, failures[0]


@pytest.mark.skipif(NAMESPACE == "numpy", reason="NumPy has object arrays")
@pytest.mark.parametrize("bad", [object(), [object()], ["a", "b"], np.array(["x"]), np.array([None])])
def test_unsupported_values_are_refused(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        xp.asarray(bad)
