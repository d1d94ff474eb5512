"""Click sessions: the pages that a user looked at until he paused for half an hour, sent once the session is over.

Shows session windows, a merger for sessions that a late click joins, and results on window close.
"""

from tidemill import EmitStrategy, Serdes, SessionWindows, StreamsBuilder, WindowedSerdes

MINUTE_MS = 60_000
TEXT = Serdes.string()
SESSION = Serdes.json("clicks bigint, pages array<string>")

config = {"application.id": "click-sessions", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()


def with_click(_user: str, page: str, session: dict) -> dict:
    pages = session["pages"] if page in session["pages"] else [*session["pages"], page]
    return {"clicks": session["clicks"] + 1, "pages": pages}


def together(_user: str, first: dict, second: dict) -> dict:
    new = [page for page in second["pages"] if page not in first["pages"]]
    return {"clicks": first["clicks"] + second["clicks"], "pages": first["pages"] + new}


clicks = builder.stream("clicks", key=TEXT, value=TEXT)  # user -> page
sessions = (
    clicks.group_by_key(key=TEXT, value=TEXT)
    .windowed_by(SessionWindows.of_inactivity_gap(30 * MINUTE_MS, grace=5 * MINUTE_MS))
    .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    .aggregate(lambda: {"clicks": 0, "pages": []}, with_click, together, store="click-sessions", value=SESSION)
)
sessions.to_stream().to("click-sessions", key=WindowedSerdes.session_windowed_serde_from(TEXT), value=SESSION)
