"""etcd through its own gRPC API, with bare stubs: all coroutines share a channel.

The few messages of the API that are needed are described here instead of being generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.servers import Items, answering, ended, incremented, launched
from tests.harness.ports import free_addresses

# Message -> field -> (number, type); "*" makes it repeated. Of etcd's rpc.proto and kv.proto, version 3.
MESSAGES: Final = {
    "KeyValue": {"key": (1, "bytes"), "mod_revision": (3, "int64"), "value": (5, "bytes")},
    "PutRequest": {"key": (1, "bytes"), "value": (2, "bytes")},
    "PutResponse": {},
    "RangeRequest": {"key": (1, "bytes")},
    "RangeResponse": {"kvs": (2, "*KeyValue")},
    "RequestOp": {"request_range": (1, "RangeRequest"), "request_put": (2, "PutRequest")},
    "ResponseOp": {"response_range": (1, "RangeResponse"), "response_put": (2, "PutResponse")},
    "Compare": {"result": (1, "int32"), "target": (2, "int32"), "key": (3, "bytes"), "mod_revision": (6, "int64")},
    "TxnRequest": {"compare": (1, "*Compare"), "success": (2, "*RequestOp")},
    "TxnResponse": {"succeeded": (2, "bool"), "responses": (3, "*ResponseOp")},
}
MODIFIED: Final = 2
"""Of `Compare.target`; `result` 0 is "equal"."""


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="etcd.proto", package="etcdserverpb", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            described = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            if (plain := kind.lstrip("*")) in MESSAGES:
                described.type, described.type_name = described.TYPE_MESSAGE, f".etcdserverpb.{plain}"
            else:
                described.type = getattr(described, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"etcdserverpb.{name}")) for name in MESSAGES
    }


class Etcd:
    """See `Server`. It is its own client."""

    name: ClassVar[str] = "etcd"
    program: ClassVar[str] = "etcd"
    members: ClassVar[int] = 1

    async def start(self, directory: Path) -> None:
        free = free_addresses()
        ours, peers = ([f"http://{next(free)}" for _ in range(self.members)] for _ in range(2))
        everybody = ",".join([f"m{at}={url}" for at, url in enumerate(peers)])
        self._processes = []
        for at, (mine, peer) in enumerate(zip(ours, peers, strict=True)):
            options = {"data-dir": directory / str(at), "listen-client-urls": mine, "advertise-client-urls": mine}
            options |= {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer}
            options |= {"initial-cluster": everybody, "name": f"m{at}", "log-level": "error"}
            words = [f"--{name}={value}" for name, value in options.items()]
            self._processes.append(launched([self.program, *words]))
        self._channel: Any = grpc.aio.insecure_channel(ours[0].removeprefix("http://"))
        self._types = types = _messages()

        def stub(verb: str, asked: str, answer: str) -> Any:
            return self._channel.unary_unary(
                f"/etcdserverpb.KV/{verb}",
                request_serializer=types[asked].SerializeToString,
                response_deserializer=types[answer].FromString,
            )

        self._put = stub("Put", "PutRequest", "PutResponse")
        self._range = stub("Range", "RangeRequest", "RangeResponse")
        self._txn = stub("Txn", "TxnRequest", "TxnResponse")
        await answering(lambda: self.put(b"probe", b""), self._processes[0])

    def client(self) -> Etcd:
        return self

    async def put(self, key: bytes, value: bytes) -> None:
        await self._put(self._types["PutRequest"](key=key, value=value))

    async def get(self, key: bytes) -> bytes:
        found = await self._range(self._types["RangeRequest"](key=key))
        return bytes(found.kvs[0].value)

    async def multi_put(self, items: Items) -> None:
        success = [{"request_put": {"key": key, "value": value}} for key, value in items.items()]
        await self._txn(self._types["TxnRequest"](success=success))

    async def multi_get(self, keys: Sequence[bytes]) -> list[bytes]:
        answer = await self._txn(self._types["TxnRequest"](success=[{"request_range": {"key": key}} for key in keys]))
        return [response.response_range.kvs[0].value for response in answer.responses]

    async def increment(self, key: bytes) -> None:
        while True:
            (found,) = (await self._range(self._types["RangeRequest"](key=key))).kvs
            unchanged = {"target": MODIFIED, "key": key, "mod_revision": found.mod_revision}
            put = {"request_put": {"key": key, "value": incremented(found.value)}}
            if (await self._txn(self._types["TxnRequest"](compare=[unchanged], success=[put]))).succeeded:
                return

    async def stop(self) -> None:
        await self._channel.close()
        for process in self._processes:
            ended(process)


class EtcdCluster(Etcd):
    """A cluster of three. The client connects to one of them, which may or may not be the leader."""

    name: ClassVar[str] = "etcd, 3 nodes"
    members: ClassVar[int] = 3
