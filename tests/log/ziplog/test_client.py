"""The client core, as far as a test can drive it without servers."""

from __future__ import annotations

import sys
from random import Random

import pytest

from logdb.cores.effects import MILLISECOND, Answer, Call, Effect, ProtocolViolation, Received, Send, TimerFired
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendUnknown, LogRecord, NotOfThisShard, Trimmed
from logdb.log.requests import END, ClientConfig
from logdb.log.ziplog.client import inserts
from logdb.log.ziplog.client.log_client import ZiplogClient
from logdb.log.ziplog.messages import (
    NO_VIEW,
    FrontierRequest,
    FrontierResponse,
    Insert,
    Inserted,
    Member,
    Placed,
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    Refused,
    ShardConfig,
    View,
    ViewRequest,
    ViewResponse,
)
from logdb.log.ziplog.records import wrap
from tests.harness.comparisons import comparisons_of

SHARD = ShardConfig(1, 1, (Member(1, "s1", 0, True, True),), 1, 1, 0, False, False)
OTHER_SHARD = ShardConfig(2, 1, (Member(2, "s2", 0, True, True),), 1, 1, 0, False, False)
EMPTY = NO_VIEW._replace(version=1)
WITH_SHARD = NO_VIEW._replace(version=2, shards=(SHARD,), next_shard=2, set_version=1)
TRIMMED_AWAY = NO_VIEW._replace(version=3, next_shard=2, set_version=2, oldest=9, base=9, left=8)


