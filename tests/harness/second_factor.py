"""A user's authenticator app, for tests of the console."""

import re
from datetime import datetime

import pyotp

from harness.console import PASSWORD, Browser

PAGE = "/console/account/second-factor"


class App:
    """An authenticator app, for the secret that the page shows."""

    def __init__(self, secret: str) -> None:
        self._totp = pyotp.TOTP(secret.replace(" ", ""))

    def code(self, now: datetime) -> str:
        """Return the code of an instant."""
        return self._totp.at(now)


async def begin_enrolment(browser: Browser, password: str = PASSWORD) -> App:
    """Take the first step of the enrolment; return an app that has scanned the code."""
    await browser.get(PAGE)
    await browser.post(f"{PAGE}/begin", password=password)
    found = re.search(r'id="secret">([A-Z2-7 ]+)<', browser.text)
    assert found, browser.text
    return App(found[1])


async def enrol(browser: Browser, now: datetime) -> tuple[App, list[str]]:
    """Set a second factor up; return the app and the recovery codes."""
    app = await begin_enrolment(browser)
    await browser.post(f"{PAGE}/confirm", code=app.code(now))
    assert browser.status == 200, browser.alert
    return app, re.findall(r"<li>([a-z2-7-]{29})</li>", browser.text)
