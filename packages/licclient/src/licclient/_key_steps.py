"""What both clients do about the key of this computer: remember it, answer for it, show it, plan for it.

The calls themselves are in `_steps` and `_update_steps`; nothing here needs the network.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._activation import Activation
from licclient._errors import MistypedKey, ServiceUnavailable
from licclient._model import License, Update
from licclient._policy import recall, settle
from licclient._records import read_round
from licclient._steps import Asking, call_name
from licclient._update_steps import UpdateSteps

if TYPE_CHECKING:
    from licclient._cadence import Course, Plan
    from licclient._status import LicenseStatus

_NOT_ASKED: Final = "The license service has not been asked yet."


class KeySteps(UpdateSteps):
    """`UpdateSteps`, and what can be said about the activated key without a call."""

    def state_folder(self) -> Path | None:
        """Return where things are remembered; None when there is no place for it."""
        return self._state.folder()

    def pinned(self) -> tuple[str, ...]:
        """Name the keys of which one must sign answers, and those of which one must sign updates."""
        answers = [f"answers {key.id}" for key in self.settings.public_keys]
        return (*answers, *(f"updates {key.id}" for key in self.settings.release_keys))

    def recall_holding(self) -> tuple[License | None, bool]:
        """Answer for the activated key from what is remembered, grace included, and if a check is due (D-59).

        Raises:
            NotActivated: No key was activated.
        """
        activation, domain = self._activation(), self._domain()
        subject, now = self._subject(None, activation, domain), self.now()
        held = self._successes.find_marked(subject, now)
        fresh = recall(held, now, self.settings)
        if fresh is not None:
            return fresh, False
        found = settle(ServiceUnavailable(_NOT_ASKED), held, now, self.settings).result
        return (found, True) if isinstance(found, License) else (None, True)

    def read_typed(self, typed: str) -> str:
        """Make a key of what a person typed (D-57).

        Raises:
            MistypedKey: It cannot be one.
        """
        from licclient._typed_key import Mistyped, repair_key  # noqa: PLC0415 - when somebody has typed

        key = repair_key(typed)
        if isinstance(key, Mistyped):
            raise MistypedKey(key.flaw, key.detail)
        return key

    def remember_key(self, key: str) -> None:
        """Remember a key that was found good."""
        domain = self._domain()
        self._activations.remember(key, domain, self._successes.subject(key, domain).name)

    def forget_key(self) -> None:
        """Forget the key, and that it was good; not the cadence of update checks: it protects the server."""
        while (found := self._activations.find()) is not None:
            names = dict.fromkeys([found.license, self._subject(None, found, self._domain()).name])
            is_ours = self._activations.is_ours(found)
            self._activations.forget()
            for name in names if is_ours else ():
                self._state.change(name, lambda _: None)
                self._state.change(call_name(name), lambda _: None)
            if self._activations.find() == found:  # the disk lets nothing go
                break

    def status(self) -> "LicenseStatus":
        """Say what a settings page shows, from what is remembered."""
        from licclient._status import LicenseState, LicenseStatus, judge_status  # noqa: PLC0415 - to show it

        found = self._activations.find()
        if found is None:
            return LicenseStatus(LicenseState.NOT_ACTIVATED)
        subject = self._subject(None, found, self._domain())
        return judge_status(
            self._successes.find(subject),
            self._outcome(subject),
            self.now(),
            self.settings,
            key_hint=found.hint,
            update=self._offered(found),
        )

    def plan(self, course: "Course") -> "Plan":
        """Say when a background worker is to do what (D-59).

        Args:
            course: What the worker has been through.
        """
        from licclient._cadence import Plan, next_check, next_verify  # noqa: PLC0415 - for workers alone

        found = self._activations.find()
        if found is None:
            return Plan(None, None)
        subject = self._subject(None, found, self._domain())
        now, held = self.now(), self._successes.find(subject)
        verify_at = next_verify(subject.name, held, self._outcome(subject), course, now, self.settings)
        key = self._activations.key_of(found)
        if held is None or self.settings.slug is None or self.settings.version is None or key is None:
            return Plan(verify_at, None)
        round_name = self._round_name(key, self.settings.slug)
        last = read_round(self._state.load(round_name))
        return Plan(verify_at, next_check(subject.name, last, course, now, self.settings))

    def _offered(self, found: Activation) -> Update | None:
        """Return the update that was offered last, as it is remembered."""
        if self.settings.slug is None or self.settings.version is None:
            return None
        key = self._activations.key_of(found)
        if key is None:
            return None
        offer = self._remembered(Asking(key, "", self.settings.slug, self.settings.version))
        return offer if isinstance(offer, Update) else None