class Client:
    """A client of one replica of the MMS. Its messages wait in `sent` until the test answers them."""

    def __init__(self, **config: int) -> None:
        self.core = ZiplogClient(ClientConfig("me", ("o1",), coalesce_calls=False, **config), {}, Random(1))
        self.now, self.calls = 0, 0
        self.sent: list[Send] = []
        self.results: dict[int, object] = {}
        self._keep(self.core.start(0))

    def _keep(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append(effect)
            elif isinstance(effect, Answer):
                self.results[effect.call] = effect.result

    def call(self, request: object) -> int:
        """Begin a call. Returns its number."""
        self.calls += 1
        self._keep(self.core.handle(Call(self.calls, request), self.now))
        return self.calls

    def wait(self) -> None:
        """Let a second pass."""
        for _ in range(100):
            self.now += 10 * MILLISECOND
            self._keep(self.core.handle(TimerFired("agenda"), self.now))

    def take(self, kind: type) -> list[Send]:
        """Remove the messages of a kind from `sent`."""
        found = [one for one in self.sent if isinstance(one.message, kind)]
        self.sent = [one for one in self.sent if not isinstance(one.message, kind)]
        return found

    def receive(self, sender: str, message: object) -> None:
        """Deliver a message to the client."""
        self._keep(self.core.handle(Received(sender, message), self.now))
        self.core.check_invariants()

    def is_asking(self) -> bool:
        """Whether it requests the configuration."""
        return any(isinstance(one.message, ViewRequest) for one in self.sent)

    def configure(self, view: View) -> None:
        """The MMS answers the open requests for the configuration."""
        requests = self.take(ViewRequest)
        assert requests
        for one in requests:
            self.receive("o1", ViewResponse(one.message.request, view))


def test_a_subscription_finds_the_first_shard() -> None:
    """While there is no shard, no server mentions a newer configuration: the client must request it again."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.results[subscription]))  # type: ignore[arg-type]
    client.configure(EMPTY)
    assert not client.sent
    client.wait()
    client.configure(WITH_SHARD)
    assert client.take(Pull)


def test_an_answer_from_before_the_oldest_record_was_known_is_dropped() -> None:
    """Bug 34: a pull that was sent again began later, and had the number of the first one."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    first = client.call(calls.Next(client.results[subscription]))  # type: ignore[arg-type]
    client.configure(WITH_SHARD._replace(shards=(SHARD, OTHER_SHARD)))
    slow, quick = (one.message for one in sorted(client.take(Pull), key=lambda one: one.to))
    client.receive("s2", ReadFailed(quick.request, ReadError.TRIMMED, 20))
    assert isinstance(client.results[first], Trimmed)
    (quick,) = (one.message for one in client.take(Pull))
    client.receive("s2", Pulled(quick.request, 20, 40, 1))
    (again,) = (one.message for one in client.take(Pull) if one.to == "s1")
    assert (again.gsn, again.wanted) == (20, 39)
    client.receive("s1", Pulled(slow.request, 1, 30, 1))
    client.receive("s1", Pulled(again.request, 20, 40, 1))


def test_records_are_read_if_those_damaged_on_one_member_are_sound_on_another() -> None:
    """Each damage made the whole batch unreadable, so no member seemed to have its records."""
    client = Client()
    subscription = client.results[client.call(calls.Subscribe(1))]
    damaged, found = {"s1": 2, "s4": 1}, []
    pair = SHARD._replace(members=(*SHARD.members, SHARD.members[0]._replace(server=4, address="s4")))
    call = client.call(calls.Next(subscription))  # type: ignore[arg-type]
    client.configure(WITH_SHARD._replace(shards=(pair,)))
    for _ in range(9):
        for to, pull in ((one.to, one.message) for one in client.take(Pull)):
            if damaged[to] == pull.gsn or pull.max_bytes > 1:
                client.receive(to, ReadFailed(pull.request, ReadError.UNREADABLE, 1, f"disk of {to}"))
            else:
                records = [LogRecord(pull.gsn, 0, *wrap(pull.gsn, 7, pull.gsn, (1, b"")))]
                client.receive(to, Pulled(pull.request, pull.gsn, pull.gsn + 1, 1, records))
        if call in client.results:
            found += [record.gsn for record in client.results[call].records]  # type: ignore[attr-defined]
            call = client.call(calls.Next(subscription))  # type: ignore[arg-type]
        client.wait()
    assert found[:2] == [1, 2]


def test_a_subscription_requests_the_configuration_until_it_is_as_new_as_an_answer() -> None:
    """The answer to a request that was under way already came late, with the configuration before. The subscription
    waited for another one, which nothing requested."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    batch = client.call(calls.Next(client.results[subscription]))  # type: ignore[arg-type]
    client.configure(WITH_SHARD)
    (pull,) = (one.message for one in client.take(Pull))
    client.receive("s1", ReadFailed(pull.request, ReadError.BEHIND, 1))
    assert client.is_asking()
    client.wait()
    assert client.take(Pull)
    client.receive("s1", Pulled(pull.request, 1, 5, 2))
    client.configure(WITH_SHARD)
    assert batch not in client.results
    client.configure(WITH_SHARD._replace(version=3, set_version=2))
    assert client.results[batch].end == 5  # type: ignore[attr-defined]


def test_a_subscription_asks_only_once_for_trimmed_records() -> None:
    """The application does not fetch the batch in front of the trimmed records for a while."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    first = client.call(calls.Next(client.results[subscription]))  # type: ignore[arg-type]
    client.configure(WITH_SHARD)
    for gsn in (1, 2):
        (pull,) = (one.message for one in client.take(Pull))
        client.receive("s1", Pulled(pull.request, gsn, gsn + 1, 1, [LogRecord(gsn, 0, *wrap(gsn, 7, gsn, (1, b"")))]))
    assert first in client.results
    (pull,) = (one.message for one in client.take(Pull))
    client.receive("s1", ReadFailed(pull.request, ReadError.TRIMMED, 20))
    assert [one.message.gsn for one in client.take(Pull)] == [20], "again and again from 3 on"


def test_a_subscription_without_a_caller_asks_nothing() -> None:
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.results[subscription], 5 * MILLISECOND))  # type: ignore[arg-type]
    client.configure(EMPTY)
    client.wait()
    client.configure(EMPTY)
    client.wait()
    assert not client.sent


def appending() -> tuple[Client, int]:
    """A client that has sent a record to shard 1, without an answer."""
    client = Client()
    view = client.call(calls.View())
    client.configure(WITH_SHARD)
    assert client.results[view] == WITH_SHARD
    append = client.call(calls.Append([(1, b"a")], 1))
    assert client.take(Insert)
    return client, append


