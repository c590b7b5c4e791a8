"""Other people's own tests against a node: what fails is what is listed with its reason
(expected/), and all that is listed fails. `make suites` runs these.
"""

from __future__ import annotations

import pytest

from tests.clients.sql.conftest import Sql
from tests.clients.sql.suites import suites

pytestmark = [
    pytest.mark.clients,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(suites.RUN_S + 60),
]


@pytest.mark.parametrize("name", suites.SUITES)
def test_what_fails_has_its_reason(sql: Sql, name: str) -> None:
    """A program that lives in PostgreSQL would meet a difference that nobody has written down."""
    found = suites.outcomes(name, suites.Server(sql.port, "kvorum", sql.database))
    failed, stale = suites.unexpected(found, suites.expected(name))
    assert not failed, "\n".join(f"{test}: {text[-600:]}" for test, text in failed.items())
    assert not stale, "these are listed, and pass now"
