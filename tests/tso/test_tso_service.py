"""tso.service: the bound is durable before it counts, is raised ahead of time, and only a leader
serves.
"""

from __future__ import annotations

import asyncio

import pytest

from kv.base import timestamps
from kv.base.adapters import LoopTimers
from kv.base.errors import Corruption, NotLeader, Unavailable
from kv.base.limits import TSO_AHEAD_MS
from kvorum.testing.simulation.loop import SimClock, SimLoop, run
from tso.service import Done, TsoService, bound_of, bound_record

KEY = b"tso"


class Log:
    """The meta partition: what was persisted, after `delay_s`; `fails` the next times; `stuck` for
    ever.
    """

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.bound = 0
        self.asked: list[int] = []
        self.delay_s = 0.001
        self.fails = 0
        self.stuck = False
        self.in_flight = 0
        self.most_in_flight = 0

    def read(self) -> int:
        return self.bound

    def persist(self, bound: int, done: Done) -> None:
        self.asked.append(bound)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if not self.stuck:
            self._loop.call_later(self.delay_s, self._end, bound, done)

    def _end(self, bound: int, done: Done) -> None:
        self.in_flight -= 1
        if self.fails:
            self.fails -= 1
            done(Unavailable("no leader"))
            return
        self.bound = max(self.bound, bound)
        done(None)


def make(loop: SimLoop, log: Log | None = None) -> tuple[TsoService, Log, SimClock]:
    log = log or Log(loop)
    clock = SimClock(loop)
    service = TsoService(clock, LoopTimers(loop), read_bound=log.read, persist=log.persist)
    return service, log, clock


def test_tso_serves_only_while_leading() -> None:
    """A node that does not lead must not hand out timestamps, whatever it remembers."""

    async def main(loop: SimLoop) -> None:
        service, log, _ = make(loop)
        with pytest.raises(NotLeader):
            service.take()
        service.role(leader=True)
        with pytest.raises(Unavailable):
            service.take()  # nothing is durable yet
        await asyncio.sleep(0.01)
        first = service.take(10)
        assert service.handle(None, [5]) == [first + 10]
        assert first + 14 < log.bound
        service.role(leader=False)
        with pytest.raises(NotLeader):
            service.take()
        service.close()

    run(main)


def test_e2_without_its_lease_a_leader_hands_out_nothing() -> None:
    """A leader that slept may have been replaced and does not know: its timestamps would be below
    those that the next one has handed out meanwhile.
    """

    async def main(loop: SimLoop) -> None:
        log, holds = Log(loop), [True]
        refusal = NotLeader("ask node 2", details={"leader": 2})
        service = TsoService(
            SimClock(loop),
            LoopTimers(loop),
            read_bound=log.read,
            persist=log.persist,
            lease=lambda: holds[0],
            not_leader=lambda: refusal,
        )
        service.role(leader=True)
        await asyncio.sleep(0.01)
        first = service.take()
        holds[0] = False
        assert not service.serving
        with pytest.raises(NotLeader) as caught:
            service.take()
        assert caught.value is refusal
        holds[0] = True  # the others were only slow: it leads as before
        assert service.take() > first
        service.close()

    run(main)


def test_tso_bound_rises_from_a_timer_never_in_a_request() -> None:
    """A request that waits for a sync would make every transaction wait for it."""

    async def main(loop: SimLoop) -> None:
        service, log, clock = make(loop)
        service.role(leader=True)
        await asyncio.sleep(0.01)
        last = 0
        for _ in range(600):  # a minute
            asked = len(log.asked)
            ts = service.take()
            assert len(log.asked) == asked
            assert ts > last
            assert abs(timestamps.physical_ms(ts) - clock.now_ms()) < 1000
            last = ts
            await asyncio.sleep(0.1)
        assert service.raises <= 60_000 / (TSO_AHEAD_MS / 2) + 2
        assert log.most_in_flight == 1
        service.close()

    run(main)


def test_tso_exhausted_bound_recovers() -> None:
    """A log that cannot persist stops the oracle before it repeats; it goes on by itself
    afterwards.
    """

    async def main(loop: SimLoop) -> None:
        service, log, _ = make(loop)
        service.role(leader=True)
        await asyncio.sleep(0.01)
        service.take()
        log.fails = 10**9
        await asyncio.sleep(TSO_AHEAD_MS / 1000 + 1)
        with pytest.raises(Unavailable) as caught:
            service.take()
        assert caught.value.code == "TSO_BOUND"
        log.fails = 0
        await asyncio.sleep(0.1)
        assert service.take() < log.bound
        service.close()

    run(main)


