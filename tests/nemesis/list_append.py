"""Strict serializability of list-append transactions, from the values that clients read.

Elements are unique and lists only grow, so a read of a list gives the order of all appends before it. Each
transaction depends on the writers of the elements that it read or appended to (wr, ww), precedes the writers of later
elements (rw), and follows the transactions that had returned when it began (rt). A history is strictly serializable if
this graph has no cycle. Versions and other results of the database are not used; a separate check compares them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tests.nemesis.history import Entry, elements_of
from tests.sim.world import Failure

Edges = dict[int, dict[int, str]]
"""From a transaction to its successors, with the kind of each edge."""


def check_list_append(entries: Sequence[Entry], final: Mapping[str, Sequence[str]]) -> None:
    """`entries`: transactions that append to or read lists, in real time's order. `final`: the lists in the end."""
    appended = [_appends(entry) for entry in entries]
    authors = _authors(entries, appended)
    orders = _orders(entries, final)
    _check_elements(entries, appended, authors, orders, final)
    edges = _edges(entries, authors, orders)
    seen = {authors[element] for order in orders.values() for element in order}
    counts = [entry.status == "ok" or number in seen for number, entry in enumerate(entries)]
    _add_real_time(edges, entries, counts)
    cycle = find_cycle(edges)
    if cycle:
        raise Failure(kind_of(edges, cycle), " then ".join(_described(edges, cycle, entries)))
    _check_versions(edges, entries)


def _appends(entry: Entry) -> dict[str, list[str]]:
    """The elements that it appended, by list, in order."""
    found: dict[str, list[str]] = {}
    for kind, key, *rest in entry.ops:
        if kind == "append":
            found.setdefault(key, []).append(rest[0])
    return found


def _authors(entries: Sequence[Entry], appended: Sequence[Mapping[str, list[str]]]) -> dict[str, int]:
    authors: dict[str, int] = {}
    for number, lists in enumerate(appended):
        for element in (element for elements in lists.values() for element in elements):
            if element in authors:
                raise ValueError(f"{element} is of {entries[authors[element]]} and of {entries[number]}")
            authors[element] = number
    return authors


def _read(entry: Entry) -> Iterable[tuple[str, list[str]]]:
    """The lists that it read, keys and ranges."""
    yield from ((key, elements_of(value)) for key, value in entry.reads.items())
    for rows in entry.scans.values():
        yield from ((key, elements_of(value)) for key, value in rows.items())


