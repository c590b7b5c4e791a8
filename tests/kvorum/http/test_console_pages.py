"""The pages of the console in a browser: overview, data and SQL, lists; how they look, and whether
everybody can use them (M9).
"""

from __future__ import annotations

import json

import httpx
import pytest

from kv.base.limits import SINK_EXPIRED_MS
from kv.base.ops import put
from kvorum.sdk.database import AsyncDatabase
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    add_crc,
    attempt_key,
    pack_chunk,
)
from procedures.verbs import SINK_COMMIT, SINK_SEAL
from tests.kit.browser import Browser
from tests.kvorum.http.conftest import MARKUP, Place, show

pytestmark = pytest.mark.slow

PAGES = (
    *("overview", "data", "procedures", "schedules", "queues", "workers", "sinks", "locks"),
    *("nodes", "partitions"),
)
CHANGED = """(() => {
    const real = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await real(path, options);
        if (!path.startsWith(%s)) return answer;
        const told = await answer.json();
        (%s)(told);
        return new Response(JSON.stringify(told), { status: answer.status });
    };
    return console_.refresh().then(() => true);
})()"""
"""An answer of the node as it would be on a worse day."""
NAMELESS = """[...document.querySelectorAll('input, select, textarea, button, a, meter, progress')]
    .filter(e => e.offsetParent !== null)
    .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim()))
    .filter(e => !e.closest('label')?.textContent.trim())
    .map(e => e.outerHTML)"""


def sql(place: Place, statement: str) -> None:
    body = {"statement": statement, "read_only": False}
    answer = httpx.post(f"{place.url}/v1/sql", json=body, timeout=60)
    assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def customers(place: Place) -> Place:
    """A table with 150 rows and an index."""
    sql(place, "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL)")
    sql(place, "CREATE INDEX customers_name ON customers (name)")
    rows = "SELECT x, 'name ' || x FROM generate_series(1, 150) g(x)"
    sql(place, f"INSERT INTO customers {rows}")
    return place


def test_m9_the_overview_says_that_all_is_well_or_what_is_not(page: Browser, place: Place) -> None:
    """A dead node that looks like the others is noticed by nobody."""
    show(page, place, "overview")
    page.wait("document.querySelector('#attention')")
    assert page.js("document.querySelectorAll('.node.dead').length") == 0
    assert "No backup is scheduled" in page.text()
    worse = """told => {
        const dead = { id: 2, state: 'down', health: 'dead', heard_ms: 600000 };
        told.nodes.push({ ...told.nodes[0], ...dead });
        const title = 'Node 2 is down', text = '<b>x</b>';
        told.attention.unshift({ level: 'bad', kind: 'node', title, text, do: 'y', page: 'nodes' });
    }"""
    page.js(CHANGED % (json.dumps("v1/overview"), worse))
    page.wait("document.querySelector('.node.dead')")
    first = page.js("document.querySelector('#attention li').innerText")
    assert "Act now" in first
    assert "Node 2 is down" in first
    assert "<b>x</b>" in first
    assert "1 of 2" in page.js("document.querySelector('.tiles').innerText")
    dead, live = (
        page.js(f"getComputedStyle(document.querySelector('{which}')).backgroundImage")
        for which in (".node.dead", ".node:not(.dead)")
    )
    assert dead != live == "none"
    page.click("#attention a")
    page.wait("location.hash === '#/nodes'")
    assert page.complaints == []


