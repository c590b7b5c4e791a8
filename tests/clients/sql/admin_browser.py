"""Django's admin over Kvorum in a headless Chromium: log in, add, change and delete rows, as a
person does. `python -m tests.clients.sql.admin_browser [FOLDER for screenshots]`, or `make admin`:
half a minute, so it is no part of the tests (those use Django's own client:
tests/clients/sql/test_django.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from tests.clients.sql.test_django import SITE
from tests.kit.browser import Browser, browser
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess


def play(page: Browser, url: str, db: psycopg.Connection, shots: Path) -> None:
    """Everything; AssertionError if something is not as it should be."""
    page.open(f"{url}/admin/")
    page.type("#id_username", "root")
    page.type("#id_password", "pw")
    _send(page, "[type=submit]", "Site administration")
    _told("logged in")
    page.open(f"{url}/admin/shop/author/add/")
    page.type("#id_name", "Ada Lovelace")
    page.type("#id_born", "1815-12-10")
    _send(page, "[name=_save]", "was added successfully")
    found = db.execute("SELECT id, name, born::text FROM shop_author").fetchall()
    assert [row[1:] for row in found] == [("Ada Lovelace", "1815-12-10")], found
    page.screenshot(shots / "added.png")
    _told("added a row")
    author = found[0][0]
    page.open(f"{url}/admin/shop/book/add/")
    page.choose("#id_author", str(author))
    page.type("#id_title", "Notes")
    page.type("#id_price", "12.50")
    _send(page, "[name=_save]", "was added successfully")
    assert db.execute("SELECT title, price::text FROM shop_book").fetchall() == [("Notes", "12.50")]
    _told("added a row that refers to it")
    page.open(f"{url}/admin/shop/author/{author}/change/")
    page.type("#id_name", "Ada King")
    _send(page, "[name=_save]", "was changed successfully")
    assert db.execute("SELECT name FROM shop_author").fetchall() == [("Ada King",)]
    page.screenshot(shots / "changed.png")
    _told("changed it")
    page.open(f"{url}/admin/shop/author/add/")
    page.type("#id_name", "Ada King")
    _send(page, "[name=_save]", "already exists")
    _told("a name that is there is refused")
    page.open(f"{url}/admin/shop/author/{author}/delete/")
    assert "Notes" in page.text(), "what goes along is shown"
    page.screenshot(shots / "deleting.png")
    _send(page, "#content [type=submit]", "was deleted successfully")
    left = "SELECT (SELECT count(*) FROM shop_author), (SELECT count(*) FROM shop_book)"
    assert db.execute(left).fetchone() == (0, 0)
    _told("deleted it, and what referred to it")
    page.open(f"{url}/admin/")
    page.screenshot(shots / "front.png")
    log = db.execute("SELECT count(*) FROM django_admin_log").fetchone()
    assert log == (4,), log
    errors = [one for one in page.complaints if "favicon.ico" not in one]
    assert not errors, errors


def _send(page: Browser, button: str, expected: str) -> None:
    page.click(button)
    page.wait(f"document.body && document.body.innerText.includes({expected!r})")


def _told(what: str) -> None:
    sys.stdout.write(f"ok {what}\n")
    sys.stdout.flush()


def main(shots: Path) -> None:
    shots.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as found,
        NodeProcess(Path(found) / "data", free_port_base()) as node,
    ):
        folder, http_port = Path(found), free_port_base()
        node.start()
        port = node.base + 3
        with psycopg.connect(
            f"host=127.0.0.1 port={port} user=kvorum dbname=postgres", autocommit=True
        ) as db:
            site = shutil.copytree(
                SITE, folder / "site", ignore=shutil.ignore_patterns("__pycache__")
            )
            command = [sys.executable, "serve.py", str(port), "postgres", str(http_port)]
            with subprocess.Popen(command, cwd=site, stdout=subprocess.PIPE, text=True) as served:
                try:
                    assert served.stdout is not None
                    assert served.stdout.readline() == "serving\n", "Django does not start"
                    _told("migrated")
                    with browser(folder / "chromium") as page:
                        play(page, f"http://127.0.0.1:{http_port}", db, shots)
                finally:
                    served.kill()
        node.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
