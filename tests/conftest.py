"""Shared by all tests: hypothesis profiles, the rule for Spark tests, free ports, and who runs what
(tests/kit/turns.py).

A Spark test without Java fails with the remedy; it is never skipped, because a suite that quietly
loses its Spark tests says "all passed" about a promise that nobody checked.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from kvorum.local import cycles
from tests.kit import turns
from tests.kit.machine import free_port, free_port_base, java_home

settings.register_profile(
    "default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# The build server repeats itself exactly: a red run there is red here, too.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("deep", settings.get_profile("default"), max_examples=2000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)


# A test that starts processes waits for them; the limit in pyproject.toml is for code.
_SLOW_STARTERS = ("spark", "cluster", "slow")
_SLOW_TIMEOUT_S = 240


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations",
        action="store_true",
        help="write down how long each file took, for the order of the next runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so, and their children, too: Ctrl-C is tested here.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(cycles.release)
    if config.getoption("write_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(turns.Durations())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`."""
    return turns.processes()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> turns.Turns | None:
    """Of `--dist loadfile`."""
    return turns.Turns(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays: it is not searched for cycles while it grows."""
    gc.disable()
    try:
        turns.import_all(session.config)
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return turns.left_out(collection_path, config) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """A third of all cases are of long tests: where `-m` leaves them out, they are not made."""
    marks = getattr(obj, "pytestmark", ())
    slow = isinstance(marks, list) and any(mark.name == "slow" for mark in marks)
    return [] if slow and turns.without_slow(collector.config) else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marked tests a longer limit unless they set their own; of tests with `few`, leave so
    many cases in `make test`, spread over all of them.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("timeout") is None and any(
            item.get_closest_marker(name) for name in _SLOW_STARTERS
        ):
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))
        if item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in cases.values():
        few = same[0].get_closest_marker("few")
        assert few
        stay = {round(i * len(same) / few.args[0]) for i in range(few.args[0])}
        for i, item in enumerate(same):
            if i not in stay:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def _calm() -> None:
    """As in a node that serves: 20,000 tests and what they import are never searched for cycles
    again, which every engine that is closed would do. A program that ends within a test thaws them:
    one search of them all takes seconds.
    """
    if not gc.get_freeze_count():
        gc.freeze()
    cycles.calm()
    root = logging.getLogger()  # a program within a test has made it its own
    root.setLevel(logging.WARNING)
    root.handlers[:] = [one for one in root.handlers if type(one) is not logging.StreamHandler]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Point Spark tests at a Java that Spark can use, or fail them with what to do."""
    if item.get_closest_marker("spark") is None:
        return
    home, advice = java_home()
    if home is None:
        pytest.fail(advice, pytrace=False)
    os.environ["JAVA_HOME"] = home


@pytest.fixture
def port() -> int:
    """One port of this machine that nothing listens on."""
    return free_port()


@pytest.fixture
def port_base() -> Callable[..., int]:
    """`port_base(nodes=3)`: the `--port BASE` of a local cluster whose ports are all free."""
    return free_port_base
