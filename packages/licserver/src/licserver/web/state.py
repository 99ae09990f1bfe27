"""What the handlers need, each under a typed key of the application."""

from dataclasses import dataclass

from aiohttp import web

from licserver.artifacts import Artifacts
from licserver.clock import Clock
from licserver.desk import Desk
from licserver.rotation import LinkRing

LINKS = web.AppKey("links", LinkRing)


@dataclass(slots=True)
class Drain:
    """Whether the process is on its way out: it finishes what it has, and asks for nothing more."""

    active: bool = False


DESK = web.AppKey("desk", Desk)
ARTIFACTS: web.AppKey[Artifacts] = web.AppKey("artifacts")
CLOCK: web.AppKey[Clock] = web.AppKey("clock")
DRAIN = web.AppKey("drain", Drain)
