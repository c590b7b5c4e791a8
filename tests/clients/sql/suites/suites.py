"""Other people's tests: where they come from, how they are run, what they may fail with.

Each suite is a source archive of PyPI at the version that this environment has (sources.txt: by
its hash), unpacked below `.clients/suites` and run in a process of its own. `expected/NAME.json`
has what fails: reason → the tests' names, in which `*` stands for anything.

By hand, against any server (SUITE_OUTCOMES names a file that keeps what each test came to):

    python -m tests.clients.sql.suites.suites NAME PORT USER DATABASE [WORDS]

prints what fails and is not expected; WORDS go to the suite's own program (`-k …`, labels).
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.machine import ROOT

HERE = Path(__file__).parent
THERE = ROOT / ".clients" / "suites"
OPTIONS = "-c kvorum.autocommit_before_ddl=on"
RUN_S = 3600


@dataclass(frozen=True)
class Server:
    port: int
    user: str
    database: str
    options: str = OPTIONS


@dataclass(frozen=True)
class Suite:
    """`command`: words behind the interpreter, with {port}, {user}, {database}; `folder`: from
    where, below the archive's; `environment`: what else it reads, with the same; `libraries`: what
    this environment has not.
    """

    archive: str
    folder: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()


_PYTEST = (
    *("-s", "-m", "pytest", "-q", "-p", "reporting", "-p", "no:cacheprovider"),
    "--continue-on-collection-errors",
)

SUITES = {
    "asyncpg": Suite(
        "asyncpg-0.32.0",
        "tests",
        (
            *(*_PYTEST, "--tb=short", "--ignore=test__sourcecode.py"),
            # It waits for ever for a notice that tells a line of PostgreSQL's own source.
            "--deselect=tests/test_listeners.py::TestLogListeners::test_log_listener_01",
            # Its own timeout meets a copy that has just ended, on a slow machine.
            "--deselect=tests/test_copy.py::TestCopyTo::test_copy_to_table_timeout",
            ".",
        ),
        {
            "PGHOST": "127.0.0.1",
            "PGPORT": "{port}",
            "PGUSER": "{user}",
            "PGDATABASE": "postgres",  # some of its tests name it
        },
        libraries=("distro==1.9.0",),
    ),
    "sqlalchemy": Suite(
        "sqlalchemy-2.1.9",
        "",
        (
            *_PYTEST,
            "--maxfail=100000",
            "--tb=short",
            "--dburi",
            "postgresql+psycopg://{user}@127.0.0.1:{port}/{database}"
            "?options=-c%20kvorum.autocommit_before_ddl%3Don",
            "test/dialect/test_suite.py",
        ),
    ),
    "django": Suite(
        "django-5.2.19",
        "tests",
        (
            *("runtests.py", "--settings=django_settings", "--parallel=1", "--noinput"),
            *("basic", "expressions", "aggregation"),
        ),
    ),
}


def _pip(words: str, *more: str) -> None:
    command, *options = words.split()
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--no-deps"]
    subprocess.run([*pip, *options, *more], check=True)


def fetched(suite: Suite) -> Path:
    """Its unpacked archive; fetches and unpacks what is not there."""
    there = THERE / suite.archive
    if there.exists():
        return there
    THERE.mkdir(parents=True, exist_ok=True)
    name = suite.archive.rpartition("-")[0].replace("_", "-")
    lines = (HERE / "sources.txt").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory(dir=THERE) as scratch:
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text(next(line for line in lines if line.startswith(f"{name}==")))
        _pip(
            "download --no-binary :all: --no-build-isolation --require-hashes",
            *("--dest", scratch, "--requirement", str(wanted)),
        )
        archive = next(Path(scratch).glob("*.tar.gz"))
        with tarfile.open(archive) as found:
            top = found.getnames()[0].split("/")[0]
            found.extractall(scratch, filter="data")
        Path(scratch, top).rename(there)
    return there


def with_libraries(suite: Suite) -> Path:
    """Where the libraries are that this environment has not."""
    there = THERE / "python"
    for library in suite.libraries:
        name, _, version = library.replace("-", "_").partition("==")
        if not (there / f"{name}-{version}.dist-info").exists():
            _pip("install --only-binary :all:", "--target", str(there), library)
    return there


def outcomes(name: str, server: Server, words: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Test → passed, failed or skipped, and what it said."""
    suite = SUITES[name]
    names = vars(server)
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(os.environ.get("SUITE_OUTCOMES", Path(scratch, "outcomes")))
        env = {
            **os.environ,
            **{key: value.format(**names) for key, value in suite.environment.items()},
            **{f"SUITE_{key.upper()}": str(value) for key, value in names.items()},
            "SUITE_OUTCOMES": str(written),
            "PGOPTIONS": server.options,
            "PYTHONPATH": os.pathsep.join((str(HERE), str(with_libraries(suite)))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, *(word.format(**names) for word in suite.command), *words],
            cwd=fetched(suite) / suite.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if not written.exists():
            raise AssertionError(f"{name} ran no test: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        found: dict[str, tuple[str, str]] = {}
        for line in written.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            if found.get(said["test"], ("", ""))[0] != "failed":
                found[said["test"]] = (said["outcome"], said["text"])
    return found


def expected(name: str) -> dict[str, list[str]]:
    """Reason → patterns."""
    path = HERE / "expected" / f"{name}.json"
    if not path.exists():
        return {}
    read: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return read


def unexpected(
    found: dict[str, tuple[str, str]], reasons: dict[str, list[str]]
) -> tuple[dict[str, str], list[str]]:
    """What failed without a reason (test → what it said), and patterns of which nothing failed."""
    failed = {test: text for test, (outcome, text) in found.items() if outcome == "failed"}
    patterns = [pattern for group in reasons.values() for pattern in group]
    # Names of parametrized tests have brackets, which stand for themselves here.
    hits = {p: fnmatch.filter(failed, p.replace("[", "[[]")) for p in patterns}
    explained = {test for tests in hits.values() for test in tests}
    return (
        {test: text for test, text in failed.items() if test not in explained},
        [pattern for pattern, tests in hits.items() if not tests],
    )


def main() -> None:
    name, port, user, database, *words = sys.argv[1:]
    options = "" if int(port) == 54315 else OPTIONS
    found = outcomes(name, Server(int(port), user, database, options), words)
    failed, _ = unexpected(found, expected(name))
    for test, text in failed.items():
        sys.stdout.write(f"=== {test}\n{text}\n")
    counts = [sum(o == kind for o, _ in found.values()) for kind in ("passed", "failed", "skipped")]
    sys.stdout.write("passed {}, failed {}, skipped {}\n".format(*counts))


if __name__ == "__main__":
    main()
