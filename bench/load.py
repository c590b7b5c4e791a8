"""One measured window: client processes started, released together, their numbers collected."""

from __future__ import annotations

import multiprocessing
import time
from array import array
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess

from bench.machine import Meter
from bench.spec import Spec, shares
from bench.stats import Record, per_op_us, summary
from bench.worker import main as worker_main

_START_S = 60.0
_REPORT_S = 60.0
# A fresh interpreter per process: nothing of the parent's threads and loops is inherited.
_context = multiprocessing.get_context("spawn")
_Child = tuple[BaseProcess, Pipe]


class LoadFailed(Exception):
    """A client process could not do its work."""


def run(spec: Spec, *, server_pids: Sequence[int], procs: int = 1) -> Record:
    """Load a server with `spec` from at most `procs` processes. Raises LoadFailed.

    Gives ops_s, p50_ms, p99_ms, server_us_op, client_us_op, other_cores, errors; rows_s where an
    operation has several rows. CPU time is taken inside the window only.
    """
    children: list[_Child] = []
    try:
        for number, clients in enumerate(shares(spec.clients, procs)):
            here, there = _context.Pipe()
            child: BaseProcess = _context.Process(
                target=worker_main,
                args=(spec, clients, 7919 * number + spec.clients, there),
                daemon=True,
            )
            child.start()
            there.close()
            children.append((child, here))
        for _, pipe in children:
            _expect(pipe, "ready", _START_S)
        return _measure(spec, children, server_pids)
    finally:
        for child, pipe in children:
            pipe.close()
            child.join(1)
            if child.is_alive():
                child.terminate()
                child.join()


def _measure(spec: Spec, children: list[_Child], server_pids: Sequence[int]) -> Record:
    begin = time.monotonic() + spec.warm_s
    end = begin + spec.secs
    for _, pipe in children:
        pipe.send((begin, end))
    _sleep_until(begin)
    meter = Meter(server_pids, [child.pid for child, _ in children if child.pid])
    _sleep_until(end)
    used = meter.read()
    latencies, errors, first_error = array("d"), 0, ""
    for _, pipe in children:
        raw, failed, reason = _expect(pipe, None, _REPORT_S)
        latencies.frombytes(raw)
        errors += failed
        first_error = first_error or reason
    found = summary(latencies, spec.secs, spec.rows_per_op)
    ops = found["ops_s"] * used.wall_s
    found["server_us_op"] = per_op_us(used.server_s, ops)
    found["client_us_op"] = per_op_us(used.client_s, ops)
    found["other_cores"] = used.other_cores
    found["errors"] = errors
    if first_error:
        found["first_error"] = first_error[:300]
    return found


def _expect(pipe: Pipe, what: object, limit_s: float) -> tuple[bytes, int, str]:
    if not pipe.poll(limit_s):
        raise LoadFailed(f"a client process said nothing for {limit_s:.0f} s")
    try:
        message = pipe.recv()
    except EOFError:
        raise LoadFailed("a client process ended without a word") from None
    if isinstance(message, tuple) and message[0] == "failed":
        raise LoadFailed(message[1])
    if what is not None and message != what:
        raise LoadFailed(f"a client process said {message!r:.200} instead of {what!r}")
    found: tuple[bytes, int, str] = message
    return found


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