def test_m9_pictures_are_drawn_of_samples_and_read_by_everybody(
    page: Browser, place: Place
) -> None:
    """The last hour, as lines and a heat map, with words for who does not see them."""
    samples = """told => {
        const now = Date.now();
        const one = (node, i) => [now - (100 - i) * 15000, 10 * i, i, 1000, 1, 2 + node, 5, i, 0.5];
        told.items = [1, 2].map(node => ({ node, samples: Array.from({ length: 100 },
            (_, i) => [...one(node, i), [[2, i], [3, 1]]]) }));
    }"""
    page.open("about:blank")
    page.open(f"{place.url}/console#/nodes")
    page.wait("document.body.dataset.looks")
    page.js(CHANGED % (json.dumps("v1/hour"), samples))
    page.js("location.hash = '#/overview'")
    page.wait("document.querySelectorAll('svg.chart').length === 5")
    assert page.js("document.querySelectorAll('#load path').length") == 2
    assert page.js("document.querySelectorAll('#latency path').length") == 2
    assert page.js("document.querySelectorAll('svg.heat rect.hot').length") > 20
    spoken = page.js("document.querySelector('#latency svg').getAttribute('aria-label')")
    assert "node 1 3 ms" in spoken
    page.js(
        "(e => e.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, "
        "clientX: e.getBoundingClientRect().x + 50 })))(document.querySelector('#load svg'))"
    )
    assert "reads" in page.js("document.querySelector('#load .told').textContent")
    assert page.complaints == []


def test_m9_a_refresh_neither_flickers_nor_forgets(page: Browser, place: Place) -> None:
    """What one types, marks or has opened is gone every two seconds."""
    id = place.begun("import/still")
    show(page, place, f"procedures/{id}")
    page.wait("document.querySelector('svg.gantt')")
    page.click("#signal")
    page.type("#talk-name", "half a na")
    page.js("document.querySelector('details.block').open = false")
    page.js(
        "document.querySelectorAll('#shown dl, #shown svg, #shown table').forEach(e => e.mine = 1)"
    )
    looks = int(page.js("document.body.dataset.looks"))
    page.wait(f"document.body.dataset.looks >= {looks + 2}")
    assert page.js("document.querySelector('#talk-name').value") == "half a na"
    assert page.js("document.activeElement.id") == "talk-name"
    for which in ("dl", "table"):
        assert page.js(f"document.querySelector('#shown {which}').mine") == 1, which
    assert page.js("document.querySelector('details.block').open") is False
    place.db.abort_procedure(id, "seen")
    assert page.complaints == []


def test_m9_a_procedure_is_told_as_a_picture_and_talked_to(page: Browser, place: Place) -> None:
    """Steps, waits, children over time; and a signal from its page."""
    id = place.begun("import/picture")
    show(page, place, f"procedures/{id}")
    page.wait("document.querySelectorAll('svg.gantt rect.child').length === 2")
    labels = page.js(
        "[...document.querySelectorAll('svg.gantt text.name')].map(e => e.textContent)"
    )
    assert any(label.startswith("prepare") for label in labels)
    assert page.js("document.querySelectorAll('svg.gantt rect.done').length") >= 2
    page.click("#signal")
    page.type("#talk-name", "hello")
    page.type("#talk-data", "{broken")
    page.click("#send")
    page.wait("document.querySelector('#told').innerText.includes('no JSON')")
    page.type("#talk-data", '{"a": [1]}')
    page.click("#send")
    page.wait("document.querySelector('#told').innerText.includes('Sent.')")
    page.click("a[title='As it was then']")
    page.wait("document.querySelector('#past')?.innerText.includes('As it was at')")
    assert "spread" in page.js("document.querySelector('dl').innerText"), "what came next"
    assert page.js("document.activeElement.id") == "heading"
    place.db.abort_procedure(id, "seen")
    assert page.complaints == []


def test_m9_lists_are_paged(page: Browser, place: Place) -> None:
    """The 101st of 10,000 procedures would be found by nobody, or all of them are laid out."""
    first = place.db.submit("console.broken", "the first of many")
    for _ in range(120):
        place.db.submit("console.broken", "x")
    show(page, place, "procedures")
    page.choose("#state", "FAILED")
    page.wait("document.querySelectorAll('#list tbody tr').length === 100")
    assert page.js("document.querySelector('#newer').disabled") is True
    page.click("#older")
    page.wait(f"document.querySelector('#list a[href=\"#/procedures/{first}\"]')")
    page.click("#newer")
    page.wait(f"!document.querySelector('#list a[href=\"#/procedures/{first}\"]')")
    assert page.complaints == []


