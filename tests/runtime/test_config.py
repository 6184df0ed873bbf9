from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from blockarray.runtime.config import Config


def test_defaults():
    assert Config.from_environ({"HOME": "/root", "BLOCKARRAY_TEST_NAMESPACE": "numpy"}) == Config()


def test_every_setting_is_documented():
    assert Config.__doc__
    for f in fields(Config):
        assert f"    {f.name} : " in Config.__doc__


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("device", "cpu", "cpu"),
        ("num_threads", "4", 4),
        ("cache_dir", "/tmp/x", Path("/tmp/x")),
        ("cache_limit", "0", 0),
        ("cache_limit", "64K", 1 << 16),
        ("cache_limit", "1.5 MiB", 3 << 19),
        ("pool_limit", "2GB", 2 << 30),
        ("debug", "", frozenset()),
        ("debug", "graph, asm", frozenset({"graph", "asm"})),
        ("interpret", "1", True),
        ("verify", "off", False),
        ("max_pending", "17", 17),
        ("matmul_precision", "ieee", "ieee"),
    ],
)
def test_good(name, text, value):
    assert getattr(Config.from_environ({f"BLOCKARRAY_{name.upper()}": text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("BLOCKARRAY_NUM_THREADS", "0", "at least 1"),
        ("BLOCKARRAY_NUM_THREADS", "many", "whole number"),
        ("BLOCKARRAY_CACHE_LIMIT", "-1", "at least 0"),
        ("BLOCKARRAY_CACHE_LIMIT", "inf", "bytes"),
        ("BLOCKARRAY_CACHE_LIMIT", "1Q", "bytes"),
        ("BLOCKARRAY_CACHE_LIMIT", "", "bytes"),
        ("BLOCKARRAY_CACHE_DIR", "", "folder"),
        ("BLOCKARRAY_DEBUG", "grpah", "unknown stage grpah"),
        ("BLOCKARRAY_INTERPRET", "maybe", "1 or 0"),
        ("BLOCKARRAY_DEVICE", " ", "name"),
    ],
)
def test_bad(variable, text, why):
    with pytest.raises(ValueError, match=f"{variable}={text!r}.*{why}"):
        Config.from_environ({variable: text})
