"""The host: one sync for all groups, the order at its end, fail-stop, promises of a lone voter."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from functools import partial
from typing import NoReturn

import pysyncobj.pickle
import pysyncobj.syncobj
import pytest

from raft import (
    ApplyFailed,
    BadConfig,
    EntryTooLarge,
    LibraryMismatch,
    NotLeader,
    ProposalsFull,
    RaftConfig,
    Stopped,
    SyncFailed,
    UnknownGroup,
    pinned,
)
from raft.replica import Replica
from tests.raft.support import GROUP, Machine, Node, lone_leader


def test_proposals_are_applied_in_order_with_their_tokens() -> None:
    """Without it nothing works: every acknowledgement follows its command, in order."""
    node, machine, group = lone_leader()
    indexes = [group.propose(b"%d" % n, f"token {n}") for n in range(5)]
    assert machine.acked == [], "acknowledged before a sync"
    node.timers.run(0.1)
    assert machine.acked == [f"token {n}" for n in range(5)]
    assert machine.commands == [b"0", b"1", b"2", b"3", b"4"]
    assert indexes == [2, 3, 4, 5, 6], "index 1 is the no-op of the term"
    assert (group.applied_index, group.commit_index, group.last_index) == (6, 6, 6)
    assert node.fatal == []


def test_nothing_is_acknowledged_before_its_sync_ends() -> None:
    """An early acknowledgement would be lost with the power."""
    node, machine, group = lone_leader(sync_s=1.0)
    group.propose(b"x", "x")
    node.timers.run(0.99)
    assert machine.acked == []
    node.timers.run(0.02)
    assert machine.acked == ["x"]


def test_ready_is_false_only_while_a_sync_with_our_entry_runs() -> None:
    """Callers seal their batch by it: always true would end coalescing, always false the writes."""
    node = Node()
    first, second = node.lead(Machine(), 1), node.lead(Machine(), 2)
    assert first.ready()
    first.propose(b"a", "a")
    assert first.ready(), "the sync has not begun, so another proposal would join it"
    assert node.timers.run(until=lambda: node.syncer.running)
    assert not first.ready()
    assert second.ready(), "a sync without its entries does not concern the second group"
    node.timers.run(0.1)
    assert first.ready()


def test_a_state_machine_may_propose_from_apply_and_the_next_sync_starts_at_once() -> None:
    """Rule 7 of the hot path: apply seals the next batch, and the disk must not idle meanwhile."""
    node, machine, group = lone_leader(sync_s=0.010)

    def chain(index: int, command: bytes) -> None:
        if int(command) < 10:
            group.propose(b"%d" % (int(command) + 1), int(command) + 1)

    machine.on_apply = chain
    began_s = node.timers.now_s
    group.propose(b"1", 1)
    assert node.timers.run(until=lambda: len(machine.acked) == 10)
    assert machine.acked == list(range(1, 11))
    assert node.timers.now_s - began_s == pytest.approx(0.100), "ten syncs without a pause"


def test_the_next_sync_starts_before_deferred_replies_and_after_the_hooks() -> None:
    """Replies written before the kick would leave the disk idle; hooks after it would miss it."""
    node, machine, group = lone_leader()
    order: list[str] = []

    def applied(index: int, command: bytes) -> None:
        order.append(f"apply {command.decode()}")
        node.host.defer(lambda: order.append(f"reply, syncing {node.syncer.running}"))

    def hook() -> None:
        order.append(f"hook, syncing {node.syncer.running}")
        if len(order) < 4:
            group.propose(b"second", "second")

    machine.on_apply = applied
    remove = node.host.on_synced(hook)
    group.propose(b"first", "first")
    node.timers.run(until=lambda: len(order) >= 3)
    assert order == ["apply first", "hook, syncing False", "reply, syncing True"]
    node.timers.run(0.1)
    assert order[3:] == ["apply second", "hook, syncing False", "reply, syncing False"]
    remove()
    group.propose(b"third", "third")
    node.timers.run(0.1)
    assert len(order) == 8, "the removed hook was called"


def test_a_caller_may_kick_from_apply() -> None:
    """A state machine that must reply inside apply can start the next sync first."""
    node, machine, group = lone_leader()
    states: list[bool] = []

    def applied(index: int, command: bytes) -> None:
        if command == b"a":
            group.propose(b"b", "b")
            node.host.kick()
            states.append(node.syncer.running)

    machine.on_apply = applied
    group.propose(b"a", "a")
    node.timers.run(0.1)
    assert states == [True]
    assert machine.acked == ["a", "b"]


def test_a_syncer_that_is_done_inside_start_does_not_recurse() -> None:
    """A fast syncer must not turn a stream of proposals into a stack overflow."""
    node, machine, group = lone_leader()
    node.syncer.start = lambda done: (node.db.make_durable(node.db.unsynced), done(None))[1]  # type: ignore[method-assign,func-returns-value]

    def chain(index: int, command: bytes) -> None:
        if index < 3000:
            group.propose(b"x", index)

    machine.on_apply = chain
    group.propose(b"x", 0)
    node.timers.run(1)
    assert group.applied_index == 3000
    assert node.fatal == []


def test_f7_a_hundred_groups_share_the_syncs_of_one() -> None:
    """F7: with a sync per group, a node would serve a hundredth of the writes per group."""

    def chain(group: Replica, index: int, _command: bytes) -> None:
        if index < 50:
            group.propose(b"x", index + 1)

    def syncs(groups: int) -> int:
        node = Node()
        machines = [Machine() for _ in range(groups)]
        members = [node.open(machine, 100 + n) for n, machine in enumerate(machines)]
        assert node.timers.run(until=lambda: all(group.leader for group in members))
        for machine, group in zip(machines, members, strict=True):
            machine.on_apply = partial(chain, group)
            group.propose(b"x", 1)
        assert node.timers.run(until=lambda: all(len(m.acked) == 49 for m in machines))
        return node.counters.syncs

    alone, hundred = syncs(1), syncs(100)
    assert hundred <= alone + 2, f"{hundred} syncs for 100 groups, {alone} for one"


def test_f7_proposals_at_different_moments_merge_behind_the_running_sync() -> None:
    """F7 under load: what arrives during a sync shares the next one, whatever group it is of."""
    node = Node(sync_s=0.010)
    machines = {n: Machine() for n in range(50)}
    groups = [node.open(machine, n) for n, machine in machines.items()]
    assert node.timers.run(until=lambda: all(group.leader for group in groups))
    before = node.counters.syncs
    for n, group in enumerate(groups):
        node.timers.call_later(0.001 + n * 0.0001, group.propose, b"x", n)
    node.timers.run(1)
    assert all(machine.acked for machine in machines.values())
    assert node.counters.syncs - before == 2


def test_a_failed_sync_stops_everything_for_good() -> None:
    """After a failed fsync the cache may lie: an acknowledgement by a later sync could be false."""
    node = Node()
    machines = [Machine(), Machine()]
    groups = [node.lead(machine, n) for n, machine in enumerate(machines)]
    groups[0].propose(b"lost", "lost")
    groups[1].propose(b"too", "too")
    node.syncer.fail_with = OSError(5, "input/output error")
    node.timers.run(1)
    assert [type(error) for error in node.fatal] == [SyncFailed]
    assert isinstance(node.fatal[0].__cause__, OSError)
    node.syncer.fail_with = None
    node.timers.run(5)
    for machine, group, token in zip(machines, groups, ["lost", "too"], strict=True):
        assert machine.acked == []
        assert machine.unknown == [token]
        assert machine.roles[-1][0] is False
        assert not group.leader
        assert not group.ready()
        assert not group.can_serve_reads()
        with pytest.raises(Stopped, match="restart the node"):
            group.propose(b"x", "x")
    with pytest.raises(Stopped):
        node.host.create_group(99, [1])
    assert len(node.fatal) == 1


@pytest.mark.parametrize("call", ["write", "start"])
def test_a_log_that_cannot_be_written_stops_everything(call: str) -> None:
    """A refused batch is lost: the next sync would acknowledge entries that no disk has."""
    node, machine, group = lone_leader()

    def refuse(*_args: object) -> NoReturn:
        raise OSError(28, "no space left on device")

    setattr(node.db if call == "write" else node.syncer, call, refuse)
    group.propose(b"x", "x")
    node.timers.run(1)
    assert [type(error) for error in node.fatal] == [SyncFailed]
    assert machine.acked == []
    assert machine.unknown == ["x"]
    assert not group.leader


def test_a_callback_that_raises_ends_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    """What waits for the same sync is told, and the log goes on: one bug must not stop a node."""
    node, machine, group = lone_leader()
    told: list[str] = []

    def explode() -> NoReturn:
        raise ZeroDivisionError

    remove = node.host.on_synced(explode)
    node.host.barrier(explode)
    node.host.barrier(lambda: told.append("barrier"))
    node.host.defer(explode)
    node.host.defer(lambda: told.append("deferred"))
    group.propose(b"x", "x")
    group.propose(b"y", "y")
    node.timers.run(1)
    assert sorted(told) == ["barrier", "deferred"]
    assert (machine.acked, node.fatal) == (["x", "y"], [])
    assert node.host.counters.callback_errors >= 3
    assert "ZeroDivisionError" in caplog.text
    remove()
    group.propose(b"z", "z")
    node.timers.run(1)
    assert machine.acked == ["x", "y", "z"]


def test_a_state_machine_that_raises_stops_its_replica_only() -> None:
    """Going on after a failed apply would let replicas differ; the other groups are innocent."""
    node = Node()
    bad, good = Machine(), Machine()
    group, other = node.lead(bad, 1), node.lead(good, 2)

    def explode(index: int, command: bytes) -> None:
        raise ZeroDivisionError

    bad.on_apply = explode
    group.propose(b"boom", "boom")
    group.propose(b"later", "later")
    other.propose(b"fine", "fine")
    node.timers.run(1)
    assert [type(error) for error in node.fatal] == [ApplyFailed]
    assert "entry 2" in str(node.fatal[0])
    assert bad.acked == []
    assert set(bad.unknown) == {"later", "boom"}
    assert group.applied_index == 1
    assert good.acked == ["fine"]
    with pytest.raises(Stopped):
        group.propose(b"x", "x")


def test_close_answers_waiting_proposals_as_unknown() -> None:
    """A closed node must not leave callers waiting, nor claim what it does not know."""
    node, machine, group = lone_leader()
    group.propose(b"x", "x")
    node.host.close()
    node.timers.run(1)
    assert machine.acked == []
    assert machine.unknown == ["x"]
    assert machine.roles[-1][0] is False


def test_refused_proposals_leave_no_trace() -> None:
    """A caller that got an error may retry: nothing of the refused command may be executed."""
    node = Node(config=RaftConfig(entry_bytes_max=100, proposals_max=2))
    machine = Machine()
    group = node.open(machine)
    with pytest.raises(NotLeader):
        group.propose(b"early", "early")
    assert node.timers.run(until=lambda: group.leader)
    with pytest.raises(EntryTooLarge, match="101 bytes exceeds entry_bytes_max = 100"):
        group.propose(b"x" * 101, "long")
    group.propose(b"x" * 100, "fits")
    group.propose(b"a", "a")
    with pytest.raises(ProposalsFull):
        group.propose(b"b", "b")
    node.timers.run(1)
    assert machine.acked == ["fits", "a"]
    assert group.last_index == 3


def test_reads_wait_for_an_entry_of_the_own_term() -> None:
    """Rule 11: before it, a new leader may not know what was committed."""
    node = Node()
    machine = Machine()
    group = node.open(machine)
    answers: list[int | None] = []
    group.read_barrier(answers.append)
    assert not group.can_serve_reads()
    assert node.timers.run(until=lambda: group.leader)
    assert group.can_serve_reads()
    group.read_barrier(answers.append)
    assert answers == [None, 1]


def test_create_is_idempotent_and_stored_groups_lists_them() -> None:
    """A procedure step that runs twice must not reset a group that already has data."""
    node, _machine, group = lone_leader()
    group.propose(b"kept", "kept")
    node.timers.run(0.1)
    node.host.create_group(GROUP, [1, 2, 3])
    node.host.create_group(3, [1])
    assert node.host.stored_groups() == [3, GROUP]
    again = node.crash()
    assert again.host.stored_groups() == [GROUP], "not synced yet, so a crash may forget group 3"
    replayed = Machine()
    again.lead(replayed)
    assert replayed.commands == [b"kept"]


def test_drop_group_removes_it_durably() -> None:
    """A dropped replica that comes back after a restart would vote with an empty log."""
    node, machine, group = lone_leader()
    done: list[bool] = []
    group.propose(b"x", "x")
    node.host.drop_group(GROUP)
    node.host.barrier(lambda: done.append(True))
    assert machine.unknown == ["x"]
    assert node.timers.run(until=lambda: bool(done))
    assert node.db.crash().items() == {}
    with pytest.raises(UnknownGroup):
        node.host.open_group(GROUP, Machine())
    group.compact(1)
    node.timers.run(0.1)
    assert node.db.items() == {}, "a stopped group wrote"


def test_a_group_may_drop_itself_while_applying() -> None:
    """A merge ends in the apply of the absorbed group: it must not go on with a dropped log."""
    node, machine, group = lone_leader()
    machine.on_apply = lambda index, command: node.host.drop_group(GROUP)
    group.propose(b"end", "end")
    group.propose(b"never", "never")
    node.timers.run(1)
    assert machine.commands == [b"end"]
    assert node.fatal == []
    assert node.db.items() == {}


def test_barrier_waits_for_what_was_written_before_it() -> None:
    """A caller that trusts a barrier too early loses what it believes to be durable."""
    node = Node(sync_s=0.5)
    called: list[float] = []
    node.host.barrier(lambda: called.append(node.timers.now_s))
    node.timers.run(0.1)
    assert called == [0.0], "nothing to wait for"
    node.host.create_group(GROUP, [1])
    node.host.barrier(lambda: called.append(node.timers.now_s))
    node.timers.run(5)
    assert called[1] == pytest.approx(0.6)


def test_bad_arguments_are_refused_with_a_reason() -> None:
    """A wrong setting must fail at the call that has it, not in an election next week."""
    node = Node()
    with pytest.raises(BadConfig, match="group id"):
        node.host.create_group(-1, [1])
    with pytest.raises(BadConfig, match="repeat"):
        node.host.create_group(1, [1, 2], [2])
    with pytest.raises(BadConfig, match="lease_ms"):
        RaftConfig(lease_ms=1000)
    node.open(Machine())
    with pytest.raises(BadConfig, match="open already"):
        node.host.open_group(GROUP, Machine())


def test_compact_refuses_entries_that_are_not_applied() -> None:
    """Forgetting them would leave a state machine that can never catch up."""
    node, _machine, group = lone_leader()
    group.propose(b"x", "x")
    with pytest.raises(BadConfig, match="only 1 are applied"):
        group.compact(2)
    node.timers.run(0.1)
    group.compact(2)
    assert group.last_index == 2


def test_a_lone_voter_sets_no_timers_once_it_leads() -> None:
    """A thousand idle groups must cost nothing: no heartbeat, no election timer."""
    node, _machine, group = lone_leader()
    node.timers.run(5)
    writes, term = node.db.writes, group.term
    assert group.next_deadline_s() is None
    node.timers.run(60)
    assert (node.db.writes, group.term) == (writes, term)


def test_a_slow_disk_does_not_make_a_lone_voter_start_over() -> None:
    """With a sync longer than the election timeout it would raise its term for ever."""
    node = Node(sync_s=5.0)
    machine = Machine()
    group = node.open(machine)
    assert node.timers.run(30, until=lambda: group.leader)
    assert group.term == 1


def test_no_pickle_is_ever_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library pickles commands and messages: unpickling bytes of the network runs code."""

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError("pickle reached")

    for module in (pickle, pysyncobj.pickle):
        for name in ("loads", "dumps", "load", "dump"):
            monkeypatch.setattr(module, name, refuse, raising=False)
    node, machine, group = lone_leader()
    group.propose(b"x", "x")
    node.timers.run(0.1)
    group.compact(2)
    node.timers.run(0.1)
    again = node.crash()
    machine = Machine(at=(1, 1))
    machine.at = (2, 1)
    again.lead(machine)
    assert again.fatal == []


