"""Cases: one rule each, with its section of the specification, and the function that tests it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Subject = TypeVar("Subject")
"""The subject of a case: a server or a client under test."""

_KEYS = re.compile(r"CP-[A-Z0-9]{6}(?:-[A-Z0-9]{6}){4}")
_LINKS = re.compile(r"(/update-download\?)[^\s\"']+")


class Kind(StrEnum):
    """Where a rule comes from."""

    LITERAL = "literal"
    """A literal rule of the specification."""
    READING = "reading"
    """The specification leaves it open, and this project decided it; the section is the decision's id."""
    EXTENSION = "extension"
    """Not in the specification; tested only if the server or client has it."""


class DeviationError(Exception):
    """A rule is broken; the message has the expected and the actual value."""


class NotApplicableError(Exception):
    """A case cannot be run against this server or client; the message is the reason."""


class SetupError(Exception):
    """The run itself cannot go on, such as when the seed command does not work."""


@dataclass(frozen=True, slots=True)
class Case(Generic[Subject]):
    """A rule and its test."""

    name: str
    section: str
    rule: str
    kind: Kind
    run: Callable[[Subject], None]


class Catalogue(Generic[Subject]):
    """The cases of one side, by kind and section."""

    def __init__(self) -> None:
        self._cases: dict[str, Case[Subject]] = {}

    def __iter__(self) -> Iterator[Case[Subject]]:
        return iter(
            sorted(self._cases.values(), key=lambda case: (list(Kind).index(case.kind), case.section))
        )

    def __len__(self) -> int:
        return len(self._cases)

    def select(self, kinds: Collection[Kind], only: Collection[str] = ()) -> list[Case[Subject]]:
        """Return the cases of some kinds; with `only`, those of these names alone."""
        return [case for case in self if (case.name in only if only else case.kind in kinds)]

    def case(
        self, name: str, section: str, rule: str
    ) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
        """Add the decorated function as a case."""

        def add(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
            self._add(Case(name, section, rule, kind_of(section), run))
            return run

        return add

    def table(
        self, name: str, section: str, rule: str, rows: Iterable[tuple[Any, ...]]
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Add one case for each row: its first item goes into name and rule, all others into the function."""

        def add(run: Callable[..., None]) -> Callable[..., None]:
            for label, *row in rows:
                words = rule.format(label, *row)
                full = f"{name}-{label}".replace(" ", "-")
                self._add(Case(full, section, words, kind_of(section), _with(run, row)))
            return run

        return add

    def _add(self, case: Case[Subject]) -> None:
        if case.name in self._cases:
            raise ValueError(f"Two cases have the name {case.name}.")
        self._cases[case.name] = case


def _with(run: Callable[..., None], row: list[Any]) -> Callable[[Any], None]:
    return lambda subject: run(subject, *row)


def kind_of(section: str) -> Kind:
    """Return the kind of a rule: `spec 4.1` is literal, `D-03` a reading, `extension D-32` an extension."""
    return {"spec": Kind.LITERAL, "extension": Kind.EXTENSION}.get(section.partition(" ")[0], Kind.READING)


def expect(condition: bool, message: str) -> None:
    """Raise `DeviationError` unless a condition holds."""
    if not condition:
        raise DeviationError(mask_secrets(message))


def printable(text: str) -> str:
    """Replace what controls a terminal, and what XML cannot hold."""
    return "".join(char if char in "\n\t" or char.isprintable() else "�" for char in text)


def mask_secrets(text: str) -> str:
    """Shorten license keys and download links, which are credentials: reports are published."""
    return _LINKS.sub(r"\1…", _KEYS.sub(lambda match: f"{match[0][:9]}-…", text))
