"""The prompt of `kvorum sql` at a terminal, as somebody types into it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.clients.sql.conftest import Sql
from tests.kit.commands import Ended, command, run, settings
from tests.kit.machine import ROOT

pytestmark = pytest.mark.cluster
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>]|\][^\x07]*\x07)")
_PATIENCE_S = 20.0
CTRL_C, CTRL_D, UP, TAB = "\x03", "\x04", "\x1b[A", "\t"


class Terminal:
    """A process at a terminal of 200 × 50: what it showed, and what is typed."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.child = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait(self, text: str, *, patience_s: float = _PATIENCE_S) -> str:
        """What is shown up to `text`, from behind what was waited for before."""
        deadline = time.monotonic() + patience_s
        while (at := self.shown.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not in {self.shown[self._seen :]!r}"
            if not select.select([self._master], [], [], left)[0]:
                continue
            try:
                found = os.read(self._master, 65_536)
            except OSError:  # the other end is closed
                found = b""
            assert found, f"it ended before {text!r}: {self.shown[self._seen :]!r}"
            self.shown += _ESCAPES.sub("", found.decode(errors="replace"))
        shown = self.shown[self._seen : at + len(text)]
        self._seen = at + len(text)
        return shown

    def ask(self, text: str, answer: str) -> str:
        """Type a line; what is shown until the answer."""
        self.type(text + "\r")
        return self.wait(answer)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        os.close(self._master)


@pytest.fixture
def terminal(sql: Sql, tmp_path: Path) -> Iterator[Terminal]:
    with contextlib.closing(_started(sql, tmp_path)) as made:
        yield made


def _started(sql: Sql, state: Path) -> Terminal:
    env = {"XDG_STATE_HOME": str(state), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    address = f"127.0.0.1:{sql.node.base}"
    words = ("sql", "--connect", address, "-d", sql.database)
    made = Terminal(command(*words), settings(env=env))
    try:
        made.wait(f"{sql.database}=>")
    except AssertionError:
        made.close()
        raise
    return made


@pytest.mark.slow
def test_p1_prompt_runs_statements_of_several_lines(terminal: Terminal) -> None:
    """Enter inside a statement runs half of it, or what a statement answers is not shown."""
    terminal.ask("create table t (id int primary key, name text not null);", "CREATE TABLE")
    terminal.type("insert into t values\r")
    terminal.wait("...")
    terminal.ask("(1, 'one'), (2, null || 'two' || coalesce(null, ''));", "23502")
    terminal.ask("insert into t values (1, 'one'), (2, 'two');", "INSERT 0 2")
    shown = terminal.ask("select * from t order by id;", "(2 rows)")
    assert re.search(r"1 │ one\s+2 │ two", shown)


@pytest.mark.slow
def test_p1_prompt_shows_where_an_error_is(terminal: Terminal) -> None:
    """The line and the place of a mistake are not marked."""
    shown = terminal.ask("select 1,\r  nope;", "^")
    assert "42703" in shown
    line, mark = shown.replace("\r", "").splitlines()[-2:]
    assert line == "LINE 2:   nope;"
    assert mark.index("^") == line.index("nope")


@pytest.mark.slow
def test_p1_prompt_knows_transactions_and_commands(terminal: Terminal, sql: Sql) -> None:
    """The prompt does not tell of an open block, or a backslash command does nothing."""
    name = sql.database
    terminal.ask("create table t (id int primary key, v text default 'x' unique);", "CREATE TABLE")
    terminal.ask("begin;", f"{name}=*>")
    terminal.ask("select 1/0;", f"{name}=!>")
    terminal.ask("rollback;", f"{name}=>")
    shown = terminal.ask("\\d t", "t_v_key")
    assert "'x'::text" in shown
    assert "integer" in shown
    terminal.ask("\\d", "BASE TABLE")
    terminal.ask("\\l", "postgres")
    terminal.ask("\\x", "Expanded display is on.")
    terminal.ask("insert into t values (1) returning *;", "─[ record 1 ]")
    terminal.ask("\\x", "Expanded display is off.")
    terminal.ask("\\timing", "Timing is on.")
    terminal.ask("select 7;", "Time: ")
    terminal.ask("\\c postgres", "postgres=>")
    terminal.ask("\\nonsense", "give up what runs")


@pytest.mark.slow
def test_p1_prompt_completes_and_remembers(sql: Sql, tmp_path: Path) -> None:
    """Names of tables are not completed, or what was typed is forgotten between two sessions."""
    with contextlib.closing(_started(sql, tmp_path)) as terminal:
        terminal.ask("create table remarkable (id int primary key);", "CREATE TABLE")
        terminal.type("select count(*) from remark" + TAB)
        terminal.wait("remarkable")
        terminal.ask(";", "(1 row)")
        terminal.wait(f"{sql.database}=>")  # before it, the terminal itself would take Ctrl-D
        terminal.type(CTRL_D)
        assert terminal.child.wait(_PATIENCE_S) == 0
    with contextlib.closing(_started(sql, tmp_path)) as terminal:
        terminal.type(UP + "\r")
        terminal.wait("(1 row)")


@pytest.mark.slow
def test_p10_ctrl_c_cancels_what_runs_and_nothing_else(terminal: Terminal, sql: Sql) -> None:
    """Ctrl-C ends the prompt, leaves the statement running, or leaves the connection unusable."""
    terminal.type("select pg_sleep(60);\r")
    time.sleep(1.0)
    terminal.wait("pg_sleep")
    began = time.monotonic()
    for _ in range(6):  # before the server has the statement there is nothing to cancel
        terminal.type(CTRL_C)
        with contextlib.suppress(AssertionError):
            terminal.wait("given up", patience_s=5)
            break
    terminal.wait(f"{sql.database}=>")
    assert time.monotonic() - began < 40, "it ran to its end"
    terminal.ask("select 40 + 2 as answer;", "42")
    terminal.type("select half" + CTRL_C)
    terminal.ask("select 'still ' || 'here';", "still here")


@pytest.mark.slow
def test_files_and_pasted_scripts_are_statements_of_their_own(
    terminal: Terminal, sql: Sql, tmp_path: Path
) -> None:
    """A file was one transaction: nothing was shown of what came before an error, a definition
    behind an INSERT was refused, and a COPY left a connection that answered nothing any more.
    """
    terminal.ask("CREATE TABLE c (id int PRIMARY KEY, t text);", "CREATE TABLE")
    script = tmp_path / "script.sql"
    script.write_text(
        "\\restrict Token'\nINSERT INTO c VALUES (1, 'x;'); -- one\nCREATE INDEX ON c (t);\n"
        "COPY c FROM stdin;\n2\ty;z\n\\.\nSELECT count(*) + 40 FROM c;\nSELECT\n  1 / 0, nosuch;\n"
        "DROP TABLE c;\n"
    )
    terminal.type(f"\\i {script}\r")
    shown = terminal.wait('column "nosuch" does not exist')
    for told in ("INSERT 0 1", "CREATE INDEX", "COPY 1", "42"):
        assert told in shown
    terminal.wait("LINE 9:   1 / 0, nosuch")
    script.write_text("SELECT 1;\n\\! date\n")
    terminal.ask(f"\\i {script}", "\\! date is a command of psql's")
    terminal.ask("COPY c TO STDOUT;", "2\ty;z")
    for line, told in (("8,a\rx,b", "CONTEXT: COPY c, line 2"), ("7,typed", "COPY 1")):
        terminal.type("COPY c FROM STDIN WITH CSV;\r")
        terminal.wait("...")
        terminal.type(f"{line}\r")
        terminal.ask("\\.", told)
    terminal.ask("SELECT t || '!' FROM c WHERE id = 7;", "typed!")
    terminal.type("SELECT 'a;\r")
    terminal.wait("...")
    terminal.ask("b' AS x; -- done", "(1 row)")
    terminal.ask("\\d nosuch", 'There is no table or view "nosuch".')
    terminal.ask("\\nosuch", "There is no \\nosuch")
    terminal.ask("DROP TABLE IF EXISTS nosuch;", "NOTICE: ")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "input", "copy"])
