"""The web page: the files of ``tidemill/web``.

Decides which files there are, under which address and with which headers. They hold no data, so they need no token. The headers
forbid the browser to load anything from elsewhere and to show the page in a frame.
"""

from __future__ import annotations

from importlib import resources

FILES = {
    "/": ("index.html", "text/html"),
    "/web/page.css": ("page.css", "text/css"),
    "/web/format.js": ("format.js", "text/javascript"),
    "/web/group.js": ("group.js", "text/javascript"),
    "/web/timeline.js": ("timeline.js", "text/javascript"),
    "/web/topology.js": ("topology.js", "text/javascript"),
    "/web/stores.js": ("stores.js", "text/javascript"),
    "/web/page.js": ("page.js", "text/javascript"),
    "/web/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)


def is_page(path: str) -> bool:
    return path in FILES


def page(path: str) -> tuple[bytes, str]:
    """A file's bytes and media type. KeyError if there is none under this path."""
    name, kind = FILES[path]
    return resources.files("tidemill").joinpath("web").joinpath(name).read_bytes(), kind
