"""Run the cases against a server."""

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext

import httpx

from licconform.cases import Kind
from licconform.runner import Result, run_cases
from licconform.server import (  # noqa: F401 - each module adds its cases
    download_cases,
    extension_cases,
    slot_cases,
    update_cases,
    verify_cases,
)
from licconform.server.seeds import KeyStore, Seeds
from licconform.server.subject import CASES, Server

__all__ = ["CASES", "run_server_cases"]


def run_server_cases(
    base_url: str,
    seeds: Seeds,
    *,
    kinds: Collection[Kind] = tuple(Kind),
    only: Collection[str] = (),
    xfails: Mapping[str, str] | None = None,
    public_key: str | None = None,
    transport: httpx.BaseTransport | None = None,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run the cases one after the other: they share keys.

    Raises:
        SetupError: The server does not respond, or the seed command does not work.
    """
    with httpx.Client(transport=transport, timeout=30, trust_env=False) as client:
        server = Server(base_url, KeyStore(seeds), client, public_key)
        cases = CASES.select(kinds, only)
        return run_cases(cases, lambda _: nullcontext(server), xfails or {}, report=report)
