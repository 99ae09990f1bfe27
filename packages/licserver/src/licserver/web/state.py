"""What the handlers need, each under a typed key of the application."""

from aiohttp import web

from licserver.artifacts import Artifacts
from licserver.clock import Clock
from licserver.desk import Desk
from licserver.settings import Settings
from licserver.vault import Vault

SETTINGS = web.AppKey("settings", Settings)
VAULT = web.AppKey("vault", Vault)
DESK = web.AppKey("desk", Desk)
ARTIFACTS: web.AppKey[Artifacts] = web.AppKey("artifacts")
CLOCK: web.AppKey[Clock] = web.AppKey("clock")
