"""A headless Chromium for the check of the web page: what it shows, what it asks for, what it complains about.

Decides how the browser is started; it is told to ask for nothing by itself. OSError, with what to install, where there
is none.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_INSTALL = "Debian and Ubuntu: apt-get install chromium chromium-driver, and pip install selenium"
_SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip

CONTRASTS = Path(__file__).with_name("contrasts.js").read_text()


class Browser:
    """One window. ``driver``: selenium's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Takes the size of a window, or of a phone below 600, and the wish for light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def press(self, key: str) -> None:
        """To whatever has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def picture(self, path: Path) -> None:
        answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """What the console has had since the last question, warnings and worse."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def asked_for(self) -> set[str]:
        """Addresses of all requests since the last question."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}


@contextmanager
def browser() -> Iterator[Browser]:
    """Ended, with all that it has written, on leaving."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        raise OSError(f"there is no selenium. {_INSTALL}") from None
    if chromium is None or chromedriver is None:
        raise OSError(f"there is no {'chromium' if chromium is None else 'chromedriver'}. {_INSTALL}")
    with tempfile.TemporaryDirectory(prefix="tidemill-browser-", ignore_cleanup_errors=True) as folder:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for switch in (*_SWITCHES, f"--user-data-dir={folder}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
