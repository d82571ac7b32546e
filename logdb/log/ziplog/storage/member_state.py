"""The state that the parts of a storage server share. All parts read it; each attribute is changed by one part."""

from __future__ import annotations

from random import Random

from logdb.cores.effects import Effect
from logdb.log.ziplog.epochs import NO_EPOCH
from logdb.log.ziplog.messages import ShardConfig, Update
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.read_server import ReadServer
from logdb.log.ziplog.storage.replication import Primary
from logdb.log.ziplog.storage.shard_log import ShardLog


class MemberState:
    """The shared state of a storage server. `out`: the effects of the event that is being handled.

    From the MMS: `nonce`, by which it knows this server, and `number`, which it gave it (0: none yet); `update`: its
    newest decision, `change`: the number of that one, also after a restart: an older one must not wipe a member that
    has restarted (ZIP-8). `shard`: the configuration of its shard, in a view that may be newer than the adopted one.

    The view that this server has adopted is `view` of shard `shard_number`, and `log` what it has in it. `is_frozen`:
    it accepts nothing in it; `is_synced`: it has all that the view began with. `may_lack`: it has restarted since, and
    had acknowledged records that it had not synced, so it may lack some of them (ZIP-12). `adopting`: the view that it
    begins, whose state is not durable yet. `base`: the log from before the view, until all of the view is durable here.
    It is what the directory has, and what the next view begins with if the source of this one fails (ZIP-10).
    `primary`: there while this server leads.

    `epoch`: the newest that it has entered. `unsaved_bytes`: the size of the records since the last checkpoint.
    `must_report`: whether the MMS should hear of a change at once.
    """

    def __init__(self, config: StorageConfig, rng: Random) -> None:
        self.config, self.rng = config, rng
        self.out: list[Effect] = []
        self.nonce = rng.getrandbits(62) + 1
        self.number = self.change = self.shard_number = self.view = 0
        self.update: Update | None = None
        self.shard: ShardConfig | None = None
        self.log = ShardLog(self.out, config.cache_bytes)
        self.base: ShardLog | None = None
        self.reads = ReadServer(self.out)
        self.is_frozen = self.is_synced = self.may_lack = False
        self.adopting: ShardConfig | None = None
        self.primary: Primary | None = None
        self.epoch = NO_EPOCH
        self.unsaved_bytes = 0
        self.must_report = False

    @property
    def is_serving(self) -> bool:
        """Whether this server takes part in the view that it has adopted."""
        return self.view > 0 and not self.is_frozen and self.adopting is None

    def serves(self, shard: int, view: int) -> bool:
        """Whether this server takes part in this view."""
        return self.is_serving and shard == self.shard_number and view == self.view

    @property
    def is_over(self) -> bool:
        """Whether the shard of the adopted view is drained: its order is complete."""
        return self.shard is not None and self.shard.is_drained and self.shard.view == self.view

    def check(self) -> None:
        """ZIP-n as far as one server sees them. Raises AssertionError."""
        if self.view and self.adopting is None:
            self.log.check()
        self.reads.check(self.log)
        if self.primary is not None:
            self.primary.check()
            assert not self.log.speculative, "ZIP-3: a primary has speculative records"
        if self.base is not None:
            assert not self.is_synced, "ZIP-10: a synced server has two logs"
        else:
            assert self.is_synced or not self.is_serving, "ZIP-10: a server takes part with nothing to go back to"
