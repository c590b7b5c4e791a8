"""Schedules beyond one cron expression: intervals, calendars, overlap, backfill, pauses. Virtual
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument, NotFound, TooLarge, Unavailable, UnknownOutcome
from kv.base.ops import put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, done
from procedures.engine.registry import Registry, procedure, step
from procedures.pools import rows, schedule_times
from procedures.pools.pauses import Pause
from procedures.pools.schedule_times import Times, begins, newest, next_of, times_of, within
from procedures.pools.schedules import OVERLAP, Schedules
from tests.procedures.pools.pool_lab import Office, TableRows

HOUR = 3_600_000
DAY = 24 * HOUR


def ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


class Runs:
    """Who submits, and what lives of it."""

    def __init__(self) -> None:
        self.by_nonce: dict[str, int] = {}
        self.attributes: list[Any] = []
        self.live: set[int] = set()
        self.ended: list[tuple[str, int]] = []
        self.schedules: Schedules
        self.trouble: Callable[[], bool] = lambda: False

    async def submit(self, sub: Any) -> int:
        self.attributes.append(sub.options.attributes)
        if sub.nonce not in self.by_nonce:
            self.by_nonce[sub.nonce] = len(self.by_nonce) + 1
            self.live.add(self.by_nonce[sub.nonce])
        if self.trouble():
            raise UnknownOutcome("perhaps")
        return self.by_nonce[sub.nonce]

    def end(self, *ids: int) -> None:
        for id in ids or list(self.live):
            self.live.discard(id)
            self.schedules.ended(id)

    async def cancel(self, id: int, _why: str) -> None:
        self.ended.append(("cancel", id))

    async def terminate(self, id: int, _why: str) -> None:
        self.ended.append(("terminate", id))
        self.end(id)

    @property
    def times(self) -> list[int]:
        return [int(nonce.rpartition("/")[2]) for nonce in self.by_nonce]


def with_schedules(
    test: Callable[[Callable[[], Schedules], Runs, Office], Awaitable[None]],
) -> None:
    """`test` gets what makes a master's schedules, each with a `run` of its own."""

    async def main(loop: simloop.SimLoop) -> None:
        office, runs = Office(loop, []), Runs()
        store = TableRows(office.lab.store.table)
        tasks: list[asyncio.Task[None]] = []

        def master() -> Schedules:
            for task in tasks:
                task.cancel()
            made = Schedules(
                *(store, office.lab.clock, runs.submit),
                lives=lambda id: id in runs.live,
                cancel=runs.cancel,
                terminate=runs.terminate,
                kinds={"x": {"customer": "text", "day": "moment"}}.get,
            )
            runs.schedules = made
            tasks.append(loop.create_task(made.run()))
            return made

        await test(master, runs, office)
        for task in tasks:
            task.cancel()

    simloop.run(main, 0)


EVERY = {"name": "s", "procedure": "x", "every_ms": 60_000}


