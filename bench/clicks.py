"""People at the console: they click through pages, look at each for a moment, and search as they type."""

import http.client
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, Self
from urllib.parse import quote

_LOOKING: Final = 0.7
"""Seconds on a page: a support person in a hurry."""

_TYPING: Final = 0.2
"""Seconds from letter to letter; the page asks 0.2 s after the last one, so that each letter is asked for."""

_SEARCHES: Final = ("customer 77", "invoice", "user12", "home.exam", "nothing such")


class People:
    """Some who are signed in, each on a thread and on a connection of their own.

    Args:
        port: Of the console.
        cookie: Their session's.
        pages: Paths that they click on, in turn; between two of them they search for something.
        count: How many people.
    """

    def __init__(self, port: int, cookie: str, pages: Sequence[str], count: int) -> None:
        self._port, self._cookie, self._pages, self._count = port, cookie, pages, count
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._problems: list[BaseException] = []
        self.seconds: list[float] = []

    def __enter__(self) -> Self:
        """Let them begin."""
        for number in range(self._count):
            self._threads.append(thread := threading.Thread(target=self._work, args=(number,)))
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let them stop, and raise what went wrong."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._problems:
            raise self._problems[0]

    def _work(self, number: int) -> None:
        try:
            link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            self._stop.wait(_LOOKING * number / self._count)
            for path, pause in self._clicks(number):
                self._get(link, path)
                if self._stop.wait(pause):
                    break
            link.close()
        except BaseException as problem:  # noqa: BLE001 - raised where they are waited for
            self._problems.append(problem)

    def _clicks(self, number: int) -> Iterator[tuple[str, float]]:
        begin = number * len(self._pages) // self._count
        pages = itertools.cycle([*self._pages[begin:], *self._pages[:begin]])
        searches = itertools.cycle(
            _SEARCHES[number % len(_SEARCHES) :] + _SEARCHES[: number % len(_SEARCHES)]
        )
        for page, search in zip(pages, searches, strict=False):
            yield page, _LOOKING
            for letters in range(2, len(search) + 1):
                yield f"/console/licenses?q={quote(search[:letters])}&product=&state=", _TYPING
            yield "/console/licenses", _LOOKING

    def _get(self, link: http.client.HTTPConnection, path: str) -> None:
        began = time.perf_counter()
        link.request("GET", path, headers={"Cookie": self._cookie})
        answer = link.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered by {answer.status}")
        self.seconds.append(time.perf_counter() - began)