def test_the_private_copy_leaves_the_installed_library_alone() -> None:
    """Another user of pysyncobj in this process must keep its clock, journal and pickle."""
    assert pysyncobj.syncobj is not pinned.core
    assert pysyncobj.syncobj.SyncObj is not pinned.SyncObj
    assert pysyncobj.syncobj.pickle.__name__ == "pysyncobj.pickle"


def test_another_source_of_the_library_is_refused() -> None:
    """Private methods are overridden: with any other source these overrides mean something else."""
    with pytest.raises(LibraryMismatch, match=r"Install exactly pysyncobj==0\.3\.17"):
        pinned.check_source(b"import os", "0.3.18")


def test_importing_and_opening_starts_no_thread() -> None:
    """The stock class starts a thread per object; a node has a thousand groups."""
    before = threading.active_count()
    lone_leader()
    assert threading.active_count() == before


def test_the_socket_module_stays_as_it_was() -> None:
    """pysyncobj puts a function for Windows in place of `socket.inet_ntop`: listing the connections
    of a process that had imported raft failed, as does all that reads IPv6 addresses.
    """
    program = (
        "import socket; before = socket.inet_ntop, socket.inet_pton; import raft.pinned, sys; "
        "assert 'pysyncobj.win_inet_pton' in sys.modules, 'nothing to guard against any more'; "
        "assert (socket.inet_ntop, socket.inet_pton) == before; "
        "print(socket.inet_ntop(socket.AF_INET6, bytes(15) + bytes([1])))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("::1\n", "")