@pytest.mark.parametrize(
    ("given", "after", "first"),
    [
        ({"every_ms": HOUR}, ms(2026, 1, 1, 0, 30), ms(2026, 1, 1, 1)),
        ({"every_ms": HOUR, "offset_ms": 900_000}, ms(2026, 1, 1, 1), ms(2026, 1, 1, 1, 15)),
        # Several calendars: whatever comes first.
        ({"cron": ["0 9 * * 1-5", "0 12 * * 6"]}, ms(2026, 1, 2, 10), ms(2026, 1, 3, 12)),
        # The last day of a month; the second Tuesday.
        ({"cron": "0 0 L * *"}, ms(2026, 2, 1), ms(2026, 2, 28)),
        ({"cron": "0 0 * * 2#2"}, ms(2026, 2, 1), ms(2026, 2, 10)),
        # Not at Christmas.
        (
            {"cron": "0 9 * * *", "exclude": ["* * 25,26 12 *"]},
            ms(2026, 12, 24, 9),
            ms(2026, 12, 27, 9),
        ),
        # 2:30 does not exist on this day in Berlin: right after the gap; on that one it is twice.
        (
            {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
            ms(2026, 3, 28, 12),
            ms(2026, 3, 29, 1),
        ),
        (
            {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
            ms(2026, 10, 24, 12),
            ms(2026, 10, 25, 0, 30),
        ),
        (
            {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
            ms(2026, 10, 25, 0, 30),
            ms(2026, 10, 26, 1, 30),
        ),
        # What runs every half hour goes by what passes, through both.
        (
            {"cron": "*/30 * * * *", "zone": "Europe/Berlin"},
            ms(2026, 10, 25, 0, 30),
            ms(2026, 10, 25, 1),
        ),
        ({"every_ms": DAY, "start_ms": ms(2026, 5, 5, 1)}, ms(2026, 1, 1), ms(2026, 5, 6)),
        ({"every_ms": DAY, "start_ms": ms(2026, 5, 6)}, ms(2026, 1, 1), ms(2026, 5, 6)),
        ({"every_ms": DAY, "end_ms": ms(2026, 5, 5)}, ms(2026, 5, 4), ms(2026, 5, 5)),
        ({"every_ms": DAY, "end_ms": ms(2026, 5, 5)}, ms(2026, 5, 5), 0),
    ],
)
def test_when_a_schedule_is_due(given: dict[str, Any], after: int, first: int) -> None:
    """Intervals, calendars and zones give these very times."""
    assert next_of(times_of(given), after) == first


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs cron"),
        ({"every_ms": 999}, "at least 1000"),
        ({"every_ms": "1"}, "every_ms must be"),
        ({"every_ms": HOUR, "offset_ms": HOUR}, "below every_ms"),
        ({"cron": ["* * * * *"] * 21}, "up to 20"),
        ({"cron": ["* * * * *", "x"]}, "five fields"),
        ({"cron": "* * * * *", "zone": "Europe/Atlantis"}, "no time zone"),
        ({"cron": "* * * * *", "exclude": "* * * * *"}, "exclude less"),
        ({"every_ms": HOUR, "jitter_ms": -1}, "jitter_ms must be"),
        ({"every_ms": HOUR, "start_ms": 5, "end_ms": 4}, "end must not"),
    ],
)
def test_what_no_schedule_can_be(given: dict[str, Any], why: str) -> None:
    """The error says which part, and nothing is stored."""
    with pytest.raises(InvalidArgument, match=why):
        times_of(given)


def test_the_newest_times_are_not_counted_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A schedule of each second, which nobody looked at for a year, would stop the loop."""
    times = times_of({"every_ms": 1_000})
    looked = 0
    real = next_of

    def counted(times: Times, after_ms: int) -> int:
        nonlocal looked
        looked += 1
        return real(times, after_ms)

    monkeypatch.setattr("procedures.pools.schedule_times.next_of", counted)
    now = ms(2026, 1, 1)
    assert newest(times, now - 365 * DAY, now, 100) == [now - i * 1_000 for i in range(99, -1, -1)]
    assert looked < 1_000
    assert newest(times, now - 2_000, now, 100) == [now - 2_000, now - 1_000, now]


def test_u25_an_excluded_time_that_the_clock_skips_takes_no_other_with_it() -> None:
    """02:30 "was" 03:00 on that day, so that hour had no run."""
    given = {"cron": "0 * * * *", "zone": "Europe/Berlin", "exclude": ["30 2 * * *", "0 5 * * *"]}
    times = times_of({"cron": given["cron"], "zone": given["zone"]})
    night = ms(2026, 3, 28, 23), ms(2026, 3, 29, 6)
    every = list(within(times, *night))
    assert ms(2026, 3, 29, 1) in every, "03:00 there"
    assert list(within(times_of(given), *night)) == [t for t in every if t != ms(2026, 3, 29, 3)]


def test_rare_times_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes long to find: for each of 1,500 tries it would hold the master up."""
    looks: list[str] = []

    def next_time(cron: str, zone: str, after_ms: int) -> int:
        looks.append(cron)
        return schedule_times_next(cron, zone, after_ms)

    schedule_times_next = schedule_times.next_time
    monkeypatch.setattr(schedule_times, "next_time", next_time)
    rare = ("0 0 29 2 1", "0 0 29 2 2")
    times = Times(crons=("* * * * *",), zone="UTC", excluded=(*rare, "* 0-11 * * *"))
    noon = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1000)
    assert next_of(times, noon - 12 * 3_600_000 - 1) == noon
    assert [looks.count(one) for one in rare] == [1, 1]


