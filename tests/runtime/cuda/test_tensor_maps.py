"""Tensor maps: where they stand among the arguments, and what the driver is told."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from blockarray.runtime.cuda import driver, tensor_maps

bindings = pytest.importorskip("cuda.bindings.driver")

SPEC = {"dtype": "bf16", "pointer": 2, "sizes": [0, 1], "strides": [3], "box": [64, 128]}


class Api:
    """The bindings, with a driver that notes what it is asked."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(bindings, name)

    def cuTensorMapEncodeTiled(self, *args: Any) -> tuple[int, Any]:
        self.calls.append(args)
        made = bindings.CUtensorMap()
        ctypes.memset(int(made.getPtr()), len(self.calls), tensor_maps.NBYTES)
        return self.status, made


@pytest.fixture
def api(monkeypatch):
    api = Api()
    monkeypatch.setattr(driver, "api", api)
    tensor_maps._encode.cache_clear()
    yield api
    tensor_maps._encode.cache_clear()


def fill(block, sizes=(300, 200), pointer=4096, stride=320, last=7):
    struct.pack_into("=5q", block, 0, *sizes, pointer, stride, last)


def made(**values: Any) -> tuple[tensor_maps.TensorMaps, Any]:
    block = ctypes.create_string_buffer(40)
    fill(block, **values)
    return tensor_maps.TensorMaps([SPEC], block, 40), block


def targets(maps: tensor_maps.TensorMaps) -> tuple[list[int], bytes]:
    """What the arguments' pointers point to: slots, and the map."""
    *slots, last = (ctypes.c_void_p * 6).from_address(maps.pointers())
    return [ctypes.c_int64.from_address(p).value for p in slots], ctypes.string_at(last, 128)


def test_maps_follow_the_arguments(api):
    maps, _ = made()
    assert targets(maps) == ([300, 200, 4096, 320, 7], b"\1" * 128)
    (kind, rank, pointer, sizes, strides, box, steps, *_), *_ = api.calls
    assert kind == bindings.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert (rank, pointer) == (2, 4096)
    assert [[int(x) for x in xs] for xs in (sizes, strides, box, steps)] == [[300, 200], [640], [64, 128], [1, 1]]


def test_maps_are_made_once_for_the_same_memory(api):
    for _ in range(2):
        made()[0].pointers()
    assert len(api.calls) == 1
    made(pointer=8192)[0].pointers()
    assert len(api.calls) == 2


def test_maps_are_those_of_the_block_as_it_is_now(api):
    maps, block = made()
    first = maps.pointers()
    fill(block, pointer=8192)
    assert targets(maps) == ([300, 200, 8192, 320, 7], b"\2" * 128)
    fill(block, last=8)  # which no map is made of
    assert maps.pointers() == first and targets(maps) == ([300, 200, 4096, 320, 8], b"\1" * 128)
    for pointer in range(1 << 14, 600 << 14, 1 << 14):
        fill(block, pointer=pointer)
        assert targets(maps)[1] == bytes([len(api.calls) % 256]) * 128
    assert [len(known) <= tensor_maps._KNOWN for *_, known in maps.maps] == [True]


def test_arrays_without_elements_have_no_map(api):
    assert targets(made(sizes=(0, 200))[0])[1] == b"\0" * 128
    assert not api.calls


def test_what_the_driver_refuses_is_said(api):
    api.status = 1
    with pytest.raises(RuntimeError, match=r"\(300, 200\) elements, strides \(320,\)"):
        made()[0].pointers()
