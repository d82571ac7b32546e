"""Replicas whose messages arrive when a story says so: what a lost disk could break, step by step.

Nothing happens by itself but what a step names: who talks to whom meanwhile, whose timer runs out, who loses its disk.
A disk keeps at once what is written. What is not delivered waits, for ever if nobody asks for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from logdb.cores.effects import MILLISECOND, Journal, Persist, Persisted, Received, Send, SetTimer, TimerFired
from logdb.log.contract import LogRecord
from logdb.log.paxos import Chosen, Config, Replica
from logdb.log.paxos.messages import MemberEnvelope, Prepare, Promise

CONFIG = Config(heartbeat_ns=MILLISECOND)


class Story:
    """`waiting`: (sender, receiver, message) of what was sent and has not arrived. `values`: what was chosen, by slot:
    the same for all (PAX-3)."""

    def __init__(self, members: str, *, begun: bool = True) -> None:
        self.members = members
        self.now = 0
        self.disks: dict[str, list[LogRecord]] = {name: [] for name in members}
        self.replicas: dict[str, Replica] = {}
        self.waiting: list[tuple[str, str, Any]] = []
        self.timers: dict[str, dict[str, int]] = {name: {} for name in members}
        self.values: dict[int, bytes] = {}
        for name in members:
            self.start(name)
        if not begun:
            return
        self.talk(members)
        self.elect("a", members)
        self.propose("a", b"first", members)
        self.heartbeat("a", members)

    # ---- what a story is made of

    def start(self, name: str) -> None:
        disk = self.disks[name]
        journal = Journal(1, len(disk) + 1, list(disk)) if disk else None
        self.timers[name] = {}
        replica = Replica(name, tuple(self.members), journal, random.Random(f"{name} {self.now}"), CONFIG)
        self.replicas[name] = replica
        self._perform(name, replica.start(self.now))

    def restart(self, name: str) -> None:
        """It was killed."""
        self.now += MILLISECOND
        self.start(name)

    def wipe(self, name: str) -> None:
        """It was killed, and its disk lost."""
        self.disks[name].clear()
        self.restart(name)

    def talk(self, among: str) -> None:
        """Everything between these arrives, and what comes of it."""
        self.deliver(lambda sender, to, message: sender in among and to in among, again=True)

    def lose(self) -> None:
        """What is under way never arrives."""
        self.waiting.clear()

    def deliver(self, wanted: Callable[[str, str, Any], bool], *, again: bool = False) -> None:
        """Such messages arrive; with `again` those too that are sent because of that."""
        while found := [message for message in self.waiting if wanted(*message)]:
            self.waiting = [message for message in self.waiting if not wanted(*message)]
            for sender, to, message in found:
                self._perform(to, self.replicas[to].handle(Received(sender, message), self.now))
            if not again:
                return

    def said(self, kind: type, sender: str, to: str) -> None:
        """These messages of that kind arrive."""
        self.deliver(lambda *sent: sent[:2] == (sender, to) and isinstance(getattr(sent[2], "message", None), kind))

    def ring(self, name: str, timer: str) -> None:
        """A timer runs out."""
        self.now = max(self.now, self.timers[name][timer])
        self._perform(name, self.replicas[name].handle(TimerFired(timer), self.now))

    def elect(self, name: str, among: str) -> None:
        """It hears no leader any more, nor do the others of these, and they make it the leader."""
        self.pre_vote(name, among)
        self.talk(among)
        assert self.replicas[name].is_leader

    def pre_vote(self, name: str, among: str) -> None:
        """It has a quorum of these behind it, and prepares. Who led until now has not noticed yet."""
        before = self.timers[name]["paxos.election"]
        self.ring(name, "paxos.election")
        if self.timers[name]["paxos.election"] > before and not self.waiting:
            self.ring(name, "paxos.election")
        for other in among.replace(name, ""):
            self.deliver(lambda sender, to, _, other=other: (sender, to) == (name, other))  # type: ignore[misc]
            self.deliver(lambda sender, to, _, other=other: (sender, to) == (other, name))  # type: ignore[misc]

    def propose(self, name: str, value: bytes, among: str) -> None:
        """Who leads, or thinks so, proposes something to these."""
        self._perform(name, self.replicas[name].propose(value, self.now))
        self.talk(among)

    def heartbeat(self, name: str, among: str) -> None:
        self.ring(name, "paxos.heartbeat")
        self.talk(among)

    def join_request(self, name: str, among: str) -> None:
        """Who is no member tries again."""
        for _ in range(3):
            if not self.replicas[name].has_joined:
                self.ring(name, "paxos.join")
            self.talk(among)

    def compact(self, name: str, slot: int) -> None:
        """It takes a snapshot, and lets go of its journal before that."""
        end = len(self.disks[name])
        self._perform(name, self.replicas[name].compact(slot, b"snapshot", self.now))
        self.disks[name] = [LogRecord(at, 0, *it[2:]) for at, it in enumerate(self.disks[name][end:], 1)]

    # ---- the host

    def _perform(self, name: str, out: list[Any]) -> None:
        end = 0
        for effect in out:
            match effect:
                case Send(to, message):
                    self.waiting.append((name, to, message))
                case Persist(_, first, records):
                    assert first == len(self.disks[name]) + 1
                    self.disks[name] += [LogRecord(first + at, 0, *record) for at, record in enumerate(records)]
                    end = len(self.disks[name]) + 1
                case SetTimer(timer, at):
                    self.timers[name][timer] = at
                case Chosen(slot, value):
                    assert self.values.setdefault(slot, value) == value, f"PAX-3: two values for slot {slot}"
        self.replicas[name].check_invariants()
        if end:
            self._perform(name, self.replicas[name].handle(Persisted("paxos", end), self.now))


def one_comes_late() -> Story:
    """c starts when a and b have talked for a while, and then all three do."""
    story = Story("abc", begun=False)
    story.join_request("a", "ab")
    assert not any(replica.has_joined for replica in story.replicas.values()), "PAX-14: founded by two of three"
    story.talk("abc")
    story.elect("b", "abc")
    story.propose("b", b"first", "abc")
    story.propose("b", b"second", "abc")
    return story


def a_snapshot_is_taken() -> Story:
    """c begins anew with a snapshot, all that is left of its journal, and is who it was."""
    story = Story("abc")
    story.propose("a", b"second", "abc")
    story.heartbeat("a", "abc")
    story.compact("c", 2)
    story.restart("c")
    assert story.replicas["c"].cluster == story.replicas["a"].cluster, "PAX-14: a member that does not know it"
    return story


# ---- the stories. a leads at first, and everybody has the first value


def a_promise_outlives_its_disk(promise_comes_first: bool) -> Story:
    """e prepares a ballot. c promises and loses its disk; its promise is under way. a, b and d let c in again, of whom
    nobody has heard of that ballot, and c votes for what a proposes. Then d promises as well."""
    story = Story("abcde")
    story.pre_vote("e", "cde")
    story.heartbeat("a", "abd")
    story.said(Prepare, "e", "c")
    story.wipe("c")
    prepared = [message for message in story.waiting if isinstance(message[2], MemberEnvelope)]
    story.waiting = [message for message in story.waiting if message not in prepared]
    story.join_request("c", "abcd")
    story.heartbeat("a", "abc")
    story.propose("a", b"second", "abc")
    story.join_request("c", "abc")
    assert story.replicas["c"].has_joined
    assert story.values[2] == b"second"
    story.waiting = prepared
    if promise_comes_first:
        story.said(Promise, "c", "e")
    story.said(Prepare, "e", "d")
    story.said(Promise, "d", "e")
    story.said(Promise, "c", "e")
    story.lose()
    if story.replicas["e"].is_leader:
        story.propose("e", b"other", "bcde")
    assert not story.replicas["e"].is_leader
    return story


def an_old_leader_lets_in() -> Story:
    """b leads, with c, and a has not heard of it. c loses its disk and hears a alone."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.lose()
    story.wipe("c")
    story.join_request("c", "ac")
    story.propose("a", b"other", "ac")
    story.lose()
    assert not story.replicas["c"].has_joined
    return story


