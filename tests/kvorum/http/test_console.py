"""/console, the operator's page: what is served, and what a browser makes of it (M9)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest

import kvorum
from kvorum.http import console
from kvorum.http.routes.openapi import ROUTES
from tests.kit.browser import Browser
from tests.kit.machine import free_port_base
from tests.kvorum.http.conftest import MARKUP, Place, show

_FILES = Path(console.__file__).parent


# ------------------------------------------------------------------------------------ as served


def test_m9_files_are_served_with_a_policy(place: Place) -> None:
    """A page that is not in the package, or may load scripts from elsewhere, is no console."""
    html = httpx.get(f"{place.url}/console")
    assert html.status_code == 200
    assert html.headers["content-type"].startswith("text/html")
    linked = re.findall(r'(?:src|href)="(console/[^"]+)"', html.text)
    assert len(linked) == 3
    linked = [*linked, *(f"console/{name}" for name in console.SCRIPTS)]
    for path, kind in ((one, "javascript" if one.endswith("js") else "css") for one in linked):
        file = httpx.get(f"{place.url}/{path}")
        assert file.status_code == 200, path
        assert kind in file.headers["content-type"]
        assert "default-src 'none'" in file.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in html.headers["content-security-policy"]
    assert httpx.post(f"{place.url}/console").status_code == 405


def test_m9_nothing_from_other_hosts_and_no_markup_from_text() -> None:
    """Cut off from the internet it must work; a name that is markup must stay text."""
    for name in ("console.html", "console.css", *console.SCRIPTS):
        text = (_FILES / name).read_text()
        assert "//" not in re.sub(r"^\s*//.*$|\s// .*$", "", text, flags=re.M), name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (name, word)


def test_m9_asks_only_routes_that_there_are() -> None:
    """A route that was renamed would leave a page that shows nothing but errors."""
    script = "".join((_FILES / name).read_text() for name in console.SCRIPTS)
    asked = set(re.findall(r"[`\"](v1/[^`\"?]*)", script))
    assert len(asked) >= 10
    known = [re.compile("^" + re.sub(r"\{\w+\}", "[^/]+", r.path[1:]) + "$") for r in ROUTES]
    for path in asked:
        plain = re.sub(r"\$\{query\(.*$", "", path)
        plain = re.sub(r"\$\{what\}", "abort", plain)
        plain = re.sub(r"\$\{[^}]*\}+\)?\}?", "x", plain)
        assert any(route.match(plain) for route in known), (path, plain)


def test_m2_a_procedure_tells_its_rounds_of_children(place: Place) -> None:
    """Without them nobody finds the children of one that has ended."""
    id = place.begun("import/rounds")
    told = httpx.get(f"{place.url}/v1/procedures/{id}").json()
    ((first, count),) = [(int(r["first"]), r["count"]) for r in told["children"]]
    assert count == 2
    for child in (first, first + 1):
        shown = httpx.get(f"{place.url}/v1/procedures/{child}").json()
        assert (shown["parent"], shown["name"]) == (str(id), "console.child")
        assert "children" not in shown
    place.db.abort_procedure(id, "seen")


# --------------------------------------------------------------------------------- in a browser


def test_m9_lists_and_filters_procedures(page: Browser, place: Place) -> None:
    """The list is what an operator looks at first: all of M3, and a filter that finds one."""
    id = place.begun("import/listed")
    failed = place.db.submit("console.broken", "told so")
    show(page, place, "procedures")
    page.wait(f"document.querySelector('#list a[href=\"#/procedures/{failed}\"]')")
    link = f'td:first-child a[href="#/procedures/{id}"]'
    row = page.js(f"document.querySelector('#list {link}').closest('tr').innerText")
    for word in ("console.import", "WAITING", "finish", "user", "exclusive import/listed"):
        assert word in row
    assert re.search(r"\d+ ms|\d\.\d s", row), row
    page.choose("#state", "FAILED")
    page.wait("!document.body.innerText.includes('import/listed')")
    assert "BROKEN: told so" in page.text()
    page.choose("#state", "")
    page.type("#text", "IMPORT/LISTED waiting")
    page.wait("document.querySelectorAll('#list tbody tr').length === 1")
    page.click(f"#list {link}")
    page.wait("document.querySelector('#sentence')")
    place.db.abort_procedure(id, "seen")
    assert page.complaints == []


@pytest.mark.slow
def test_m9_shows_one_with_all_about_it(page: Browser, place: Place) -> None:
    """Steps, locks, waits, children and the sentence of explain: why it stands still."""
    id = place.begun("import/shown")
    waiting = place.db.submit("console.import", {"lock": "import/shown"})
    show(page, place, f"procedures/{id}")
    page.wait("document.querySelector('#sentence')")
    text = page.text()
    assert f"procedure {id} (console.import) waits for its children" in text
    for word in ("prepare", "spread", "exclusive", "import/shown", "console.child", "children"):
        assert word in text
    assert page.js("document.querySelectorAll('a[href^=\"#/procedures/\"]').length") >= 2
    show(page, place, f"procedures/{waiting}")
    page.wait("document.querySelector('#sentence')")
    assert f"held by procedure {id} (console.import)" in page.text()
    place.db.abort_procedure(waiting, "seen")
    place.db.abort_procedure(id, "seen")
    assert page.complaints == []


@pytest.mark.slow
def test_m9_acts_only_after_a_dry_run_of_the_same(page: Browser, place: Place) -> None:
    """One click that bypasses what somebody did not mean cannot be taken back."""
    id = place.begun("import/bypassed")
    show(page, place, f"procedures/{id}")
    page.click("#bypass")
    page.click("#dry")
    page.wait("document.querySelector('#told').innerText.includes('Say why')")
    page.type("#reason", "its host is gone")
    page.type("#actor", "ann")
    page.click("#dry")
    page.wait("document.querySelector('#told').innerText.includes('HAS_CHILDREN')")
    assert page.js("document.querySelector('#act').disabled") is True
    page.click("#recursive")
    page.click("#dry")
    page.wait("document.querySelector('#told').innerText.includes('BYPASSED')")
    told = page.js("document.querySelector('#told').innerText")
    assert "Would change" in told
    assert "frees exclusive import/bypassed" in told
    assert told.count("console.child") == 2
    assert place.db.procedure(id).state == "WAITING"
    page.type("#reason", "another reason")  # not what the dry run was told
    assert page.js("document.querySelector('#act').disabled") is True
    page.click("#dry")
    page.wait("!document.querySelector('#act').disabled")
    page.click("#act")
    page.wait("document.querySelector('#told').innerText.startsWith('Changed')")
    assert place.db.procedure(id).state == "BYPASSED"
    (entry,) = place.db.audit(id)
    assert (entry["actor"], entry["reason"], entry["what"]) == ("ann", "another reason", "bypass")
    page.wait("document.querySelector('#shown').innerText.includes('another reason')")
    page.wait("document.querySelector('#abort').disabled")
    # a refusal is told in words, and is an answer with its status in the browser's own log
    assert [c for c in page.complaints if "409" not in c] == []
    page.complaints.clear()


@pytest.mark.slow
def test_m9_aborts_and_retries(page: Browser, place: Place) -> None:
    """Every button does what it says."""
    id = place.begun("import/aborted")
    show(page, place, f"procedures/{id}")
    page.click("#abort")
    page.type("#reason", "not wanted")
    page.click("#dry")
    page.wait("!document.querySelector('#act').disabled")
    page.click("#act")
    page.wait("document.querySelector('#shown').innerText.includes('ROLLED_BACK')")
    (first, *_rest) = place.db.procedure(id).steps or []
    assert first["step"] == "prepare"
    child = place.db.submit("console.child", None)
    show(page, place, f"procedures/{child}")
    page.wait("document.querySelector('#shown').innerText.includes('never')")
    page.click("#retry")
    page.type("#reason", "it came by mail")
    page.click("#dry")
    page.wait("!document.querySelector('#act').disabled")
    page.click("#act")
    page.wait("document.querySelector('#shown').innerText.includes('SUCCESS')")
    assert page.complaints == []


@pytest.mark.slow
def test_m9_lists_locks_nodes_and_partitions(page: Browser, place: Place) -> None:
    """The other pages: who holds what, who lives, what lies where; and a lock can be taken away."""
    id = place.begun("import/stolen")
    waiting = place.db.submit("console.import", {"lock": "import/stolen"})
    show(page, place, "locks")
    page.type("#text", "import/stolen")
    page.wait("document.querySelectorAll('button.steal').length === 1")
    assert "waits for it" in page.text()
    page.click("#live")  # what is looked at now is not laid out anew
    page.wait("!console_.asking")
    # An answer that comes meanwhile replaces no button, whose click would be lost.
    page.click(
        "button.steal",
        "Promise.race([console_.refresh(), new Promise(done => setTimeout(done, 1000))])",
    )
    page.type("#reason", "the other one goes first")
    page.click("#dry")
    page.wait("!document.querySelector('#act').disabled")
    assert "frees exclusive import/stolen" in page.text()
    page.click("#act")
    page.wait("document.querySelector('#told').innerText.startsWith('Changed')")
    end = time.monotonic() + 20
    while (
        place.db.procedure(waiting).state != "WAITING"
        or place.db.procedure(waiting).step != "finish"
    ):
        assert time.monotonic() < end, "the next one did not get the lock"
        time.sleep(0.05)
    show(page, place, "nodes")
    page.wait("document.querySelector('tbody')")
    row = page.js("document.querySelector('tbody tr').innerText")
    for word in ("(master)", "live", "GiB"):
        assert word in row
    show(page, place, "partitions")
    page.wait("document.body.innerText.includes('default.orders m')")
    page.type("#text", "default.orders")
    page.wait("document.querySelectorAll('tbody tr').length === 3")  # one up to it, two of it
    assert "false" not in page.text()
    place.db.abort_procedure(waiting, "seen")
    place.db.abort_procedure(id, "seen")
    assert page.complaints == []


@pytest.mark.slow
def test_m9_markup_in_an_error_stays_text(page: Browser, place: Place) -> None:
    """Who may submit a procedure must not run scripts in the browser of an operator."""
    id = place.db.submit("console.broken", MARKUP)
    for path in ("procedures", f"procedures/{id}"):
        show(page, place, path)
        page.wait("document.body.innerText.includes('onerror=')")
        assert page.js("document.querySelectorAll('img').length") == 0
        assert page.js("document.title").endswith("Kvorum console")
    assert page.complaints == []


@pytest.mark.slow
def test_m9_says_that_the_node_does_not_answer(page: Browser, tmp_path: Path, place: Place) -> None:
    """Old figures under a node that is gone would be believed; when it is back, so is the page."""
    base = free_port_base()
    there = Place(f"http://127.0.0.1:{base + 2}", place.db)
    with kvorum.open(tmp_path / "data", port=base):
        show(page, there, "nodes")
        assert page.js("document.querySelector('#trouble').hidden") is True
    page.wait("!document.querySelector('#trouble').hidden")
    assert "does not answer" in page.js("document.querySelector('#trouble').innerText")
    with kvorum.open(tmp_path / "data", port=base):
        page.wait("document.querySelector('#trouble').hidden")
    page.complaints.clear()  # refused connections