def test_c4_line_ends_within_values_stay_as_they_are(sql: Sql, tmp_path: Path, way: str) -> None:
    """A carriage return within a literal, or a cell of csv, was taken for a line's end and lost."""
    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE r (t text)")
        script = b"\xef\xbb\xbfINSERT INTO r VALUES ('a\r\nb\rc');\r\n"
        words, given = ["-f", "-"], script
        if way == "file":
            (tmp_path / "r.sql").write_bytes(script)
            words, given = ["-f", str(tmp_path / "r.sql")], b""
        elif way == "copy":
            words, given = ["-c", "COPY r FROM STDIN (FORMAT csv)"], b'"a\r\nb\rc"\n'
        connect = f"127.0.0.1:{sql.node.base}"
        run("sql", "-d", sql.database, *words, stdin=given, connect=connect)
        assert db.execute("SELECT t FROM r").fetchall() == [("a\r\nb\rc",)]


@pytest.mark.slow
def test_c4_the_input_of_a_copy_need_not_be_text(sql: Sql) -> None:
    """A COPY in the binary format, or bytes that are no UTF-8, ended with a traceback."""

    def copied(statement: str, given: bytes, code: int = 0) -> Ended:
        words = ("sql", "-d", sql.database, "-c", statement)
        return run(*words, code=code, stdin=given, connect=f"127.0.0.1:{sql.node.base}")

    with sql.connect(autocommit=True) as db:
        db.execute("CREATE TABLE binary_cells (n int8, f float8)")
        db.execute("INSERT INTO binary_cells VALUES (-1, 1.5), (255, 'NaN')")
        rows = copied("COPY binary_cells TO STDOUT (FORMAT binary)", b"").out
        assert b"\xff" * 8 in rows
        copied("COPY binary_cells FROM STDIN (FORMAT binary)", rows)
        count = "SELECT count(*), count(DISTINCT n) FROM binary_cells"
        assert db.execute(count).fetchall() == [(4, 2)]
        assert b"22021" in copied("COPY binary_cells FROM STDIN", b"1\t\xff\n", code=1).err