def test_jitter_is_decided_by_name_and_time() -> None:
    """A new master decides as the old one did."""
    times = times_of({"every_ms": HOUR, "jitter_ms": 600_000})
    late = {begins(times, "s", t) - t for t in within(times, 0, 50 * HOUR)}
    assert len(late) > 40
    assert 0 <= min(late) < 100_000
    assert 500_000 < max(late) < 600_000
    assert begins(times, "s", HOUR) == begins(times, "s", HOUR) != begins(times, "t", HOUR)


def test_u25_each_way_to_overlap() -> None:
    """Five times come while the first run lives; then it ends."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        for overlap in OVERLAP:
            await schedules.set({**EVERY, "name": overlap, "overlap": overlap})
        await asyncio.sleep(5 * 60)

        def of(name: str) -> list[int]:
            return [id for nonce, id in runs.by_nonce.items() if f"/{name}/" in nonce]

        assert {name: len(of(name)) for name in OVERLAP} == {
            "allow_all": 5,
            "skip": 1,
            "buffer_one": 1,
            "buffer_all": 1,
            "cancel_other": 1,
            "terminate_other": 5,
        }
        assert {how for how, id in runs.ended if id in of("cancel_other")} == {"cancel"}
        assert [id for how, id in runs.ended if how == "terminate"] == of("terminate_other")[:4]
        told = {one["name"]: one for one in await schedules.all()}
        assert told["skip"]["skipped"] == 4
        assert (told["buffer_one"]["waiting"], told["buffer_one"]["skipped"]) == (1, 3)
        assert told["buffer_all"]["waiting"] == 4
        assert (told["cancel_other"]["waiting"], told["cancel_other"]["skipped"]) == (1, 3)
        # Another master goes on with what waits.
        schedules = master()
        await asyncio.sleep(1)
        times = {}
        for name in ("buffer_one", "buffer_all", "cancel_other"):
            runs.end(*of(name))
            await asyncio.sleep(0.1)
            times[name] = [int(n.rpartition("/")[2]) for n in runs.by_nonce if f"/{name}/" in n]
        first, second = times["buffer_all"]
        assert second - first == 60_000
        assert times["buffer_one"] == [first, second]
        assert times["cancel_other"] == [first, first + 4 * 60_000]

    with_schedules(test)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """buffer_all keeps so many, and counts what it lets go."""
    monkeypatch.setattr(limits, "SCHEDULE_BUFFER_MAX", 3)

    async def test(master: Callable[[], Schedules], _runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "overlap": "buffer_all"})
        await asyncio.sleep(10 * 60)
        (told,) = await schedules.all()
        assert (told["runs"], told["waiting"], told["skipped"]) == (1, 3, 6)

    with_schedules(test)


def test_a_pause_is_kept_and_what_passed_meanwhile_is_none_of_its_times() -> None:
    """A schedule that was paused for a month does not make up for it."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "missed": "all"})
        note = Pause("the bank is closed", "ann", office.lab.clock.now_ms())
        told = await schedules.pause("s", note)
        assert told["paused"]["note"] == "the bank is closed"
        schedules = master()
        await asyncio.sleep(600)
        assert runs.by_nonce == {}
        # Who changes it does not end its pause; who asks for a run gets it.
        assert (await schedules.set({**EVERY, "missed": "all"}))["paused"]["by"] == "ann"
        now = await schedules.trigger("s", key="k")
        assert now["started"] == ["1"]
        assert (await schedules.trigger("s", key="k")) == {"name": "s", "count": 0, "started": []}
        assert (await schedules.resume("s"))["paused"] is None
        await asyncio.sleep(120)
        assert len(runs.by_nonce) == 3
        with pytest.raises(NotFound):
            await schedules.pause("t", note)

    with_schedules(test)


