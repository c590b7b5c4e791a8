"""Makes the pictures of docs/guides/console.md: a cluster of three nodes with something to do, of
which one is killed, and a browser that looks at it.

    python -m scripts.console_pictures [MINUTES]     so long it works before it is looked at; 4

Needs Chromium. The module is also one of procedures, for the nodes.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import kvorum
from kv.base.limits import SINK_EXPIRED_MS
from kv.base.ops import put
from kvorum.programs.localcluster import LocalCluster
from kvorum.sdk.database import AsyncDatabase
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    add_crc,
    attempt_key,
    pack_chunk,
)
from procedures.verbs import SINK_COMMIT, SINK_SEAL

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "guides" / "images"
_MODULE: Final = "scripts.console_pictures"
_TABLES: Final = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, mail text, born date);
CREATE INDEX customers_name ON customers (name);
INSERT INTO customers SELECT x, 'customer ' || x, 'c' || x || '@example.org', date '1970-01-01' + x
    FROM generate_series(1, 2000) g(x);
CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10, 2), at timestamptz);
CREATE VIEW adults AS SELECT * FROM customers WHERE born < date '2008-01-01'"""
_QUERY: Final = "SELECT born, count(*)\nFROM customers\nWHERE name > 'customer 7'\nGROUP BY born"


@kvorum.procedure("shop.pack")
class Pack:
    """Waits for a box, if it is told to."""

    @kvorum.step(first=True)
    def wrap(self, ctx: Any) -> Any:
        if ctx.args["late"]:
            return kvorum.suspend(event="box", then="close", timeout_ms=3_600_000)
        return kvorum.next("close")

    @kvorum.step
    def close(self, ctx: Any) -> Any:
        return kvorum.done()


@kvorum.procedure("shop.order", locks=lambda args: [kvorum.exclusive(f"order/{args['order']}")])
class Order:
    """Charges the card, at the third attempt if the bank is busy; then packs."""

    @kvorum.step(first=True, undo="release")
    def reserve(self, ctx: Any) -> Any:
        ctx.state["charged"] = False
        return kvorum.suspend(timeout_ms=4_000, then="charge")

    @kvorum.step(retry=kvorum.retry(attempts=5, first_ms=3_000))
    def charge(self, ctx: Any) -> Any:
        if ctx.args["bank"] == "closed" or (ctx.args["bank"] == "busy" and ctx.attempt < 3):
            raise ConnectionError("the bank does not answer")
        ctx.state["charged"] = True
        return kvorum.next("pack")

    @kvorum.step
    def pack(self, ctx: Any) -> Any:
        parcels = [("shop.pack", {"late": late}) for late in ctx.args["parcels"]]
        return kvorum.children(parcels, then="send")

    @kvorum.step
    def send(self, ctx: Any) -> Any:
        return kvorum.done({"order": ctx.args["order"]})

    @kvorum.undo
    def release(self, ctx: Any) -> None:
        """Nothing is left of it."""


