"""The pages: routes, the login, and what every answer has. All pages but the login are GET requests that only read.

A page is made in one of `THREADS` threads. Everything from the database is escaped by the templates; the policy of the
answers admits no script and no style but the two files of `static`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logdb.api.database import Database, Snapshot
from logdb.dashboard import browsing, notation
from logdb.dashboard.overview import HEIGHT, WIDTH
from logdb.dashboard.visitors import TokenNeeded, Visitor, Visitors
from logdb.errors import AccessDenied, FutureVersion, LogDBError, VersionTrimmed
from logdb.transport.refusals import Refusals

log = logging.getLogger(__name__)

THREADS: Final = 8
FORM_BYTES: Final = 4 << 10
FORM_S: Final = 5.0
REFRESH_S: Final = 5
MAX_VERSION: Final = (1 << 63) - 1
FOLDER: Final = Path(__file__).parent
LOCAL_NAMES: Final = {"localhost", "127.0.0.1", "::1"}
HEADERS: Final = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
        b" base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
STATIC: Final = {"style.css": "text/css", "slider.js": "text/javascript", "icon.svg": "image/svg+xml"}

Page = Callable[["Dashboard", Request, Visitor], Response]


class Guard:
    """Adds the headers to each answer. `is_loopback`: admit only requests that name this machine, so that no page
    of another site reads the dashboard through a name that it points to this machine (DNS rebinding)."""

    def __init__(self, app: ASGIApp, is_loopback: bool) -> None:
        self._app, self._is_loopback = app, is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        if self._is_loopback and _name_in(host) not in LOCAL_NAMES:
            refusal = f"The dashboard of this machine has the host {host!r} only by mistake: use localhost.\n"
            await Response(refusal, 421, media_type="text/plain")(scope, receive, sent)
            return
        await self._app(scope, receive, sent)


def _name_in(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class Dashboard:
    """The pages for `visitors`. `is_https`, `port`: of the address, for the cookie."""

    def __init__(self, visitors: Visitors, *, is_https: bool, port: int, is_loopback: bool) -> None:
        self._visitors, self._is_https = visitors, is_https
        self._cookie = "__Host-logdb" if is_https else f"logdb-{port}"
        self._refusals = Refusals(log)
        self._threads = ThreadPoolExecutor(THREADS, "logdb-dashboard")
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "key": notation.text_of,
            "preview": notation.preview_of,
            "size": notation.size_of,
            "time": _time,
            "param": lambda data: quote(notation.text_of(data), safe=""),
        }
        self._templates.globals |= {"width": WIDTH, "height": HEIGHT, "refresh_s": REFRESH_S}
        static = {name: (FOLDER / "static" / name).read_bytes() for name in STATIC}
        pages = {"/": overview, "/keys": key_list, "/key": key_page, "/commits": commits, "/difference": difference}
        self.app = Starlette(
            routes=[
                *[Route(path, self._endpoint(page)) for path, page in pages.items()],
                *[Route(f"/static/{name}", partial(_static, file, STATIC[name])) for name, file in static.items()],
                Route("/login", self._log_in, methods=["POST"]),
                Route("/logout", self._log_out, methods=["POST"]),
            ],
            middleware=[Middleware(Guard, is_loopback=is_loopback)],
            exception_handlers={
                HTTPException: self._http_error,
                LogDBError: self._failed,
                ValueError: self._failed,
            },
        )

    def close(self) -> None:
        """End the threads and the visitors."""
        self._threads.shutdown()
        self._visitors.close()

    # ---- requests

    def _endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        def made(request: Request) -> Response:
            return page(self, request, self._visitors.visitor(request.cookies.get(self._cookie, "")))

        async def endpoint(request: Request) -> Response:
            return await asyncio.get_running_loop().run_in_executor(self._threads, made, request)

        return endpoint

    def rendered(
        self, template: str, request: Request, visitor: Visitor | None, status: int = 200, **values: Any
    ) -> Response:
        """The page of a template."""
        session = request.cookies.get(self._cookie, "")
        text = self._templates.get_template(template).render(
            title=self._visitors.source.title,
            path=request.url.path,
            visitor=visitor,
            has_session=bool(session) and visitor is not None,
            **values,
        )
        content = text.encode("utf-8", "replace")  # a path may have bytes that are not UTF-8
        return Response(content, status, {"cache-control": "no-store"}, "text/html")

    # ---- the login

    async def _log_in(self, request: Request) -> Response:
        _check_origin(request)
        token = (await _form(request)).get("token", [""])[0].strip()
        if not token:
            raise TokenNeeded
        session = await asyncio.get_running_loop().run_in_executor(self._threads, self._visitors.log_in, token)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, session, secure=self._is_https, httponly=True, samesite="strict")
        return answer

    async def _log_out(self, request: Request) -> Response:
        _check_origin(request)
        session = request.cookies.get(self._cookie, "")
        await asyncio.get_running_loop().run_in_executor(self._threads, self._visitors.log_out, session)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(self._cookie, secure=self._is_https, httponly=True, samesite="strict")
        return answer

    # ---- failures

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self.rendered("error.html", request, None, error.status_code, message=error.detail)

    async def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, AccessDenied):
            reason = "" if isinstance(error, TokenNeeded) else str(error)
            session = request.cookies.get(self._cookie, "")
            await asyncio.get_running_loop().run_in_executor(self._threads, self._visitors.log_out, session)
            if reason:
                self._refusals.add("access denied", request.client.host if request.client else "", reason)
            return self.rendered("login.html", request, None, 403 if reason else 401, reason=reason)
        status = 404 if isinstance(error, VersionTrimmed | FutureVersion) else 503
        if isinstance(error, ValueError):
            status = 400
        return self.rendered("error.html", request, None, status, message=str(error))


async def _static(content: bytes, media_type: str, request: Request) -> Response:
    return Response(content, 200, {"cache-control": "max-age=3600"}, media_type)


def _check_origin(request: Request) -> None:
    """Refuse a form of another site. Raises HTTPException."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not is_own or site not in ("same-origin", "none"):
        raise HTTPException(403, "the form was sent by another site")