def an_old_leader_goes_on() -> Story:
    """The same, but b answers as well, once."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.lose()
    story.wipe("c")
    for _ in range(3):
        story.ring("c", "paxos.join")
        story.deliver(
            lambda sender, to, message: not isinstance(message, MemberEnvelope) and "c" in (sender, to), again=True
        )
        story.lose()
    story.heartbeat("a", "ac")
    if story.replicas["a"].is_leader:
        story.propose("a", b"other", "ac")
    return story


def the_leader_dies() -> Story:
    """b leads, with c, which loses its disk, and is let in by a and b. Then b dies before it has told anything else."""
    story = Story("abc")
    story.elect("b", "bc")
    story.propose("b", b"second", "bc")
    story.lose()
    story.wipe("c")
    for _ in range(3):
        if not story.replicas["c"].has_joined:
            story.ring("c", "paxos.join")
        story.deliver(
            lambda sender, to, message: not isinstance(message, MemberEnvelope) and "c" in (sender, to), again=True
        )
        story.lose()
    story.heartbeat("a", "ac")
    for _ in range(3):
        story.now += 2 * CONFIG.election_ns
        story.ring("a", "paxos.election")
        story.talk("ac")
    if story.replicas["a"].is_leader:
        story.propose("a", b"other", "ac")
    assert not story.replicas["c"].has_joined
    return story
