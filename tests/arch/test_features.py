"""docs/features.md is a table that people read, and it is true: each line names tests that exist.

    | id | one sentence for a user | one to three links: [test_function](../tests/file.py) |

Lines are grouped under one heading per letter and sorted by id.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.each import each
from tests.kit.turns import ALL_SLOW

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "features.md").read_text()
SENTENCE_CHARACTERS_MAX = 200
LINK = r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)"
ROW = re.compile(rf"\| ([A-Z]\d{{1,2}}) \| ([^|]+) \| ({LINK}(?:, {LINK}){{0,2}}) \|")
SLOW = re.compile(r"mark\.slow\b")
# Its decorators, line by line, and the ids in its name. Parsing all tests takes seconds.
WITH_IDS = re.compile(
    r"^((?:[@#].*\n(?:[ )\]].*\n)*)*)(?:async )?def test((?:_[a-z]\d{1,2})+)(?=_)", re.M
)
HEAD = ["| id | what works | tests |", "|---|---|---|"]

LINES = [line for line in PAGE.splitlines() if line.startswith("|") and line not in HEAD]
ROWS = [match for line in LINES if (match := ROW.fullmatch(line))]
IDS = [row[1] for row in ROWS]


def test_every_row_has_the_form() -> None:
    """A row that is no line of the table would be checked by nothing below."""
    assert [line for line in LINES if not ROW.fullmatch(line)] == []


@each("row", ROWS, ids=lambda row: row[1])
def test_every_row_is_a_short_text(row: re.Match[str]) -> None:
    """Rows grew to 8,000 characters, which nobody read."""
    assert len(row[2]) <= SENTENCE_CHARACTERS_MAX
    assert row[2].endswith(".")


def test_ids_are_sorted_and_occur_once_under_their_letter() -> None:
    """A feature in two rows has two descriptions, and one out of order is not found."""
    order = [(name[0], int(name[1:])) for name in IDS]
    assert order == sorted(set(order))
    headings = re.findall(r"^## ([A-Z])\. .+\n\n(?:\|.*\n){2}((?:\|.*\n)+)", PAGE, re.M)
    grouped = [
        (letter, name) for letter, rows in headings for name in re.findall(r"^\| (\w+)", rows, re.M)
    ]
    assert grouped == [(name[0], name) for name in IDS]


def test_named_tests_exist() -> None:
    """A renamed test would leave a feature without its proof."""
    named = sorted({(path, name) for row in ROWS for name, path in re.findall(LINK, row[3])})
    texts = {path: _text(path) for path, _ in named}
    assert [
        f"{path} has no {name}" for path, name in named if f"def {name}(" not in texts[path]
    ] == []


def _text(path: str) -> str:
    file = ROOT / path
    return file.read_text() if file.exists() else ""


def _of_every_run() -> set[str]:
    """Ids in the names of the tests that `make test` runs."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {
        name
        for text in texts
        if not ALL_SLOW.search(text)
        for marks, ids in WITH_IDS.findall(text)
        if not SLOW.search(marks)
        for name in ids.upper().split("_")
    }


def test_every_feature_is_tested_in_every_run() -> None:
    """A feature breaks, and `make test` says that all is well."""
    assert set(IDS) <= _of_every_run()
