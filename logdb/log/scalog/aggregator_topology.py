"""The tree of aggregators, which is part of the replicated state of the ordering layer.

The ordering layer is the root and has the address "". An aggregator is a *leaf* while no other aggregator reports to
it; new shards report to leaves.
"""

from __future__ import annotations

from collections.abc import Iterable

from logdb.cores.effects import Address

ROOT: Address = ""


class AggregatorTopology:
    """The tree. `parents`: the parent of each aggregator. `since`: the version of the view in which it was added."""

    def __init__(self, parents: Iterable[tuple[Address, Address, int]] = ()) -> None:
        self.parents: dict[Address, Address] = {}
        self.since: dict[Address, int] = {}
        for address, parent, since in parents:
            self.parents[address], self.since[address] = parent, since

    def add(self, address: Address, version: int) -> None:
        """Add an aggregator below the root."""
        self.parents[address], self.since[address] = ROOT, version

    def remove(self, address: Address) -> Address:
        """Remove an aggregator. Its children then report to its parent, which is returned."""
        parent = self.parents.pop(address)
        del self.since[address]
        for child, above in self.parents.items():
            if above == address:
                self.parents[child] = parent
        return parent

    def set_parent(self, address: Address, parent: Address) -> str:
        """Move an aggregator with its subtree. Returns the reason if that is rejected, else ""."""
        for one in (address, parent):
            if one != ROOT and one not in self.parents:
                return f"there is no aggregator at {one!r}"
        if address == ROOT:
            return "the ordering layer itself has no parent"
        if address in (above := self.above(parent)):
            return f"{address!r} would report to itself, by way of {', '.join(above)}"
        self.parents[address] = parent
        return ""

    def above(self, address: Address) -> list[Address]:
        """`address` and the aggregators above it, without the root."""
        path = []
        while address != ROOT:
            path.append(address)
            address = self.parents[address]
        return path

    def leaves(self) -> list[Address]:
        """The aggregators to which no other one reports."""
        inner = set(self.parents.values())
        return [address for address in self.parents if address not in inner]