def _orders(entries: Sequence[Entry], final: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The order of the elements of each list: the longest that was read. All others must be prefixes of it."""
    orders = {key: list(elements) for key, elements in final.items()}
    lists = [(key, elements) for entry in entries if entry.status == "ok" for key, elements in _read(entry)]
    for key, elements in lists:
        if len(elements) > len(orders.get(key, [])):
            orders[key] = elements
    for key, elements in [*lists, *((key, list(elements)) for key, elements in final.items())]:
        if orders.get(key, [])[: len(elements)] != elements:
            raise Failure("incompatible orders", f"{key} was {elements} and {orders[key]}")
    return orders


def _check_elements(
    entries: Sequence[Entry],
    appended: Sequence[Mapping[str, list[str]]],
    authors: Mapping[str, int],
    orders: Mapping[str, list[str]],
    final: Mapping[str, Sequence[str]],
) -> None:
    for key, order in orders.items():
        if len(set(order)) != len(order):
            raise Failure("duplicate elements", f"{key} is {order}")
        for element in order:
            author = authors.get(element)
            if author is None or element not in appended[author].get(key, ()):
                raise Failure("elements without an author", f"{element} in {key}")
            if entries[author].status == "fail":
                raise Failure("aborted read", f"{element} in {key} is of {entries[author]}")
    for entry, lists in zip(entries, appended, strict=True):
        for key, mine in lists.items():
            order = orders.get(key, [])
            there = [element for element in mine if element in order]
            if entry.status == "ok" and not set(mine) <= set(final.get(key, ())):
                raise Failure("lost append", f"{entry} is not in {key}: {final.get(key)}")
            if there:
                at = order.index(there[0])
                if order[at : at + len(mine)] != mine:
                    raise Failure("an incomplete transaction", f"{entry}: {key} is {order}")
        if entry.status == "ok":
            for key, elements in _read(entry):
                _check_whole(entry, key, elements, authors, appended)


def _check_whole(
    entry: Entry,
    key: str,
    elements: list[str],
    authors: Mapping[str, int],
    appended: Sequence[Mapping[str, list[str]]],
) -> None:
    """A read ends with the last element that some transaction appended."""
    if elements:
        last = appended[authors[elements[-1]]][key]
        if elements[-1] != last[-1]:
            raise Failure("intermediate read", f"{entry} read {elements} of {key}, and {last} belong together")


def _edges(entries: Sequence[Entry], authors: Mapping[str, int], orders: Mapping[str, list[str]]) -> Edges:
    edges: Edges = {number: {} for number in range(len(entries))}
    places = {key: {element: place for place, element in enumerate(order)} for key, order in orders.items()}
    for order in orders.values():
        for one, other in pairwise(order):
            _add(edges, authors[one], authors[other], "ww")
    for number, entry in enumerate(entries):
        if entry.status != "ok":
            continue
        for key, elements in _read(entry):
            after = 0
            if elements:
                _add(edges, authors[elements[-1]], number, "wr")
                after = places[key][elements[-1]] + 1
            if after < len(orders.get(key, ())):
                _add(edges, number, authors[orders[key][after]], "rw")
    return edges


def _add(edges: Edges, one: int, other: int, kind: str) -> None:
    if one != other:
        edges[one].setdefault(other, kind)


def _add_real_time(edges: Edges, entries: Sequence[Entry], counts: Sequence[bool]) -> None:
    """Edges from the transactions that had returned when one began to that one, without those that follow from
    others."""
    moments: list[tuple[int, bool, int]] = []
    for number, entry in enumerate(entries):
        if counts[number]:
            moments.append((entry.invoked, True, number))
            if entry.status == "ok" and entry.returned is not None:
                moments.append((entry.returned, False, number))
    newest: set[int] = set()
    before: dict[int, set[int]] = {}
    for _, begins, number in sorted(moments):
        if begins:
            before[number] = set(newest)
            for one in newest:
                _add(edges, one, number, "rt")
        else:
            newest -= before[number]
            newest.add(number)


def find_cycle(edges: Mapping[int, Mapping[int, str]]) -> list[int]:
    """A shortest cycle, preferably without real-time edges; empty if there is none."""
    for kinds in (("ww", "wr", "rw"), ("ww", "wr", "rw", "rt")):
        part = {one: [other for other, kind in after.items() if kind in kinds] for one, after in edges.items()}
        for group in components(part):
            if len(group) > 1:
                return min((_shortest(part, group, one) for one in list(group)[:50]), key=len)
    return []


def components(edges: Mapping[int, Sequence[int]]) -> Iterable[set[int]]:
    """Strongly connected components (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            one, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges[other])))
                    break
                if other in on_stack:
                    low[one] = min(low[one], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[one])
                if low[one] == index[one]:
                    group = set(stack[stack.index(one) :])
                    del stack[stack.index(one) :]
                    on_stack -= group
                    yield group


def _shortest(edges: Mapping[int, Sequence[int]], group: set[int], start: int) -> list[int]:
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        one = queue.popleft()
        for other in edges[one]:
            if other == start:
                path = [one]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if other in group and other not in came:
                came[other] = one
                queue.append(other)
    raise AssertionError("a component without a cycle")


def kind_of(edges: Mapping[int, Mapping[int, str]], cycle: Sequence[int]) -> str:
    """The name of the anomaly in the literature."""
    kinds = [edges[one][other] for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    name = {0: "G1c" if "wr" in kinds else "G0", 1: "G-single"}.get(kinds.count("rw"), "G2")
    return f"{name}{' in real time' if 'rt' in kinds else ''}"


def _described(edges: Mapping[int, Mapping[int, str]], cycle: Sequence[int], entries: Sequence[Entry]) -> Iterable[str]:
    for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        yield f"{entries[one]} ({edges[one][other]})"


def _check_versions(edges: Edges, entries: Sequence[Entry]) -> None:
    """The returned versions have the same order: a commit is at its version, a read after it."""
    places = [0 if not entry.version else 2 * entry.version + (not entry.writes) for entry in entries]
    for one, after in edges.items():
        for other, kind in after.items():
            has_versions = places[one] and places[other] and entries[one].status == entries[other].status == "ok"
            if has_versions and (places[one] > places[other] or (places[one] == places[other] and kind != "rt")):
                raise Failure("versions against the order", f"{entries[one]} ({kind}) {entries[other]}")