async def _form(request: Request) -> dict[str, list[str]]:
    """The fields of a small form. Raises HTTPException."""
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > FORM_BYTES:
                    raise HTTPException(413, "the form is too large")
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408, "the form did not arrive in time") from None
    return parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)


def _time(time: dt.datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}"


# ---- parameters


def _version(request: Request, name: str) -> int | None:
    """Raises ValueError."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_VERSION):
        raise ValueError(f"{name} must be a version, a whole number from 0 on")
    return int(text)


def _bytes(request: Request, name: str) -> bytes:
    """Raises ValueError."""
    return notation.bytes_of(request.query_params.get(name, ""))


def _moment(request: Request, database: Database) -> tuple[Snapshot, dict[str, Any]]:
    """(the snapshot of the parameter `at`, the values for its slider). Raises VersionTrimmed, FutureVersion."""
    at = _version(request, "at")
    snapshot = database.at(at)
    newest = snapshot.version if at is None else max(snapshot.version, database.version)
    oldest = min(database.oldest_version, snapshot.version)
    time = browsing.time_of(database, snapshot.version)
    return snapshot, {
        "at": at, "version": snapshot.version, "newest": newest, "oldest": oldest, "time": time,
    }  # fmt: skip


# ---- pages


def overview(dashboard: Dashboard, request: Request, visitor: Visitor) -> Response:
    """Sizes, rates, aborts and the servers."""
    found = visitor.samples.overview(visitor)
    refreshes = "refresh" in request.query_params
    return dashboard.rendered("overview.html", request, visitor, found=found, refreshes=refreshes)


def key_list(dashboard: Dashboard, request: Request, visitor: Visitor) -> Response:
    """The keys with a prefix at a version."""
    prefix, start, before = _bytes(request, "prefix"), _bytes(request, "start"), _bytes(request, "before")
    snapshot, moment = _moment(request, visitor.database)
    page = browsing.keys_before(snapshot, prefix, before) if before else browsing.keys_from(snapshot, prefix, start)
    return dashboard.rendered("keys.html", request, visitor, page=page, prefix=prefix, start=start, **moment)


def key_page(dashboard: Dashboard, request: Request, visitor: Visitor) -> Response:
    """The value of a key at a version, and its history up to there."""
    key = _bytes(request, "key")
    if not key:
        raise ValueError("name a key")
    database = visitor.database
    snapshot, moment = _moment(request, database)
    value = snapshot.get(key)
    return dashboard.rendered(
        "key.html",
        request,
        visitor,
        key=key,
        parts=notation.tuple_of(key),
        value=None if value is None else notation.view_of(value),
        history=browsing.history_of(database, snapshot, key),
        **moment,
    )


def commits(dashboard: Dashboard, request: Request, visitor: Visitor) -> Response:
    """The commits up to a version."""
    database = visitor.database
    until, newest, oldest = _version(request, "until"), database.version, database.oldest_version
    rows, following = browsing.commits_up_to(database, newest if until is None else min(until, newest), oldest)
    return dashboard.rendered(
        "commits.html", request, visitor, rows=rows, following=following, until=until, newest=newest, oldest=oldest
    )


def difference(dashboard: Dashboard, request: Request, visitor: Visitor) -> Response:
    """The keys that differ between two versions."""
    database, prefix = visitor.database, _bytes(request, "prefix")
    newest, oldest = database.version, database.oldest_version
    after = _version(request, "to")
    after = newest if after is None else after
    before = _version(request, "from")
    before = max(oldest, after - browsing.COMMITS) if before is None else before
    since = _version(request, "since")
    since = before if since is None else since
    if before > after:
        raise ValueError(f"the first version is the older one: from {after} to {before}")
    found = browsing.difference(database, before, after, prefix, max(since, before))
    return dashboard.rendered(
        "difference.html",
        request,
        visitor,
        found=found,
        prefix=prefix,
        before=before,
        after=after,
        since=since,
        newest=newest,
        oldest=oldest,
    )
