"""A node's metrics, for Prometheus. They are read when Prometheus asks, and cost nothing in between."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from logdb.log.engine import Metric
from logdb.node.disk_worker import SYNC_BOUNDS_S
from logdb.node.node import Node
from logdb.node.server import Server
from logdb.system.addresses import cannot_listen, is_loopback, joined, parsed
from logdb.transport.refusals import Refusals

AT_ONCE: Final = 8
"""Maximum number of requests answered at once, each in a thread; further connections are closed."""
ANSWER_S: Final = 5.0
"""Maximum time for one request; then its connection is closed."""

logger = logging.getLogger("logdb.server")


class NodeMetrics(Collector):
    """The metrics of one node. They are collected in another thread, which reads plain numbers.

    Metrics of a server are labelled with its role on a node with several servers.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Family]:
        """All metrics of the node."""
        yield from self._traffic()
        yield from self._disk()
        yield from self._servers()

    def _traffic(self) -> Iterator[Family]:
        peers = self._node.peers
        if peers is None:
            return
        traffic = peers.traffic
        yield CounterMetricFamily("logdb_sent_bytes", "Bytes of packets sent.", traffic.sent_bytes)
        yield CounterMetricFamily("logdb_received_bytes", "Bytes of packets received.", traffic.received_bytes)
        yield CounterMetricFamily("logdb_sent_packets", "Packets sent: batches of messages.", traffic.sent_packets)
        yield CounterMetricFamily("logdb_received_packets", "Packets received.", traffic.received_packets)
        yield CounterMetricFamily(
            "logdb_dropped_messages", "Messages dropped because their peers were not reached.", traffic.dropped_messages
        )
        refused = "Messages, streams and connections refused: they were malformed, or not allowed."
        yield CounterMetricFamily("logdb_refused", refused, peers.refusals.count)
        yield GaugeMetricFamily("logdb_queued_bytes", "Bytes queued for peers.", peers.queued_bytes)
        yield GaugeMetricFamily("logdb_streams", "Open streams to other nodes and clients.", peers.open_streams)
        direct = "Open streams whose messages pass a direct connection."
        yield GaugeMetricFamily("logdb_direct_streams", direct, peers.direct_streams)

    def _disk(self) -> Iterator[Family]:
        node = self._node
        if node.worker is None:
            return
        times = node.worker.times
        buckets = [
            (bound, float(count))
            for bound, count in zip([*map(str, SYNC_BOUNDS_S), "+Inf"], accumulate(list(times.counts)), strict=True)
        ]
        yield HistogramMetricFamily(
            "logdb_sync_seconds", "Time to make a batch of records durable.", buckets=buckets, sum_value=times.total_s
        )
        yield CounterMetricFamily("logdb_written_bytes", "Bytes written to journals.", node.disk.written_bytes)
        full = any(server.disk_full for server in node.servers)
        yield GaugeMetricFamily("logdb_disk_full", "1 while the disk accepts no more data.", full)

    def _servers(self) -> Iterator[Family]:
        """The metrics of all servers, those of one name together."""
        labels = ("role",) if len(self._node.servers) > 1 else ()
        families: dict[str, Any] = {}
        for server in self._node.servers:
            for metric in _metrics_of(server):
                family = families.get(metric.name)
                own = [name for name, _ in metric.labels]
                if family is None:
                    kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                    family = families[metric.name] = kind(metric.name, metric.help, labels=(*labels, *own))
                values = [value for _, value in metric.labels]
                family.add_metric([server.role.name, *values] if labels else values, metric.value)
        yield from families.values()


def _metrics_of(server: Server) -> Iterator[Metric]:
    host, storage = server.host, server.storage
    if host is None or storage is None:
        return
    counts = host.counts
    yield Metric("logdb_events", "Events that the core has handled.", counts.events, is_counter=True)
    persisted = "Records written to journals: own records and copies."
    yield Metric("logdb_persisted_records", persisted, counts.persisted_records, is_counter=True)
    yield Metric("logdb_unreadable", "Damaged records found while reading.", counts.unreadable, is_counter=True)
    yield Metric("logdb_wiped", "Times that the server has started again without data.", server.wiped, is_counter=True)
    yield from server.role.metrics(host.core)
    yield from storage.metrics()


class MetricsPort:
    """Answers Prometheus at an address until it is closed. Beyond this machine it uses HTTPS, and requires a
    certificate of the cluster's CA."""

    def __init__(self, node: Node, address: str) -> None:
        """Raises Unavailable."""
        host, port = parsed(address)
        registry = CollectorRegistry()
        registry.register(NodeMetrics(node))
        try:
            self._http, self._thread = start_http_server(port, host, registry, **_tls(node, address))
            if isinstance(self._http.socket, ssl.SSLSocket):
                self._http.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]  # in the request's thread instead
        except OSError as error:
            raise cannot_listen(address, error) from error
        self._refusals = Refusals(logger)
        self._http.handle_error = self._failed  # type: ignore[method-assign]  # it would print a traceback
        self._http.process_request = self._process  # type: ignore[method-assign]
        self._http.socket.listen(128)  # with the default of 5 connections wait for seconds
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self.address = joined(host, self._http.server_port)

    def _process(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless the maximum number of requests is reached."""
        if not self._slots.acquire(blocking=False):
            self._http.shutdown_request(request)
            return
        ending = threading.Timer(ANSWER_S, _end, (request,))
        ending.daemon = True
        try:
            ending.start()
            arguments = request, client_address, ending
            threading.Thread(target=self._process_in_thread, args=arguments, daemon=True).start()
        except RuntimeError:  # no thread can be started now
            ending.cancel()
            self._slots.release()
            raise

    def _process_in_thread(self, request: Any, client_address: Any, ending: threading.Timer) -> None:
        try:
            request.settimeout(ANSWER_S)
            self._http.process_request_thread(request, client_address)  # type: ignore[attr-defined]
        finally:
            ending.cancel()
            self._slots.release()

    def _failed(self, request: Any, client_address: Any) -> None:
        del request
        peer = ":".join(map(str, client_address[:2]))
        self._refusals.add("a request for metrics failed", peer, sys.exception())

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _end(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _tls(node: Node, address: str) -> dict[str, Any]:
    security = node.config.first.security
    if security is None or is_loopback(address):
        return {}
    files = {"certfile": security.certificate, "keyfile": security.key, "client_cafile": security.ca}
    return {name: str(path) for name, path in files.items()} | {"client_auth_required": True}
