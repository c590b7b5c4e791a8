"""A node with procedures in several states, and a browser to look at its console with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import kvorum
from tests.kit.browser import Browser, browser
from tests.kit.machine import free_port_base

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@dataclass(frozen=True, slots=True)
class Place:
    url: str
    db: kvorum.Database

    def begun(self, lock: str) -> int:
        """An import that waits for its children."""
        id = self.db.submit("console.import", {"lock": lock})
        end = time.monotonic() + 20
        while self.db.procedure(id).state != "WAITING":
            assert time.monotonic() < end
            time.sleep(0.02)
        return id


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = free_port_base()
    data = tmp_path_factory.mktemp("console") / "data"
    with kvorum.open(
        data, port=base, procedure_modules=["tests.procedures.console_procedures"]
    ) as db:
        db.create_table("default", "orders", split_keys=["m"])
        yield Place(f"http://127.0.0.1:{base + 2}", db)


@pytest.fixture(scope="module")
def page(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def show(page: Browser, place: Place, path: str) -> None:
    """Open a page and wait until it has shown an answer."""
    page.open("about:blank")
    page.open(f"{place.url}/console#/{path}")
    page.wait("document.body.dataset.looks")
