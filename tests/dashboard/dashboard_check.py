"""``make dashboard-check``: the web page in a headless Chromium, once on a recorded group and once on a running one.

    python -m tests.dashboard.dashboard_check [--out FOLDER] [--recorded-only]

Prints what it has verified, a line each, and where the screenshots are. The recorded group has three instances with standbys and
warm-ups, served by the real HTTP application; the running one is one instance of WordCount on an embedded broker.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn

from tests.dashboard.browser import CONTRASTS, Browser, browser
from tests.query.stand_in_status import group_app
from tests.query.stand_ins import ReadsApp
from tidemill.query.http_listening import address_of, listen

WORDS = {"kafka": 41, "streams": 17, "spark": 9, "standby": 3}
TOKEN = "a-token-for-the-page-check"
LEAST_CONTRAST = 4.5
"""WCAG 2.1, level AA, for text of any size."""
_WAIT_S = 12.0


class CheckError(Exception):
    """What was found, and what was expected."""


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, default=Path("build/dashboard"))
    options.add_argument("--recorded-only", action="store_true")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        with browser() as page:
            check_recorded(page, given.out)
            if not given.recorded_only:
                from tests.dashboard.running_group import check_running

                check_running(page, given.out, verified, require)
    except (OSError, CheckError) as problem:
        print(f"dashboard-check: {problem}", file=sys.stderr)
        return 1
    print(f"dashboard-check: all of this holds, in {time.monotonic() - began:.0f} s; screenshots in {given.out}/")
    return 0


def verified(what: str) -> None:
    print(f"  verified: {what}", flush=True)


def require(is_so: object, what: str) -> None:
    if not is_so:
        raise CheckError(what)


def until(is_so: Callable[[], object], what: str) -> None:
    """CheckError with ``what`` was waited for if it does not come."""
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        require(time.monotonic() < deadline, f"waited {_WAIT_S:.0f} s in vain: {what}")
        time.sleep(0.1)


@contextmanager
def served(app: ReadsApp) -> Iterator[str]:
    """The application over HTTP on this machine; its address."""
    listening = listen("127.0.0.1:0")
    server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None))
    thread = Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        yield f"http://{address_of(listening)}"
    finally:
        server.should_exit = True
        thread.join(5)
        listening.close()


def check_recorded(page: Browser, out: Path) -> None:
    print("a recorded group of three instances")
    with ExitStack() as stack:
        app, _, _ = group_app(entries=WORDS, decided=_decided())
        base = stack.enter_context(served(app))
        page.look(width=1280, height=1500)
        page.driver.get("about:blank")
        page.asked_for()  # the browser's own first tab
        page.driver.get(base + "/")
        until(lambda: "streams-wordcount" in page.text("h1"), "the application's name")
        check_content(page)
        page.picture(out / "light.png")
        check_keyboard(page)
        check_stores(page)
        check_sizes(page, out)
        check_contrast(page)
        require(not (said := page.complaints()), f"the console has said: {said}")
        verified("no error and no warning in the console")
        foreign = {url for url in page.asked_for() if not url.startswith((base, "data:"))}
        require(not foreign, f"the page has asked for {sorted(foreign)}")
        verified("no request has left the instance")
    check_away(page, out)
    check_under_way(page, out)
    check_errors(page, out)
    check_history(page, out)
    check_token(page)


def _decided() -> dict[str, Any]:
    decision = {
        "task": "1_0", "role": "warm-up", "rule": "warm-up", "on": "127.0.0.1:38887", "target": "127.0.0.1:38887",
        "rebalances_to_go": 1, "reason": "1_0 is being warmed up.", "source": "KIP-441",
        "candidates": [
            {"instance": "127.0.0.1:34283", "lag": -2, "rank": 0}, {"instance": "127.0.0.1:38887", "lag": 1549, "rank": 1},
        ],
    }  # fmt: skip
    return {"at_ms": 1_700_000_000_000, "decisions": [decision]}


def check_content(page: Browser) -> None:
    cards = page.run("return [...document.querySelectorAll('.instance')].map((one) => one.innerText)")
    require(len(cards) == 3 and all("running" in card for card in cards), f"three running instances, found {cards}")
    squares = page.run(
        "return Object.fromEntries(['active', 'standby', 'warm-up'].map((kind) => "
        "[kind, document.querySelectorAll('.matrix td .square.' + kind).length]))"
    )
    require(squares == {"active": 12, "standby": 6, "warm-up": 2}, f"12 active tasks, 6 standbys, 2 warm-ups; found {squares}")
    verified("three instances, 12 active tasks, 6 standbys and 2 warm-ups, each under its instance")
    copies = page.text("#copies")
    require("1,549 behind" in copies and "at the end" in copies, f"lags of copies; found {copies!r}")
    verified("copies with their lags, warm-ups first")
    entries = page.run("return [...document.querySelectorAll('.timeline > li')].map((one) => one.innerText)")
    require(any("joined" in entry and "moved" in entry for entry in entries), f"rebalances with what moved; found {entries}")
    page.run("document.querySelector('.timeline details').open = true")
    require(page.text(".timeline .reason"), "a reason of the assignor's under the newest rebalance")
    verified(f"{len(entries)} rebalances, who joined, what moved and why")
    drawn = page.run("return [...document.querySelectorAll('.drawing text')].map((one) => one.textContent)")
    require({"streams-plaintext-input", "flatmapvalues 1", "counts-store", "streams-wordcount-output"} <= set(drawn), f"{drawn}")
    verified(f"the topology drawn: {len(drawn)} topics, nodes and stores")


def check_keyboard(page: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen: list[str] = []
    focused = "const at = document.activeElement; return at.dataset.key ?? at.id ?? ''"
    for _ in range(80):
        page.press(Keys.TAB)
        seen.append(page.run("const at = document.activeElement; return at.dataset.key || at.id || at.innerText || at.tagName"))
        outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
        require(outline != "none" or seen[-1] == "BODY", f"{seen[-1]!r} has the focus, and does not show it")
        if seen[-1] == "last":
            break
    wanted = {"Skip to the group", "Rebalances", "task-1_0", "store", "key", "last"}
    require(wanted <= set(seen), f"by Tab one reaches {wanted - set(seen)}; reached were {seen}")
    verified(f"everything is reached by Tab, and shows its focus ({len(seen)} steps)")
    page.run("const at = document.querySelector('[data-key=\"task-1_0\"]'); at.focus(); at.id = 'pressed'")
    page.press(Keys.ENTER)
    until(lambda: "is being warmed up" in page.text("#why"), "why task 1_0 is where it is")
    until(lambda: page.run("return document.getElementById('pressed') === null"), "the page is drawn again behind the reasons")
    page.press(Keys.ESCAPE)
    until(lambda: not page.run("return document.getElementById('why').open"), "Escape closes it")
    require(page.run(focused) == "task-1_0", "the focus goes back to the task")
    time.sleep(4.5)
    require(page.run(focused) == "task-1_0", "the focus stays while the page is drawn again")
    require(page.run("return document.querySelector('.timeline details').open"), "what was opened stays open")
    verified("Enter opens a task's reasons, Escape closes them, the focus stays where it was")
    page.run("document.activeElement.blur()")


def check_stores(page: Browser) -> None:
    page.run("document.getElementById('key').value = 'kafka'")
    page.run("document.querySelector('#query button[value=key]').click()")
    until(lambda: "41" in page.text("#answer td"), "the value of a key")
    page.run("document.getElementById('key').value = 'nobody'")
    page.run("document.querySelector('#query button[value=key]').click()")
    until(lambda: "has no such key" in page.text("#answer"), "a sentence on a key that is not there")
    page.run("document.getElementById('key').value = ''")
    page.run("document.querySelector('#query button[value=range]').click()")
    until(lambda: page.run("return document.querySelectorAll('#answer tbody tr').length") == len(WORDS), "all entries")
    verified("the query box: a key, one that is not there, a range")
    said = [one for one in page.complaints() if "404" not in one]  # the browser's own word on the key that is not there
    require(not said, f"the console has said: {said}")


def check_sizes(page: Browser, out: Path) -> None:
    for width in (1280, 768, 390, 320):
        page.look(width=width, height=1500)
        time.sleep(0.3)
        wide = page.run("return document.documentElement.scrollWidth")
        require(wide <= width, f"at a width of {width} the page is {wide} wide")
    verified("no scrolling sideways, from 1,280 pixels down to 320")
    page.look(width=390, height=2400)
    page.run("window.scrollTo(0, 0)")
    page.picture(out / "phone.png")


def check_contrast(page: Browser) -> None:
    least = []
    for dark in (False, True):
        page.look(width=1280, height=1500, dark=dark)
        time.sleep(0.3)
        found = page.run(CONTRASTS)
        require(len(found) > 60, f"text to measure; found {len(found)}")
        require(found[0][0] >= LEAST_CONTRAST, f"{'dark' if dark else 'light'}: too little contrast: {found[:3]}")
        least.append(found[0][0])
    verified(f"contrast of all text at least {least[0]:.1f} in light and {least[1]:.1f} in dark (WCAG AA: {LEAST_CONTRAST})")


def check_away(page: Browser, out: Path) -> None:
    app, _, _ = group_app("one_away")
    with served(app) as base:
        page.look(width=1280, height=1500, dark=True)
        page.driver.get(base + "/")
        until(lambda: "away" in page.text("#summary"), "an instance that is away")
        card = page.text(".instance.away")
        require("does not answer" in card and "when its session ends" in card, f"why, and what follows; found {card!r}")
        found = page.run(
            "return ['gone', 'coming', 'active'].map((kind) => document.querySelectorAll('td .square.' + kind).length)"
        )
        require(found == [4, 1, 7], f"4 tasks of the one that is away, 1 that another waits for, 7 running; found {found}")
        page.picture(out / "dark.png")
        verified("an instance that is away is shown as such, with its tasks and what follows")
    until(lambda: "has not answered" in page.text("#trouble"), "a sentence on the page's own instance being gone")
    require("127.0.0.1:" in page.text("#trouble a"), "addresses of the others")
    page.picture(out / "gone.png")
    verified("when its own instance is gone the page says so, and where it is too")
    page.complaints()


def check_under_way(page: Browser, out: Path) -> None:
    app, status, others = group_app()
    restoring = {"tasks": ["1_0", "1_2"], "offsets_left": 12_000, "offsets_per_s": 300.0, "seconds_left": 40.0}
    status.document.update(state="REBALANCING", ready=False, why=["thread 1 waits"], restoring=restoring)
    drain = {"phase": "draining", "message": "", "since_ms": 1, "until_ms": 2, "active": 3, "standby": 1}
    for told in others.told.values():
        if told is not None and told["host"] != status.document["host"]:
            told["drain"] = drain
    status.document["spark_ui"] = "http://127.0.0.1:4040"
    with served(app) as base:
        page.look(width=1280, height=900)
        page.driver.get(base + "/")
        until(lambda: "restoring" in page.text("#instances"), "an instance that restores")
        text = page.text("#instances")
        require("12,000 offsets left, 300/s, 40 s left" in text, f"how much is left and how long that takes; found {text!r}")
        require("draining" in text, f"an instance that drains; found {text!r}")
        require("3 active tasks and 1 copy are still to be handed over" in text, f"what it still has; found {text!r}")
        verified("instances that restore or drain say so, with what is left")
        wanted = page.text("#scale")
        require("Wanted: 3 instances, present: 3. Waits:" in wanted, f"the wanted number of instances, and why; found {wanted!r}")
        verified("the wanted number of instances waits while tasks are restored")
        page.picture(out / "under-way.png")
        require(page.run("return document.getElementById('spark-ui').href") == "http://127.0.0.1:4040/", "a link to Spark's UI")
        status.document["spark_ui"] = "javascript:alert(1)"
        until(lambda: page.run("return document.getElementById('spark-ui').hidden"), "no link to what is no page")
        verified("Spark's UI is linked if it is on")
    page.complaints()


def check_errors(page: Browser, out: Path) -> None:
    app, status, others = group_app()
    problem = "task 1_0, lines-0 at offset 17: the function of KSTREAM-MAPVALUES-0000000003 failed: ZeroDivisionError: by zero"
    status.document.update(state="ERROR", ready=False, why=["no thread runs"], error=problem)
    told = next(one for one in others.told.values() if one is not None and one["host"] != status.document["host"])
    told["threads"][0].update(skipped=1_234, dropped=1_300, lost_batches=2)
    for one in (status.document, *(one for one in others.told.values() if one is not None)):
        for thread in one["threads"]:
            thread.update(standby=[], records_per_s=1_000.0, capacity_per_s=800.0)
    with served(app) as base:
        page.look(width=1280, height=900)
        page.driver.get(base + "/")
        until(lambda: problem in page.text(".instance.bad"), "the error of an instance, with task, record and node")
        text = page.text("#instances")
        lost = "1,300 records dropped, 1,234 of them skipped by an exception handler, 2 micro-batches failed and run again"
        require(lost in text, f"what functions have cost; found {text!r}")
        page.picture(out / "errors.png")
        verified("an error of a function is shown in full; records that were skipped or dropped are counted")
        status.document.update(state="RUNNING", ready=True, why=[], error=None)
        until(lambda: "Wanted: 5 instances, present: 3." in page.text("#scale.changes"), "more instances wanted than present")
        require("3,000 records/s" in page.text("#scale"), "why")
        verified("more instances are wanted than there are, and why")
    page.complaints()


def check_history(page: Browser, out: Path) -> None:
    """A hundred rebalances, over days: an instance's document has the last thirty."""
    app, status, others = group_app()
    day_ms = 86_400_000
    now_ms = int(time.time() * 1e3)
    led = next(one["led"] for one in (status.document, *others.told.values()) if one is not None and one["led"])
    decided = next(one for one in led if one["joined"] and one["moves"])
    all_ = [{**decided, "at_ms": now_ms - day_ms * (99 - number) // 10, "next_ms": None} for number in range(100)]
    led[:] = all_[-30:]
    status.history = lambda: {"rebalances": all_, "problem": None}  # type: ignore[method-assign]
    with served(app) as base:
        page.look(width=1280, height=900)
        page.driver.get(base + "/#rebalances")
        shown = "return document.querySelectorAll('.timeline > li').length"
        until(lambda: page.run(shown) == 30, "the newest rebalances")
        page.run("document.getElementById('older').click()")
        until(lambda: page.run(shown) == 100, "a hundred rebalances")
        require(page.run("return document.getElementById('older').hidden"), "no more to read")
        times = page.run("return [...document.querySelectorAll('.timeline time')].map((one) => one.innerText)")
        require(len(set(times)) == 100, f"a time of its own for each rebalance; found {times}")
        month = time.strftime("%b", time.localtime((now_ms - 9 * day_ms) / 1e3))
        require(month in times[-1] and ":" not in times[-1][:6] and month not in times[0], f"the day of old ones; found {times}")
        page.run("document.documentElement.style.scrollBehavior = 'auto'; document.getElementById('rebalances').scrollIntoView()")
        page.picture(out / "history.png")
        verified("a hundred rebalances, over restarts, those of other days with the day")
    page.complaints()


def check_token(page: Browser) -> None:
    app, _, _ = group_app(token=TOKEN)
    with served(app) as base:
        page.look(width=1280, height=900)
        page.driver.get(base + "/")
        until(lambda: page.run("return !document.getElementById('token').hidden"), "the question for the token")
        require(page.run("return document.getElementById('main').hidden"), "nothing is shown without the token")
        for given, shown in (("another-token-altogether", "another token"), (TOKEN, "")):
            page.run("document.getElementById('token-text').value = arguments[0]", given)
            page.run("document.querySelector('#token button').click()")
            if shown:
                until(lambda: "another token" in page.text("#token-problem"), "a sentence on the wrong token")
        until(lambda: "streams-wordcount" in page.text("h1"), "the group, with the token")
        verified("a token is asked for, a wrong one refused, the right one opens the page")
        page.run("sessionStorage.clear()")
    page.complaints()


if __name__ == "__main__":
    sys.exit(main())
