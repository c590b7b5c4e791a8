"""pytest: simulated clusters as a fixture.

    @pytest.mark.kvorum(procedures=[Transfer], nodes=3, workers=2)
    async def test_transfer(kvorum_cluster):
        started = await kvorum_cluster.submit(Transfer, {"amount": 30})
        assert await started.result() == {"moved": 30}

An async test with the fixture `kvorum_cluster` runs inside of the simulation, in virtual time; a
plain one gets something to be called with a story, as `kvorum.testing.simulate`. The fixture
`kvorum_seed` is the number alone, for `explore(…, seed=kvorum_seed)`.

    @pytest.mark.kvorum_seeds(20)    so many seeds, one test for each
    --kvorum-seed 7                  this one alone; what failed says with which it did
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kvorum.testing.cluster import Cluster

FIXTURE: Final = "kvorum_cluster"
SEED: Final = "kvorum_seed"
_SEEDS_MAX: Final = 100_000
_used = pytest.StashKey[int]()
_stories = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvorum")
    group.addoption(
        "--kvorum-seed",
        type=int,
        default=None,
        help="the seed of simulated clusters, instead of 1 or those of a test's marker",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kvorum(**options): of the simulated cluster; see kvorum.testing.simulate"
    )
    config.addinivalue_line(
        "markers", "kvorum_seeds(n): one test for each of n seeds of the simulated cluster"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if SEED not in metafunc.fixturenames:
        return
    given: int | None = metafunc.config.getoption("--kvorum-seed")
    marker = metafunc.definition.get_closest_marker("kvorum_seeds")
    if given is None and marker is None:
        return
    count = 1 if marker is None else marker.args[0] if len(marker.args) == 1 else None
    if type(count) is not int or not 1 <= count <= _SEEDS_MAX:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: kvorum_seeds(n) wants 1 to {_SEEDS_MAX} seeds"
        )
    seeds = range(1, count + 1) if given is None else [given]
    metafunc.parametrize(SEED, seeds, indirect=True, ids=[f"seed{seed}" for seed in seeds])


@pytest.fixture
def kvorum_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test's simulations."""
    seed: int = getattr(request, "param", 1)
    request.node.stash[_used] = seed
    return seed


@pytest.fixture
def kvorum_cluster(request: pytest.FixtureRequest, kvorum_seed: int) -> Callable[..., Any]:
    """The cluster itself in an async test; else `simulate` with this test's options and seed."""
    marker = request.node.get_closest_marker("kvorum")
    options = {} if marker is None else marker.kwargs

    def play(story: Callable[[Cluster], Any], **more: object) -> Any:
        from kvorum.testing.cluster import simulate

        async def told(cluster: Cluster) -> Any:
            try:
                return await story(cluster)
            except BaseException:
                request.node.stash.setdefault(_stories, []).append(cluster.history.story(200))
                raise

        return simulate(told, **{"seed": kvorum_seed, **options, **more})

    return play


@pytest.hookimpl(wrapper=True, trylast=True)  # the innermost: before what others make of it
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Async tests with the fixture become plain ones, before other plugins take them."""
    found = yield
    for item in found if isinstance(found, list) else [found]:
        uses = isinstance(item, pytest.Function) and FIXTURE in item.fixturenames
        if uses and inspect.iscoroutinefunction(item.obj):
            item.obj = _simulated(item.obj)
    return found


def _simulated(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        play = given.pop(FIXTURE)
        play(lambda cluster: test(*args, **{FIXTURE: cluster}, **given))

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """What failed says its seed, and what happened."""
    report = yield
    if report.failed and _used in item.stash:
        seed, (file, _, _) = item.stash[_used], item.location
        name = getattr(item, "originalname", None) or item.name
        again = f"seed {seed}; again: pytest {file} -k {name} --kvorum-seed {seed}"
        stories = item.stash.get(_stories, [])
        report.sections.append(("kvorum", "\n".join([again, *stories])))
    return report
