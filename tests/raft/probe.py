"""One scenario, two replicas: the stock pysyncobj class and ours, behind one driver.

A probe drives a replica with messages as a network could deliver them, and returns what it saw. The
tests then assert that the stock class shows the defect and that ours does not.
"""

from __future__ import annotations

from typing import Any, Protocol

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node as StockNode
from pysyncobj.transport import Transport

from raft import RaftConfig
from raft.records import DATA, Entry
from tests.raft.support import GROUP, Machine, Node, Sent

ME = 1
Message = dict[str, Any]


class Replica(Protocol):
    """What a probe may do to either class. Peers are named by their numbers; ME is the replica."""

    first: int  # index of the first entry that a leader could append

    def deliver(self, peer: int, message: Message) -> None: ...
    def sent(self, kind: str) -> list[tuple[int, Message]]: ...
    def forget_sent(self) -> None: ...
    def elect(self, votes: list[int]) -> None: ...
    def is_leader(self) -> bool: ...
    def term(self) -> int: ...
    def start_at_term(self, term: int) -> None: ...
    def fill(self, term: int, count: int, size: int = 1) -> None: ...
    def propose(self, command: bytes) -> None: ...
    def last(self) -> int: ...
    def commit(self) -> int: ...
    def applied(self) -> list[bytes]: ...
    def next_index(self, peer: int) -> int: ...
    def send_appends(self) -> None: ...


class _FakeTransport(Transport):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.out: list[tuple[int, Message]] = []

    def send(self, node: StockNode, message: Message) -> bool:
        self.out.append((node.id, dict(message)))
        return True

    def addNode(self, node: StockNode) -> None:
        pass

    def dropNode(self, node: StockNode) -> None:
        pass


class _StockObj(SyncObj):  # type: ignore[misc]
    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        if command[:1] == DATA:
            self.__dict__.setdefault("applied_commands", []).append(command[1:])


class Stock:
    """The class as shipped, with default settings but for `options`."""

    first = 2

    def __init__(self, peers: list[int], **options: Any) -> None:
        self.nodes = {n: StockNode(n) for n in range(10)}
        self.transport = _FakeTransport()
        conf = SyncObjConf(autoTick=False, **options)
        others = [self.nodes[n] for n in peers]
        self.obj = _StockObj(self.nodes[ME], others, conf, transport=self.transport)
        for node in others:
            self.transport._onNodeConnected(node)
        self.results: list[int] = []
        self.obj.doTick(0)

    def deliver(self, peer: int, message: Message) -> None:
        self.transport._onMessageReceived(self.nodes[peer], message)
        self.obj.doTick(0)

    def sent(self, kind: str) -> list[tuple[int, Message]]:
        return [(peer, m) for peer, m in self.transport.out if m["type"] == kind]

    def forget_sent(self) -> None:
        self.transport.out.clear()

    def elect(self, votes: list[int]) -> None:
        self.obj._SyncObj__raftElectionDeadline = 0
        self.obj.doTick(0)
        for peer in votes:
            self.deliver(peer, {"type": "response_vote", "term": self.obj.raftCurrentTerm})

    def is_leader(self) -> bool:
        return bool(self.obj._isLeader())

    def term(self) -> int:
        return int(self.obj.raftCurrentTerm)

    def start_at_term(self, term: int) -> None:
        self.obj._SyncObj__setCurrentTerm(term, None)

    def fill(self, term: int, count: int, size: int = 1) -> None:
        for _ in range(count):
            self.obj._SyncObj__raftLog.add(DATA + b"v" * size, self.last() + 1, term)

    def propose(self, command: bytes) -> None:
        self.obj._applyCommand(DATA + command, lambda _result, code: self.results.append(code))
        self.obj.doTick(0)

    def last(self) -> int:
        return int(self.obj._SyncObj__raftLog[-1][1])

    def commit(self) -> int:
        return int(self.obj.raftCommitIndex)

    def applied(self) -> list[bytes]:
        return list(self.obj.__dict__.get("applied_commands", []))

    def next_index(self, peer: int) -> int:
        return int(self.obj._SyncObj__raftNextIndex[self.nodes[peer]])

    def send_appends(self) -> None:
        self.obj._SyncObj__sendAppendEntries()


