"""A process that begins anew in its own place (kvorum/programs/process.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest

from kvorum.programs import process

WHY = "block checksum mismatch"


class Ended(BaseException):
    """What ends a process, or makes it another one."""


class Exec:
    """In place of the system's; `refuses`: it cannot."""

    def __init__(self) -> None:
        self.done: list[list[str]] = []
        self.refuses: OSError | None = None

    def __call__(self, _path: str, args: list[str]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.done.append(args)


@pytest.fixture
def exec_(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exec]:
    made = Exec()

    def end(reason: str) -> NoReturn:
        raise Ended(reason)

    monkeypatch.setattr(os, "execv", made)
    monkeypatch.setattr(process, "_end_now", end)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = {number: signal.getsignal(number) for number in process._ENDING}
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Store:
    """kvorum.programs.process.Store"""

    def __init__(self, needed: str | None = None) -> None:
        self._needed = needed
        self.gave = False

    async def needed(self) -> str | None:
        return self._needed

    async def hand_over(self) -> None:
        self.gave = True
        raise RuntimeError("the database takes nothing any more")


async def handed_over(
    store: Store, *, stop: asyncio.Event | None = None, cancelled: bool = False
) -> str:
    """Why it ended; nothing if it begins anew."""
    giving = asyncio.ensure_future(process._hand_over(store))
    if cancelled:
        giving.cancel()
    await asyncio.wait([giving])
    try:
        process._handed_over(WHY, stop or asyncio.Event(), process._children(), giving)
    except Ended as ended:
        return str(ended)
    return ""


async def test_it_begins_anew_whatever_comes_of_the_hand_over(exec_: Exec) -> None:
    """Others elect a leader by themselves; a node that waits for that is gone for nothing."""
    store = Store()
    assert await handed_over(store) == ""
    assert store.gave
    assert exec_.done == [[sys.executable, *sys.orig_argv[1:]]]


async def test_what_others_need_stays_and_the_process_ends(exec_: Exec) -> None:
    """Copies were put aside at one node after the other, until there was none."""
    store = Store("node 3 does not answer")
    told = await handed_over(store)
    assert WHY in told
    assert "does not start anew by itself: node 3 does not answer" in told
    assert not store.gave
    assert not exec_.done


async def test_a_signal_during_the_hand_over_ends_it(exec_: Exec) -> None:
    """Whoever stopped it saw it begin anew, and waited until it was time for SIGKILL."""
    stop = asyncio.Event()
    stop.set()
    assert await handed_over(Store(), stop=stop) == f"fatal: {WHY}"
    assert await handed_over(Store(), cancelled=True) == f"fatal: {WHY}"
    assert not exec_.done


async def test_who_cannot_begin_anew_ends(exec_: Exec) -> None:
    """The interpreter was replaced by an upgrade: a node whose store has failed ran on for ever."""
    exec_.refuses = FileNotFoundError(2, "No such file or directory")
    assert "it cannot start anew" in await handed_over(Store())


_LAST_MOMENT = """
import os, signal, sys, threading, types
for heavy in ("kvorum.node.node", "kvorum.local.ports"):
    sys.modules[heavy] = types.SimpleNamespace(Node=0, build=0, Ports=0, system_ports=0)
from kvorum.programs import process
if "ANEW" in os.environ:
    stopped = process._stopped_before()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    os._exit(10 if stopped else 20 if blocked else 30)
os.environ["ANEW"] = "1"
number, moment, threads = map(int, sys.argv[1:])
for _ in range(threads):
    threading.Thread(target=signal.pause, daemon=True).start()
def come(then, now):
    def called(*args):
        if now:
            os.kill(os.getpid(), number)
        return then(*args)
    return called
os.execv = come(os.execv, moment == 1)
process._children = come(process._children, moment == 2)
class Node:
    class store:
        mendable = True
        async def needed(): return None
        async def hand_over(): os.kill(os.getpid(), number) if moment == 3 else None
async def main():
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for one in process._ENDING:
        loop.add_signal_handler(one, lambda: None)
    fatal = loop.create_future()
    fatal.add_done_callback(functools.partial(process._failed, Node, stop, frozenset()))
    fatal.set_result(RuntimeError("damage"))
    await stop.wait()
import asyncio, functools, uvloop
uvloop.run(main())
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", [1, 2, 3])
@pytest.mark.parametrize(("number", "threads"), [(signal.SIGTERM, 0), (signal.SIGINT, 3)])
def test_a_signal_at_the_last_moment_is_not_lost(number: int, threads: int, moment: int) -> None:
    """Python notes a signal and tells the loop later: the new beginning forgot it, and whoever
    stopped the node waited until it was time for SIGKILL.
    """
    command = [sys.executable, "-c", _LAST_MOMENT, str(int(number)), str(moment), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # the next one found it, or this one ended by it
    assert done.returncode in (10, process.FAILED, -number), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of children")
def test_its_children_end_but_not_those_of_who_was_before(exec_: Exec) -> None:
    """To the kernel their parent lives on: a step that computes ran beside its second run. And what
    a shell had started before `exec kvorum` is not the node's.
    """
    sleep = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(sleep) as stranger:
        before = process._children()
        assert stranger.pid in before
        with subprocess.Popen(sleep) as step:
            process._become_anew(WHY, before)
            assert step.wait(10) == -signal.SIGKILL
            assert stranger.poll() is None
        stranger.kill()
    assert exec_.done
