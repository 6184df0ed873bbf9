"""One peer in one process: `worker.py PEER DEVICE THREADS`.

Each line of standard input is a JSON list, a method of `Session` and its arguments; each reply is a line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

import numpy as np
from peers import PEERS, Call, Peer
from workloads import rows

BURST = 0.05  # seconds


class Session:
    """The row in hand: its inputs and the calls to time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.calls: dict[str, Call] = {}

    def prepare(self, row: str) -> dict[str, Any]:
        """Make the inputs, compile and warm up.  Says how long the first call took and gives a sample of the result."""
        spec = next(r for r in rows(self.peer.device) if r.name == row)
        args = [self.peer.put(array) for array in spec.inputs()]
        reply: dict[str, Any] = {"first": None, "sample": None}
        for kind in ("fresh", "reused"):
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
            self.calls[kind] = call
        return {**reply, "kinds": list(self.calls)}

    def clear(self) -> dict[str, Any]:
        self.calls = {}
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


def main() -> None:
    # Libraries may print: replies have a channel of their own, which was standard output.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, device, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        session = Session(PEERS[name](device, threads))
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
