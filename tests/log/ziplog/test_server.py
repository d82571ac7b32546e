"""A storage server across restarts."""

from __future__ import annotations

from random import Random

from logdb.log.ziplog.epochs import Epoch, Share
from logdb.log.ziplog.messages import Member, Report, ShardConfig, Update
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.server import StorageServer
from tests.harness.script import Script

EPOCH = Epoch(1, 1, 1 << 21, (Share(1, 1, 1),))
CONFIG = StorageConfig("s1", ("o1",))


def a_member() -> tuple[Script, Update]:
    """The only member of shard 1, and the decision that made it one."""
    script = Script(lambda journals: StorageServer(CONFIG, journals, Random(1)))
    script.sync()
    (nonce,) = {report.nonce for _, report in script.take(Report)}
    shard = ShardConfig(1, 1, (Member(1, "s1", 0, False, True),), 0, 0, 1, False, False)
    update = Update(5, 1, nonce, shard, EPOCH, 1)
    script.give("o1", update)
    for _ in range(3):
        script.sync()
    return script, update


def test_a_late_decision_does_not_wipe_a_member_that_has_restarted() -> None:
    """Bug 28: a decision from before the server became a member, which arrives after a restart, has no shard for it."""
    script, update = a_member()
    script.restart()
    assert script.core.state.shard_number == 1
    script.give("o1", update._replace(change=4, config=None))
    assert script.core.state.shard_number == 1
    assert script.core.state.number == 0, "an earlier decision counts for nothing"
    script.give("o1", update)
    assert script.core.state.number == 1
