"""The page with answers that are late, lacking or no dates, in Node and on a stand-in document."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tidemill

WEB = Path(tidemill.__file__).with_name("web")
LIMIT_S = 60
NO_DATE = 1_700_000_000_000_000_000
"""Of somebody who counts in nanoseconds."""
DOCUMENT = """
class Element {
  constructor() { this.children = []; this.listeners = {}; this.value = "7"; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...all) { this.children = all; }
  setAttribute(name, value) { this[name] = value; }
  addEventListener(event, listener) { this.listeners[event] = listener; }
  contains() { return false; }
  querySelector() { return new Element(); }
  querySelectorAll() { return []; }
  get text() { return this.children.map((one) => one.text ?? one).join(" "); }
  get all() { return [this, ...this.children.flatMap((one) => one.all ?? [])]; }
}
const byId = {};
globalThis.document = {
  createElement: () => new Element(), createElementNS: () => new Element(), addEventListener() {}, hidden: false,
  getElementById: (id) => (byId[id] ??= new Element()),
};
const shown = new Element();
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node runs the page's modules")


def shown(folder: Path, script: str) -> str:
    """What the stand-in element shows at the end."""
    for module in WEB.glob("*.js"):
        shutil.copy(module, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "case.js").write_text(f"{DOCUMENT}{script}\nconsole.log(shown.text);")
    ended = subprocess.run(["node", "case.js"], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def asked(answers: list[Any], then: str = "") -> str:
    """A range is asked for; each question is answered with the next of these, and none with the last one gone."""
    return f"""
    import {{ query }} from "./stores.js";
    const answers = {json.dumps(answers)};
    const get = async () => {{
      if (!answers.length) throw new Error("no route");
      return {{ ok: true, status: 200, body: answers.shift() }};
    }};
    await query(get, new Element(), shown, "range");
    {then}
    """


def test_a_timestamp_that_is_no_date_is_shown_as_its_number(tmp_path: Path) -> None:
    entries = [{"key": "a", "value": 1, "timestamp": NO_DATE}, {"key": "b", "value": 2, "timestamp": 0}]
    text = shown(tmp_path, asked([{"entries": entries, "next": None}]))
    assert f"a 1 {NO_DATE} ms" in text
    assert "b 2 1970-01-0" in text


def test_the_next_entries_of_an_instance_that_is_gone_are_not_waited_for(tmp_path: Path) -> None:
    answer = {"entries": [{"key": "a", "value": 1}], "next": "b"}
    then = "await shown.all.find((one) => one.listeners.click).listeners.click();"
    assert shown(tmp_path, asked([answer], then)).strip() == "The instance does not answer."


def test_a_rebalance_at_no_date_does_not_hide_the_others(tmp_path: Path) -> None:
    led = {
        "at_ms": NO_DATE, "led_by": "a:1", "moves": [], "joined": ["a:1"], "left": [], "remarks": [], "hands_over": False,
        "next_ms": None, "stable": True,
    }  # fmt: skip
    group = {"rebalances": [{**led, "at_ms": 0}, led], "instances": [], "now_ms": 0}
    text = shown(tmp_path, f'import {{ drawTimeline }} from "./timeline.js"; drawTimeline(shown, {json.dumps(group)});')
    assert text.count("led by a:1") == 2
    assert f"{NO_DATE} ms" in text


PAGE = """
const kept = { token: "old" };
globalThis.sessionStorage = {
  getItem: (name) => kept[name] ?? null, setItem: (name, value) => { kept[name] = value; },
  removeItem: (name) => { delete kept[name]; },
};
globalThis.location = { host: "a:1", protocol: "http:" };
Element.prototype.focus = Element.prototype.showModal = () => {};
const looks = [];
globalThis.setTimeout = (then) => looks.push(then);
const reply = (status, body) => ({ ok: status === 200, status, json: async () => body });
const turn = () => new Promise((then) => setImmediate(then));
byId.token = new Element();
byId.token.hidden = true;
"""


def test_that_a_token_is_another_one_is_said_until_the_next_is_given(tmp_path: Path) -> None:
    script = """
    globalThis.fetch = async () => reply(401, {});
    await import("./page.js");
    await turn();
    looks.shift()();
    await turn();
    shown.append(byId["token-problem"].textContent);
    """
    assert shown(tmp_path, PAGE + script).strip() == "This instance has another token."


def test_a_late_answer_does_not_explain_another_task(tmp_path: Path) -> None:
    script = """
    const waiting = {};
    const tasks = ["0_0", "0_1"].map((task) => ({ task, phase: "running", records_per_s: 0, behind: 0 }));
    const thread = {
      active: tasks, standby: [], running: true, records_per_s: 0, latency_ms: null, batch_ms: null, rebalances: [],
      last_assignment_s: 1,
    };
    const one = {
      host: "a:1", process: "p", away: null, state: "RUNNING", threads: [thread], assigned: [], why: [], ready: true,
    };
    const group = { application: "app", instances: [one], silent: [], rebalances: [], leader: "a:1", asked: "a:1", now_ms: 0 };
    globalThis.fetch = (path) => path.startsWith("/decisions")
      ? new Promise((then) => {
          const decisions = [{ role: `why ${path}`, candidates: [] }];
          waiting[path.slice(-3)] = () => then(reply(200, { at_ms: 0, decisions }));
        })
      : Promise.resolve(path === "/group" ? reply(200, group) : reply(404, {}));
    await import("./page.js");
    for (let left = 9; left; left--) await turn();
    const buttons = byId.tasks.all.filter((one) => one.class === "task");
    for (const button of buttons) button.listeners.click();
    for (const task of ["0_1", "0_0"]) { waiting[task](); await turn(); }
    shown.append(byId["why-body"]);
    """
    text = shown(tmp_path, PAGE + script)
    assert "task=0_1" in text
    assert "task=0_0" not in text
