"""Real nodes: a table is split and merged by hand under load while a node is killed (H2, H4)."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kvorum
from tests.kit.clusters import Nodes, cluster
from tests.kit.waiting import poll

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.slow]

LETTERS = "adgjmpsvy"


class Writer(threading.Thread):
    """Rising numbers at its own keys; what was acknowledged, and what was sent."""

    def __init__(self, url: str, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.acknowledged: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.done, self.slowest_s = 0, 0.0
        self._url, self._halt = url, stop

    def run(self) -> None:
        chance, number = random.Random(self.name), 0
        with kvorum.connect(self._url) as db:
            table = db.table("default", "t")
            while not self._halt.is_set():
                number += 1
                key = f"{chance.choice(LETTERS)}-{self.name}-{chance.randrange(20)}"
                self.sent[key] = number
                began = time.monotonic()
                try:
                    table.put(key, str(number))
                except kvorum.KvorumError:
                    continue
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.acknowledged[key] = number
                self.done += 1


def _go_on(writers: list[Writer]) -> None:
    """Until each has written fifty times more."""
    upto = [writer.done + 50 for writer in writers]
    poll(lambda: all(writer.done >= n for writer, n in zip(writers, upto, strict=True)))


def _shape(nodes: Nodes, what: str, *args: Any) -> Any:
    """Until it is known to be done, whoever is master."""
    for _ in range(60):
        try:
            with kvorum.connect(nodes.url) as db:
                return (
                    getattr(db, what)(*args[:1], at=args[1]) if what == "split" else db.merge(*args)
                )
        except kvorum.Refused:
            raise
        except kvorum.KvorumError:
            time.sleep(0.5)
    raise AssertionError(f"{what} {args} was never done")


def test_h2_h4_real_nodes_split_and_merge_under_load_and_kill9(tmp_path: Path) -> None:
    """What a user would lose: an acknowledged write, while partitions change under his feet."""
    with cluster(tmp_path) as nodes:
        with kvorum.connect(nodes.url) as db:
            db.create_table("default", "t")
            (first,) = [row["id"] for row in db.partitions() if row["id"] != 1]
        stop = threading.Event()
        writers = [Writer(nodes.url, name, stop) for name in "xyz"]
        for writer in writers:
            writer.start()
        try:
            _go_on(writers)
            upper = _shape(nodes, "split", first, "m")["new"]
            middle = _shape(nodes, "split", first, "g")["new"]
            victim = nodes.leader()
            nodes.kill(victim)
            top = _shape(nodes, "split", upper, "s")["new"]
            nodes.start(victim)
            _shape(nodes, "merge", first, middle)
            _shape(nodes, "merge", upper, top)
            _go_on(writers)
        finally:
            stop.set()
            for writer in writers:
                writer.join(60)
        with kvorum.connect(nodes.url) as db:
            rows = {item.key.decode(): int(item.value) for item in db.table("default", "t").rows()}
            found = [row["id"] for row in db.partitions() if row["id"] != 1]
        assert found == [first, upper]
        for writer in writers:
            for key, number in writer.acknowledged.items():
                assert number <= rows[key] <= writer.sent[key], (key, number, rows[key])
