"""The limits of messages, and the errors for exceeding them. Both sides check: before sending, and before building
objects from received bytes."""

from __future__ import annotations

from typing import Final

from logdb.errors import LogDBError
from logdb.log.engine import MAX_HEADER_BYTES
from logdb.store.limits import MAX_VALUE_BYTES

MAX_RECORD_BYTES: Final = MAX_VALUE_BYTES + (64 << 10)
"""Maximum size of the stored payload of a record: the largest value, with its key and headers."""

MAX_BATCH_BYTES: Final = MAX_RECORD_BYTES + (4 << 20)
"""Maximum size of the records of one message. A core fills a batch up to its `batch_bytes` and exceeds that by less
than a record, so no batch reaches this limit if `batch_bytes` is at most 4 MiB."""

MAX_PLAIN_BYTES: Final = 4 << 20
"""Maximum size of a packet without its batches: protobuf parses it into objects of up to 100 times the size."""

MAX_MESSAGE_BYTES: Final = MAX_PLAIN_BYTES - (64 << 10)
"""Maximum size of one message without its batch; leaves room for the addresses of its packet."""

MAX_PACKET_BYTES: Final = MAX_BATCH_BYTES + MAX_PLAIN_BYTES
"""Maximum size of a message of gRPC: `grpc.max_send_message_length` and `grpc.max_receive_message_length`."""

PACKET_BYTES: Final = 1 << 20
"""Messages share a packet up to this size; a larger message has a packet of its own."""

MAX_FIELDS: Final = 1 << 17
"""Maximum number of messages, batches and addresses in a packet. An empty message takes 2 bytes in it and 400 in
memory."""

MAX_POSITION: Final = (1 << 63) - 1


class WireError(LogDBError):
    """Malformed bytes of a peer, or a message that cannot be sent. The message was dropped."""


class TooLargeToSend(WireError):
    """A message is too large to send. Attributes: `size`, `limit` (bytes)."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(f"{what} of {size:,} bytes cannot be sent, the limit is {limit:,} bytes")


def check_record(payload_bytes: int) -> None:
    """Raise TooLargeToSend for a record that cannot be appended; clients call it before they append."""
    if payload_bytes + MAX_HEADER_BYTES > MAX_RECORD_BYTES:
        raise TooLargeToSend("a record", payload_bytes, MAX_RECORD_BYTES - MAX_HEADER_BYTES)
