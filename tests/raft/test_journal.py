"""The journal and its recovery: bytes, bounds and damage."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import LogCorrupt, LogHole, RaftConfig, RaftCounters, records
from raft.journal import Journal, LogBuffer
from raft.memory import MemoryLogDB
from raft.records import CONFIG, DATA, Base, HardState
from raft.rules.membership import Membership, membership
from tests.raft.support import GROUP, Machine, Node, lone_leader

# ---------------------------------------------------------------------------------- bytes


def test_the_stored_bytes_are_what_the_docs_say() -> None:
    """The format on disk is fixed: a change that slips in makes every stored log unreadable."""
    key = records.entry_key(7, 258)
    assert key.hex() == "00000000000000070000000000000102"
    value = records.encode_entry(key, DATA + b"put", 3)
    assert value.hex() == "02b58f9a000000000000000300707574"
    assert records.decode_entry(key, value) == (DATA + b"put", 258, 3)
    hard = records.encode_hard(records.hard_key(7), HardState(5, 2))
    assert records.hard_key(7).hex() == "000000000000000768"
    assert hard[4:].hex() == "00000000000000050000000000000002"
    assert records.encode_hard(records.hard_key(7), HardState(5, None))[12:] == b"\xff" * 8
    base = records.encode_base(records.base_key(7), Base(9, 4, Membership(2, (1, 3), (8,))))
    assert base[4:].hex() == (
        "0000000000000009"
        "0000000000000004"
        "0000000000000002"
        "0002"
        "0000000000000001"
        "0000000000000003"
        "0001"
        "0000000000000008"
    )


@given(st.binary(max_size=40), st.integers(0, 9), st.data())
def test_a_changed_byte_or_a_foreign_key_is_noticed(
    payload: bytes, group: int, data: st.DataObject
) -> None:
    """A value that moved to another key, or lost a bit, must never be applied."""
    key = records.entry_key(group, 5)
    value = bytearray(records.encode_entry(key, DATA + payload, 3))
    with pytest.raises(records.BadRecord):
        records.decode_entry(records.entry_key(group, 6), bytes(value))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(records.BadRecord):
        records.decode_entry(key, bytes(value))
    for cut in range(len(value)):
        with pytest.raises(records.BadRecord):
            records.decode_entry(key, bytes(value[:cut]))


# ---------------------------------------------------------------------------------- in memory


def make_journal(**options: int) -> tuple[Journal, MemoryLogDB, RaftCounters]:
    db, counters = MemoryLogDB(), RaftCounters()
    journal = Journal(
        GROUP,
        Base(0, 0, Membership(0, (1,), ())),
        HardState(0, None),
        [],
        db=db,
        buffer=LogBuffer(db, lambda error: None),
        config=RaftConfig(**options),
        counters=counters,
        on_dirty=lambda: None,
    )
    return journal, db, counters


def test_terms_are_known_without_the_disk() -> None:
    """Every election and every append asks for terms, also of entries that left the memory."""
    journal, db, _ = make_journal(memory_entries_max=4)
    for index in range(1, 101):
        journal.append(DATA, 1 + index // 10)
        journal.trim_memory(index)
    scans = db.scans
    assert [journal.term_at(index) for index in (0, 1, 9, 10, 55, 100)] == [0, 1, 1, 2, 6, 11]
    assert journal.term_at(101) is None
    journal.truncate(56)
    assert (journal.term_at(55), journal.last_term, journal.last_index) == (6, 6, 55)
    journal.compact(30)
    assert journal.term_at(29) is None
    assert journal.term_at(30) == 4
    assert db.scans == scans


def test_f11_memory_is_bounded_and_old_entries_come_from_the_disk() -> None:
    """F11: without the bound a busy group eats the node; without the disk, catch-up would end."""
    journal, _, counters = make_journal(memory_entries_max=100, replay_entries_max=7)
    for index in range(1, 1001):
        journal.append(DATA + b"%d" % index, 1)
        journal.trim_memory(index)
    assert len(journal._recent) <= 101
    assert counters.disk_reads == 0
    assert journal.entries(990, 1000)[0][0] == DATA + b"990"
    assert counters.disk_reads == 0
    read = journal.entries(10, 1000)
    assert [entry[1] for entry in read] == list(range(10, 17)), "one bounded chunk"
    assert counters.disk_reads == 1


def test_f11_large_entries_count_by_their_bytes() -> None:
    """F11: a bound on the number alone would allow gigabytes of large entries."""
    journal, _, _ = make_journal(memory_bytes_max=1000)
    for index in range(1, 50):
        journal.append(DATA + b"x" * 99, 1)
        journal.trim_memory(index)
    assert len(journal._recent) <= 11
    assert journal._recent_bytes == 100 * len(journal._recent)


def test_f11_opening_a_large_log_keeps_no_more_than_the_bound() -> None:
    """F11: a node that loaded more than it has memory for could never start again."""
    node = Node(config=RaftConfig(memory_bytes_max=100_000))
    machine = Machine()
    group = node.lead(machine)
    for number in range(100):
        group.propose(b"%03d" % number + b"x" * 50_000, None)
        node.timers.run(until=lambda: group.applied_index == group.last_index)
    found = Node(db=node.db.crash(), config=node.config)
    tracemalloc.start()
    opened = found.host.open_group(GROUP, Machine(at=machine.at))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert opened.recovery.last_index == group.last_index
    assert peak < 600_000, f"{peak} bytes to open a log of 5 MB"

    again, replayed = Node(db=node.db.crash(), config=node.config), Machine()
    tracemalloc.start()
    again.lead(replayed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert replayed.hash == machine.hash
    assert peak < 600_000 + sum(map(len, replayed.commands)), "the replay reads in bounded pieces"


def test_entries_that_are_not_applied_stay_in_memory() -> None:
    """Applying must not read the disk, however small the bound is."""
    journal, _, counters = make_journal(memory_entries_max=1)
    for _ in range(50):
        journal.append(DATA, 1)
        journal.trim_memory(0)
    assert len(journal.entries(1, 50)) == 50
    assert counters.disk_reads == 0


def test_a_truncation_takes_back_what_a_running_sync_would_confirm() -> None:
    """Rule 3: a sync that began before it must not vouch for entries written after it."""
    journal, _, _ = make_journal()
    for _ in range(5):
        journal.append(DATA, 1)
    journal.sync_begins()
    journal.truncate(3)
    journal.append(DATA, 2)
    journal.append(DATA, 2)
    journal.sync_ended()
    assert journal.synced == 2
    journal.sync_begins()
    journal.sync_ended()
    assert journal.synced == 4


def test_a_vote_written_during_a_sync_waits_for_the_next() -> None:
    """The sync began without it: counting it would make I1 and I7 worthless."""
    journal, _, _ = make_journal()
    journal.set_hard_state(1, 1)
    journal.sync_begins()
    journal.set_hard_state(2, 1)
    journal.sync_ended()
    assert not journal.hard_state_synced
    journal.sync_begins()
    journal.sync_ended()
    assert journal.hard_state_synced


@pytest.mark.parametrize("seed", range(20))
def test_the_journal_equals_a_list(seed: int) -> None:
    """Random appends, truncations and compactions, against the obvious model, across restarts."""
    rng = random.Random(seed)
    journal, db, _ = make_journal(memory_entries_max=6, replay_entries_max=5)
    model: list[tuple[bytes, int, int]] = []
    base, term, voters = 0, 1, 1
    for _ in range(200):
        act = rng.random()
        term += rng.random() < 0.1
        if act < 0.7:
            voters += 1
            config = Membership(0, (voters,), ()).encode()
            command = DATA + rng.randbytes(3) if rng.random() < 0.8 else CONFIG + config
            model.append((command, journal.append(command, term), term))
        elif act < 0.85 and model:
            index = rng.randint(base + 1, base + len(model))
            del model[index - base - 1 :]
            journal.truncate(index)
        elif model:
            index = rng.randint(base + 1, base + len(model))
            del model[: index - base]
            base = index
            journal.compact(index)
        journal.trim_memory(rng.randint(base, base + len(model)))
        assert (journal.base_index, journal.last_index) == (base, base + len(model))
        read: list[tuple[bytes, int, int]] = []
        while len(read) < len(model):
            read += journal.entries(base + 1 + len(read), base + len(model))
        assert read == model
        configs = [entry for entry in model if entry[0][:1] == CONFIG]
        if configs:
            assert journal.memberships.current.index == configs[-1][1]
    journal._buffer.write()
    stored = [v for k, v in db.items().items() if len(k) == 16]
    assert len(stored) == len(model), "the disk holds exactly the log"


# ---------------------------------------------------------------------------------- recovery


def written(count: int) -> tuple[Node, Machine]:
    """A lone voter with its no-op at 1 and `count` commands at 2..count+1, all durable."""
    node, machine, group = lone_leader()
    for number in range(count):
        group.propose(b"%d" % number, number)
    node.timers.run(1)
    return node, machine


def damage(db: MemoryLogDB, index: int) -> None:
    key = records.entry_key(GROUP, index)
    value = bytearray(db.items()[key])
    value[-1] ^= 1
    db.tamper(key, bytes(value))


def test_f2_replay_gives_the_same_state() -> None:
    """F2: a replica that replays to another state has diverged for good."""
    node, machine = written(50)
    again, replayed = node.crash(), Machine()
    group = again.lead(replayed)
    assert replayed.hash == machine.hash
    assert replayed.commands == machine.commands
    assert replayed.acked == [], "tokens belong to the life that proposed"
    assert again.counters.entries_replayed == 51
    assert group.applied_index == 52, "and the no-op of the new term"


@pytest.mark.parametrize("applied", [0, 1, 17, 51])
def test_f2_replay_starts_after_the_applied_index(applied: int) -> None:
    """An entry that is applied twice, or skipped, makes the state wrong silently."""
    node, machine = written(50)
    again = node.crash()
    replayed = Machine(at=machine.entries[applied - 1] if applied else (0, 0))
    again.lead(replayed)
    assert replayed.commands == machine.commands[max(0, applied - 1) :]
    assert again.counters.disk_reads == 0


def test_nothing_is_replayed_before_a_first_sync() -> None:
    """After a kill the log may be in the page cache only: a power loss would still take it."""
    node, _ = written(5)
    again, replayed = Node(db=node.db, sync_s=1.0), Machine()
    again.host.open_group(GROUP, replayed)
    again.timers.run(0.9)
    assert replayed.commands == []
    again.timers.run(2)
    assert len(replayed.commands) == 5


@pytest.mark.parametrize("index", [1, 5, 11])
@pytest.mark.parametrize("applied", [0, 11])
def test_a_damaged_entry_is_refused_wherever_it_is(index: int, applied: int) -> None:
    """Cutting it would drop what was acknowledged: also the last one, which the state machine lost
    with the power, because its disk is not synced.
    """
    node, machine = written(10)
    db = node.db.crash()
    damage(db, index)
    at = machine.entries[applied - 1] if applied else (0, 0)
    with pytest.raises(LogCorrupt, match=rf"group 7, index {index}:.*checksum.*backup") as caught:
        Node(db=db).host.open_group(GROUP, Machine(at=at))
    assert (caught.value.group_id, caught.value.index) == (GROUP, index)


@pytest.mark.parametrize("key", [records.base_key(GROUP), records.hard_key(GROUP)])
def test_a_damaged_record_is_refused(key: bytes) -> None:
    """A forgotten term or vote lets a node vote twice."""
    node, _ = written(1)
    db = node.db.crash()
    value = bytearray(db.items()[key])
    value[7] ^= 4
    db.tamper(key, bytes(value))
    with pytest.raises(LogCorrupt, match=key.hex()):
        Node(db=db).host.open_group(GROUP, Machine())


def test_a_missing_hard_state_is_refused() -> None:
    """Starting again at term 0 would win terms that were won before."""
    node, _ = written(1)
    db = node.db.crash()
    db.tamper(records.hard_key(GROUP), None)
    with pytest.raises(LogCorrupt, match="hard state"):
        Node(db=db).host.open_group(GROUP, Machine())


def test_a_hole_in_the_log_is_refused() -> None:
    """Entries after a hole would be applied to the wrong state."""
    node, _ = written(10)
    db = node.db.crash()
    db.tamper(records.entry_key(GROUP, 6), None)
    with pytest.raises(LogHole, match=r"index 6.*next stored entry is 7"):
        Node(db=db).host.open_group(GROUP, Machine())


def test_a_hole_between_state_and_log_is_refused() -> None:
    """Rule 12: an old state DB under a compacted log cannot be brought forward."""
    node, machine = written(10)
    group = node.host.group(GROUP)
    assert group is not None
    group.compact(8)
    node.timers.run(0.1)
    db = node.db.crash()
    with pytest.raises(LogHole, match="stands at 5, but the log starts after 8"):
        Node(db=db).host.open_group(GROUP, Machine(at=(5, 1)))
    again, replayed = Node(db=db), Machine(at=(8, 1))
    again.lead(replayed)
    assert replayed.commands == machine.commands[7:]


def test_a_lone_log_that_ends_before_its_state_is_refused() -> None:
    """What is applied was durable in the log, so it lost something: perhaps also acknowledged
    entries that the state machine does not have.
    """
    node, _ = written(5)
    with pytest.raises(LogHole, match=r"index 7.*ends before it.*applied up to 40"):
        node.crash().host.open_group(GROUP, Machine(at=(40, 1)))


def announced(index: int, term: int) -> Node:
    """A follower that crashed after it had announced the snapshot (index, term)."""
    node = Node()
    node.host.create_group(GROUP, [1, 2, 3])
    node.timers.run(1.0)
    key = records.announced_key(GROUP)
    batch = node.db.batch()
    config = membership(20, [1, 2, 4])
    batch.put(key, records.encode_base(key, records.Base(index, term, config)))
    node.db.write(batch)
    node.db.make_durable(node.db.unsynced)
    return node.crash()


def test_a_crash_after_installing_a_snapshot_restarts_the_log_there() -> None:
    """Rule 12: the state is durable first; a crash before the log follows would leave a hole. The
    configuration must be the snapshot's, for the entries that carry it are gone.
    """
    again = announced(40, 3)
    group = again.host.open_group(GROUP, Machine(at=(40, 3)))
    assert group.recovery.reset
    assert again.counters.logs_reset == 1
    assert group.voters == (1, 2, 4)
    again.timers.run(1.0)
    third = again.crash()
    found = third.host.open_group(GROUP, Machine(at=(40, 3)))
    assert (found.recovery.first_index, found.recovery.reset) == (41, False)
    assert found.term >= 3
    assert found.voters == (1, 2, 4)


def test_a_crash_before_a_snapshot_was_installed_changes_nothing() -> None:
    """What was only announced is not the state: the log goes on where it was."""
    group = announced(40, 3).host.open_group(GROUP, Machine())
    assert not group.recovery.reset
    assert (group.recovery.first_index, group.voters) == (1, (1, 2, 3))


def test_a_log_that_no_snapshot_explains_is_refused_with_other_voters_too() -> None:
    """It lost entries that it may have acknowledged to a leader, so it must not vote."""
    with pytest.raises(LogHole, match="ends before it"):
        announced(40, 3).host.open_group(GROUP, Machine(at=(41, 3)))


def test_a_lone_log_that_contradicts_its_state_is_refused() -> None:
    """No snapshot explains it, so one of the two databases belongs to somebody else."""
    node, _ = written(5)
    with pytest.raises(LogCorrupt, match=r"index 3.*applied term 9"):
        node.crash().host.open_group(GROUP, Machine(at=(3, 9)))


def test_compaction_survives_a_crash_at_any_batch() -> None:
    """Stock lost 400 of 500 entries in a kill during its compaction."""
    node, machine = written(20)
    group = node.host.group(GROUP)
    assert group is not None
    group.compact(10)
    group.propose(b"after", "after")
    group.compact(15)
    node.timers.run(0.0)
    assert node.db.unsynced > 0
    for kept in range(node.db.unsynced + 1):
        again, replayed = Node(db=node.db.crash(kept)), Machine(at=(15, 1))
        again.lead(replayed)
        assert replayed.commands[:6] == machine.commands[14:20]


def test_f11_steady_state_reads_no_disk() -> None:
    """F11: a disk read per applied entry would halve the throughput."""
    node, machine, group = lone_leader(config=RaftConfig(memory_entries_max=32))
    scans = node.db.scans
    for number in range(500):
        group.propose(b"x" * 10, number)
        if number % 7 == 0:
            node.timers.run(0.002)
        if number % 100 == 0:
            group.compact(group.applied_index)
    node.timers.run(1)
    assert len(machine.acked) == 500
    assert node.counters.disk_reads == 0
    assert node.db.scans == scans


def test_groups_do_not_see_each_others_records() -> None:
    """One LogDB for all groups: a range that is off by one would mix their logs."""
    node = Node()
    machines: dict[int, Machine] = {n: Machine() for n in (0, 1, 2, 255, 256)}
    for n, machine in machines.items():
        node.lead(machine, n).propose(b"%d" % n, n)
    node.timers.run(1)
    node.host.drop_group(1)
    node.timers.run(1)
    again = node.crash()
    assert again.host.stored_groups() == [0, 2, 255, 256]
    for n in (0, 2, 255, 256):
        replayed = Machine()
        again.lead(replayed, n)
        assert replayed.commands == [b"%d" % n]


def test_a_fault_of_the_disk_while_reading_names_the_entry() -> None:
    """An operator must learn which group and index is damaged, also at run time."""
    journal, db, _ = make_journal(memory_entries_max=4)
    for index in range(1, 51):
        journal.append(DATA + b"x", 1)
        journal.trim_memory(index)
    journal._buffer.write()
    damage(db, 12)
    with pytest.raises(LogCorrupt, match="index 12"):
        journal.entries(10, 20)
    db.tamper(records.entry_key(GROUP, 12), None)
    with pytest.raises(LogCorrupt, match="index 12"):
        journal.entries(10, 20)


def test_recovery_reports_what_it_found() -> None:
    """The node's log and metrics show it, and the partitions bound their logs by it."""
    node, _ = written(4)
    found: Any = node.crash().host.open_group(GROUP, Machine(at=(2, 1))).recovery
    assert (found.first_index, found.last_index, found.applied_index) == (1, 5, 2)
    assert (found.stored_bytes, found.reset) == (1 + 4 * 2, False), "with their kind bytes"