def test_an_append_that_ended_as_unknown_keeps_no_records_once_they_are_known() -> None:
    """The last 10,000 of them were kept, with all their payloads."""
    client, _ = appending()
    payload = bytes(1_000)
    references = sys.getrefcount(payload)
    append = client.call(calls.Append([(1, payload)], 1, deadline=10 * MILLISECOND, after=0))
    client.wait()
    result = client.results[append]
    assert isinstance(result, AppendUnknown)
    client.take(Insert)
    client.receive("s1", Inserted(client.core.number, 1, 1, (Placed(1, (5, 6)),), False))
    outcome = client.call(calls.Outcome(result.append_id))
    assert client.results[outcome] == [6]
    assert sys.getrefcount(payload) == references


def test_an_append_that_expired_before_its_place_was_known_keeps_no_records() -> None:
    """While no server answered, each one waited on for a floor, beyond the limit for records in the client."""
    client = Client()
    payload = bytes(1_000)
    references = sys.getrefcount(payload)
    append = client.call(calls.Append([(1, payload)], deadline=1))
    client.wait()
    assert isinstance(client.results[append], Unavailable)
    assert sys.getrefcount(payload) == references


def test_no_server_is_asked_for_calls_that_have_ended() -> None:
    """All that ended while no server answered were kept until one did."""
    client = Client()
    for request in (calls.Append([(1, b"")], deadline=1), calls.Append([(1, b"")], deadline=1), calls.Tail(1)):
        client.call(request)
    client.configure(WITH_SHARD._replace(shards=(SHARD, OTHER_SHARD)))
    for _ in range(3):
        client.wait()
    assert len(client.results) == 3
    client.take(FrontierRequest)
    client.wait()
    assert not client.take(FrontierRequest)
    tail = client.call(calls.Tail())
    for one in client.take(FrontierRequest):
        client.receive(one.to, FrontierResponse(one.message.request, one.message.shard, 1, 8, 7, 8, True))
    assert client.results[tail] == 8


NEXT_VIEW = WITH_SHARD._replace(version=3, shards=(SHARD._replace(view=2, since=2),), set_version=2)


def test_what_was_acknowledged_behind_a_refused_record_is_lost_and_inserted_again() -> None:
    """Servers that acknowledge what they have received may lose it, and the message about the first record (ZIP-12)."""
    client = Client()
    append = client.call(calls.Append([(1, b"a"), (1, b"b"), (1, b"c")], after=0))
    client.configure(WITH_SHARD)
    (sent,) = (one.message for one in client.take(Insert))
    acknowledged = Inserted(sent.client, 1, 1, (Placed(2, (6,)), Placed(3, (7,))), False)
    client.receive("s1", acknowledged)
    client.receive("s1", Refused(sent.client, 1, 1, ((1, 1),)))
    late = acknowledged._replace(placed=(Placed(1, (5, 6, 7)),))
    client.receive("s1", late)
    client.configure(NEXT_VIEW)
    (again,) = (one.message for one in client.take(Insert))
    assert (again.view, again.sequence, again.records, again.floor) == (2, 1, sent.records, 0)
    client.receive("s1", late)
    assert append not in client.results
    client.receive("s1", Inserted(sent.client, 1, 2, (Placed(1, (25, 26, 27)),), False))
    assert client.results[append] == calls.AppendResult([25, 26, 27], [1, 1, 1])


def test_any_number_of_appends_that_wait_for_room_end_when_their_shard_is_removed() -> None:
    """Each ended the next one in a deeper call, until the client met a RecursionError."""
    client = Client()
    count = 2_000
    for _ in range(count):
        client.call(calls.Append([(1, bytes(1 << 20))], 1, after=0))
    client.configure(TRIMMED_AWAY)
    client.wait()
    assert {type(result) for result in client.results.values()} == {Unavailable}
    assert len(client.results) == count