def test_m9_tables_are_looked_through(page: Browser, customers: Place) -> None:
    """Columns, indexes, and rows by pages."""
    show(page, customers, "data/default/public/customers")
    page.wait("document.querySelector('#rows tbody tr')")
    about = page.js("document.querySelector('#about').innerText")
    for word in ("id", "integer", "key", "not null", "customers_name"):
        assert word in about
    assert "rows 1 to 100" in page.text()
    page.click("#rows-on")
    page.wait("document.querySelector('#rows').innerText.includes('rows 101 to 150')")
    assert page.js("document.querySelector('#rows-on').disabled") is True
    assert page.complaints == []


def test_m9_statements_run_with_errors_plans_and_history(page: Browser, customers: Place) -> None:
    """A result grid, the place of an error, a plan as a tree; nothing written by a slip."""
    show(page, customers, "data")
    page.wait("document.querySelector('#tree a')")
    page.type("#sql", "SELECT id, NULL::text AS nothing FROM customers ORDER BY id LIMIT 3")
    page.click("#run")
    page.wait("document.querySelector('#tag')")
    assert page.js("document.querySelectorAll('#answer tbody tr').length") == 3
    assert page.js("document.querySelector('#answer .null').textContent") == "null"
    page.type("#sql", "SELECT id\nFROM customers\nWHERE nam = 1")
    page.click("#run")
    page.wait("document.querySelector('#sqlerror')")
    told = page.js("document.querySelector('#sqlerror').innerText")
    assert "42703" in told
    assert "line 3, column 7" in told
    page.type("#sql", "SELECT * FROM customers WHERE name = 'name 7'")
    page.click("#analyze")
    page.wait("document.querySelector('#plan')")
    plan = page.js("document.querySelector('#plan').innerText")
    assert "customers_name" in plan
    page.type("#sql", "DELETE FROM customers WHERE id = 150")
    page.click("#run")
    page.wait("document.querySelector('#sqlerror')")
    assert "25006" in page.js("document.querySelector('#sqlerror').innerText")
    page.click("#writes")
    page.click("#run")
    page.wait("document.querySelector('#tag')?.innerText.includes('DELETE 1')")
    past = page.js("[...document.querySelector('#history').options].map(o => o.textContent)")
    assert past[1].startswith("DELETE")
    page.js("location.hash = '#/nodes'")
    page.wait("!document.querySelector('#sql')")
    page.js("location.hash = '#/data'")
    page.wait("document.querySelector('#sql')?.value.startsWith('DELETE')")
    assert [c for c in page.complaints if "status of 4" not in c] == []
    page.complaints.clear()


@pytest.mark.parametrize("width", [390, 1280])
def test_m9_every_page_fits_and_has_names_for_what_is_used(
    page: Browser, customers: Place, width: int
) -> None:
    """On a telephone the page moves sideways; a screen reader says "button" and no more."""
    page.size(width, 844)
    for path in (*PAGES, "data/default/public/customers"):
        show(page, customers, path)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.js(wide) <= 0, (path, width)
        assert page.js(NAMELESS) == [], path
        assert page.js("document.querySelectorAll('h1').length") == 1
        assert page.js("[...document.querySelectorAll('th')].every(e => e.scope === 'col')")
    page.size(1280, 900)
    assert page.complaints == []


def test_m9_dark_and_light_as_the_system_or_as_one_likes(page: Browser, place: Place) -> None:
    """Who works at night is blinded; what he chose is forgotten at the next visit."""
    colour = "getComputedStyle(document.body).backgroundColor"
    page.size(1280, 900, "light")
    show(page, place, "nodes")
    light = page.js(colour)
    page.size(1280, 900, "dark")
    dark = page.js(colour)
    assert dark != light
    page.choose("#theme", "light")
    assert page.js(colour) == light
    show(page, place, "nodes")
    assert page.js(colour) == light
    page.choose("#theme", "auto")
    page.size(1280, 900, "light")
    assert page.complaints == []


