"""Patterns of LIKE and regular expressions: what they mean, what is refused, what they cost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.limits import SQL_PATTERN_CHARS_MAX
from sqlproxy.front.functions.f_patterns import FUNCTIONS
from sqlproxy.front.functions.linear_patterns import regex
from sqlproxy.values.breaks import no_break, set_breaks
from sqlproxy.values.errors import SqlError

_like = FUNCTIONS["textlike"].call
_replace = FUNCTIONS["textregexreplace"].call


def _by_backtracking(value: str, pattern: str) -> bool:
    """LIKE by Python's own engine."""
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        at += char == "\\"
        out.append({"%": ".*", "_": "."}.get(char) or re.escape(pattern[at]))
        at += 1
    return re.fullmatch("".join(out), value, re.DOTALL) is not None


@given(
    st.text("ab\né", max_size=12),
    st.lists(
        st.sampled_from(["a", "b", "é", "%", "_", "\\%", "\\_", "\\\\", "\n"]), max_size=8
    ).map("".join),
)
def test_like_is_what_a_backtracking_engine_says(value: str, pattern: str) -> None:
    """A pattern finds other rows than before."""
    assert _like(value, pattern) is _by_backtracking(value, pattern)


@given(
    st.text("ab ,1é", max_size=12),
    st.lists(
        st.sampled_from(
            ["a", "b", ".", "a*", "b+", "(a|b)", "(?:ab)?", "^", "$", "[ab]", "[^a]", r"\d", r"\s"]
        ),
        max_size=6,
    ).map("".join),
)
def test_regular_expressions_match_where_python_s_do(value: str, pattern: str) -> None:
    """A pattern that both engines have finds something else."""
    expected = re.search(pattern.replace("$", r"\Z"), value, re.DOTALL)
    found = regex(pattern).search(value)
    assert regex(pattern).test(value) is (expected is not None)
    assert (found and (found.start(), found.end())) == (expected and expected.span())


@pytest.mark.parametrize(
    ("pattern", "value", "found"),
    [
        (r"\mbar\M", "foo bar", True),
        (r"\mbar\M", "foobar", False),
        (r"\m(foo|bar)\M", "a bar b", True),
        (r"[[:<:]]\w+[[:>:]]", "ab", True),
        (r"\yb", "ab", False),
        (r"a\Yb", "ab", True),
        (r"^[[:alpha:]]+$", "éa", True),
        (r"^\w+$", "日本_1", True),
        (r"\W", "日本", False),
        (r"[[:punct:]]", "a!", True),
        (r"[^[:alnum:]]", "aé1", False),
        (r"\u00e9", "é", True),
        ("a  # a comment\n b", "ab", True),
        ("a(?#no)b", "ab", True),
        ("***=a.b", "axb", False),
        ("a.b", "a\nb", True),
    ],
)
def test_forms_of_postgresql_are_translated(pattern: str, value: str, found: bool) -> None:
    """What PostgreSQL's own documentation shows means something else, or is refused."""
    assert (
        regex(pattern, "x" if "#" in pattern and "(?#" not in pattern else "").test(value) is found
    )


@pytest.mark.parametrize(
    ("pattern", "value", "state"),
    [
        (r"(a)\1", "aa", "0A000"),
        ("a(?=b)", "ab", "0A000"),
        ("(?<!a)b", "ab", "0A000"),
        (r"\m.", "ab", "0A000"),
        (r".\M", "ab", "0A000"),
        (r"\ma", "éa", "0A000"),
        ("(", "a", "2201B"),
        ("a{2,1}", "a", "2201B"),
        ("[[:none:]]", "a", "2201B"),
        ("a" * (SQL_PATTERN_CHARS_MAX + 1), "a", "54000"),
        ("((a{100}){100}){100}", "a", "2201B"),
        ("(a|b)*a(a|b){900}c", "ab" * 100_000, "54000"),
    ],
)
def test_what_is_not_linear_is_refused(pattern: str, value: str, state: str) -> None:
    """It is computed by steps that grow with the power of the text, or means something else."""
    with pytest.raises(SqlError) as error:
        regex(pattern).test(value)
    assert error.value.sqlstate == state


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("textregexeq", ("a" * 400 + "!", "^(a+)+$"), False),
        ("textregexeq", ("a" * 100_000, "(a|aa)+b"), False),
        ("textlike", ("a" * 1_000_000, "%a%a%a%a%a%a%b"), False),
        ("textlike", ("a" * 100_000, "%a_a_a_a%a_a_a%b"), False),
        ("textlike", ("a" * 1_000_000, "%" * 1_000_000), True),
        ("texticlike", ("A" * 1_000_000, "%a%a%a%b"), False),
        ("bytealike", (b"a" * 1_000_000, b"%a%a%a%a%b"), False),
        ("regexp_count", ("a" * 10_000, "(a*)*b"), 0),
    ],
)
def test_hostile_patterns_end(name: str, args: tuple[Any, ...], expected: object) -> None:
    """One pattern of a client holds a process for minutes."""
    assert FUNCTIONS[name].call(*args) == expected


def test_a_replacement_that_grows_is_refused() -> None:
    """A short statement makes a gigabyte."""
    with pytest.raises(SqlError) as error:
        _replace("a" * 1_000_000, "a", "b" * 1_000, "g")
    assert error.value.sqlstate == "54000"


@pytest.mark.slow
def test_a_like_that_ends_in_an_escape_is_an_error_when_it_is_reached() -> None:
    """A pattern that is cut off is taken for another one."""
    assert _like("b", "a\\") is False
    with pytest.raises(SqlError):
        _like("ab", "a\\")


@pytest.mark.slow
def test_a_long_replacement_takes_breaks_and_its_result_has_a_bound() -> None:
    """What a replacement names again and again was made before it was looked how much that is; and
    one of megabytes of marks held its session for a second for each match.
    """
    breaks: list[int] = []
    set_breaks(lambda: breaks.append(1))
    try:
        assert _replace("ab", "(a)(c)?", "[\\1\\2\\3\\&\\0\\x\\\\]") == "[aa\\0\\x\\]b"
        breaks.clear()
        assert _replace("xy", "x", "\\&" * 1_000_000) == "x" * 1_000_000 + "y"
        assert len(breaks) > 200
    finally:
        set_breaks(no_break)
    with pytest.raises(SqlError) as caught:
        _replace("x" * 1_000_000, "x+", "\\&" * 1_000_000)
    assert caught.value.sqlstate == "54000"