def test_records_behind_a_full_window_are_inserted_when_the_others_are_in_the_log() -> None:
    """All were in one message, which was split from 68 MiB on. Of more than two parts a stream drops the first ones,
    and a server places the others without them."""
    client = Client()
    records = [(1, bytes([number]) * (3 << 20)) for number in range(5)]
    append = client.call(calls.Append(records, after=0))
    client.configure(WITH_SHARD)
    inserted: list[tuple[int, bytes]] = []
    while sent := [one.message for one in client.take(Insert)]:
        (insert,) = sent
        assert (insert.floor, len(insert.records)) == (10 * len(inserted), min(2, 5 - len(inserted)))
        inserted += insert.records
        first, last = insert.sequence, insert.sequence + len(insert.records)
        if first == 3 and insert.view == 1:
            client.receive("s1", Refused(insert.client, 1, insert.view, ((3, 2),)))
            inserted = inserted[:2]
            client.configure(NEXT_VIEW)
        else:
            gsns = tuple(10 * number for number in range(first, last))
            client.receive("s1", Inserted(insert.client, 1, insert.view, (Placed(first, gsns),), False))
        assert (append in client.results) == (len(inserted) == 5)
    assert inserted == records
    assert client.results[append] == calls.AppendResult([10, 20, 30, 40, 50], [1] * 5)


def test_records_behind_a_full_window_are_not_inserted_after_the_deadline() -> None:
    client = Client()
    records = [(1, bytes(3 << 20))] * 5
    append = client.call(calls.Append(records, deadline=10 * MILLISECOND, after=0))
    client.configure(WITH_SHARD)
    (insert,) = (one.message for one in client.take(Insert))
    client.wait()
    result = client.results[append]
    assert isinstance(result, AppendUnknown)
    assert result.append_id.numbers == ((1, 2), (0, 3))
    client.take(Insert)
    client.receive("s1", Refused(insert.client, 1, 1, ((1, 2),)))
    client.configure(NEXT_VIEW)
    assert not client.take(Insert)
    outcome = client.call(calls.Outcome(result.append_id))
    assert client.results[outcome] == [None] * 5


def test_a_view_that_has_a_record_without_the_one_before_it_ends_the_client() -> None:
    """ZIP-13: it would insert the first one behind the second."""
    client = Client()
    client.call(calls.Append([(1, b"a"), (1, b"b")], after=0))
    client.configure(WITH_SHARD)
    (sent,) = (one.message for one in client.take(Insert))
    client.receive("s1", Inserted(sent.client, 1, 2, (Placed(2, (6,)),), True))
    with pytest.raises(ProtocolViolation, match="ZIP-13"):
        client.receive("s1", Refused(sent.client, 1, 1, ((1, 1),)))


def test_an_append_whose_shard_is_trimmed_away_ends_as_unknown() -> None:
    client, append = appending()
    client.call(calls.View())
    client.configure(TRIMMED_AWAY)
    result = client.results[append]
    assert isinstance(result, AppendUnknown)
    assert "trimmed away" in str(result)
    outcome = client.call(calls.Outcome(result.append_id))
    assert isinstance(client.results[outcome], AppendUnknown)


def test_a_shard_that_is_trimmed_away_takes_no_records_and_has_none() -> None:
    client, _ = appending()
    client.call(calls.View())
    client.configure(TRIMMED_AWAY)
    append = client.call(calls.Append([(1, b"b")], 1, after=0))
    assert isinstance(client.results[append], Unavailable)
    read = client.call(calls.Read(10, 1))
    client.configure(TRIMMED_AWAY)
    assert isinstance(client.results[read], NotOfThisShard)
    trimmed = client.call(calls.Read(5, 1))
    assert isinstance(client.results[trimmed], Trimmed)
    subscription = client.call(calls.Subscribe(10, shard=1))
    batch = client.call(calls.Next(client.results[subscription]))  # type: ignore[arg-type]
    assert client.results[batch].end == END  # type: ignore[attr-defined]


def test_a_read_of_a_trimmed_record_whose_shard_is_gone_says_so() -> None:
    """Bug 29: a client that did not know the shard reported that the record is on no such shard."""
    client = Client()
    read = client.call(calls.Read(5, 1))
    client.configure(TRIMMED_AWAY)
    assert isinstance(client.results[read], Trimmed)