def test_a_range_is_filled_one_after_the_other() -> None:
    """A backfill has each nominal time once, in order."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        await asyncio.sleep(3 * DAY / 1000)
        await schedules.set({"name": "s", "procedure": "x", "every_ms": HOUR})
        now = office.lab.clock.now_ms()
        day = now - now % DAY
        told = await schedules.backfill("s", day - DAY, day, key="k")
        assert (told["count"], len(told["started"])) == (24, 1)
        assert (await schedules.backfill("s", day - DAY, day, key="k"))["count"] == 0
        schedules = master()
        for _ in range(30):
            await asyncio.sleep(1)
            runs.end()
        assert runs.times == list(range(day - DAY, day, HOUR))
        told = await schedules.backfill("s", day - DAY, day, overlap="allow_all")
        assert len(told["started"]) == 24
        for wrong in ((day, day), (now, now + HOUR)):
            with pytest.raises(InvalidArgument):
                await schedules.backfill("s", *wrong)
        await schedules.set(EVERY)
        with pytest.raises(TooLarge, match="1000 times"):
            await schedules.backfill("s", day - DAY, day)

    with_schedules(test)


@pytest.mark.parametrize("overlap", ["allow_all", "skip", "buffer_one"])
def test_a_backfill_holds_up_none_of_the_clock(overlap: str) -> None:
    """What somebody asked for waits in a line of its own, and the clock goes on beside it."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        await asyncio.sleep(DAY / 1000)
        await schedules.set({**EVERY, "overlap": overlap})
        now = office.lab.clock.now_ms()
        begin = now - now % HOUR
        await schedules.backfill("s", begin - 600_000, begin, overlap="buffer_all")
        runs_ms: list[int] = []
        for _ in range(20):
            await asyncio.sleep(30)
            late = [one for one in runs.times if one >= begin and one not in runs_ms]
            runs_ms += late
            if overlap == "allow_all":
                assert len([id for id in runs.live if runs.times[id - 1] < begin]) <= 1
            else:
                assert len(runs.live) <= 1
                runs.end()
        if overlap == "allow_all":
            assert len(runs_ms) == 10, "a run of the clock each minute, though none has ended"
        else:
            assert len(runs_ms) >= 2

    with_schedules(test)


def test_nothing_that_waits_begins_while_it_is_paused() -> None:
    """Each end of a run started the next one that the clock had left, pause or not."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "overlap": "buffer_all"})
        await asyncio.sleep(5 * 60)
        assert len(runs.by_nonce) == 1
        await schedules.pause("s", Pause("stop", "ann", office.lab.clock.now_ms()))
        for _ in range(3):
            runs.end()
            await asyncio.sleep(60)
            schedules = master()
        assert len(runs.by_nonce) == 1
        assert len((await schedules.trigger("s"))["started"]) == 1, "who asks for one gets it"
        runs.end()
        await schedules.resume("s")
        for _ in range(3):
            await asyncio.sleep(1)
            runs.end()
        assert len(runs.by_nonce) == 5

    with_schedules(test)


def test_a_run_beside_does_not_hide_the_one_before() -> None:
    """One is triggered beside a run and ends; the next time comes, and the first one lives."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "overlap": "skip"})
        await asyncio.sleep(90)
        (beside,) = (await schedules.trigger("s", overlap="allow_all"))["started"]
        runs.end(int(beside))
        schedules = master()
        await asyncio.sleep(180)
        assert len(runs.by_nonce) == 2
        await schedules.set({**EVERY, "overlap": "allow_all"})
        await asyncio.sleep(60)
        await schedules.set({**EVERY, "overlap": "skip"})
        assert len(runs.by_nonce) == 3
        await asyncio.sleep(180)
        assert len(runs.by_nonce) == 3, "what it started before it was changed counts, too"

    with_schedules(test)


