"""With --slow, kernels run on an emulated GPU, too."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def emulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("--slow"):
        from tests.blockarray.language import emulating, running

        monkeypatch.setattr(running, "interpreter", SimpleNamespace(run=emulating.run))
