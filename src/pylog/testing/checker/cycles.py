"""Anomalies between operations: cycles in their order, in Adya's terms.

Operation A comes before operation B by an edge

- *ww*: if a record of A is immediately before one of B in the log;
- *wr*: if B read a record that A sent;
- *process*: if the same process did A first;
- *realtime*: if A was completed before B was invoked.

Kafka does not isolate writes from one another, so cycles of ww edges (G0) are allowed. In a cycle
with a wr edge but no ww edge (G1c) information flowed backwards, which is never allowed: with
process edges an answer was read before the question was sent, with realtime edges a record was read
before it was sent.

The search is linear. If an edge leads backwards, it finds the strongly connected components
(Tarjan, 1972).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pylog.testing.checker.anomaly import Finding
from pylog.testing.checker.index import NO_LINE, Index
from pylog.testing.checker.partition_index import NO_OPERATION

Edge = tuple[int, int]
Edges = Callable[[Index], Iterable[Edge]]


def cycles(first: Edges, *more: Edges) -> Callable[[Index], Iterator[Finding]]:
    """Finds components that need the last kind of edges; without it they are of a weaker kind."""

    def find(index: Index) -> Iterator[Finding]:
        edges = list(first(index))
        if _lead_forwards(index, edges, to_readers=first is wr):
            return
        weaker: set[int] = set()
        if more:
            weaker = {node for nodes in _components(index, edges, more[:-1]) for node in nodes}
        for nodes in _components(index, edges, more):
            if weaker.isdisjoint(nodes):
                processes = sorted({index.processes[node] for node in nodes})
                lines = sorted(index.asked[node] for node in nodes)
                yield Finding(f"{len(nodes)} operations of processes {processes[:9]}, asked for in lines {lines[:9]}")

    return find


def _lead_forwards(index: Index, edges: list[Edge], *, to_readers: bool) -> bool:
    """Whether all edges lead to later moments: then no cycle exists. An operation's moment is its
    completion if it reads, else its invocation; process and realtime edges always lead forwards."""
    readers = {reader for _, reader in edges} if to_readers else set()
    moment = [done if node in readers else index.asked[node] for node, done in enumerate(index.done)]
    return all(moment[earlier] < moment[later] for earlier, later in edges)


def wr(index: Index) -> Iterable[Edge]:
    return index.flows


def ww(index: Index) -> Iterator[Edge]:
    for partition in index.partitions.values():
        before = NO_OPERATION
        for offset in partition.offsets():
            node = partition.node[partition.at[offset]]
            if node not in (before, NO_OPERATION):
                if before != NO_OPERATION:
                    yield before, node
                before = node


def process(index: Index) -> Iterator[Edge]:
    last: dict[int, int] = {}
    for node, number in enumerate(index.processes):
        before = last.get(number)
        if before is not None and index.done[before] != NO_LINE:
            yield before, node
        last[number] = node


def realtime(index: Index) -> Iterator[Edge]:
    """Edges from completed operations to those invoked later, without those that others imply."""
    events = [(line, 1, node) for node, line in enumerate(index.asked)]
    events += [(line, 0, node) for node, line in enumerate(index.done) if line != NO_LINE]
    over: set[int] = set()  # the last completed ones: every other is before one of these
    before: dict[int, tuple[int, ...]] = {}
    for _, asked, node in sorted(events):
        if asked:
            before[node] = tuple(over)
            for earlier in over:
                yield earlier, node
        else:
            over.difference_update(before.pop(node, ()))
            over.add(node)


def _components(index: Index, edges: list[Edge], more: tuple[Edges, ...]) -> Iterator[list[int]]:
    """The strongly connected components of several operations that contain one of ``edges``."""
    follow: dict[int, list[int]] = {}
    for some in (edges, *(kind(index) for kind in more)):
        for earlier, later in some:
            follow.setdefault(earlier, []).append(later)
    component: dict[int, int] = {}
    found: list[list[int]] = []
    for nodes in _strongly_connected(follow):
        component.update(dict.fromkeys(nodes, len(found)))
        found.append(nodes)
    wanted = {component[a] for a, b in edges if a in component and component[a] == component.get(b)}
    yield from (found[number] for number in sorted(wanted))


def _strongly_connected(follow: dict[int, list[int]]) -> Iterator[list[int]]:
    """Tarjan's algorithm with an explicit stack instead of recursion. Omits single nodes."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root, after_root in follow.items():
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(after_root))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in number:
                    number[after] = low[after] = len(number)
                    path.append(after)
                    on_path.add(after)
                    work.append((after, iter(follow.get(after, ()))))
                    break
                if after in on_path:
                    low[node] = min(low[node], number[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    nodes = _taken(path, on_path, node)
                    if len(nodes) > 1:
                        yield nodes


def _taken(path: list[int], on_path: set[int], root: int) -> list[int]:
    at = path.index(root) if path[-1] != root else len(path) - 1
    nodes = path[at:]
    del path[at:]
    on_path.difference_update(nodes)
    return nodes
