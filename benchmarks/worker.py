"""One peer in one process: `worker.py PEER DEVICE THREADS`.

Each line of standard input is a JSON list, a method of `Session` and its arguments; each reply is a line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from itertools import cycle
from typing import Any

import numpy as np
from peers import PEERS, Call, Peer
from workloads import EXPLAINED, Pools, Row, rows, small

BURST = 0.05  # seconds
#: Bytes of inputs to keep on a GPU for the next rows, and inputs to take turns with.
KEPT, MOST_SETS = 4 << 30, 64
#: A call that takes a GPU less than so many seconds may take longer on the host.
SHORT = 2e-4


class Session:
    """The row in hand: its inputs and the calls to time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.calls: dict[str, Call] = {}

    def prepare(self, row: str) -> dict[str, Any]:
        """Make the inputs, compile and warm up.  Says how long the first call took and gives a sample of the result."""
        spec = next(r for r in rows(self.peer.device) if r.name == row)
        if not self.peer.supports(spec):
            return {"first": None, "sample": None, "kinds": []}
        args = self.inputs(spec)
        reply: dict[str, Any] = {"first": None, "sample": None}
        if spec.function in EXPLAINED:
            reply["plan"] = self.peer.plan(spec, args)
        for kind in self.kinds():
            call = getattr(self.peer, kind)(spec, args)
            if call is None:
                continue
            start = time.perf_counter()
            result = call()
            self.peer.synchronize()
            seconds = time.perf_counter() - start
            if kind == "fresh":
                flat = self.peer.host(result.reshape(-1)[:: max(1, math.prod(result.shape) // 64)])
                reply["first"] = seconds
                reply["sample"] = flat.astype(float).tolist()
            del result
            call()
            self.calls[kind] = self.rotated(spec, call, args)
        return {**reply, "kinds": list(self.calls)}

    def kinds(self) -> tuple[str, ...]:
        return ("fresh", "reused", "bare")

    def inputs(self, row: Row) -> list[Any]:
        return [self.peer.put(array) for array in row.inputs()]

    def rotated(self, row: Row, call: Call, args: list[Any]) -> Call:
        """The call, with other memory each time where it would stay in a cache."""
        return call

    def clear(self) -> dict[str, Any]:
        self.calls = {}
        self.peer.clear()
        return {}

    def burst(self, kind: str) -> dict[str, Any]:
        """Seconds a call: the median over about `BURST` seconds of calls, or one call that takes longer."""
        call = self.calls[kind]
        once = self.repeat(call, 1)
        if once > BURST:
            return {"seconds": once}
        count = max(1, min(2000, int(BURST / 5 / once)))
        return {"seconds": float(np.median([self.repeat(call, count) for _ in range(5)]))}

    def repeat(self, call: Call, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        self.peer.synchronize()
        return (time.perf_counter() - start) / count


class GpuSession(Session):
    """On a GPU: the device's time, and the host's as a kind of its own."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        import gpu

        self.gpu = gpu
        self.pools = Pools(os.environ["BLOCKARRAY_BENCH_INPUTS"])
        self.flat: dict[tuple[str, int, int], Any] = {}
        self.on_host = False

    def kinds(self) -> tuple[str, ...]:
        return ("fresh", "bare")

    def inputs(self, row: Row) -> list[Any]:
        self.on_host = row.function is small
        wanted = row.sources()
        for key in [k for k in self.flat if k not in wanted]:
            if sum(array.nbytes for array in self.flat.values()) > KEPT:
                del self.flat[key]
        for key in wanted:
            if key not in self.flat:
                self.flat[key] = self.peer.put(self.pools.cut(*key))
        return [self.flat[key].reshape(shape) for key, shape in zip(wanted, row.shapes)]

    def rotated(self, row: Row, call: Call, args: list[Any]) -> Call:
        nbytes = sum(array.nbytes for array in args)
        sets = min(MOST_SETS, -(-4 * self.gpu.attribute("L2_CACHE_SIZE") // nbytes))
        if sets < 2:
            return call
        hosts = [self.pools.cut(*key).reshape(shape) for key, shape in zip(row.sources(), row.shapes)]
        turns = cycle([args.copy(), *([self.peer.put(host) for host in hosts] for _ in range(sets - 1))])
        results: deque[Any] = deque(maxlen=sets)

        def rotating() -> Any:
            args[:] = next(turns)
            result = call()
            results.append(result)
            return result

        for _ in range(sets):
            rotating()
        return rotating

    def burst(self, kind: str) -> dict[str, Any]:
        call = self.calls["bare" if kind == "bare" else "fresh"]
        stream = self.peer.stream()
        if kind == "host" or self.on_host:
            return {"seconds": self.wall(call)}
        if stream is not None:
            return {"seconds": self.gpu.seconds(call, stream)}
        seconds = self.wall(call)
        return {"seconds": self.gpu.gated_seconds(call, self.peer.synchronize) if seconds < SHORT else seconds}

    def wall(self, call: Call) -> float:
        once = self.repeat(call, 3)
        return self.repeat(call, max(3, min(500, int(self.gpu.BURST / once))))


def main() -> None:
    # Libraries may print: replies have a channel of their own, which was standard output.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, device, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        session: Session = (GpuSession if device == "cuda" else Session)(PEERS[name](device, threads))
        hello = {"versions": session.peer.versions()}
    except (ImportError, RuntimeError) as error:
        replies.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return
    replies.write(json.dumps(hello) + "\n")
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            reply = getattr(session, command)(*arguments)
        except Exception as error:  # reported as the row's result
            reply = {"error": f"{type(error).__name__}: {error}"[:200]}
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
