"""Numbers of PostgreSQL's longest: exact, and not the square of their digits."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlproxy.front.functions.f_numbers import EXACT, decimal_of, whole_of


@pytest.mark.slow
@given(st.integers(1, 30_000), st.integers(0, 10**40), st.booleans())
def test_whole_numbers_there_and_back(digits: int, seed: int, negative: bool) -> None:
    """A digit at the seam of two halves went wrong."""
    whole = (10**digits // 3 + seed * 10 ** (digits // 2)) * (-1 if negative else 1)
    assert whole_of(Decimal(whole)) == whole
    assert decimal_of(whole) == Decimal(whole)
    assert whole_of(Decimal(whole).scaleb(-7, EXACT)) == int(Decimal(whole).scaleb(-7, EXACT))
