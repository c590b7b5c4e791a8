"""Guides and comments name files and folders that exist."""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = r"(?:[\w-]+/)*[\w.-]*\w\.(?:py|md|json|toml|txt|sh|html|ipynb|yml)"
QUOTED: Final = re.compile(rf"`({FILE})(?:::?[^`]*)?`")
LINKED: Final = re.compile(r"\]\((?!https?:|#)([^)\s#]+)")
FOLDERS: Final = (
    "bench demo docs kv kvorum procedures pyspark_kvorum raft scripts sqlproxy tests tso txn"
)
IN_CODE: Final = re.compile(rf"(?<![\w./-])(?:{FOLDERS.replace(' ', '|')})/{FILE}(?![\w*{{]|\.\w)")
DECISION: Final = re.compile(r"docs/decisions/(\d{4})(?!\d)")
OF_USERS: Final = {
    "shop.py",
    "first.py",
    "payments.py",
    "test_payments.py",
    "export.json",
    "part-00000.csv",
}
GONE: Final = {  # what a decision says was there before, or may not be there
    ("docs/decisions/0312-a-short-way-over-several-partitions.md", "txn/small.py"),
    ("docs/decisions/1200-rooms.md", "connect.py"),
    ("docs/decisions/1370-nothing-holds-the-interpreter.md", "pgcatalog/computed.py"),
}
MADE_UP: Final = {  # or of other projects
    "tests/arch/test_turns.py",
    "tests/arch/test_named_files.py",
    "tests/clients/sql/suites/suites.py",
}

FILES: Final = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
ENDS: Final = {
    file[at:] for file in FILES for at in (0, *(m.end() for m in re.finditer("/", file)))
}
"""Whatever a file may be called by: its path, or the end of it."""


def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_every_file_that_a_page_names_exists() -> None:
    """Who is led to a file that was moved finds nothing, and believes the rest of the page no
    more.
    """
    pages = [f for f in FILES if f.endswith(".md") and (f.startswith("docs/") or "/" not in f)]
    assert [
        f"{page}: {name}"
        for page in [*pages, "raft/README.md"]
        for name in QUOTED.findall(text_of(page))
        if name not in ENDS | OF_USERS and (page, name) not in GONE
    ] == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    """A link that is not found."""
    pages = [file for file in FILES if file.endswith(".md")]
    assert [
        f"{page}: {link}"
        for page in pages
        for link in LINKED.findall(text_of(page))
        if not (ROOT / posixpath.dirname(page) / link).exists()
    ] == []


def test_every_file_that_code_names_exists() -> None:
    """A comment that leads to a file that is not there any more."""
    decisions = {file[15:19] for file in FILES if file.startswith("docs/decisions/")}
    missing = []
    for file in FILES:
        if file.endswith(".py") and file not in MADE_UP:
            text = text_of(file)
            missing += [f"{file}: {name}" for name in IN_CODE.findall(text) if name not in ENDS]
            missing += [f"{file}: {one}" for one in DECISION.findall(text) if one not in decisions]
    assert missing == []