class Ours:
    """A replica of ours on a host with fakes; every sync ends at once unless `sync_s` says more."""

    first = 1

    def __init__(self, peers: list[int], sync_s: float = 0.0, **options: Any) -> None:
        self.machine, self.wire = Machine(), Sent()
        self.node = Node(ME, sync_s=sync_s, transport=self.wire, config=RaftConfig(**options))
        self.node.host.create_group(GROUP, [ME, *peers])
        self.group = self.node.host.open_group(GROUP, self.machine)
        self.core = self.group._core
        self.settle()

    def settle(self) -> None:
        self.node.timers.run(0.0)
        if self.node.fatal:
            raise self.node.fatal[0]

    def deliver(self, peer: int, message: Message) -> None:
        if message["type"] == "next_node_idx":
            message = {"term": self.core.term, **message}
        self.node.host.receive(peer, GROUP, dict(message))
        self.settle()

    def sent(self, kind: str) -> list[tuple[int, Message]]:
        return [(peer, m) for peer, m in self.wire.messages if m["type"] == kind]

    def forget_sent(self) -> None:
        self.wire.messages.clear()

    def elect(self, votes: list[int]) -> None:
        """Every other voter answers the pre-vote; then the votes arrive."""
        self.forget_sent()
        assert self.node.timers.run(until=lambda: bool(self.sent("pre_vote")))
        for peer, question in self.sent("pre_vote"):
            if not self.sent("request_vote"):
                answer = {"term": question["term"], "round": question["round"]}
                self.deliver(peer, {"type": "pre_vote_ok", **answer})
        for peer in votes:
            self.deliver(peer, {"type": "response_vote", "term": self.core.term})

    def elect_slowly(self, votes: list[int]) -> None:
        """`elect` when syncs take time: the vote requests leave only after theirs."""
        assert self.node.timers.run(until=lambda: bool(self.sent("pre_vote")))
        for peer, question in self.sent("pre_vote")[:1]:
            answer = {"term": question["term"], "round": question["round"]}
            self.deliver(peer, {"type": "pre_vote_ok", **answer})
        assert self.node.timers.run(1.0, until=lambda: bool(self.sent("request_vote")))
        for peer in votes:
            self.deliver(peer, {"type": "response_vote", "term": self.core.term})

    def is_leader(self) -> bool:
        return self.core.raft_leader

    def term(self) -> int:
        return self.core.term

    def start_at_term(self, term: int) -> None:
        self.deliver(2, {"type": "stale", "term": term})

    def fill(self, term: int, count: int, size: int = 1) -> None:
        for _ in range(count):
            self.core.journal.append(DATA + b"v" * size, term)
        self.settle()

    def propose(self, command: bytes) -> None:
        """Into the log as the leader does, even before it may serve."""
        self.core.journal.append(DATA + command, self.core.term)
        self.core.replicate()
        self.settle()

    def last(self) -> int:
        return self.core.journal.last_index

    def commit(self) -> int:
        return self.core.commit_index

    def applied(self) -> list[bytes]:
        return self.machine.commands

    def next_index(self, peer: int) -> int:
        return next(n for node, n in self.core._SyncObj__raftNextIndex.items() if node.id == peer)

    def send_appends(self) -> None:
        self.core.confirm_leadership()


def append_entries(
    term: int, prev: int, prev_term: int, entries: list[Entry], commit: int
) -> Message:
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit,
        "entries": entries,
        "prevLogIdx": prev,
        "prevLogTerm": prev_term,
    }


def entries(first: int, last: int, term: int, word: bytes = b"x") -> list[Entry]:
    return [(DATA + word + b"%d" % index, index, term) for index in range(first, last + 1)]


def success(next_index: int) -> Message:
    return {
        "type": "next_node_idx",
        "next_node_idx": next_index,
        "reset": False,
        "success": True,
    }
