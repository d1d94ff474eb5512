"""The sentences of decisions.

Decides wording only, from the recorded facts; lags and limits are named with their numbers, clients by the first
digits of their process ids where these distinguish them.
"""

from __future__ import annotations

from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.explain.trace import Trace
from tidemill.assignment.kip441.movements import Movement
from tidemill.assignment.model import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from tidemill.ids import TaskId

NAMED_WARM_UPS = 4
"""Number of warm-ups that a sentence lists before it only counts them."""


class Reasons:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        ids = [str(client.process_id) for client in trace.placement.clients]
        short = [text[:8] for text in ids]
        self._names = short if len(set(short)) == len(ids) else ids

    def stateless(self, task: TaskId, client: int, rule: Rule) -> str:
        return f"{task} is active on {self._names[client]}: {self._why(task, rule)}."

    def in_place(self, at: int, role: str, client: int, rule: Rule) -> str:
        """A copy on the client where the target wants it."""
        return (
            f"{self._task(at)} is {role} on {self._names[client]}, where the target wants it: "
            f"{self._why(self._task(at), rule)}. Nothing prevents it: {self._why_no_movement(at, client)}."
        )

    def shortfall(self, at: int, missing: int) -> str:
        wanted = self._trace.state.config.num_standby_replicas
        return (
            f"{missing} of {wanted} standby tasks of {self._task(at)} could not be placed: every client has a copy "
            f"already. num.standby.replicas = {wanted} needs at least {wanted + 1} instances."
        )

    def kept(self, movement: Movement, role: str, rule: Rule) -> str:
        """A copy on another client than the target's for now."""
        return (
            f"{self._task(movement.task)} is {role} on {self._names[movement.keeper]} for now, {movement.kept.value} "
            f"(it {self._lag(movement.task, movement.keeper)}). The target wants it on "
            f"{self._names[movement.target]} ({self._why(self._task(movement.task), rule)}), but "
            f"{self._not_ready(movement)}. {self._when(movement)}"
        )

    def not_movable(self, movement: Movement) -> str:
        return (
            f"{self._task(movement.task)} is standby on {self._names[movement.target]} although it lags there "
            f"({self._lag(movement.task, movement.target)}): every better client has a copy of it already."
        )

    def swapped(self, movement: Movement) -> str:
        """The copy that a target got in exchange for the standby of the keeper."""
        return (
            f"{self._task(movement.task)} is standby on {self._names[movement.target]}, its target, in exchange for "
            f"the standby that {self._names[movement.keeper]} had; that takes nothing from max.warmup.replicas. "
            f"{self._when(movement)}"
        )

    def warming_up(self, movement: Movement) -> str:
        limit = self._trace.state.config.max_warmup_replicas
        return (
            f"{self._task(movement.task)} is being warmed up on {self._names[movement.target]}: the target wants it "
            f"there, but {self._not_ready(movement)}. {self._place_in_order(movement)}, which takes warm-up "
            f"{limit - movement.budget_before + 1} of max.warmup.replicas = {limit}. {self._when(movement)}"
        )

    def waiting(self, movement: Movement) -> str:
        limit = self._trace.state.config.max_warmup_replicas
        return (
            f"{self._task(movement.task)} is not being warmed up on {self._names[movement.target]} yet. The target "
            f"wants it there, but {self._not_ready(movement)}. {self._place_in_order(movement)}, and "
            f"max.warmup.replicas = {limit} was used up before it{self._by_whom()}. {self._when(movement)}"
        )

    def _why(self, task: TaskId, rule: Rule) -> str:
        """The rule, and the figures behind it where it has any."""
        by_weight = self._trace.by_weight
        if rule is not Rule.WEIGHTS or by_weight is None:
            return rule.text
        source = by_weight.moved[task]
        return (
            f"{rule.text}: it weighs {by_weight.weights[task]:.2f} times the average task, and {self._names[source]} "
            f"carries {by_weight.before[source]:.2f} times its share without such changes and "
            f"{by_weight.after[source]:.2f} times with them"
        )

    def _why_no_movement(self, at: int, client: int) -> str:
        lags = self._trace.lags
        standing = f"{self._names[client]} {self._lag(at, client)}"
        if lags.is_caught_up(at, client):
            return f"{standing}, so it is caught up (acceptable.recovery.lag = {self._acceptable})"
        if lags.least(at) == lags.lag(at, client):
            return f"{standing}, and no other is less behind"
        return f"{standing}, and no client is caught up"

    def _not_ready(self, movement: Movement) -> str:
        return (
            f"{self._names[movement.target]} {self._lag(movement.task, movement.target)}, "
            f"more than acceptable.recovery.lag = {self._acceptable}"
        )

    def _lag(self, at: int, client: int) -> str:
        lag, end = self._trace.lags.lag(at, client), self._trace.lags.end[at]
        if lag == LATEST_OFFSET:
            return "runs it now"
        if lag == UNKNOWN_OFFSET_SUM:
            return f"is too old to tell its offset, with up to {end} to restore"
        return f"has nothing of its {end} offsets" if lag == end > 0 else f"lags by {lag}"

    def _place_in_order(self, movement: Movement) -> str:
        order = self._trace.order
        return f"It is movement {order[movement]} of {len(order)} ({self._trace.form.order})"

    def _by_whom(self) -> str:
        winners = self._trace.warming_up
        named = [f"{self._task(one.task)} on {self._names[one.target]}" for one in winners[:NAMED_WARM_UPS]]
        if len(winners) > NAMED_WARM_UPS:
            named.append(f"{len(winners) - NAMED_WARM_UPS} more")
        return f": {', '.join(named)}" if named else ""

    def _when(self, movement: Movement) -> str:
        target, place = self._names[movement.target], self._trace.place_in_queue(movement)
        if place is None:
            return (
                f"It moves to {target} in the first rebalance that finds it at most {self._acceptable} behind there; "
                f"the next probing rebalance is due {self._after(1)} (probing.rebalance.interval.ms)."
            )
        go = self._trace.rebalances_to_go(movement)
        if go is None:
            return "It never moves, because max.warmup.replicas allows no warm-up."
        return (
            f"It is number {place + 1} of {len(self._trace.waiting)} that wait: expected "
            f"to be warmed up from rebalance {go - 1} after this one ({self._after(go - 1)}) and to move to {target} in "
            f"rebalance {go} ({self._after(go)}), if warm-ups catch up from one probing rebalance to the next."
        )

    def _after(self, rebalances: int) -> str:
        return f"in {rebalances * self._trace.state.config.probing_rebalance_interval_ms / 1_000:g} s"

    @property
    def _acceptable(self) -> int:
        return self._trace.state.config.acceptable_recovery_lag

    def _task(self, at: int) -> TaskId:
        return self._trace.placement.tasks[at]
