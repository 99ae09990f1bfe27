"""HTTP: the only room that knows aiohttp."""

from licserver.web.app import create_app

__all__ = ["create_app"]
