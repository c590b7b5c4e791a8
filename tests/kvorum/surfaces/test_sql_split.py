"""The texts that `kvorum sql` is given, as statements."""

from __future__ import annotations

import pytest

from kvorum.cli.sql_split import split


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" ; ;; -- nothing\n/* at /* all */ */", []),
        ("select 1", ["select 1"]),
        ("select 1; -- behind\n select 2;", ["select 1", "select 2"]),
        ("select 'a;''b'; select \"x;\"\"y\";", ["select 'a;''b'", 'select "x;""y"']),
        (
            r"select E'a\';b'; select 'a\'; select 2",
            [r"select E'a\';b'", r"select 'a\'", "select 2"],
        ),
        ("select $$;$$, $a$;$$;$a$; select $1;", ["select $$;$$, $a$;$$;$a$", "select $1"]),
        ("select a$1;b$2;", ["select a$1", "b$2"]),
        ("select 1 -- a;b\n, 2 /* ;'*/;x", ["select 1 -- a;b\n, 2 /* ;'*/", "x"]),
        ("create rule r do (a; b); c", ["create rule r do (a; b)", "c"]),
        (
            "\\restrict q'x\nselect 1;\n\\unrestrict q'x",
            [
                "\\restrict q'x",
                "select 1",
                "\\unrestrict q'x",
            ],
        ),
        ("select 1); select 2", ["select 1)", "select 2"]),
    ],
)
def test_a_semicolon_ends_a_statement_outside_of_what_is_quoted(
    text: str, found: list[str]
) -> None:
    """Half a statement would be sent, or two as one."""
    assert [one.text for one in split(text)[0]] == found
    assert all(text[one.at :].startswith(one.text) for one in split(text)[0])


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "select ';",
        'select ";',
        "select $x$;$$",
        "select (1;",
        "select 1 /* ;",
        "select E'\\';",
        "copy t from stdin;\n1\tx\n",
    ],
)
def test_what_is_not_whole_is_told(text: str) -> None:
    """The prompt would send it at Enter."""
    assert not split(text)[1]
    assert split("select 1;")[1]


def test_lines_of_a_copy_are_its_data() -> None:
    """They would be statements."""
    text = "copy t from stdin;\n1\ta;'b\n\\.\nselect 1; COPY u (a) FROM STDIN WITH CSV; select 2;"
    one, two, three, four = split(text)[0]
    assert (one.data, two.text, three.data, four.text) == (
        "1\ta;'b\n",
        "select 1",
        None,
        "select 2",
    )
    assert one.copies_in
    assert three.copies_in
    one, two = split("copy t from stdin; -- rows\r\n1\r\n\\.\r\nselect 1;\r\n")[0]
    assert (one.data, two.text) == ("1\r\n", "select 1")
    (out,) = split("copy (select 'from stdin') to stdout;")[0]
    assert out.copies
    assert not out.copies_in
