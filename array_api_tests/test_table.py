"""The document's table of the standard's functions says what the code does."""

from __future__ import annotations

import pytest

from array_api_tests import table
from array_api_tests.standard import SIGNATURES


@pytest.mark.cpu_only
def test_the_document_is_up_to_date() -> None:
    _, inside, _ = table.written()
    assert table.table() == inside, "run: python -m array_api_tests.table"


def test_the_table_has_everything_of_the_standard() -> None:
    assert {*table.TITLES} == {*SIGNATURES}
