"""A user's own assignor (KIP-924's idea): a class with one method, named by ``task.assignor.class``.

Decides how the class is found, what it must look like, and that an answer which breaks an invariant is refused with
everything that is wrong with it. Invariant: an answer that comes out of here can be carried out. After a refusal the
leader keeps the previous assignment.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from tidemill.assignment.invariants import violations
from tidemill.assignment.model import ApplicationState, Assignment, TaskAssignor
from tidemill.errors import AssignmentError, ConfigError
from tidemill.printable import said_by

NAMED_FAULTS = 5
"""Number of faults that the message of a refusal lists before it only counts them; the error's field has all."""


class InvalidAssignmentError(AssignmentError):
    """A custom assignor's answer can't be carried out; ``violations`` says in sentences why."""

    def __init__(self, assignor: str, found: list[str]) -> None:
        listed = "; ".join(found[:NAMED_FAULTS])
        more = f"; and {len(found) - NAMED_FAULTS} more" if len(found) > NAMED_FAULTS else ""
        super().__init__(f"the assignment of {assignor} is invalid: {listed}{more}. Correct its assign method")
        self.assignor, self.violations = assignor, tuple(found)


@dataclass(frozen=True, slots=True)
class CheckedAssignor:
    """An assignor whose answers are checked; it is called with the state and with nothing else."""

    assignor: TaskAssignor
    name: str

    def assign(self, state: ApplicationState) -> Assignment:
        assignment: object = self.assignor.assign(state)
        if not isinstance(assignment, Assignment):
            raise InvalidAssignmentError(
                self.name, [f"assign returned a {type(assignment).__name__}; expected a tidemill.Assignment"]
            )
        found = violations(state, assignment)
        if found:
            raise InvalidAssignmentError(self.name, found)
        return assignment


def custom_assignor(name: str) -> CheckedAssignor:
    """The class ``package.module:Class`` (or with a dot), made without arguments; ConfigError if there is no such one."""
    setting = f"task.assignor.class = {name!r}"
    module_name, _, class_name = name.rpartition(":" if ":" in name else ".")
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise ConfigError(f"{setting}: expected package.module:Class")
    if module_name.startswith("org.apache.kafka."):
        raise ConfigError(f"{setting}: no class of Kafka's of this name is known here, and Java classes can't be run")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        raise ConfigError(
            f"{setting}: module {module_name} can't be imported ({type(error).__name__}: {said_by(error)}); is it on the path?"
        ) from error
    named: object = getattr(module, class_name, None)
    if not isinstance(named, type):
        classes = sorted(name for name, value in vars(module).items() if isinstance(value, type))
        raise ConfigError(f"{setting}: module {module_name} has no class {class_name}; it has {', '.join(classes) or 'none'}")
    if not callable(getattr(named, "assign", None)):
        raise ConfigError(f"{setting}: {class_name} has no method assign(application_state) -> assignment")
    try:
        assignor = named()
    except (Exception, SystemExit) as error:  # likewise
        raise ConfigError(
            f"{setting}: {class_name} can't be made without arguments ({type(error).__name__}: {said_by(error)})"
        ) from error
    return CheckedAssignor(assignor, name)
