"""What a foreign suite's tests came to: a JSON object per line in the file that SUITE_OUTCOMES
names. A plugin of pytest (`-p reporting`), and Django's TEST_RUNNER, in the suite's own process; it
imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import unittest
from typing import Any

import pytest


def _write(test: str, outcome: str, text: str = "") -> None:
    with open(os.environ["SUITE_OUTCOMES"], "a", encoding="utf-8") as out:
        out.write(json.dumps({"test": test, "outcome": outcome, "text": text[-4000:]}) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """SQLAlchemy makes two extensions in each database that it tests; no test needs them."""
    try:
        from sqlalchemy.dialects.postgresql import provision
    except ImportError:
        return
    provision.post_configure_engine.fns.pop("postgresql")


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _write(report.nodeid, "failed", str(report.longrepr))


def pytest_runtest_logreport(report: Any) -> None:
    """A failure in the teardown counts, too, beside what its test came to."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.longreprtext if report.failed else "")


try:
    from django.test.runner import DiscoverRunner
except ImportError:
    pass
else:

    class _Result(unittest.TextTestResult):
        def addSuccess(self, test: unittest.TestCase) -> None:
            super().addSuccess(test)
            _write(test.id(), "passed")

        def addSkip(self, test: unittest.TestCase, reason: str) -> None:
            super().addSkip(test, reason)
            _write(test.id(), "skipped")

        def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
            super().addExpectedFailure(test, err)
            _write(test.id(), "skipped")

        def addFailure(self, test: unittest.TestCase, err: Any) -> None:
            super().addFailure(test, err)
            _write(test.id(), "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

        def addError(self, test: unittest.TestCase, err: Any) -> None:
            super().addError(test, err)
            _write(test.id(), "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            super().addSubTest(test, subtest, err)
            if err is not None:
                _write(test.id(), "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    class Runner(DiscoverRunner):
        """Django's own, whose result is written down."""

        def get_resultclass(self) -> type[unittest.TextTestResult]:
            return _Result