@pytest.mark.parametrize("missed", ["one", "skip"])
def test_a_jitter_longer_than_the_interval_loses_no_run(missed: str) -> None:
    """A run with a short jitter waits behind one with a long one, and was taken for missed."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        every = {"name": "s", "procedure": "x", "every_ms": 10_000, "jitter_ms": 120_000}
        await schedules.set({**every, "missed": missed})
        await asyncio.sleep(1_800)
        times = runs.times
        assert len(times) >= 167
        assert {b - a for a, b in pairwise(times)} == {10_000}

    with_schedules(test)


def test_a_key_that_makes_too_long_a_name_is_refused() -> None:
    """It was accepted, counted as a run, and never ran."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set(EVERY)
        with pytest.raises(InvalidArgument, match="characters") as caught:
            await schedules.trigger("s", key="k" * 199)
        most = int(caught.value.details["limit"])
        assert (await schedules.all())[0]["runs"] == 0
        assert len((await schedules.trigger("s", key="k" * most))["started"]) == 1
        assert len(next(iter(runs.by_nonce))) == limits.NONCE_CHARS_MAX

    with_schedules(test)


def test_a_schedule_that_could_not_be_removed_is_still_there() -> None:
    """It was gone from the list, and removing it again said that there is none; the next master had
    it again.
    """

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set(EVERY)
        table: Any = schedules._store
        real = table.write

        async def write(_ops: Any) -> int:
            raise UnknownOutcome("perhaps")

        table.write = write
        with pytest.raises(UnknownOutcome):
            await schedules.remove("s")
        table.write = real
        assert len(await schedules.all()) == 1
        await schedules.remove("s")
        assert await schedules.all() == await master().all() == []
        await asyncio.sleep(120)
        assert runs.by_nonce == {}

    with_schedules(test)


def test_so_many_runs_and_no_more() -> None:
    """Those that somebody asks for do not count."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "remaining": 3})
        await schedules.trigger("s")
        await asyncio.sleep(600)
        assert len(runs.by_nonce) == 4
        (told,) = await schedules.all()
        assert told["remaining"] == 0
        with pytest.raises(InvalidArgument, match="remaining"):
            await schedules.set({**EVERY, "remaining": -1})

    with_schedules(test)


def test_what_is_too_old_is_not_caught_up_with() -> None:
    """The catch-up window ends what a long absence owes."""

    async def test(master: Callable[[], Schedules], runs: Runs, _office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "missed": "all", "catch_up_ms": 5 * 60_000})
        await asyncio.sleep(60)
        (task,) = [t for t in asyncio.all_tasks() if "Schedules.run" in repr(t)]
        task.cancel()
        await asyncio.sleep(60 * 60)
        before = len(runs.by_nonce)
        master()
        await asyncio.sleep(1)
        assert len(runs.by_nonce) - before in (5, 6)

    with_schedules(test)


def test_looking_for_times_gives_others_their_turn() -> None:
    """One question for a hundred rare times stopped the node for 25 seconds."""

    async def test(master: Callable[[], Schedules], _runs: Runs, _office: Office) -> None:
        schedules = master()
        rare = {"cron": "* * * * *", "exclude": ["1-59 * * * *", "0 1-23 * * *"]}
        await schedules.set({"name": "s", "procedure": "x", **rare})
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        day = ms(2026, 3, 28)
        told = await schedules.next_times("s", 3, day)
        assert told == [day + (i + 1) * 24 * 3_600_000 for i in range(3)]
        assert turns > 20, "of 4,300 times, a hundred at once"
        with pytest.raises(TooLarge, match="excluded"):
            await schedules.next_times("s", 40, day)
        beside.cancel()

    with_schedules(test)


def test_next_times_are_told() -> None:
    """What is told is what happens."""

    async def test(master: Callable[[], Schedules], _runs: Runs, _office: Office) -> None:
        schedules = master()
        daily = {"cron": "0 2 * * *", "zone": "Europe/Berlin", "end_ms": ms(2026, 3, 30, 23)}
        await schedules.set({"name": "s", "procedure": "x", **daily})
        told = await schedules.next_times("s", 10, ms(2026, 3, 28))
        assert told == [ms(2026, 3, 28, 1), ms(2026, 3, 29, 1), ms(2026, 3, 30, 0)]
        with pytest.raises(InvalidArgument, match="1 to 1000"):
            await schedules.next_times("s", 0)

    with_schedules(test)


def test_u25_ten_thousand_idle_schedules_cost_nothing() -> None:
    """Each second all of them were looked at."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        office.lab.store.table.refuse = lambda *_: None
        for i in range(limits.SCHEDULES_MAX):
            await schedules.set({"name": f"s{i:05}", "procedure": "x", "every_ms": 30 * DAY})
        schedules.looks = 0
        await asyncio.sleep(600)
        assert schedules.looks == 0
        await schedules.set({**EVERY, "name": "s00000"})
        await asyncio.sleep(600)
        assert (schedules.looks, len(runs.by_nonce)) == (10, 10)
        page = await schedules.all()
        assert len(page) == limits.PROCEDURE_PAGE_MAX
        more = await schedules.all(after=page[-1]["name"])
        assert more[0]["name"] == "s01000"

    with_schedules(test)


