"""The pages of servers and clusters, by HTTP."""

from __future__ import annotations

import re
from collections import deque
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import logdb
from logdb.dashboard import browsing
from logdb.embedded.compaction import compact
from tests.dashboard.conftest import Site

PAGES = ["/", "/keys", "/key?key=k", "/commits", "/difference"]
HOSTILE = [
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"&lt;b&gt;",
    bytes(range(256)),
    b"{{ 7*7 }}",
]


def test_a_visitor_travels_through_time(site: Site) -> None:
    db, client = site.db, site.client()
    first = db.put(b"user/1", b"Ada", label="sign up")
    second = db.multi_put({b"user/1": b"Grace", b"user/2": b"Bob"}, label="rename")
    db.delete(b"user/2")

    overview = client.get().text
    assert f"<strong>{db.version}</strong>" in overview
    page = client.get("/keys", prefix="user/").text
    assert ("Grace" in page, "Bob" in page, "Ada" in page) == (True, False, False)
    page = client.get("/keys", prefix="user/", at=first)
    assert ("Grace" in page.text, "Ada" in page.text) == (False, True)
    assert f'min="0" max="{db.version}" value="{first}"' in page.text
    assert f"/key?key=user%2F1&at={first}" in page.links
    assert "As of version" in page.text

    page = client.get("/key", key="user/1").text
    assert [f'at={version}">{version}</a>' in page for version in (first, second)] == [True, True]
    assert "deleted" in client.get("/key", key="user/2").text
    assert "does not exist" in client.get("/key", key="user/2").text
    assert "<pre>Bob</pre>" in client.get("/key", key="user/2", at=second).text

    page = client.get("/commits").text
    assert page.index("rename") < page.index("sign up")
    page = client.get("/difference", **{"from": first, "to": second}).text
    assert re.findall(r'<tr class="(\w+)">', page) == ["changed", "added"]
    page = client.get("/difference", **{"from": second, "to": db.version}).text
    assert re.findall(r'<tr class="(\w+)">', page) == ["removed"]
    assert "No key differs" in client.get("/difference", prefix="other").text


def test_numbers_for_operators(site: Site) -> None:
    db, client = site.db, site.client()
    before = client.get().text
    db.put(b"k", b"v")
    for label in ("pay<b>", "pay<b>", ""):
        with pytest.raises(logdb.ConflictError), db.transaction(label=label) as txn:
            txn.get(b"k")
            db.put(b"k", b"w")
            txn.put(b"l", b"")
    db.pin("month<end")
    while (page := client.get().text).count("conflict") < 2:
        pass
    assert "pay&lt;b&gt;" in page
    assert "month&lt;end" in page
    assert "No transaction was aborted" in before
    assert ("Servers of" in page) == ("Round trip" in page) == ("Sync" not in page)
    if "Servers of" in page:
        assert "<b>o1</b>" in page or "leads" in page
        assert page.count("serves") == 2
        assert "Shards" in page


def test_rates_need_two_measurements(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.dashboard.overview.LEAST_S", 0)
    client = server.client()
    assert "<polyline" not in client.get().text
    for number in range(3):
        server.db.put(b"k", b"%d" % number)
        page = client.get().text
    assert "<polyline" in page
    assert 'http-equiv="refresh"' in client.get("/?refresh").text
    assert 'http-equiv="refresh"' not in page


def test_measurements_are_shared(server: Site) -> None:
    client = server.client()
    client.get()
    version = server.db.put(b"k", b"v")
    assert f"<strong>{version}</strong>" not in client.get().text, "measured twice within a second"


def test_a_compaction_under_way_is_shown(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.dashboard.overview.LEAST_S", 0)
    for number in range(50):
        server.db.put(b"k%d" % (number % 10), bytes(100))
    client, seen = server.client(), []

    def watched(*arguments: Any) -> Any:
        seen.append(client.get().text)
        return compact(*arguments)

    monkeypatch.setattr("logdb.embedded.compactor.compact", watched)
    assert "idle" in client.get().text
    server.db.compact()
    assert "under way" in seen[0]
    assert re.search(r"the versions from 5[01] on", seen[0])
    assert "idle" in client.get().text
    assert client.get("/keys", at=3).status == 404
    assert client.get("/difference", **{"from": 3, "to": 50}).status == 404
    assert client.get("/commits").status == client.get("/key", key="k1").status == 200


def test_many_keys_are_paged(server: Site) -> None:
    keys = [b"k%05d" % number for number in range(12_000)]
    server.db.multi_put(dict.fromkeys(keys, b"v"))
    client = server.client()
    page = client.get("/keys", prefix="k", start="k06000")
    assert len(page.text) < 30_000
    assert page.text.count("/key?key=k") == browsing.ROWS
    assert "k06049" in page.text
    following, before = page.link("next"), page.link("prev")
    assert following is not None
    assert before is not None
    assert "k06050" in client.get(following).text
    assert "k05950" in client.get(before).text


# ---- hostile content


def test_content_never_becomes_markup(server: Site) -> None:
    db, client = server.db, server.client()
    for number, text in enumerate(HOSTILE):
        label = text.decode("latin-1")
        db.multi_put({text: HOSTILE[number - 1], b"k" + text: text}, label=label)
    db.put(b"json", b'{"<script>": "</pre><script>alert(1)</script>"}')
    todo, seen = deque(["/", "/keys", "/commits", "/difference"]), set()
    while todo and len(seen) < 80:
        target = todo.popleft()
        if target in seen or not target.startswith("/") or target.startswith("/static"):
            continue
        seen.add(target)
        answer = client.get(target)
        assert answer.status == 200, target
        assert re.findall(r"<script(?! src=\"/static/slider.js\")|<img", answer.text) == [], target
        todo += answer.links
    assert len(seen) > 20


def test_parameters_never_become_markup(server: Site) -> None:
    client = server.client()
    for page in PAGES:
        for name in ("key", "prefix", "start", "before", "at", "until", "from", "to", "since"):
            for hostile in ("<script>x</script>", '"><script>x</script>', "\\z<script>", "\udcff"):
                target = page.partition("?")[0] + f"?key=k&{name}=" + quote(hostile.encode("utf-8", "surrogateescape"))
                answer = client.get(target)
                assert answer.status in (200, 400), (target, answer.text)
                assert "<script>" not in answer.text
    assert "<script>" not in client.get("/<script>").text


@pytest.mark.parametrize("at", ["-1", "x", "1" * 30, "9223372036854775808", "1.5", "٣"])
def test_a_wrong_version_is_refused(server: Site, at: str) -> None:
    answer = server.client().get("/keys", at=at)
    assert answer.status == 400
    assert "must be a version" in answer.text


def test_a_version_that_does_not_exist(site: Site) -> None:
    site.db.put(b"k", b"v")
    client = site.client()
    assert client.get("/keys", at=10**9).status == 404
    assert client.get("/keys", at=0).status == 200
    assert client.get("/difference", **{"from": 1, "to": 0}).status == 400
    assert client.get("/key").status == 400
    assert client.get("/nope").status == 404


def test_the_pages_only_read(guarded_server: Site) -> None:
    site = guarded_server
    site.db.put(b"k", b"v")
    version, client = site.db.version, site.client()
    for page in PAGES:
        target = urlsplit(page).path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.ask(method, target).status == 405
        assert client.get(page).status == 200
    assert site.db.version == version


def test_each_answer_has_the_policy(server: Site) -> None:
    client = server.client()
    for target in ("/", "/nope", "/static/style.css", "/login"):
        headers = client.get(target).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/keys").headers["cache-control"] == "no-store"