def _work(url: str, until: float) -> None:
    """Reads and writes, in waves, of a few hot ranges."""
    n = 0
    with kvorum.connect(url) as db:
        table = db.table("shop", "visits")
        while time.monotonic() < until:
            n += 1
            hot = "abcdefgh"[(n // 400) % 8]
            table.put(f"{hot}/{n % 500}", b"x" * 200)
            table.get(f"{hot}/{n % 300}")
            table.get("m/1")
            if (n // 150) % 3 == 0:
                time.sleep(0.02)


async def _staged(db: AsyncDatabase) -> None:
    """What Spark's writers would have staged: one writes, one is silent, one died, one commits."""
    backend = db._backend
    table = next(one for one in await db.tables("shop") if one.name == "visits")
    silent = "9f20d77be3214f51"
    for name, tasks in (("4c1b83c6d1a94a06", 12), (silent, 3), ("e07a54c9b2d14c0e", 1)):
        for n in range(tasks):
            key = f"z/{name}/{n}".encode()
            chunk = pack_chunk([key], [b"x" * 200])
            sealed = [1, 1, add_crc(0, 0, chunk)]
            await backend.kv.call_node(SINK_SEAL, name, table.id, n, f"t{n}", *sealed, chunk)
    batch = {"attempt": name, "table": table.id, "app": "", "version": 0, "query": ""}
    request = {**batch, "manifest": [[0, "t0", *sealed]]}
    while (await backend.kv.call_node(SINK_COMMIT, request))[0]:
        pass
    now_ms = backend.txn.clock.now_ms()
    about = About(now_ms - 5_400_000, "ann", "nightly", 41)
    until_ms = now_ms + SINK_EXPIRED_MS - 3_600_000
    gone = Attempt(AttemptState.EXPIRED, table.id, until_ms, 0, about)
    about = About(now_ms - 720_000, "ann")
    dying = Attempt(AttemptState.OPEN, table.id, now_ms + 120_000, about=about)
    for name, one in (("5b1c99ade0f24d1a", gone), (silent, dying)):
        await backend.txn.write([put(attempt_key(name), one.pack())])


def _order(n: int, bank: str = "open", *late: bool) -> dict[str, object]:
    return {"order": n, "bank": bank, "parcels": list(late), "card": "…4711"}


def main(minutes: float) -> None:
    from tests.kit.browser import browser
    from tests.kit.machine import free_port_base

    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster.create(Path(directory) / "cluster", 3, free_port_base() - 10)
        try:
            for node in (1, 2, 3):
                cluster.start(node, ("--procedure-modules", _MODULE))
            cluster.wait_ready((1, 2, 3), within_s=180, on_ready=print)
            first = cluster.nodes[0]
            native = f"kvorum://{first.address}"
            with kvorum.connect(native) as db:
                db.create_namespace("shop")
                db.create_table("shop", "visits", split_keys=["c", "e", "g", "m"])
                until = time.monotonic() + minutes * 60
                threads = [threading.Thread(target=_work, args=(native, until)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                _sql(first.base + 2, _TABLES)
                db._call(_staged(db._async))
                for n in range(30):
                    db.submit("shop.order", _order(n, "closed" if n % 9 == 4 else "open", False))
                shown = db.submit("shop.order", _order(4711, "busy", True, False, False))
                for thread in threads:
                    thread.join()
                cluster.signal(3, signal.SIGKILL)
                time.sleep(15)
                db.submit("shop.order", _order(99, "closed"))
                with browser(Path(directory) / "chromium") as page:
                    _pictures(page, f"http://127.0.0.1:{first.base + 2}/console", shown)
        finally:
            cluster.down()


def _sql(port: int, statement: str) -> None:
    import httpx

    body = {"statement": statement, "read_only": False}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/sql", json=body, timeout=120)
    answer.raise_for_status()


def _pictures(page: Any, console: str, shown: int) -> None:
    def take(name: str, path: str, ready: str, scheme: str = "light", tall: int = 900) -> None:
        page.size(1280, tall, scheme)
        page.open("about:blank")
        page.open(f"{console}#/{path}")
        page.wait(ready)
        if name == "data":
            page.js(f"document.querySelector('#sql').value = {json.dumps(_QUERY)}")
            page.click("#analyze")
            page.wait("document.querySelector('#plan')")
        page.screenshot(TARGET / f"console-{name}.png", whole=False)

    drawn = "document.querySelectorAll('svg.chart').length >= 5"
    take("overview", "overview", drawn, tall=1_580)
    take("procedures", "procedures", "document.querySelector('#list table')")
    take("procedure", f"procedures/{shown}", "document.querySelector('svg.gantt')", "dark", 1_100)
    take("data", "data/default", "document.querySelector('#tree a')")
    take("sinks", "sinks", "document.querySelector('#staged tbody tr')", tall=620)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 4)
