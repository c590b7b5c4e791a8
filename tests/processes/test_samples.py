"""The samples of demo/samples do what they say, also when they are killed on their way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import kvorum
from demo.samples import outside
from demo.samples.pipeline import PARTS, part, pipeline
from demo.samples.transfer import Transfer, transfer
from demo.samples.trip import Trip, trip
from kvorum import procedures
from tests.kit.waiting import poll

ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "FILE", tmp_path / "outside.db")


def done() -> Counter[str]:
    return Counter(outside.done())


async def test_a_trip_is_booked_whole_or_not_at_all(tmp_path: Path) -> None:
    """What was booked is cancelled, the last first."""
    async with procedures.aopen(tmp_path / "p", procedures=[trip]) as p:
        whole = await p.submit(trip, Trip("ann", ["flight", "car", "hotel"]))
        assert len(await p.wait(whole)) == 3
        with pytest.raises(kvorum.Refused, match="there is no hotel sold out"):
            await p.wait(await p.submit(trip, Trip("bob", ["flight", "car", "hotel sold out"])))
    assert outside.done() == [
        *("book flight", "book car", "book hotel"),
        *("book flight", "book car", "cancel car", "cancel flight"),
    ]


async def test_a_large_transfer_waits_for_a_person(tmp_path: Path) -> None:
    """Neither a no nor a closed account moves money."""
    async with procedures.aopen(tmp_path / "p", procedures=[transfer]) as p:
        large = await p.submit(transfer, Transfer("ann", "bob", 5_000))
        refused = await p.submit(transfer, Transfer("ann", "eve", 6_000))
        await p.wait(await p.submit(transfer, Transfer("ann", "bob", 50)))
        assert done() == {"withdraw 50 from ann": 1, "deposit 50 to bob": 1}
        await p.send(refused, "approved", payload=False)
        await p.send(large, "approved", payload=True)
        assert len(await p.wait(large)) == 2
        with pytest.raises(kvorum.Refused, match="nobody approved it"):
            await p.wait(refused)
        with pytest.raises(kvorum.Refused, match="account closed is closed"):
            await p.wait(await p.submit(transfer, Transfer("ann", "closed", 70)))
    assert outside.done()[-2:] == ["withdraw 70 from ann", "refund 70 to ann"]


async def test_a_pipeline_counts_each_part(tmp_path: Path) -> None:
    """1,000 children in the sample, six here: each is read once."""
    async with procedures.aopen(tmp_path / "p", procedures=[part, pipeline]) as p:
        counted = await p.wait(await p.submit(pipeline, 6))
    assert counted == {"even": 9, "odd": 6}
    assert done() == {f"read part {n}": 1 for n in range(6)}


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", f"demo.samples.{name}"]


def _killed(name: str, at: Callable[[], bool], cwd: Path) -> None:
    process = subprocess.Popen(_command(name), cwd=cwd, env=ENV, stdout=subprocess.DEVNULL)
    try:
        poll(lambda: at() or process.poll() is not None)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["trip", "pipeline"])
def test_killed_samples_do_each_thing_once(name: str, tmp_path: Path) -> None:
    """Whatever the outside world was asked, it was asked under the same key before and after."""
    wanted = {
        "trip": Counter(flight=100, car=100, hotel=50),
        "pipeline": Counter({f"read part {n}": 1 for n in range(PARTS)}),
    }[name]
    total = sum(wanted.values())
    for share in (0.1, 0.4, 0.8):
        enough = int(total * share)
        _killed(name, lambda n=enough: len(outside.done()) >= n, tmp_path)
    subprocess.run(_command(name), cwd=tmp_path, env=ENV, check=True, stdout=subprocess.DEVNULL)
    if name == "trip":
        wanted = Counter(f"book {what}" for what in wanted.elements())
        wanted += Counter({"cancel flight": 50, "cancel car": 50})
    assert done() == wanted
