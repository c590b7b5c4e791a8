"""tso.leases, tso.safepoint: what somebody reads is never collected, and what nobody reads is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import (
    Busy,
    Corruption,
    InvalidArgument,
    KvorumError,
    NotFound,
    NotLeader,
    SnapshotTooOld,
    Unavailable,
)
from kv.base.limits import LEASE_LIFETIME_MS_MAX, LEASES_MAX
from kv.base.timestamps import compose, physical_ms
from kvorum.testing.simulation.loop import SimClock, SimLoop, run
from tso.leases import Horizon, Lease, Leases, decode
from tso.oracle import Oracle
from tso.safepoint import Done, SafepointService

KEY = b"leases"
RETENTION_MS = 60_000


class Meta:
    """The record in the meta partition: written after `delay_s`; `fails` the next times."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.record: bytes | None = None
        self.delay_s = 0.01
        self.fails = self.writes = self.in_flight = 0

    def read(self) -> bytes | None:
        return self.record

    def persist(self, record: bytes, done: Done) -> None:
        assert not self.in_flight, "one after the other, or an older record could be the last"
        self.in_flight += 1
        self._loop.call_later(self.delay_s, self._end, record, done)

    def _end(self, record: bytes, done: Done) -> None:
        self.in_flight -= 1
        if self.fails:
            self.fails -= 1
            done(Unavailable("no leader"))
            return
        self.record = record
        self.writes += 1
        done(None)


class Place:
    """A node that leads the meta partition, and the record that the next one would find."""

    def __init__(self, loop: SimLoop, meta: Meta | None = None) -> None:
        self.loop, self.meta = loop, meta or Meta(loop)
        self.clock = SimClock(loop)
        self.oracle = Oracle(self.clock)
        self.oracle.start(1)
        self.oracle.raised(1 << 63)
        self.service = SafepointService(
            KEY,
            self.oracle,
            LoopTimers(loop),
            read=self.meta.read,
            persist=self.meta.persist,
            retention_ms=RETENTION_MS,
            not_leader=lambda: NotLeader("ask node 2"),
        )
        self.service.role(leader=True)

    async def durable(self) -> None:
        told: asyncio.Future[KvorumError | None] = self.loop.create_future()
        self.service.when_durable(lambda error: told.done() or told.set_result(error))
        if (error := await told) is not None:
            raise error

    async def open(self, at: int = 0, ttl_ms: int = 10_000) -> Lease:
        lease = self.service.open(at, "test", ttl_ms)
        await self.durable()
        return lease

    async def safepoint(self) -> int:
        """As a node that collects is told."""
        self.service.look()
        await self.durable()
        return self.service.safepoint

    def failover(self) -> Place:
        """The next leader, which finds what is durable."""
        self.service.role(leader=False)
        return Place(self.loop, self.meta)


def scene(main: Callable[[Place], Coroutine[Any, Any, Any]]) -> None:
    async def played(loop: SimLoop) -> None:
        place = Place(loop)
        await main(place)
        place.service.close()

    run(played)


def test_c4_the_safepoint_follows_the_retention() -> None:
    """Old versions would never go, or go while the retention promises them."""

    async def main(place: Place) -> None:
        for _ in range(20):
            await asyncio.sleep(10)
            behind_ms = physical_ms(place.oracle.take()) - physical_ms(await place.safepoint())
            assert RETENTION_MS - 100 <= behind_ms <= RETENTION_MS
        assert place.meta.writes == 20, "nobody asked in between"

    scene(main)


def test_u9_the_safepoint_stays_below_every_lease() -> None:
    """A snapshot that is held would lose what it shows."""

    async def main(place: Place) -> None:
        old = await place.open(ttl_ms=30_000)
        await asyncio.sleep(20)
        place.service.renew(old.id)
        young = await place.open(ttl_ms=600_000)
        for _ in range(30):
            await asyncio.sleep(10)
            assert await place.safepoint() <= old.at
            place.service.renew(old.id)
        assert await place.safepoint() == old.at, "as far as it may"
        assert place.service.release(old.id)
        assert not place.service.release(old.id)
        assert await place.safepoint() == young.at

    scene(main)


def test_u9_a_lease_ends_when_its_owner_is_silent() -> None:
    """A process that died would hold all garbage back for ever; one that lives would lose its
    snapshot.
    """

    async def main(place: Place) -> None:
        silent, kept = await place.open(), await place.open()
        for _ in range(5):
            await asyncio.sleep(4)
            place.service.renew(kept.id)
        assert [row[0] for row in place.service.rows()] == [kept.id]
        with pytest.raises(NotFound) as caught:
            place.service.renew(silent.id)
        assert caught.value.code == "SNAPSHOT_NOT_FOUND"
        assert place.service.ended == 1

    scene(main)


@pytest.mark.slow
def test_u9_a_lease_has_a_last_day() -> None:
    """A program that forgot its snapshot and lives on would hold all garbage back for ever."""

    async def main(place: Place) -> None:
        lease = await place.open(ttl_ms=600_000)
        ended_s = 0.0
        while not ended_s:
            await asyncio.sleep(300)
            try:
                place.service.renew(lease.id)
            except NotFound:
                ended_s = place.loop.time()
        assert LEASE_LIFETIME_MS_MAX <= ended_s * 1000 <= LEASE_LIFETIME_MS_MAX + 302_000

    scene(main)