def test_m9_markup_from_anywhere_stays_text(page: Browser, customers: Place) -> None:
    """Rows, names of schedules and tables: who can write one would run scripts as an operator."""
    quoted = MARKUP.replace("'", "''")
    sql(customers, f"INSERT INTO customers VALUES (1000, '{quoted}')")
    sql(customers, f'CREATE TABLE "{MARKUP[:18]}>" (id int PRIMARY KEY, "<i>c" int)')
    schedule = {"name": MARKUP[:60], "cron": "0 0 1 1 *", "procedure": "console.child"}
    assert httpx.post(f"{customers.url}/v1/schedules", json=schedule, timeout=20).is_success
    show(page, customers, "data")
    page.wait("document.querySelector('#tree a')")
    page.type("#sql", "SELECT * FROM customers WHERE id = 1000")
    page.click("#run")
    page.wait("document.querySelector('#answer')?.innerText.includes('onerror=')")
    tables = "[...document.querySelectorAll('#tree a')]"
    page.js(f"{tables}.find(e => e.textContent.includes('<img')).click()")
    page.wait("document.querySelector('#about')?.innerText.includes('<i>c')")
    assert page.js("document.querySelectorAll('img, main script, i').length") == 0
    show(page, customers, "schedules")
    page.wait("document.querySelector('tbody')?.innerText.includes('<img')")
    assert page.js("document.querySelectorAll('img, main script').length") == 0
    assert page.js("document.title").endswith("Kvorum console")
    gone = httpx.delete(f"{customers.url}/v1/schedules/{MARKUP[:60]}", timeout=20)
    assert gone.is_success or gone.status_code == 404
    assert page.complaints == []


def test_m9_schedules_and_limits_are_changed_there(page: Browser, place: Place) -> None:
    """A form of each, and what was refused is said."""
    show(page, place, "schedules")
    page.click("details.add summary")
    page.type("[name=name]", "console test")
    page.type("[name=cron]", "nonsense")
    page.type("[name=procedure]", "console.child")
    page.click("details.add button")
    page.wait("document.querySelector('details.add').innerText.includes('cron expression')")
    page.type("[name=cron]", "0 3 1 1 *")
    page.click("details.add button")
    page.wait("document.querySelector('tbody')?.innerText.includes('console test')")
    page.click("td button")  # Pause
    page.type("#note", "not in this test")
    page.click("#act")
    page.wait("document.querySelector('tbody').innerText.includes('not in this test')")
    remove = "[data-of='Remove console test'] button"
    page.click(remove)
    page.wait(f"document.querySelector(\"{remove}\").textContent.includes('sure')")
    page.click(remove)
    page.wait("!document.querySelector('tbody')?.innerText.includes('console test')")
    show(page, place, "queues")
    limit = "details.add:has([name=max_concurrent])"
    page.click(f"{limit} summary")
    page.type("[name=name]", "slow")
    page.type("[name=max_concurrent]", "3")
    page.click(f"{limit} button")
    page.wait("document.querySelector('tbody')?.innerText.includes('of 3')")
    assert [c for c in page.complaints if "status of 4" not in c] == []
    page.complaints.clear()


