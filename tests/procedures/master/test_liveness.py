"""Who is alive, as the master's own rules have it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from procedures.master.map.liveness import Health, Liveness

SUSPECT, DEAD, STEP = 4_000.0, 10_000.0, 2_000.0
BOOT, OTHER = b"process1", b"process2"


def _view(now: float = 0.0) -> Liveness:
    return Liveness(now, suspect_ms=SUSPECT, dead_ms=DEAD, step_ms_max=STEP)


def _listen(view: Liveness, start: float, ms: float) -> float:
    """The master is awake for so long and hears nothing."""
    now = start
    while now < start + ms:
        now += 1_000
        view.tick(now)
    return now


def test_f6_silence_makes_a_node_suspect_then_dead_and_a_beat_alive_again() -> None:
    """One that is dead too early loses its replicas for nothing; too late, nothing is rebuilt."""
    view = _view()
    assert view.heard(1, BOOT, 1, 0.0)
    assert view.health(1) is Health.ALIVE
    now = _listen(view, 0.0, SUSPECT - 1_000)
    assert view.health(1) is Health.ALIVE
    now = _listen(view, now, 1_000)
    assert view.health(1) is Health.SUSPECT
    now = _listen(view, now, DEAD - SUSPECT - 1_000)
    assert view.health(1) is Health.SUSPECT
    now = _listen(view, now, 1_000)
    assert view.health(1) is Health.DEAD
    assert view.heard(1, BOOT, 2, now)
    assert view.health(1) is Health.ALIVE


def test_f6_a_master_that_was_paused_finds_nobody_dead() -> None:
    """A process that was stopped for an hour would order every node's replicas to be rebuilt."""
    view = _view()
    view.heard(1, BOOT, 1, 0.0)
    view.tick(3_600_000.0)
    assert view.health(1) is Health.ALIVE


def test_f6_a_new_master_gives_everybody_the_whole_time() -> None:
    """A failover must not declare nodes dead that simply have not called the new master yet."""
    view = _view(now=5_000_000.0)
    assert view.health(7) is Health.ALIVE
    assert not view.ever_heard(7)
    _listen(view, 5_000_000.0, DEAD)
    assert view.health(7) is Health.DEAD, "one that never calls is dead in the end"


def test_a4_an_overtaken_beat_is_not_taken() -> None:
    """An old picture would be laid over a newer one."""
    view = _view()
    assert view.heard(1, BOOT, 5, 0.0)
    assert not view.heard(1, BOOT, 4, 1.0)
    assert not view.heard(1, BOOT, 5, 1.0)
    assert view.heard(1, OTHER, 1, 2.0), "a process that was started anew counts from 1"


def test_a4_nodes_that_left_are_forgotten() -> None:
    """A picture that keeps every node that ever was grows without bound."""
    view = _view()
    view.heard(1, BOOT, 1, 0.0)
    view.heard(2, BOOT, 1, 0.0)
    view.keep([2])
    assert not view.ever_heard(1)
    assert view.ever_heard(2)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), max_size=60))
def test_f6_a_node_is_never_dead_while_it_was_heard_within_the_time(
    steps: list[tuple[int, bool]],
) -> None:
    """Whatever pauses the master makes, a beat less than dead_ms ago means: not dead."""
    view, now, last = _view(), 0.0, 0.0
    for pause, beats in steps:
        now += pause
        view.tick(now)
        if beats:
            view.heard(1, BOOT, int(now) + 1, now)
            last = now
        if now - last < DEAD:
            assert view.health(1) is not Health.DEAD
