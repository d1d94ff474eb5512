"""Small groups for assignor tests: states from short texts, Hypothesis strategies, and rounds that restore between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st

from tidemill.assignment.model import (
    LATEST_OFFSET,
    LONG_MAX,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    Assignment,
    AssignmentConfig,
    ClientState,
)
from tidemill.ids import ProcessId, TaskId

END = 100_000


def process(number: int) -> ProcessId:
    """Process ids in the order of their numbers."""
    return ProcessId.of(UUID(int=(number << 64) | number))


def tasks(text: str) -> frozenset[TaskId]:
    return frozenset(TaskId.parse(part) for part in text.split())


def client(number: int, running: str = "", lags: Mapping[str, int] | None = None, capacity: int = 1, **more) -> ClientState:
    """A client that runs these tasks and has copies with these lags; of other tasks it has nothing."""
    active = tasks(running)
    copies = {TaskId.parse(task): lag for task, lag in (lags or {}).items()}
    return ClientState(
        process_id=process(number),
        capacity=capacity,
        previous_active=active,
        previous_standby=frozenset(copies),
        lags={**copies, **dict.fromkeys(active, LATEST_OFFSET)},
        **more,
    )


def group(clients: Iterable[ClientState], stateful: str, stateless: str = "", end: int = END, **config) -> ApplicationState:
    of_state = tasks(stateful)
    return ApplicationState(
        clients=tuple(clients),
        tasks=tuple(sorted(of_state | tasks(stateless))),
        stateful_tasks=of_state,
        end_offset_sums=dict.fromkeys(of_state, end),
        config=AssignmentConfig(**config),
    )


def shown(assignment: Assignment) -> dict[str, tuple[str, str]]:
    """{"A": ("1_0 1_3", "1_1")}: active and standby tasks by client, lettered in order."""
    return {
        chr(ord("A") + at): (_text(held.active), _text(held.standby))
        for at, (_, held) in enumerate(sorted(assignment.clients.items()))
    }


def _text(ids: Iterable[TaskId]) -> str:
    return " ".join(map(str, sorted(ids)))


def after(
    state: ApplicationState,
    assignment: Assignment,
    *,
    restored: bool = True,
    gone: Iterable[ProcessId] = (),
    joined: Iterable[ClientState] = (),
) -> ApplicationState:
    """The state of the next round: copies that stay keep (or complete) their state, all others are dropped."""
    left = set(gone)
    stateful = state.stateful_tasks
    clients = []
    for before in state.clients:
        if before.process_id in left:
            continue
        held = assignment.clients[before.process_id]
        lags = dict.fromkeys(held.active & stateful, LATEST_OFFSET)
        for task in held.standby:
            had = before.lags.get(task, state.end_offset_sums[task])
            lags[task] = 0 if restored or had < 0 else had
        clients.append(
            replace(before, previous_active=held.active, previous_standby=held.standby, lags=lags)
        )
    return replace(state, clients=(*clients, *joined))


_LAGS = st.sampled_from([LATEST_OFFSET, UNKNOWN_OFFSET_SUM, 0, 1, 9, 10, 11, 50, END - 1, END, END + 5])


@st.composite
def application_states(draw, *, tagged: bool = False, plausible: bool = False) -> ApplicationState:
    """Any state of up to 6 clients and 14 tasks; ``plausible`` = each task runs at most once and no lag is odd."""
    ids = draw(st.lists(st.integers(0, (1 << 128) - 1), min_size=1, max_size=6, unique=True))
    subtopologies = draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3))
    all_tasks = [(TaskId(s, p), stateful) for s, (count, stateful) in enumerate(subtopologies) for p in range(count)]
    stateful = frozenset(task for task, has_state in all_tasks if has_state)
    ends = {task: draw(st.sampled_from([0, 5, END])) for task in sorted(stateful)}
    lag = st.sampled_from([0, 5, 11, 50]) if plausible else _LAGS
    runner = {task: draw(st.integers(-1, len(ids) - 1)) for task, _ in all_tasks}
    clients = []
    for at, number in enumerate(ids):
        running = {task for task, _ in all_tasks if runner[task] == at}
        copies = draw(st.dictionaries(st.sampled_from([task for task, _ in all_tasks]), lag, max_size=6))
        held = {task: behind for task, behind in copies.items() if task in stateful and task not in running}
        if plausible:
            held = {task: min(behind, ends[task]) for task, behind in held.items()}
        zones, clusters = draw(st.sampled_from("abc")), draw(st.sampled_from("xy"))
        tags = {"zone": zones, "cluster": clusters} if tagged and draw(st.integers(0, 9)) else {}
        clients.append(
            ClientState(
                process_id=ProcessId.of(UUID(int=number)),
                capacity=draw(st.integers(1, 4)),
                previous_active=frozenset(running),
                previous_standby=frozenset(held),
                lags={**held, **dict.fromkeys(running & stateful, LATEST_OFFSET)},
                tags=tags,
            )
        )
    return ApplicationState(
        clients=tuple(clients),
        tasks=tuple(task for task, _ in all_tasks),
        stateful_tasks=stateful,
        end_offset_sums=ends,
        config=AssignmentConfig(
            acceptable_recovery_lag=draw(st.sampled_from([0, 10, 10, LONG_MAX])),
            max_warmup_replicas=draw(st.integers(1, 4)),
            num_standby_replicas=draw(st.integers(0, 3)),
            rack_aware_assignment_tags=draw(st.sampled_from([("zone",), ("cluster", "zone")])) if tagged else (),
        ),
    )
