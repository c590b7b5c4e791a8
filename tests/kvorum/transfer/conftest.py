"""An object store for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.object_store import ObjectStore


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


@pytest.fixture
def objects(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Empty."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anybody")
    object_store.objects.clear()
    return object_store
