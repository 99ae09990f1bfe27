"""What the handlers need, each under a typed key of the application."""

from aiohttp import web

from licserver.artifacts import ArtifactFolder
from licserver.clock import Clock
from licserver.desk import Desk
from licserver.vault import Vault

VAULT = web.AppKey("vault", Vault)
DESK = web.AppKey("desk", Desk)
ARTIFACTS = web.AppKey("artifacts", ArtifactFolder)
CLOCK: web.AppKey[Clock] = web.AppKey("clock")
