"""A visitor of the pages without a browser: HTTP, cookies, links."""

from __future__ import annotations

import html
import http.client
import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit


class Answer(NamedTuple):
    """The answer of a request."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def links(self) -> list[str]:
        """The targets of its links."""
        return [html.unescape(link) for link in re.findall(r'href="([^"]*)"', self.text)]

    def link(self, rel: str) -> str | None:
        """The target of the link with this relation."""
        found = re.search(rf'rel="{rel}" href="([^"]*)"', self.text)
        return None if found is None else html.unescape(found[1])


class Client:
    """A visitor of the pages at `url`, with its cookie."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self.at, self._context = urlsplit(url), context
        self.cookie = ""

    def ask(self, method: str, target: str, body: str | None = None, **headers: str) -> Answer:
        host, port = self.at.hostname or "", self.at.port
        connection: Any = http.client.HTTPConnection(host, port, timeout=30)
        if self.at.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=30, context=self._context)
        if self.cookie:
            headers["Cookie"] = self.cookie
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, target, body, headers)
            found = connection.getresponse()
            answer = Answer(found.status, found.headers, found.read().decode())
        finally:
            connection.close()
        if found.headers["set-cookie"]:
            self.cookie = found.headers["set-cookie"].partition(";")[0]
        return answer

    def get(self, target: str = "/", **parameters: object) -> Answer:
        return self.ask("GET", target + ("?" + urlencode(parameters) if parameters else ""))

    def log_in(self, token: str, **headers: str) -> Answer:
        form = {"Content_Type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", "/login", urlencode({"token": token}), **form)
