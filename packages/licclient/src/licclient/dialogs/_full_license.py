"""Pure: the computers of a full license: their list in the dialog, and what is chosen of it (D-325)."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from licclient._computers.protocol import Computer, ComputerList
from licclient._computers.texts import describe_move, describe_next_move
from licclient._core.model import MoveObstacle
from licclient._core.texts import format_date, text_of
from licclient._sentences import join_all
from licclient.errors import MoveError

MOST_NAME: Final = 40
"""Letters of a computer's name that are shown in the list."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list from which a person chooses one; one that is not enabled is shown as such."""

    text: str
    is_chosen: bool = False
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class FullLicense:
    """The computers that use a license, and the one to move it from.

    `obstacle` is why the last move failed, `is_reminded` whether it lacked a choice.
    """

    computers: ComputerList
    chosen: Computer | None = None
    obstacle: BaseException | None = None
    is_reminded: bool = False

    @property
    def is_movable(self) -> bool:
        """Whether the license can be moved now, if a computer is chosen that allows it."""
        return self.computers.moves_left > 0

    @property
    def is_ready(self) -> bool:
        """Whether a computer is chosen that the license can be moved from."""
        return self.chosen is not None and self.chosen.is_movable

    def choose(self, index: int) -> "FullLicense":
        """Return the same with another choice; `index` may be out of range."""
        if not 0 <= index < len(self.computers.computers):
            return self
        return FullLicense(self.computers, self.computers.computers[index])

    def complain(self) -> "FullLicense":
        """Return the same with what keeps a choice that is not ready from being moved."""
        if self.chosen is None:
            return replace(self, is_reminded=True)
        held = MoveError(MoveObstacle.FILE_HELD, "", self.chosen.retry_at)
        return replace(self, obstacle=held)

    # --- what people read ---------------------------------------------------------------------

    def choices(self, language: str, *, is_moving: bool) -> tuple[Choice, ...]:
        """Return the items of the list."""
        may_choose = self.is_movable and not is_moving
        names = Counter(_name(computer, language) for computer in self.computers.computers)
        return tuple(
            Choice(
                _describe(computer, language, has_id=names[_name(computer, language)] > 1),
                computer == self.chosen,
                may_choose and computer.is_movable,
            )
            for computer in self.computers.computers
        )

    def heading(self, language: str) -> str:
        """Return that all are in use, or that the license of this computer was moved."""
        is_moved = self.computers.moved_to is not None
        return text_of("activation.moved_title" if is_moved else "activation.full_title", language)

    def intro(self, language: str) -> str:
        """Return where the license was moved to, and what can be chosen."""
        moved_to = self.computers.moved_to
        remarks = [] if moved_to is None else [describe_move(moved_to, language)]
        if self.is_movable:
            remarks.append(text_of("activation.full_intro", language))
        if self.is_movable and moved_to is None:
            remarks.append(text_of("activation.set_up_anew", language))
        return join_all(remarks, language)

    def remark(self, language: str) -> str:
        """Return what is missing, or when the license can be moved again; an empty text for nothing."""
        if self.is_reminded:
            return text_of("activation.choose", language)
        return describe_next_move(self.computers, language)

    def thanks(self, language: str) -> str:
        """Return where the license was moved from; an empty text if it was not."""
        if self.chosen is None:
            return ""
        return text_of("activation.moved_here", language, _name(self.chosen, language))


def _describe(computer: Computer, language: str, *, has_id: bool) -> str:
    """Return a line of the list: name, last day, and what is special about the computer.

    A computer that was set up anew keeps its name, so those of one name have their ids shown.
    """
    facts = [_name(computer, language), computer.masked_id] if has_id else [_name(computer, language)]
    if computer.is_this:
        facts.append(text_of("activation.this_computer", language))
    if computer.last_seen is not None:
        facts.append(text_of("activation.last_seen", language, format_date(computer.last_seen, language)))
    if not computer.is_movable:
        facts.append(text_of("activation.has_file", language))
    return " \u00b7 ".join(facts)


def _name(computer: Computer, language: str) -> str:
    name = computer.name
    if name is None:
        return text_of("activation.nameless", language, computer.masked_id)
    return name if len(name) <= MOST_NAME else name[:MOST_NAME] + "…"
