"""Check the dashboard in Chromium, and take the screenshots of the documents.

    python -m tests.dashboard.chromium [--images docs/images] [--driver /usr/bin/chromedriver]

Fails if a page has an error in the browser's console, runs a script from the database, or the slider does not work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import tempfile
import threading
from pathlib import Path

import logdb
from logdb.admin.changes import Operator
from logdb.admin.layout import Layout
from logdb.admin.processes import end, running
from logdb.dashboard.hosting import served
from logdb.dashboard.visitors import ClusterSource, ServerSource
from logdb.embedded import EmbeddedBackend
from logdb.log.engine import ENGINES, Right, engine_of
from logdb.security.access import add
from logdb.security.authenticator import Authenticator, Security
from tests.dashboard.browser import Browser, browsing, wait_until

PORT = 28_200
HOSTILE = {
    b"<script>window.broken=1</script>": b"<script>window.broken=1</script>",
    b'"\'><img src=x onerror="window.broken=1">': b'</pre><img src=x onerror="window.broken=1">',
    b"javascript:alert(1)": bytes(range(256)),
}


def fill(db: logdb.Database) -> None:
    """A small shop, with some history."""
    for number in range(1, 61):
        order = {"customer": f"user/{1 + number % 7}", "items": [{"sku": f"A-{number:03}", "count": number % 4 + 1}]}
        db.put(b"order/%04d" % number, json.dumps(order | {"paid": False}).encode(), label="place order")
        if number % 3 == 0:
            db.put(b"order/%04d" % (number - 2), json.dumps(order | {"paid": True}).encode(), label="pay")
    people = ["Ada", "Bob", "Cleo", "Dai", "Eve", "Finn", "Gus"]
    db.multi_put({b"user/%d" % at: json.dumps({"name": name}).encode() for at, name in enumerate(people, 1)})
    db.put(logdb.keys.pack(("stock", "A-001")), b"12", label="restock")
    for label in ("pay", "pay", "restock"):
        try:
            with db.transaction(label=label) as txn:
                txn.get(b"user/1")
                db.put(b"user/1", b'{"name": "Ada", "visits": %d}' % db.version, label="visit")
                txn.put(b"user/2", b'{"name": "Bob", "city": "Bonn"}')
        except logdb.ConflictError:
            pass
    db.put(b"user/2", b'{"name": "Bob", "city": "Bonn"}', label="move")
    db.delete(b"user/7", label="leave")
    db.pin("month-end", 40)


def check(browser: Browser, url: str) -> None:
    """The page has no error, and no script of the database has run."""
    browser.open(url)
    assert browser.run("return window.broken === undefined"), url
    found = browser.log()
    assert found == [], (url, found)


def check_slider(browser: Browser, url: str) -> None:
    """The slider shows its version while it moves, and loads that version when it stops."""
    browser.open(url)
    browser.run("""
        const range = document.querySelector("#at");
        range.value = 40;
        range.dispatchEvent(new Event("input"));
        if (document.querySelector("output").value !== "40") throw Error("the output does not follow");
        range.dispatchEvent(new Event("change"));
    """)
    wait_until(lambda: "at=40" in browser.run("return location.search"))
    wait_until(lambda: "As of version 40" in browser.run("return document.body.innerText"))


def log_in(browser: Browser, url: str, token: str) -> None:
    browser.open(url)
    browser.run(f"document.querySelector('#token').value = {json.dumps(token)}; document.forms[0].submit();")
    wait_until(lambda: "Newest version" in browser.run("return document.body.innerText"))
    assert browser.run("return document.cookie") == ""
    browser.log()  # that the page without a token has the status 401


def server_pages(browser: Browser, folder: Path, images: Path) -> None:
    """All pages of a server with tokens."""
    token = add(folder / "tokens.toml", "ada", Right.READ)
    backend = EmbeddedBackend.open(Path("shop"), read_only=False, create=True)
    authenticator = Authenticator(Security(tokens=folder / "tokens.toml"))
    with logdb.Database(backend) as db:
        fill(db)
        with served(ServerSource(backend, authenticator), "127.0.0.1:0", Security()) as url:
            log_in(browser, url, token)
            write_and_watch(browser, url, db, 14)
            browser.screenshot(images / "dashboard-server.png")
            check(browser, url + "keys?prefix=order/")
            check_slider(browser, url + "keys?prefix=user/")
            check(browser, url + "key?key=order/0001")
            browser.screenshot(images / "dashboard-key.png")
            check(browser, url + "commits?until=80")
            check(browser, url + "difference?from=81&to=92")
            browser.screenshot(images / "dashboard-difference.png")
            db.multi_put(HOSTILE, label="</td><script>window.broken=1</script>")
            for page in ("keys", "commits", "difference", f"difference?from={db.version - 1}&to={db.version}", ""):
                check(browser, url + page)
            links = browser.run("return [...document.links].map(link => link.href)")
            assert links
            browser.open(url + "keys?prefix=<")
            for link in browser.run("return [...document.querySelectorAll('td a')].map(link => link.href)"):
                check(browser, link)


def write_and_watch(browser: Browser, url: str, db: logdb.Database, pages: int) -> None:
    """Load the first page again and again while a thread writes."""
    stop = threading.Event()
    writing = threading.Thread(target=_write, args=(db, stop))
    writing.start()
    try:
        for _ in range(pages):
            browser.open(url)
            stop.wait(1.1)
        browser.open(url)
    finally:
        stop.set()
        writing.join()


def _write(db: logdb.Database, stop: threading.Event) -> None:
    number = 0
    while not stop.wait(0.002 + 0.02 * (number // 150 % 2)):
        number += 1
        db.put(b"order/%04d" % (number % 60 + 1), json.dumps({"paid": True, "at": number}).encode(), label="pay")


def cluster_pages(browser: Browser, images: Path) -> None:
    """The first page of a cluster of processes, one of which is down."""
    shape = engine_of(ENGINES[0]).operations.default_shape
    path = Path("cluster")
    path.mkdir()
    layout = Layout.make(path, shape, {}, PORT)
    operator = Operator((), layout)
    operator.bring_up()
    try:
        with logdb.connect(layout.endpoints) as db:
            fill(db)
            source = ClusterSource(layout.endpoints, path, {}, is_local=True)
            with served(source, "127.0.0.1:0", Security()) as url:
                check(browser, url)
                check_slider(browser, url + "keys")
                os.kill(running(layout)["m2"], signal.SIGKILL)
                write_and_watch(browser, url, db, 30)
                browser.resize(1200, 1080)
                browser.screenshot(images / "dashboard-cluster.png")
    finally:
        end(layout, lambda done, of: None, timeout_s=20, kill=True)


def main() -> None:
    """Run the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where the screenshots go")
    parser.add_argument("--driver", default="/usr/bin/chromedriver", help="the WebDriver of Chromium")
    arguments = parser.parse_args()
    images = arguments.images.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with browsing(arguments.driver, "--window-size=1200,800") as browser:
            server_pages(browser, Path(folder), images)
        with browsing(arguments.driver, "--window-size=1200,800", "--force-dark-mode") as browser:
            cluster_pages(browser, images)
    print("the pages work in Chromium")


if __name__ == "__main__":
    main()
