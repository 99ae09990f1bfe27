"""The wire contract's cases, read from ``tests/vectors`` (its README is the format)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "vectors"
LINK = "<link>"
_COMPUTER = re.compile("<computer ([^>]+)>")


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """One case; `raw` is its JSON object with the file's defaults filled in."""

    file: str
    raw: dict[str, Any]

    @property
    def id(self) -> str:
        """Unique over all files."""
        return str(self.raw["id"])

    @property
    def now(self) -> datetime:
        """The server's clock."""
        return instant(self.raw["now"])

    @property
    def given(self) -> dict[str, Any]:
        """The vendor's records."""
        given: dict[str, Any] = self.raw["given"]
        return given

    @property
    def request(self) -> dict[str, Any]:
        """What arrives."""
        request: dict[str, Any] = self.raw["request"]
        return request

    @property
    def answer(self) -> dict[str, Any]:
        """What must be answered."""
        answer: dict[str, Any] = self.raw["answer"]
        return answer

    @property
    def client(self) -> dict[str, Any] | None:
        """What the client makes of it; None when the client has no part in it."""
        client: dict[str, Any] | None = self.raw["client"]
        return client

    def naming_computers(self, name: Callable[[str, str], str]) -> "Case":
        """Return the case with ids in the place of ``<computer DOMAIN>``; `name` gets key and domain."""
        text = json.dumps(self.raw)
        if "<computer " not in text:
            return self
        keys = [license_["key"] for license_ in self.given["licenses"]]
        key = keys[0] if keys else self.request["json"]["license_key"]
        return Case(self.file, json.loads(_COMPUTER.sub(lambda match: name(key, match[1]), text)))

    def body(self) -> bytes | None:
        """The request's body as bytes."""
        if "json" in self.request:
            return json.dumps(self.request["json"]).encode()
        pieces = self.request.get("body")
        if isinstance(pieces, list):
            return "".join(text * times for text, times in pieces).encode()
        return None if pieces is None else str(pieces).encode()


def instant(text: str) -> datetime:
    """Read an instant of a vector."""
    return datetime.fromisoformat(text)


def load() -> list[Case]:
    """Read all cases of all files."""
    cases = []
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        given = {"products": [], "licenses": [], **document.get("given", {})}
        for raw in document["cases"]:
            filled = {"now": document["now"], **raw, "given": {**given, **raw.get("given", {})}}
            cases.append(Case(path.stem, filled))
    return cases


def parameters(cases: list[Case]) -> list[Any]:
    """Make pytest parameters of cases, by their ids."""
    return [pytest.param(case, id=case.id) for case in cases]
