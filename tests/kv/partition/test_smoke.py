"""The machine, the replica, the real RaftHost and the memory engine together."""

from __future__ import annotations

import pytest

from kv.base import methods
from kv.base.errors import ConditionFailed
from tests.kv.partition.node import Node


def test_b1_put_get_delete_with_versions() -> None:
    """A single record's round trip would fail, or a reply would not carry its version."""
    node = Node()
    v1 = node.put(b"tab.k", b"one")
    assert node.get(b"tab.k") == (b"one", v1)
    v2 = node.delete(b"tab.k")
    assert v2 > v1
    assert node.get(b"tab.k") == (None, 0)
    assert node.get(b"tab.k", at=v1) == (b"one", v1)


def test_write_batch() -> None:
    """A batch would not be one version, or half of a refused one would stay."""
    node = Node()
    ops = [[methods.OP_PUT, b"tab.a", b"1", None, 0], [methods.OP_PUT, b"tab.b", b"2", 0, 0]]
    (version,) = node.call(methods.WRITE, b"tab.a", ops, 0, 0)
    assert node.get(b"tab.a") == (b"1", version)
    with pytest.raises(ConditionFailed):
        node.call(
            methods.WRITE,
            b"tab.a",
            [[1, b"tab.a", b"tab.x", None, 0], [1, b"tab.b", b"tab.y", 0, 0]],
            0,
            0,
        )
    assert node.get(b"tab.a") == (b"1", version)


def test_survives_crash() -> None:
    """An acknowledged write would be lost with the power."""
    node = Node()
    version = node.put(b"tab.k", b"one")
    after = node.crash(seed=3)
    assert after.get(b"tab.k") == (b"one", version)