def test_e6_forward_jump_recovers_at_once() -> None:
    """A clock set forward an hour must cost one persist, not half a second of errors."""

    async def main(loop: SimLoop) -> None:
        service, _, clock = make(loop)
        service.role(leader=True)
        await asyncio.sleep(0.01)
        last = service.take()
        clock.skew_ms += 3_600_000
        with pytest.raises(Unavailable):
            service.take()
        await asyncio.sleep(0.005)
        ts = service.take()
        assert ts > last
        assert abs(timestamps.physical_ms(ts) - clock.now_ms()) < 1000
        clock.skew_ms -= 3_600_000
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert service.take() > ts
            ts = service.take()
        service.close()

    run(main)


def test_e1_successor_starts_above_everything() -> None:
    """The next leader, with any clock, must not repeat what this one may have handed out."""

    async def main(loop: SimLoop) -> None:
        log = Log(loop)
        last = 0
        for skew_ms in (0, -3_600_000, 0, 1000, -86_400_000):
            service, _, clock = make(loop, log)
            clock.skew_ms = skew_ms
            service.role(leader=True)
            await asyncio.sleep(0.01)
            for _ in range(50):
                ts = service.take(1000)
                assert ts > last
                last = ts + 999
            service.close()

    run(main)


def test_tso_late_persist_of_an_old_reign_does_not_count() -> None:
    """What was being persisted when leadership was lost is somebody else's to judge."""

    async def main(loop: SimLoop) -> None:
        service, log, _ = make(loop)
        log.delay_s = 1.0
        service.role(leader=True)
        await asyncio.sleep(0.5)
        service.role(leader=False)
        log.delay_s = 3.0
        service.role(leader=True)
        await asyncio.sleep(1.0)  # the first persist came back, for the earlier reign
        with pytest.raises(Unavailable):
            service.take()
        await asyncio.sleep(3.0)
        service.take()
        service.close()

    run(main)


def test_tso_close_stops_the_timer() -> None:
    """A closed service must leave nothing on the loop, and must not write any more."""

    async def main(loop: SimLoop) -> None:
        service, log, _ = make(loop)
        service.role(leader=True)
        await asyncio.sleep(0.01)
        service.close()
        asked = len(log.asked)
        await asyncio.sleep(60)
        assert len(log.asked) == asked
        assert service.stats()["tso.raises"] == 1

    run(main)


def test_tso_bound_record_is_sealed() -> None:
    """A flipped bit in the bound could repeat an hour of timestamps: it must be found out."""
    record = bound_record(KEY, 123 << 18)
    assert record.hex() == "0000000001ec0000" + record[8:].hex()
    assert len(record) == 12
    assert bound_of(KEY, record) == 123 << 18
    assert bound_of(KEY, None) == 0
    for damaged in (b"", record[:-1], bytes([record[0] ^ 1]) + record[1:], record + b"\0"):
        with pytest.raises(Corruption):
            bound_of(KEY, damaged)
    with pytest.raises(Corruption):
        bound_of(b"other", record)


def test_tso_persist_may_end_at_once() -> None:
    """A memory engine calls back before `persist` returns; the service must not be confused by
    it.
    """

    async def main(loop: SimLoop) -> None:
        def persist(bound: int, done: Done) -> None:
            done(None)

        service = TsoService(
            SimClock(loop), LoopTimers(loop), read_bound=lambda: 0, persist=persist
        )
        service.role(leader=True)
        assert service.take() > 0
        service.role(leader=True)
        assert isinstance(service.last, int)
        service.close()

    run(main)


def test_tso_failed_persist_is_an_error_value() -> None:
    """`done` takes an error, it is not raised: a failed persist is tried again, soon."""

    async def main(loop: SimLoop) -> None:
        service, log, _ = make(loop)
        log.fails = 3
        service.role(leader=True)
        await asyncio.sleep(0.3)
        assert len(log.asked) == 4
        service.take()
        service.close()

    run(main)