def test_a_read_ends_when_its_shard_is_trimmed_away_later() -> None:
    """Bug 25: a read of a record that the log had passed looked at the configuration no more."""
    client, _ = appending()
    read = client.call(calls.Read(10, 1))
    for _ in range(3):
        client.wait()
        for one in client.take(FrontierRequest):
            client.receive("s1", FrontierResponse(one.message.request, 1, 1, 20, 20, 20, True))
        if client.is_asking():
            client.configure(WITH_SHARD)
    assert any(one.message.is_reached for one in client.take(ReadRequest))
    assert read not in client.results
    client.wait()
    client.configure(TRIMMED_AWAY)
    for _ in range(2):
        client.wait()
        if client.is_asking():
            client.configure(TRIMMED_AWAY)
    assert isinstance(client.results[read], NotOfThisShard)


def test_a_large_record_is_requested_again_when_it_has_had_the_time_to_arrive() -> None:
    """The client requested it twice a second, of one member after the other, and each sent all of it."""
    client, _ = appending()
    client.call(calls.Read(10, 1, size=20 << 20))
    for count in (1, 0, 1):
        client.wait()
        assert len(client.take(ReadRequest)) == count
        for one in client.take(FrontierRequest):
            client.receive("s1", FrontierResponse(one.message.request, 1, 1, 20, 20, 20, True))


def test_the_tail_is_what_a_subscriber_may_have_passed() -> None:
    """Bug 26: the order passes empty slots, so a version may have been shown that no record has."""
    client, _ = appending()
    tail = client.call(calls.Tail())
    for one in client.take(FrontierRequest):
        client.receive("s1", FrontierResponse(one.message.request, 1, 1, 30, 20, 25, True))
    assert client.results[tail] == 25


def test_a_set_of_shards_that_are_not_open_has_no_tail_yet() -> None:
    """Bug 38: what such a shard has passed is behind the records that a client of the earlier set still inserts."""
    client = Client()
    tail = client.call(calls.Tail())
    client.configure(WITH_SHARD._replace(shards=(SHARD, OTHER_SHARD)))
    for is_open in (False, True):
        client.wait()
        if client.is_asking():
            client.configure(WITH_SHARD._replace(shards=(SHARD, OTHER_SHARD)))
        first, second = {one.message.shard: one.message.request for one in client.take(FrontierRequest)}.items()
        client.receive("s1", FrontierResponse(first[1], 1, 1, 8, 0, 8, False))
        client.receive("s2", FrontierResponse(second[1], 2, 1, 9, 0, 9, is_open))
        assert (tail in client.results) == is_open
    assert client.results[tail] == 9, "one open shard suffices"


def test_the_tail_without_shards_waits_for_those_that_have_left() -> None:
    client, _ = appending()
    left = SHARD._replace(bound=9, is_draining=True)
    tail = client.call(calls.Tail())
    client.wait()
    view = WITH_SHARD._replace(version=3, shards=(left,), set_version=2, base=9, left=8)
    client.configure(view)
    client.wait()
    client.configure(view)
    assert tail not in client.results, "a client of the earlier set still finds an earlier tail"
    client.wait()
    client.configure(view._replace(version=4, shards=(left._replace(is_drained=True),)))
    assert client.results[tail] == 8


@pytest.mark.parametrize("is_routed", [True, False], ids=["in a full window", "without a shard"])
def test_an_append_that_expires_looks_at_no_other_one(monkeypatch: pytest.MonkeyPatch, is_routed: bool) -> None:
    """20,000 that expired together took a client 9 s."""
    looks = []

    class Counted(inserts.Chunk):
        @property
        def append(self) -> inserts.PendingAppend:
            looks.append(self)
            return self.of

        @append.setter
        def append(self, append: inserts.PendingAppend) -> None:
            self.of = append

    monkeypatch.setattr(inserts, "Chunk", Counted)
    client = Client(window_bytes=1)
    for number in range(200):
        client.call(calls.Append([(1, b"x")], deadline=MILLISECOND + number, after=0))
    if is_routed:
        client.configure(WITH_SHARD)
    looks.clear()
    client.wait()
    assert len(client.results) == 200
    assert len(looks) < 10 * 200


def test_an_append_that_expires_outside_is_compared_with_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = comparisons_of("PendingAppend", inserts, monkeypatch)
    client = Client(buffer_bytes=100 * 33)
    for number in range(200):
        client.call(calls.Append([(1, b"x")], deadline=MILLISECOND - number, after=0))
    client.wait()
    assert len(client.results) == 200
    assert len(compared) < 10 * 200
