"""The emulator's copy engine, and the barriers in shared memory that threads and copies arrive at."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from blockarray.compiler import dtypes

if TYPE_CHECKING:
    from .gpu_emulator import Emulator


@dataclass
class Barrier:
    """Phases end when all have arrived and all announced bytes are there."""

    expected: int
    pending: int
    nbytes: int = 0
    phases: int = 0

    def arrive(self, nbytes: int = 0) -> None:
        self.nbytes += nbytes
        self.pending -= 1
        assert self.pending >= 0, "more arrive than are expected"
        self.settle()

    def settle(self) -> None:
        if not self.pending and not self.nbytes:
            self.phases += 1
            self.pending = self.expected


@dataclass
class Map:
    """A tensor map: an array, and the box that a copy moves; innermost first."""

    pointer: int
    #: Bytes of an element.
    size: int
    sizes: list[int]
    strides: list[int]
    box: list[int]

    def addresses(self, place: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The address of each element of a box, and which of them are in the array."""
        rows, columns = np.arange(self.box[1])[:, None], np.arange(self.box[0])[None]
        inside = (columns + place[0] < self.sizes[0]) & (rows + place[1] < self.sizes[1])
        assert min(place) >= 0 and all(p < n for p, n in zip(place[2:], self.sizes[2:], strict=True))
        offset = (columns + place[0]) + (rows + place[1]) * self.strides[0]
        offset = offset + sum(p * s for p, s in zip(place[2:], self.strides[1:], strict=True))
        return self.pointer + self.size * offset, inside


def maps(specs: tuple[dict[str, Any], ...], words: list[int]) -> list[Map]:
    """What the host makes of a kernel's arguments."""
    found = []
    for spec in specs:
        strides = [s["value"] if isinstance(s, dict) else words[s] for s in spec["strides"]]
        # Rows that begin anywhere, a stride apart.
        sizes = [spec["far"], *spec["box"][1:]] if "far" in spec else [words[s] for s in spec["sizes"]]
        pointer, size = words[spec["pointer"]], dtypes.SIZE[spec["dtype"]]
        assert not min(sizes) or (pointer % 16 == 0 and all(s * size % 16 == 0 and 0 < s < 1 << 38 for s in strides))
        assert spec["box"][0] * size <= 128 and max(spec["box"]) <= 256
        found.append(Map(pointer, size, sizes, strides, spec["box"]))
    return found