def test_schedules_of_an_older_version_go_on() -> None:
    """Their rows have another form; what an older master wrote last counts."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        table = TableRows(office.lab.store.table)
        old = ("s", "*/5 * * * *", "UTC", "x", plain_data.encode(None, "", 9), "one", 1, 300_000)
        row = msgspec.msgpack.encode([*old, 0, 0, 7, []])
        await table.write([put(rows.older_schedule("s"), row)])
        schedules = master()
        await asyncio.sleep(301)
        assert len(runs.by_nonce) >= 1
        (told,) = await schedules.all()
        assert told["runs"] >= 8
        assert (await table.get(rows.older_schedule("s")))[0] is None
        await table.write([put(rows.older_schedule("s"), row)])
        (told,) = await master().all()
        assert told["runs"] == 7
        await asyncio.sleep(600)
        assert (await table.get(rows.older_schedule("s")))[0] is None

    with_schedules(test)


@pytest.mark.parametrize("at", range(12))
def test_u25_a_crash_at_any_write_neither_loses_nor_doubles_a_run(at: int) -> None:
    """The master dies before or after each write of a row; another one goes on."""

    async def test(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        await schedules.set({**EVERY, "missed": "all", "overlap": "buffer_all"})
        table: Any = schedules._store
        real, writes = table.write, 0

        async def write(ops: Any) -> int:
            nonlocal writes
            writes += 1
            if writes == 1 + at // 2 and at % 2:
                await real(ops)
            if writes == 1 + at // 2:
                master()
                raise asyncio.CancelledError
            return await real(ops)  # type: ignore[no-any-return]

        table.write = write
        for _ in range(400):
            await asyncio.sleep(1)
            if len(runs.live) > 1:
                raise AssertionError("two at once")
            runs.end()
        assert writes > at // 2
        assert runs.times == sorted(set(runs.times))
        assert {b - a for a, b in zip(runs.times, runs.times[1:], strict=False)} == {60_000}
        assert len(runs.times) >= 6

    with_schedules(test)


def test_u25_schedules_of_a_silent_pool_hold_up_no_others() -> None:
    """They were looked at one after the other: those at the end were late, and that is missed."""

    async def test(master: Callable[[], Schedules], runs: Runs, _: Office) -> None:
        submit = runs.submit

        async def slow(sub: Any) -> int:
            if sub.name == "silent":
                await asyncio.sleep(8)
            return await submit(sub)

        runs.submit = slow  # type: ignore[method-assign]
        schedules = master()
        names = [*(f"a{n}" for n in range(100)), "z"]
        for name in names:
            procedure = "x" if name == "z" else "silent"
            how = {"name": name, "procedure": procedure, "missed": "skip"}
            await schedules.set({**EVERY, **how})
        await asyncio.sleep(10 * 60 + 30)
        told = await schedules.all(limit=200)
        assert {one["name"]: one["runs"] for one in told} == dict.fromkeys(names, 10)

    with_schedules(test)


def test_u25_who_sets_the_same_one_anew_loses_no_time_of_it() -> None:
    """Programs do so when they start: the run of a time that had passed was still to come."""

    async def test(master: Callable[[], Schedules], runs: Runs, _: Office) -> None:
        schedules = master()
        often = {**EVERY, "every_ms": 600_000, "jitter_ms": 300_000}
        await schedules.set(often)
        for _minute in range(120):
            await asyncio.sleep(60)
            await schedules.set({**often, "args": {"n": 1}})
        assert len(runs.times) >= 11
        assert {b - a for a, b in pairwise(runs.times)} == {600_000}

    with_schedules(test)


@procedure("brief", retention_ms=0)
class Brief:
    """Of which nothing is kept."""

    ran: ClassVar[list[int]] = []

    @step(first=True)
    async def only(self, ctx: StepContext) -> Outcome:
        self.ran.append(ctx.scheduled_ms)
        return done()


@pytest.mark.parametrize("asked", [False, True])
def test_u25_a_time_starts_once_though_its_run_is_not_kept(asked: bool) -> None:
    """The master died between a submission and the row; the nonce was all that knew of it."""
    Brief.ran.clear()

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [])
        executor = await office.open(office.executor(Registry([Brief])))
        schedules: Any = executor.schedules
        await schedules.set({"name": "s/t", "procedure": "brief", "every_ms": 600_000})
        real = schedules._write

        async def write(name: str, known: Any, made: Any) -> None:
            if made.runs > known.schedule.runs:
                await asyncio.Event().wait()
            await real(name, known, made)

        schedules._write = write
        if asked:
            loop.create_task(schedules.trigger("s/t", key="k"))
        else:
            await asyncio.sleep(599)
        await asyncio.sleep(60)
        assert len(Brief.ran) == 1
        for stored in await office.lab.store.newest(0, 10):
            await executor.acknowledge(stored.record.id)
        await office.close(executor)
        executor = await office.open(office.executor(Registry([Brief])))
        await asyncio.sleep(60)
        assert len(Brief.ran) == 1
        assert executor.schedules is not None
        assert (await executor.schedules.all())[0]["runs"] == 1
        assert await office.lab.store.newest(0, 10) == [], "it is not needed any more"
        await office.close(executor)

    simloop.run(main, 0)


def test_u27_what_a_schedule_starts_has_its_attributes() -> None:
    """Runs of a schedule could not be found by what they are about; or a schedule was accepted of
    which each run is refused.
    """

    async def test(master: Callable[[], Schedules], runs: Runs, _: Office) -> None:
        schedules = master()
        said = {"customer": "ada", "day": 5}
        shown = await schedules.set({**EVERY, "attributes": said})
        assert shown["attributes"] == said
        await asyncio.sleep(61)
        master()
        await asyncio.sleep(60)
        assert runs.attributes == [said, said]
        for wrong, why in (({"town": "x"}, "declares no"), ({"day": "x"}, "moment"), ([1], "map")):
            with pytest.raises(InvalidArgument, match=why):
                await schedules.set({**EVERY, "attributes": wrong})
        await schedules.set({**EVERY, "procedure": "later", "attributes": {"any": 1}})

    with_schedules(test)


@pytest.mark.parametrize("missed", ["one", "skip", "all"])
def test_times_at_which_nothing_could_be_started_are_not_missed(missed: str) -> None:
    """There was a master all the time, whose submissions had trouble for longer than the few
    seconds behind which a time counts as late: with "skip" none of them ran.
    """

    async def story(master: Callable[[], Schedules], runs: Runs, office: Office) -> None:
        schedules = master()
        trouble = True
        submit = runs.submit

        async def submitted(sub: Any) -> int:
            if trouble:
                raise Unavailable("nobody is there")
            return await submit(sub)

        schedules._submit = submitted
        first = (await schedules.set({**EVERY, "missed": missed}))["next_ms"]
        await asyncio.sleep(3.5 * 60)
        assert not runs.times
        trouble = False
        await asyncio.sleep(2)
        came = [first + 60_000 * n for n in range(len(runs.times))]
        assert runs.times == came
        assert len(came) in (3, 4)
        assert came[-1] <= office.lab.clock.now_ms() < came[-1] + 60_000

    with_schedules(story)
