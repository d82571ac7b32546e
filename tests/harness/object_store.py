"""An S3-compatible object store in this process, which processes that it starts find, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import fsspec
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "s3://cold-bucket"


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    """A store with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    urlopen(Request(f"{address}/moto-api/reset", method="POST")).close()  # buckets of other stores
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # those of another store
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(BUCKET)
    try:
        yield server
    finally:
        server.stop()


def names_in(folder: str) -> list[str]:
    """The names of the objects in a folder of the bucket."""
    found = fsspec.filesystem("s3", skip_instance_cache=True).ls(f"{BUCKET}/{folder}")
    return [name.rpartition("/")[2] for name in found]
