"""`python -m tests.nemesis`: a cluster of real processes, faults of every kind, and the checks of the history."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.nemesis.network import Network, inside, lacks
from tests.nemesis.planted import PLANTED
from tests.nemesis.run import Round, Setting, Tally
from tests.nemesis.servers import Hosts, Loopback
from tests.sim.engines import ENGINES, simulation_of

SMALL = {"ordering": 1, "aggregators": 0, "storage": 4, "reserve": 8, "shards": 1}
SHARED_BY = 3
"""Members of a shard that masks a failure."""
AT_ONCE = (1, 2, 4)
"""Faults one after another leave room for many operations; several at once reach rare states."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument(
        "--faults", type=int, default=300, help="number of faults over all rounds (default: %(default)s)"
    )
    parser.add_argument("--round", type=int, default=30, help="number of faults per round (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=0, help="no new round starts after this time (default: no bound)"
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="of the random choice of faults, servers and times"
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default=ENGINES[0], help="engine of the cluster (default: %(default)s)"
    )
    parser.add_argument("--policy", help="policy for failed servers (default: all in turn)")
    parser.add_argument("--single", action="store_true", help="a server of one directory instead of a cluster")
    parser.add_argument("--nodes", type=int, default=0, help="this number of nodes with a server of each role")
    parser.add_argument("--log", action="store_true", help="the shared log alone, without a database")
    parser.add_argument("--small", action="store_true", help="one founder, one shard, no aggregator")
    parser.add_argument(
        "--loopback", action="store_true", help="run on the loopback of this machine: only faults of processes"
    )
    parser.add_argument("--planted", choices=sorted(PLANTED), help="a bug in all processes; it should be caught")
    parser.add_argument("--dir", type=Path, help="for data, logs and histories; kept after a failure")
    parser.add_argument("--keep", action="store_true", help="keep logs and histories in any case")
    options = parser.parse_args()
    if options.policy and options.policy not in (policies := simulation_of(options.engine).POLICIES):
        parser.error(f"--policy is one of: {', '.join(policies)}")
    if not options.loopback:
        if lacks():
            parser.error(f"faults of networks and disks need {', '.join(lacks())}; --loopback does without")
        code = inside(["-m", "tests.nemesis", *sys.argv[1:], "--seed", str(options.seed)])
        if code is not None:
            return code
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Run rounds until the faults or the minutes are used up."""
    print(f"seed {options.seed}", flush=True)
    folder = options.dir or Path(tempfile.mkdtemp(prefix="logdb-nemesis-"))
    network = None if options.loopback else Network()
    tally, draw, begun = Tally(), random.Random(options.seed), time.monotonic()
    policies = simulation_of(options.engine).POLICIES
    names = [options.policy] if options.policy else list(policies)
    if options.nodes:  # a member on each node, and no spares: the policy with as many members, if there is one
        names = [name for name in names if policies[name].replicas == SHARED_BY] or names
    number = 0
    while sum(tally.faults.values()) < options.faults and not tally.problems:
        if options.minutes and time.monotonic() - begun > options.minutes * 60:
            break
        policy = names[number % len(names)]
        number += 1
        path = folder / f"round-{number}"
        path.mkdir(parents=True)
        sizes = dict(SMALL) if options.small else {"reserve": 24 if policies[policy].finalizes else 12}
        sizes |= {"ordering": 0} if options.single else {"mapping": 0} if options.log else {}
        sizes |= {"nodes": options.nodes, "ordering": options.nodes, "shards": 1} if options.nodes else {}
        at_once = draw.choice(AT_ONCE)
        setting = Setting(options.engine, policy=policy, planted=options.planted or "", at_once=at_once, **sizes)
        ground = Loopback(path) if network is None else Hosts(path, network)
        left = options.faults - sum(tally.faults.values())

        def report(text: str, number: int = number) -> None:
            print(f"{time.monotonic() - begun:7.1f}  round {number}: {text}", flush=True)

        report(f"{policy}, faults at once: {setting.at_once}")
        try:
            Round(ground, setting, draw.randrange(1 << 32), tally, report).run(min(options.round, left))
        except Exception:
            tally.problems.append(traceback.format_exc())
        if not tally.problems and not options.keep:
            shutil.rmtree(path)
    print(table(tally, time.monotonic() - begun), flush=True)
    if tally.problems or options.keep:
        print(f"logs and histories: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if tally.problems else 0


def table(tally: Tally, seconds: float) -> str:
    """The counts of all rounds, as a table."""
    roles = sorted({role for _, role in tally.faults})
    lines = ["", "".join(["fault".ljust(26), *(role.rjust(12) for role in roles), "all".rjust(12)])]
    for kind in sorted({kind for kind, _ in tally.faults}):
        counts = [tally.faults[kind, role] for role in roles]
        lines.append("".join([kind.ljust(26), *(f"{count or '':>12}" for count in counts), f"{sum(counts):>12}"]))
    lines += ["", "operation, and result"]
    lines += [f"{f:<14}{how:<20}{count:>10,}" for (f, how), count in sorted(tally.results.items())]
    slowest = max(tally.recoveries_s, default=0.0)
    lines += [
        "",
        f"{sum(tally.faults.values())} faults in {seconds:.0f} s, {sum(tally.results.values()):,} operations, "
        f"{tally.commits:,} commits; recovered within {slowest:.1f} s",
        f"{len(tally.problems)} problems",
        *tally.problems,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
