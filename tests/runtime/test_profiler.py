from __future__ import annotations

import pytest

from blockarray.runtime import profiler


def test_records():
    profiler.note("nobody listens", 1.0, 1, 1)
    with profiler.record() as outer:
        assert profiler.active
        profiler.note("a", 0.5, 100, 4)
        with profiler.record() as inner:
            profiler.note("b", 2.0, 10, 1)
            profiler.note("a", 0.25, 100, 4)
    assert not profiler.active
    assert [launch.name for launch in outer] == ["a", "b", "a"] and inner == outer[1:]
    assert outer[0].gbps == 200e-9
    assert profiler.summarise(outer) == [("b", 1, 2.0, 10), ("a", 2, 0.75, 200)]


def test_an_error_closes_the_record():
    with pytest.raises(ZeroDivisionError), profiler.record(), profiler.record():
        raise ZeroDivisionError
    assert not profiler.active
