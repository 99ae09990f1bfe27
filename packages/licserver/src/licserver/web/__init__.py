"""HTTP: the only package that imports aiohttp."""

from licserver.web.app import create_app

__all__ = ["create_app"]
