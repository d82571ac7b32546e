"""A server's counters, for Prometheus: read when they are asked for, so they cost nothing in between."""

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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from logdb.cluster.mapping_server.server import MappingServer
from logdb.node.disk_worker import SYNC_BOUNDS_S
from logdb.node.server import Server
from logdb.system.addresses import cannot_listen, is_loopback, joined, parsed

AT_ONCE: Final = 8
"""So many requests are answered at once, each in a thread; others are hung up on."""
ANSWER_S: Final = 5.0
"""A request that has not been answered within this time is hung up on."""

logger = logging.getLogger("logdb.server")


class ServerMetrics(Collector):
    """The metrics of one server. Collecting happens in another thread, which reads plain numbers."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._traffic()
        yield from self._journals()
        yield from self._core()

    def _traffic(self) -> Iterator[Metric]:
        peers = self._server.peers
        if peers is None:
            return
        traffic = peers.traffic
        yield CounterMetricFamily("logdb_sent_bytes", "Bytes of parcels sent to others.", traffic.sent_bytes)
        yield CounterMetricFamily("logdb_received_bytes", "Bytes of parcels received.", traffic.received_bytes)
        yield CounterMetricFamily("logdb_sent_parcels", "Parcels sent: batches of messages.", traffic.sent_parcels)
        yield CounterMetricFamily("logdb_received_parcels", "Parcels received.", traffic.received_parcels)
        yield CounterMetricFamily(
            "logdb_dropped_messages", "Messages given up for peers out of reach.", traffic.dropped_messages
        )
        refused = "Messages, streams and connections refused: they made no sense, or were not allowed."
        yield CounterMetricFamily("logdb_refused", refused, peers.refusals.count)
        yield GaugeMetricFamily("logdb_queued_bytes", "Bytes that wait to be sent.", peers.queued_bytes)
        yield GaugeMetricFamily("logdb_streams", "Open streams to and from others.", peers.open_streams)

    def _journals(self) -> Iterator[Metric]:
        server = self._server
        if server.worker is None:
            return
        times = server.worker.times
        buckets = [
            (bound, float(count))
            for bound, count in zip([*map(str, SYNC_BOUNDS_S), "+Inf"], accumulate(list(times.counts)), strict=True)
        ]
        yield HistogramMetricFamily(
            "logdb_sync_seconds", "Time to make a batch of records durable.", buckets=buckets, sum_value=times.total_s
        )
        yield CounterMetricFamily("logdb_written_bytes", "Bytes written to journals.", server.disk.written_bytes)
        yield GaugeMetricFamily("logdb_disk_full", "1 while the disk refuses to take more.", bool(server.disk_full))

    def _core(self) -> Iterator[Metric]:
        server = self._server
        host = server.host
        if host is None:
            return
        yield CounterMetricFamily("logdb_events", "Events that the core has handled.", host.counts.events)
        yield CounterMetricFamily(
            "logdb_persisted_records",
            "Records written to journals: own ones and copies.",
            host.counts.persisted_records,
        )
        yield CounterMetricFamily("logdb_unreadable", "Damaged records met when reading.", host.counts.unreadable)
        yield CounterMetricFamily("logdb_wiped", "Times that the server began anew as a spare.", server.wiped)
        core = host.core
        if server.role is not None:
            for metric in server.role.metrics(core):
                family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                yield family(metric.name, metric.help, metric.value)
        if isinstance(core, MappingServer):
            applied = core.replica.applied
            yield GaugeMetricFamily("logdb_applied_gsn", "The newest record of the log that was applied.", applied)
            lag = max(core.reads.tail - applied, 0)
            yield GaugeMetricFamily("logdb_lag_records", "Records that it knows of and has not applied.", lag)
            if server.checkpoints is not None:
                covers = server.checkpoints.covers
                yield GaugeMetricFamily("logdb_checkpoint_gsn", "The newest record of the checkpoint.", covers)
            what = "1 while it takes a checkpoint from another, or rebuilds one from a trimmed log."
            yield GaugeMetricFamily("logdb_joining", what, core.bootstrap.is_active)
            yield CounterMetricFamily("logdb_taken_rows", "Versions that it has taken so.", core.bootstrap.rows)
            what = "Records of the log that it was given since it started."
            yield CounterMetricFamily("logdb_replayed_records", what, core.follower.records)
            what = "Comparisons with other mapping servers, of which at least one held the same."
            yield CounterMetricFamily("logdb_comparisons", what, core.comparison.agreed)
            yield CounterMetricFamily("logdb_reads", "Reads answered.", core.answers.answered)
            yield CounterMetricFamily("logdb_verdicts", "Verdicts pushed to clients.", core.verdicts.pushed)


class MetricsPort:
    """Answers Prometheus at an address until it is closed: beyond this machine, by HTTPS and those whose certificate is
    of the cluster's CA."""

    def __init__(self, server: Server, address: str) -> None:
        """Raises Unavailable."""
        host, port = parsed(address)
        registry = CollectorRegistry()
        registry.register(ServerMetrics(server))
        try:
            self._http, self._thread = start_http_server(port, host, registry, **_tls(server, address))
            if isinstance(self._http.socket, ssl.SSLSocket):
                self._http.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]  # silence stops nobody
        except OSError as error:
            raise cannot_listen(address, error) from error
        self._http.handle_error = _failed  # type: ignore[method-assign]  # it would print a traceback
        self._http.process_request = self._process  # type: ignore[method-assign]
        self._http.socket.listen(128)  # a queue of 5 makes others wait for seconds
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self.address = joined(host, self._http.server_port)

    def _process(self, request: Any, client_address: Any) -> None:
        """Begin to answer, in a thread, unless there are too many already."""
        if not self._slots.acquire(blocking=False):
            self._http.shutdown_request(request)
            return
        threading.Thread(target=self._process_in_thread, args=(request, client_address), daemon=True).start()

    def _process_in_thread(self, request: Any, client_address: Any) -> None:
        ending = threading.Timer(ANSWER_S, _end, (request,))
        ending.daemon = True
        ending.start()
        try:
            request.settimeout(ANSWER_S)
            self._http.process_request_thread(request, client_address)  # type: ignore[attr-defined]
        finally:
            ending.cancel()
            self._slots.release()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _end(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _failed(request: Any, client_address: Any) -> None:
    del request
    peer = ":".join(map(str, client_address[:2]))
    logger.warning("a request for metrics failed", extra={"peer": peer, "why": str(sys.exception())})


def _tls(server: Server, address: str) -> dict[str, Any]:
    security = server.config.security
    if security is None or is_loopback(address):
        return {}
    files = {"certfile": security.certificate, "keyfile": security.key, "client_cafile": security.ca}
    return {name: str(path) for name, path in files.items()} | {"client_auth_required": True}
