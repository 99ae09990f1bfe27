"""What both clients do about the key of this computer: remember it, answer for it, show it, plan for it.

The calls themselves are in `_steps` and `_update_steps`; nothing here needs the network.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation
from licclient._flows.verification import (
    PATIENCE,
    call_name,
    check_name,
    find_activation,
    find_subject,
    forget_records,
    installation_domain,
    last_outcome,
)
from licclient._keyring import GLANCE_SECONDS
from licclient._model import License, Update
from licclient._policy import recall, settle
from licclient._records import Document, read_round
from licclient._update_steps import UpdateSteps
from licclient.errors import MistypedKeyError, ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._cadence import Course, Plan
    from licclient._status import LicenseStatus

WAIT_BEHIND: Final = timedelta(seconds=2)
"""How long to wait for a refresh behind an answer for each one before it that was cut off (D-117)."""

_NOT_ASKED: Final = "The license service has not been asked yet."


class KeySteps(UpdateSteps):
    """`UpdateSteps`, and what can be said about the activated key without a call."""

    def state_folder(self) -> Path | None:
        """Return where things are remembered; None when there is no place for it."""
        return self._context.storage.folder()

    def pinned(self) -> tuple[str, ...]:
        """Name the keys of which one must sign answers, and those of which one must sign updates."""
        answers = [f"answers {key.id}" for key in self.settings.public_keys]
        return (*answers, *(f"updates {key.id}" for key in self.settings.release_keys))

    def recall_holding(self) -> tuple[License | None, bool]:
        """Answer for the activated key from what is remembered, grace included, and if a check is due (D-59).

        Raises:
            NotActivatedError: No key was activated.
            LicenseRefusedError: It was refused less than a minute ago (D-119).
        """
        activation, domain = find_activation(self._context), installation_domain(self._context)
        subject, now = find_subject(self._context, None, activation, domain), self._context.now()
        held = self._context.successes.find_marked(subject, now)
        fresh = recall(held, now, self.settings)
        if fresh is not None:
            return fresh, False
        found = settle(ServiceUnavailableError(_NOT_ASKED), held, now, self.settings).result
        if isinstance(found, License):
            return found, True
        from licclient._outcome import refused_lately  # noqa: PLC0415 - not for an answer from the cache

        if (refusal := refused_lately(last_outcome(self._context, subject), now, self.settings)) is not None:
            raise refusal
        return None, True

    def begin_refresh(self) -> float:
        """Note that a verify is begun behind an answer, and say for how many seconds to wait for it (D-117).

        None, unless some before it were cut off by the end of their process: then the longer, the more.

        Raises:
            NotActivatedError: The key was forgotten meanwhile.
        """
        from licclient._outcome import note_begun  # noqa: PLC0415 - as above

        longest, now, cut = self.settings.timeout + PATIENCE, self._context.now(), 0

        def note(document: Document | None) -> Document | None:
            nonlocal cut
            document, cut = note_begun(document, now, longest)
            return document

        self._context.storage.change(self._call_of_activation(), note)
        return min(cut * WAIT_BEHIND, longest).total_seconds()

    def end_refresh(self) -> None:
        """Note that such a verify was not cut off, whatever came of it.

        Raises:
            NotActivatedError: The key was forgotten meanwhile.
        """
        from licclient._outcome import forget_begun  # noqa: PLC0415 - as above

        self._context.storage.change(self._call_of_activation(), forget_begun)

    def _call_of_activation(self) -> str:
        return call_name(
            find_subject(
                self._context, None, find_activation(self._context), installation_domain(self._context), 0
            )
        )

    def read_typed(self, typed: str) -> str:
        """Make a key of what a person typed (D-57).

        Raises:
            MistypedKeyError: It cannot be one.
        """
        from licclient._typed_key import Mistyped, repair_key  # noqa: PLC0415 - when somebody has typed

        key = repair_key(typed)
        if isinstance(key, Mistyped):
            raise MistypedKeyError(key.flaw, key.detail)
        return key

    def remember_key(self, key: str) -> None:
        """Remember a key that was found good."""
        domain, slug = installation_domain(self._context), self.settings.slug
        round_name = None if slug is None else check_name(self._context, key, slug)
        self._context.activations.remember(
            key, domain, self._context.successes.subject(key, domain).name, round_name
        )

    def forget_key(self) -> None:
        """Forget the key, and that it was good; not the cadence of update checks: it protects the server."""
        while (found := self._context.activations.find()) is not None:
            names = dict.fromkeys(
                [
                    found.license,
                    find_subject(self._context, None, found, installation_domain(self._context)).name,
                ]
            )
            is_ours = self._context.activations.is_ours(found)
            self._context.activations.forget()
            # Last: a verify on its way looks for the activation after it has written.
            for name in names if is_ours else ():
                forget_records(self._context, name)
            if self._context.activations.find() == found:  # the disk lets nothing go
                break

    def status(self) -> "LicenseStatus":
        """Say what a settings page shows, from what is remembered."""
        from licclient._status import LicenseState, LicenseStatus, judge_status  # noqa: PLC0415 - to show it

        found = self._context.activations.find()
        if found is None:
            return LicenseStatus(LicenseState.NOT_ACTIVATED)
        subject = find_subject(self._context, None, found, installation_domain(self._context), GLANCE_SECONDS)
        return judge_status(
            self._context.successes.find(subject),
            last_outcome(self._context, subject),
            self._context.now(),
            self.settings,
            key_hint=found.hint,
            update=self._offered(found),
        )

    def plan(self, course: "Course", now: datetime) -> "Plan":
        """Say when a background worker is to do what (D-59).

        Args:
            course: What the worker has been through.
            now: Aware, UTC; the worker's, which compares with it what is planned.
        """
        from licclient._cadence import Plan, next_check, next_verify, noting  # noqa: PLC0415 - for workers alone
        from licclient._outcome import read_note, read_outcome, write_note  # noqa: PLC0415 - as above

        found = self._context.activations.find()
        if found is None:
            return Plan(None, None)
        subject = find_subject(self._context, None, found, installation_domain(self._context), 0)
        held = self._context.successes.find(subject)
        round_name = None if self.settings.version is None else self._round_of(found)
        last = None if round_name is None else read_round(self._context.storage.load(round_name))
        name, call = subject.name, call_name(subject)
        document = self._context.storage.load(call)
        known = replace(course, note=read_note(document))
        course = noting(name, held, last, known, now, self.settings)
        if (note := course.note) is not None and course is not known:
            self._context.storage.change(call, lambda document: write_note(document, note))
        verify_at = next_verify(name, held, read_outcome(document), course, now, self.settings)
        if held is None or round_name is None:
            return Plan(verify_at, None)
        return Plan(verify_at, next_check(name, last, course, now, self.settings))

    def _offered(self, found: Activation) -> Update | None:
        """Return the update that was offered last, as it is remembered."""
        name, version = self._round_of(found), self.settings.version
        if name is None or version is None:
            return None
        return self._remembered(name, version, self._context.activations.key_of(found, 0)).update
