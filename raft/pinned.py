"""A private, disarmed copy of pysyncobj 0.3.17's consensus module, and what it sees of us.

The module is loaded a second time under a name of its own, so that nothing here changes a pysyncobj
that the same process uses for something else. In the copy
  * time and randomness come from whoever is bound (`bind`), since the library reads module globals;
  * the journal is the object that is handed in; the poller waits for nothing; no DNS, no threads,
    no sockets;
  * `pickle` and the file serializer raise: nothing of ours may ever reach them.

The source is pinned by its hash: `raft/group.py` overrides private methods, so any other text is a
different program.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from raft.api import Rng
from raft.errors import InvariantBroken, LibraryMismatch
from raft.journal import Journal
from raft.records import NOOP, Entry

VERSION = "0.3.17"
SOURCE_SHA256 = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"


def check_source(source: bytes, version: str) -> None:
    """Raises LibraryMismatch unless `source` is the text that the hardening was proved with."""
    found = hashlib.sha256(source).hexdigest()
    if found != SOURCE_SHA256:
        raise LibraryMismatch(
            f"pysyncobj/syncobj.py (version {version}) has SHA-256 {found}, but raft is "
            f"proved only with {VERSION}, {SOURCE_SHA256}. Install exactly pysyncobj=={VERSION}; "
            "to move to another version, run the probes tests/raft/test_p*.py against it first"
        )


def _forbidden(what: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError(f"pysyncobj reached {what}, which raft never uses")

    return refuse


class _OperatingSystem:
    """What the library believes to be time and chance. One event loop, so one binding at a time
    suffices.
    """

    monotonic: Callable[[], float] = staticmethod(_forbidden("an unbound clock"))
    random: Callable[[], float] = staticmethod(_forbidden("an unbound random generator"))


def bind(monotonic: Callable[[], float], rng: Rng) -> None:
    """Called at every door into a group: hosts of one process (a simulation) have clocks of their
    own.
    """
    _OperatingSystem.monotonic = monotonic
    _OperatingSystem.random = rng.random


@contextmanager
def _socket_module_kept() -> Iterator[None]:
    """Importing the package replaces `socket.inet_ntop`, on every system, by a function that is for
    Windows: whoever else reads addresses in this process would fail (psutil, when it lists
    connections). The module is taken by name, since nothing here may use sockets.
    """
    socket: Any = importlib.import_module("socket")
    pton, ntop = socket.inet_pton, socket.inet_ntop
    try:
        yield
    finally:
        socket.inet_pton, socket.inet_ntop = pton, ntop


def _load() -> ModuleType:
    """The copy. `find_spec` imports the package itself on the way."""
    spec = importlib.util.find_spec("pysyncobj.syncobj")
    if spec is None or spec.origin is None:
        raise LibraryMismatch(f"pysyncobj is not installed; install pysyncobj=={VERSION}")
    with open(spec.origin, "rb") as file:
        source = file.read()
    check_source(source, importlib.metadata.version("pysyncobj"))
    own_spec = importlib.util.spec_from_file_location("pysyncobj._kvorum_core", spec.origin)
    assert own_spec is not None
    module = importlib.util.module_from_spec(own_spec)
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def _disarm(module: Any) -> None:
    refuse_pickle = _forbidden("pickle")
    module.monotonicTime = lambda: _OperatingSystem.monotonic()
    module.random = SimpleNamespace(random=lambda: _OperatingSystem.random())
    module.createJournal = lambda journal: journal
    module.createPoller = lambda _kind: SimpleNamespace(poll=lambda _timeout: None)
    module.pickle = SimpleNamespace(loads=refuse_pickle, dumps=refuse_pickle)
    module.Serializer = lambda *_args: SimpleNamespace(
        cancelTransmisstion=lambda _node: None,
        getTransmissionData=_forbidden("snapshot transmission"),
        setTransmissionData=_forbidden("snapshot transmission"),
    )
    module.globalDnsResolver = lambda: SimpleNamespace(
        setTimeouts=lambda *_args: None, setPreferredAddrFamily=lambda *_args: None
    )
    module.PIPE_NOTIFIER_ENABLED = False
    module.logger.disabled = True  # what it would complain about is an InvariantBroken here


with _socket_module_kept():
    core: Any = _load()
_disarm(core)

SyncObj: Any = core.SyncObj
SyncObjConf: Any = core.SyncObjConf
Node: Any = core.Node
Transport: Any = core.Transport
FOLLOWER, CANDIDATE, LEADER = 0, 1, 2

Message = dict[str, Any]


class PeerNode(int, Node):  # type: ignore[misc]
    """A node that is its id: the library looks nodes up in sets and tables all the time, and with
    `int` first that happens in C. The order of its sets does not depend on the hash seed either.
    """

    id = int.real

    def __init__(self, _node_id: int) -> None:
        """Nothing is kept beside the number."""


@lru_cache(maxsize=4096)
def node_of(node_id: int) -> PeerNode:
    """The library's object for a node."""
    return PeerNode(node_id)


class LibraryLog:
    """The journal as the library sees it: a list whose element 0 is the base."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __len__(self) -> int:
        return self._journal.last_index - self._journal.base_index + 1

    def __getitem__(self, position: int) -> Entry:
        journal = self._journal
        if position == -1:  # asked all the time, but never for its command
            return NOOP, journal.last_index, journal.last_term
        if position == 0:
            return journal.base_entry
        index = journal.base_index + position
        return journal.entries(index, index)[0]

    def add(self, command: bytes, index: int, term: int) -> None:
        if index != self._journal.last_index + 1:
            raise InvariantBroken(f"entry {index} would follow {self._journal.last_index}: a hole")
        self._journal.append(command, term)

    def deleteEntriesFrom(self, position: int) -> None:
        self._journal.truncate(self._journal.base_index + position)

    def setCurrentTerm(self, term: int, vote: int | None) -> None:
        self._journal.set_hard_state(term, vote)

    def getCurrentTerm(self) -> int:
        return self._journal.term

    def getVotedForNodeId(self) -> int | None:
        return self._journal.vote

    def setRaftCommitIndex(self, index: int) -> None:
        """Not stored: the applied index is durable with the state, the rest is learnt again."""

    def getRaftCommitIndex(self) -> int:
        return self._journal.base_index

    def onOneSecondTimer(self) -> None:
        pass

    def _destroy(self) -> None:
        pass


class Port(Transport):  # type: ignore[misc]
    """The library's transport: hands every message to the group."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.out: Callable[[PeerNode, Message], None] = lambda _node, _message: None

    def send(self, node: PeerNode, message: Message) -> bool:
        self.out(node, message)
        return True
