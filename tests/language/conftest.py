"""Kernels written with the builder, in the front end's place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `by_hand.build` make the block IR of the functions that are launched."""
    from blockarray.language import frontend
    from tests.language import by_hand

    monkeypatch.setattr(frontend, "build", by_hand.build)
    by_hand.built.clear()
    yield