def test_u9_leases_survive_every_failover() -> None:
    """A snapshot would lose what it shows because the master was replaced, or outlive its owner
    for long.
    """

    async def main(place: Place) -> None:
        lease = await place.open(ttl_ms=10_000)
        for _ in range(20):
            await asyncio.sleep(9)  # nobody can renew it while there is no leader
            place = place.failover()
            assert [row[0] for row in place.service.rows()] == [lease.id]
            assert await place.safepoint() <= lease.at
        await asyncio.sleep(11.5)
        assert place.service.rows() == []
        place.service.close()

    scene(main)


def test_u9_what_was_not_durable_was_never_answered() -> None:
    """A client would read a snapshot that the next leader does not know of."""

    async def main(place: Place) -> None:
        lease = place.service.open(0, "test", 10_000)
        told: list[KvorumError | None] = []
        place.service.when_durable(told.append)
        assert told == []
        after = place.failover()
        assert isinstance(told[0], NotLeader), "ask the next one"
        assert lease.id not in [row[0] for row in after.service.rows()]
        after.service.close()

    scene(main)


@pytest.mark.parametrize("first", ["lease", "safepoint"])
def test_u9_a_lease_that_the_safepoint_is_passing_is_refused_or_holds(first: str) -> None:
    """A lease at the very moment that the safepoint is passing it would be granted, and what it
    shows collected. Whoever comes first wins, also before it is durable, also over a failover.
    """

    async def main(place: Place) -> None:
        at = place.oracle.take()
        place.meta.delay_s = 0.5
        await asyncio.sleep(RETENTION_MS / 1000 - 0.3)
        if first == "lease":
            lease = place.service.open(at, "test", 10_000)
            await asyncio.sleep(0.4)  # by now the retention would let it pass
            place.service.look()
            await place.durable()
            for _ in range(3):
                await asyncio.sleep(1)
                assert await place.safepoint() == at
            place = place.failover()
            assert await place.safepoint() == at
            assert [row[0] for row in place.service.rows()] == [lease.id]
        else:
            await asyncio.sleep(0.6)
            place.service.look()  # on its way to the disk
            assert place.service.safepoint <= at, "nobody is told of it yet"
            with pytest.raises(SnapshotTooOld) as caught:
                place.service.open(at, "test", 10_000)
            assert caught.value.details["safepoint"] > at
            await place.durable()
            assert place.service.safepoint > at
        place.service.close()

    scene(main)


def test_u9_the_future_is_refused() -> None:
    """A snapshot of the future would change while it is read."""

    async def main(place: Place) -> None:
        now = place.oracle.take()
        with pytest.raises(InvalidArgument):
            place.service.open(now + (10 << 18), "test", 10_000)
        assert (await place.open(now)).at == now

    scene(main)


def test_u9_a_persist_that_fails_is_repeated() -> None:
    """A moment without a majority would leave clients without an answer for ever."""

    async def main(place: Place) -> None:
        place.meta.fails = 3
        lease = await place.open()
        assert place.meta.fails == 0
        assert decode(KEY, place.meta.record)[1] == [lease]

    scene(main)


def test_u9_without_its_lease_a_leader_renews_nothing() -> None:
    """It may have been replaced: the next leader would end what this one said it keeps."""

    async def main(place: Place) -> None:
        lease = await place.open()

        def deposed(n: int = 1) -> int:
            raise NotLeader("the lease is over")

        place.service._oracle = type("Deposed", (), {"take": staticmethod(deposed)})()
        with pytest.raises(NotLeader):
            place.service.renew(lease.id)
        place.service.role(leader=False)
        with pytest.raises(NotLeader):
            place.service.open(0, "test", 10_000)

    scene(main)


def test_u9_leases_are_bounded() -> None:
    """A loop that takes snapshots would fill the meta partition."""
    leases = Leases(now_s=0.0)
    for i in range(LEASES_MAX):
        leases.grant(Lease(i + 1, 5, "x" * 100, 1_000), 0.0)
    with pytest.raises(Busy) as caught:
        leases.grant(Lease(LEASES_MAX + 1, 5, "", 1_000), 0.0)
    assert caught.value.details["limit"] == LEASES_MAX
    assert len(leases.encode(KEY)) < 1 << 18


def test_u9_the_record_is_read_as_it_was_written() -> None:
    """A damaged record would be believed, or a lease come back as another one."""
    leases = Leases(7, now_s=0.0)
    held = [Lease(3 << 18, 8, "zoë", 1_000), Lease(2 << 18, 9, "", 2_000)]
    for lease in held:
        leases.grant(lease, 0.0)
    record = leases.encode(KEY)
    assert decode(KEY, record) == (7, sorted(held, key=lambda lease: lease.id))
    assert decode(KEY, None) == (0, [])
    with pytest.raises(Corruption):
        decode(KEY, record[:-5] + b"\x00" + record[-4:])


def test_e6_a_leaping_clock_collects_nothing_young() -> None:
    """The clock leaps an hour: snapshots of a second ago would be an hour old, and collected."""
    horizon = Horizon(RETENTION_MS)
    now_s, now_ms = 0.0, 1_700_000_000_000

    def safepoint() -> int:
        return physical_ms(horizon.safepoint(now_s, compose(now_ms)))

    for _ in range(200):
        now_s, now_ms = now_s + 1, now_ms + 1_000
        assert safepoint() == now_ms - RETENTION_MS
    before_ms = now_ms
    now_ms += 3_600_000
    while now_s < 255:
        now_s, now_ms = now_s + 1, now_ms + 1_000
        assert before_ms - RETENTION_MS <= safepoint() <= before_ms
    now_s, now_ms = now_s + 10, now_ms + 10_000
    assert safepoint() == now_ms - RETENTION_MS, "what was before the leap is old by now"