def wait(e: Emulator, operands: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    """Those of the threads whose barrier's phase is over."""
    address, parity = operands
    done = np.zeros(e.count, np.bool_)
    for who in np.flatnonzero(mask).tolist():
        done[who] = e.barriers[who // e.block, int(address[who])].phases & 1 != parity[who]
    return done


def effect(e: Emulator, text: str, operands: list[np.ndarray], mask: np.ndarray) -> bool:
    """Do what an instruction does to barriers and memory; False if it is another one."""
    threads = np.flatnonzero(mask).tolist()
    blocks = [who // e.block for who in threads]
    if text.startswith("bar.sync"):
        some = re.match(r"bar.sync \S+, (\d+)", text)
        count = int(some[1]) if some else e.block
        groups = mask.reshape(-1, count) if e.block % count == 0 else mask.reshape(-1, e.block)[:, :count]
        assert (groups.all(1) | ~groups.any(1)).all(), "a barrier that not all threads reach"
        e.epoch[np.unique(blocks) // e.cluster] += 1
    elif text.startswith("barrier.cta"):
        groups = mask.reshape(-1, 128)
        assert (groups.all(1) | ~groups.any(1)).all(), "a turn that not all threads of a group take"
        step = 1 if "arrive" in text else -1
        e.given.update({(block, int(operands[0][who])): step for who, block in zip(threads, blocks)})
    elif text.startswith(".reg .f32 f<"):
        e.own = e.own or [np.zeros(e.count, np.float32) for _ in range(int(re.findall(r"<(\d+)>", text)[0]))]
    elif text.startswith("griddepcontrol.wait"):
        e.ready |= mask
    elif "mbarrier.init" in text and "fence" not in text:
        count = int(re.findall(r"(\d+);", text)[0])
        for who, block in zip(threads, blocks):
            e.barriers[block, int(operands[0][who])] = Barrier(count, count)
    elif "st.async" in text:
        rank = int(re.findall(r"mapa\S+ to, \$0, (\d+)", text)[0])
        for who in threads:
            there = e.other(who, rank)
            barrier = e.barriers[there, int(operands[1][who])]
            for beyond, numbers in re.findall(r"\[to\+(\d+)\], {(.*?)}, \[at\]", text):
                words = np.array([operands[int(k[1:])][who] for k in numbers.split(", ")]).view(np.uint8)
                start = int(operands[0][who]) + int(beyond)
                places = slice(start, start + words.size)
                assert start % words.size == 0 and not e.unread[there, places].any(), "overwritten before it was read"
                e.shared[there, places], e.unread[there, places] = words, True
                barrier.nbytes -= words.size
            barrier.settle()
        e.blocked[:] = False
    elif "mapa" in text:
        for who in threads:
            e.barriers[e.other(who, int(operands[1][who])), int(operands[0][who])].arrive()
        e.blocked[:] = False
    elif text.startswith(("mbarrier.arrive", "cp.async.mbarrier.arrive.noinc")):
        for who, block in zip(threads, blocks):
            barrier = e.barriers[block, int(operands[0][who])]
            phases = barrier.phases
            barrier.arrive(int(operands[1][who]) if "expect_tx" in text else 0)
            if barrier.expected == e.block and barrier.phases > phases:
                e.epoch[block // e.cluster] += 1
        e.blocked[:] = False
    elif "ld.v2.b64" in text:
        for who, block in zip(threads, blocks):
            e.drafts[block, int(operands[0][who])] = e.maps[int(operands[1][who])]
    elif text.startswith("tensormap.replace"):
        for who, block in zip(threads, blocks):
            place, address, stride, *sizes = (int(x[who]) for x in operands)
            assert place % 128 == 0 and address % 16 == 0 and stride % 16 == 0 and min(sizes, default=1) > 0
            given = e.drafts[block, place]
            e.drafts[block, place] = replace(
                given, pointer=address, strides=[stride // given.size], sizes=sizes or given.sizes
            )
    elif text.startswith("tensormap.cp_fenceproxy"):
        warps = mask.reshape(-1, 32)
        assert (warps.all(1) | ~warps.any(1)).all(), "a map copied by a part of a warp"
        for who, block in zip(threads, blocks):
            to, place = (int(x[who]) for x in operands)
            assert to % 128 == 0
            e.made[to] = e.drafts[block, place]
    elif text.startswith("cp.async.bulk.tensor"):
        assert e.ready[threads].all(), "what is queued before may not have ended"
        for who, block in zip(threads, blocks):
            _copy(e, text, [int(x[who]) for x in operands], block)
        e.blocked[:] = False
    elif text.startswith(("st.shared.b16", "st.shared.b8")):
        size = 2 if "b16" in text else 1
        _, places = e._places(operands[0].astype(np.int64), "(3)", size, mask)
        e.shared.reshape(-1)[places] = operands[1][mask].astype(f"u{size}")[:, None].view(np.uint8)
    elif text.startswith("cp.async.cg"):
        assert e.ready[threads].all(), "what is queued before may not have ended"
        for who, block in zip(threads, blocks):
            here, address, nbytes = (int(x[who]) for x in operands)
            _piece(e, here, address, nbytes, block)
    elif text.startswith(("st.shared.b32", "st.shared.v")):
        # Barriers in shared memory order it, which the search for races does not see.
        words = np.stack([x[mask] for x in operands[1:]], 1)
        _, places = e._places(operands[0].astype(np.int64), "(3)", words[0].nbytes, mask)
        e.shared.reshape(-1)[places] = words.view(np.uint8)
    elif text.startswith("stmatrix"):
        _store_fragments(e, operands[0], operands[1:], mask)
    elif text.startswith("bar.warp"):
        warps = mask.reshape(-1, 32)
        assert (warps.all(1) | ~warps.any(1)).all(), "a barrier that not all of a warp reach"
        e.epoch[np.unique(blocks) // e.cluster] += 1
    elif not text.startswith(("fence.", "cp.async.bulk", "griddep", "@$0 griddep", "wgmma.wait_group")) or (
        operands and text.startswith("wgmma")
    ):
        return False
    return True


def _piece(e: Emulator, here: int, address: int, nbytes: int, block: int) -> None:
    """16 bytes for shared memory, of which so many are copied and the others 0."""
    assert here % 16 == 0 and address % 16 == 0 and 0 <= nbytes <= 16
    assert e.memory.allowed[address : address + nbytes].all(), "out of bounds"
    e.shared[block, here : here + 16] = 0
    e.shared[block, here : here + nbytes] = e.memory.bytes[address : address + nbytes]


def _swizzled(address: np.ndarray, row: int = 128) -> np.ndarray:
    """Where an address in a panel with rows of so many bytes is."""
    return address ^ (address >> 7 & row // 16 - 1) << 4


def _copy(e: Emulator, text: str, operands: list[int], block: int) -> None:
    loads = "mbarrier" in text
    here, number, barrier = (operands[0], operands[1], operands[2]) if loads else (operands[1], operands[0], -1)
    place = operands[3 if loads else 2 :]
    map_ = e.made[number] if number in e.made else e.maps[number]
    assert f".{len(map_.sizes)}d." in text and len(place) == len(map_.sizes)
    assert here % 1024 == 0, "a panel that the swizzle does not fit"
    addresses, inside = map_.addresses(place)
    size = map_.size
    memory, shared = (x.view(f"u{size}") for x in (e.memory.bytes, e.shared[block]))
    rows, columns = np.arange(inside.shape[0])[:, None], np.arange(inside.shape[1])[None]
    row = map_.box[0] * size
    places = _swizzled(here + rows * row + columns * size, row) // size
    used = addresses[inside]
    assert e.memory.allowed[used].all(), "out of bounds"
    if loads:
        shared[places] = 0
        shared[places[inside]] = memory[used // size]
        e.barriers[block, barrier].nbytes -= inside.size * size
        e.barriers[block, barrier].settle()
    else:
        memory[used // size] = shared[places[inside]]


def _store_fragments(e: Emulator, address: np.ndarray, words: list[np.ndarray], mask: np.ndarray) -> None:
    """stmatrix: four matrices of 8 by 8 elements of 16 bits; lane 8 i + r tells where row r of matrix i goes."""
    warps = mask.reshape(-1, 32)
    assert (warps.all(1) | ~warps.any(1)).all(), "fragments stored by a part of a warp"
    pairs = np.stack([w.reshape(-1, 32) for w in words], 1)
    rows = np.ascontiguousarray(pairs).view(np.int16).reshape(-1, 4)
    e._store(np.ascontiguousarray(rows).reshape(e.count, 8), address, "ptr addrspace(3)", mask)
