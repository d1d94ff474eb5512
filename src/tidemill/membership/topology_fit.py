"""Fit of a topology with the internal topics that an earlier version of it has left on the brokers.

Decides what no longer fits and says what changed and what to do; it asks no broker itself. A topology that is changed
without regard to them gives wrong results silently. Names with generated numbers move, so that a store starts empty next to the
changelog that it had. A topic with another number of partitions has keys where their tasks don't look for them. A store that is
something else now finds bytes in its changelog that it can't read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from tidemill.membership.topic_plan import TopicPlan

_GENERATED = re.compile(r"-\d{10}")
_INTERNAL_ENDS = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsFound:
    """Topics on the brokers: all topics' names; of the plan's internal ones that are there, partitions and cleanup policies."""

    names: Set[str]
    partitions: Mapping[str, int] = field(default_factory=dict)
    cleanup: Mapping[str, str] = field(default_factory=dict)


def looks_internal(topic: str, application: str) -> bool:
    """True if the name is one of an internal topic of the application; another application's may begin so, too."""
    return topic.startswith(f"{application}-") and topic.endswith(_INTERNAL_ENDS)


def left_over(plan: TopicPlan, found: TopicsFound, application: str, sources: Set[str]) -> tuple[str, ...]:
    """Topics that look like internal ones of the application, but are none of this topology."""
    wanted = {topic.name for topic in plan.internal_topics}
    return tuple(sorted(t for t in found.names - wanted - sources if looks_internal(t, application)))


def misfits(plan: TopicPlan, found: TopicsFound, application: str, sources: Set[str]) -> tuple[str, ...]:
    """Reasons why the topology can't use the internal topics of an earlier one, a sentence each; empty if it can."""
    return (
        *_other_partitions(plan, found),
        *_other_policies(plan, found),
        *_moved_names(plan, found, application, left_over(plan, found, application, sources)),
    )


def _other_partitions(plan: TopicPlan, found: TopicsFound) -> list[str]:
    return [
        f"{topic.name} has {there} partitions, expected {topic.partitions}: partitions were added to it, or the topics "
        "that it follows have another number of them now, and its keys are elsewhere"
        for topic in plan.internal_topics
        if (there := found.partitions.get(topic.name)) is not None and there != topic.partitions
    ]


def _other_policies(plan: TopicPlan, found: TopicsFound) -> list[str]:
    """Changelogs that were made for a store of keys and are to serve one of windows or sessions. The other way round proves
    nothing: an operator may have a changelog's old records deleted."""
    return [
        f"{topic.name} has cleanup.policy={found.cleanup[topic.name]}, expected {wanted}: it was made for a store of keys and "
        "values and is to serve a store of windows or sessions; if the store is the same, alter the topic"
        for topic in plan.internal_topics
        if not topic.config.is_repartition
        and topic.name in found.cleanup
        and "delete" in (wanted := topic.config.settings.get("cleanup.policy", ""))
        and _policies(found.cleanup[topic.name]) == {"compact"}
    ]


def expiring(plan: TopicPlan, found: TopicsFound) -> Mapping[str, str]:
    """Changelogs of stores that keep all their rows, whose topics do not, with the cleanup policies that they have."""
    kept = (
        topic.name
        for topic in plan.internal_topics
        if not topic.config.is_repartition and _policies(topic.config.settings.get("cleanup.policy", "")) == {"compact"}
    )
    return {name: found.cleanup[name] for name in kept if "delete" in _policies(found.cleanup.get(name, ""))}


def _policies(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _moved_names(plan: TopicPlan, found: TopicsFound, application: str, others: tuple[str, ...]) -> list[str]:
    """A topic that is missing, and one that differs from it in its generated number only."""
    by_stem: dict[str, list[str]] = {}
    for name in others:
        if _GENERATED.search(name):
            by_stem.setdefault(_GENERATED.sub("-#", name), []).append(name)
    sentences = []
    for topic in plan.internal_topics:
        if topic.name in found.names or not _GENERATED.search(topic.name):
            continue
        before = by_stem.get(_GENERATED.sub("-#", topic.name))
        if before:
            store = topic.name[len(application) + 1 :].removesuffix("-changelog").removesuffix("-repartition")
            sentences.append(
                f"{topic.name} does not exist, but {', '.join(before)} does, of which this topology has nothing: operators were "
                f"added or removed above, and generated names have moved. Give what is called {store} the name that it had "
                "(store=... or name=...), and names to all others before the next change"
            )
    return sentences