async def sinks_at_work(db: AsyncDatabase) -> None:
    """One attempt that stages, one that is committed, one whose writer is silent, and one whose
    lease ended; the name of what is staged is markup.
    """
    backend = db._backend
    orders = next(one for one in await db.tables("default") if one.name == "orders")
    for name in ("at-work", MARKUP[:60], "done"):
        chunk = pack_chunk([b"sink"], [name.encode()])
        sealed = [1, 1, add_crc(0, 0, chunk)]
        await backend.kv.call_node(SINK_SEAL, name, orders.id, 0, f"t-{name}", *sealed, chunk)
    batch = {"attempt": "done", "table": orders.id, "app": "", "version": 0, "query": ""}
    request = {**batch, "manifest": [[0, "t-done", *sealed]]}
    while (await backend.kv.call_node(SINK_COMMIT, request))[0]:
        pass
    now_ms = backend.txn.clock.now_ms()
    about = About(now_ms - 3_600_000, "ann", "nightly", 41)
    gone = Attempt(AttemptState.EXPIRED, orders.id, now_ms + SINK_EXPIRED_MS, 0, about)
    dying = Attempt(AttemptState.OPEN, orders.id, now_ms + 60_000)
    for name, one in (("gone", gone), (MARKUP[:60], dying)):
        await backend.txn.write([put(attempt_key(name), one.pack())])


def test_m9_what_sinks_have_staged_and_left_is_shown(page: Browser, customers: Place) -> None:
    """A writer that died leaves something, and nobody knows what becomes of it."""
    customers.db._call(sinks_at_work(customers.db._async))
    for width, scheme in ((1280, "light"), (390, "dark")):
        page.size(width, 900, scheme)
        show(page, customers, "sinks")
        page.wait("document.querySelectorAll('#staged tbody tr').length === 3")
        rows = page.js("[...document.querySelectorAll('#staged tbody tr')].map(e => e.innerText)")
        silent, gone, works = rows
        if MARKUP[:20] not in silent:
            silent, gone = gone, silent
        assert "silent" in silent
        assert "kvorum spark abort" in silent
        assert "default.orders" in works
        assert "It is being written." in works
        for word in ("expired", "nightly", "batch 41", "ann", "run the batch again"):
            assert word in gone
        levels = "[...document.querySelectorAll('#staged .state')].map(e => e.className)"
        assert page.js(levels) == ["state warn", "state warn", "state good"]
        assert page.js("document.querySelectorAll('img, main script').length") == 0
        commits = page.js("[...document.querySelectorAll('#shown .scroll')].at(-1).innerText")
        assert "kvorum.sink_commit" in commits
        assert "SUCCESS" in commits
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.js(wide) <= 0
    page.size(1280, 900, "light")
    page.type("#text", "nightly")
    page.wait("document.querySelectorAll('#staged tbody tr').length === 1")
    told = httpx.get(f"{customers.url}/v1/sinks", timeout=20).json()
    assert {one["state"] for one in told["items"]} == {"OPEN", "EXPIRED"}
    assert page.complaints == []


def test_m9_all_that_fit_are_acted_on_after_a_dry_run(page: Browser, place: Place) -> None:
    """A hundred procedures of one kind, each aborted by hand; or others with them."""
    ids = [place.begun(f"bulk/{n}") for n in range(2)]
    other = place.db.submit("console.child", None)
    show(page, place, "procedures")
    page.type("#name", "console.import")
    page.js("document.querySelector('#name').dispatchEvent(new Event('change'))")
    page.wait(f"!document.querySelector('#list a[href=\"#/procedures/{other}\"]')")
    page.click("#bulk summary")
    page.click("#bulk-abort")
    assert '{"type":"console.import"}' in page.js("document.querySelector('#bulk').innerText")
    page.type("#reason", "all of them")
    page.click("#dry")
    page.wait("document.querySelector('#told').innerText.includes('Would act on')")
    page.click("#act")
    page.wait("document.querySelector('#told').innerText.includes('does it')")
    show(page, place, f"procedures/{ids[0]}")
    page.wait("document.querySelector('#shown').innerText.includes('ROLLED_BACK')")
    assert place.db.procedure(other).state == "WAITING"
    page.wait(
        "document.querySelector('#abort').disabled && !document.querySelector('#fork').disabled"
    )
    page.click("#fork")
    page.type("#step", "prepare")
    page.type("#reason", "once more")
    page.click("#dry")
    page.wait("document.querySelector('#told').innerText.includes('runs again')")
    place.db.abort_procedure(other, "seen")
    assert page.complaints == []
