"""State listeners that raise."""

from __future__ import annotations

import threading

import pytest

from tidemill.runtime.instance.instance_state import InstanceState, State


def interrupted(new: State, old: State) -> None:
    raise KeyboardInterrupt


def test_a_listener_that_raises_keyboard_interrupt_ends_no_other_thread() -> None:
    state, heard = InstanceState("app"), list[State]()
    state.listeners += [interrupted, lambda new, old: heard.append(new)]
    ends = threading.Thread(target=lambda: (state.move(State.REBALANCING, "it starts"), heard.append(State.NOT_RUNNING)))
    ends.start()
    ends.join(60)
    assert heard == [State.REBALANCING, State.NOT_RUNNING]


def test_ctrl_c_while_a_listener_runs_on_the_main_thread_is_raised_there() -> None:
    state = InstanceState("app")
    state.listeners.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        state.move(State.REBALANCING, "it starts")
    assert state.now is State.REBALANCING
