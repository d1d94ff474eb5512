"""``tidemill group history``: the rebalances of a group, as the instances that led them have kept them.

Decides how the answers of several instances become one list, and how that is written. An instance that can't be asked is named:
its rebalances are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.cli.group_view import move_words, rebalance_words, shown_time
from tidemill.errors import EnvironmentProblem, RetriableError
from tidemill.printable import printable

if TYPE_CHECKING:
    from tidemill.query.group_documents import RebalanceDocument

_ASK_LIMIT_S = 5.0
_LONGEST_TEXT = 2_000


def fetched_history(group: str, settings: Mapping[str, object]) -> tuple[list[RebalanceDocument], tuple[str, ...]]:
    """Rebalances, oldest first, and remarks on what is missing. EnvironmentProblem if no instance can be asked."""
    from tidemill.cli.group_instances import group_instances, http_access_of
    from tidemill.query.document_reader import UnreadableDocumentError, read_document
    from tidemill.query.group_documents import HistoryDocument
    from tidemill.query.http_forward import document, fetch
    from tidemill.query.http_group import merged_history

    access = http_access_of(settings)
    histories: dict[str, tuple[RebalanceDocument, ...]] = {}
    remarks = []
    for one in group_instances(group, settings):
        if one.host is None:
            remarks.append(f"{one.name} has no address (--serve HOST:PORT): what it has led is missing.")
            continue
        try:
            body = fetch(one.host, "/history", token=access.token, timeout_s=_ASK_LIMIT_S, tls=access.client)
            found = read_document(HistoryDocument, document(body))
        except (RetriableError, UnreadableDocumentError) as problem:
            remarks.append(f"What {one.name} has led is missing: it {printable(problem)}.")
            continue
        if found.problem is not None:
            remarks.append(f"What {one.name} led before it was started last is missing: {printable(found.problem)}.")
        histories[one.name] = found.rebalances
    if not histories:
        raise EnvironmentProblem(f"no instance of {group} can be asked: {' '.join(remarks)}")
    return merged_history(histories), tuple(remarks)


def history_lines(rebalances: Sequence[RebalanceDocument], *, why: bool) -> Iterator[str]:
    """One line for each, with ``why`` one more for each move."""
    if not rebalances:
        yield "no rebalance was led by an instance that can be asked"
    for led in rebalances:
        at = shown_time(led.at_ms, "%Y-%m-%d %H:%M:%S")
        words = rebalance_words(led) or "nothing moved"
        yield printable(f"{at}  {led.led_by}  {led.took_ms} ms  {words}", longest=_LONGEST_TEXT)
        for move in led.moves if why else ():
            reason = move.reason or "no record tells why"
            yield printable(f"    {move_words(move)}: {reason}", longest=_LONGEST_TEXT)
