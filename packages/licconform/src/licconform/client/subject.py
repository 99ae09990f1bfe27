"""The client under test, as the cases see it: a program with three verbs."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from licconform.cases import Catalogue, NotApplicableError, SetupError, expect
from licconform.client.service import INSTALLED, KEY, SLUG, Requests, Service

YES, NO, NO_ANSWER = 0, 1, 3
"""Exit statuses: valid, offered or downloaded; a definite no; no response of the service."""
_MEANING = {YES: "yes", NO: "no", NO_ANSWER: "no answer"}
_CANNOT_START: Final = {126, 127}


class Program(Protocol):
    """The client under test."""

    def run(self, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run a verb, and return the exit status."""


class Command:
    """A client that is a command: the verb and its arguments are added at the end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def run(self, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the command."""
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                [*self._command, *arguments],
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1
        except OSError as error:
            raise SetupError(f"The client could not be started: {error}") from error
        if done.returncode in _CANNOT_START:
            raise SetupError(f"The client could not be started (status {done.returncode}).")
        return done.returncode


class Client:
    """Runs the program with a folder and a service of its own."""

    def __init__(self, program: Program, service: Service, folder: Path, *, has_clock: bool) -> None:
        self.service = service
        self.folder = folder
        self.downloads = folder / "downloads"
        self.state = folder / "state"
        self._program = program
        self._has_clock = has_clock
        self._clock = 0
        self.downloads.mkdir(parents=True)
        self.state.mkdir()

    def later(self, hours: float) -> None:
        """Set the client's clock to so many hours after now."""
        if not self._has_clock:
            raise NotApplicableError("The client's clock can be set with --clock only.")
        self._clock = int(hours * 3600)

    # --- verbs ----------------------------------------------------------------------------------

    def verify(
        self, key: str = KEY, *, expected: int | None = None, force: bool = False, product: str = ""
    ) -> int:
        """Run `verify KEY`."""
        return self._run(["verify", key], expected, force=force, product=product)

    def check(self, installed: str = INSTALLED, *, expected: int | None = None, force: bool = False) -> int:
        """Run `check KEY SLUG VERSION`."""
        return self._run(["check", KEY, SLUG, installed], expected, force=force)

    def download(self, installed: str = INSTALLED, *, expected: int | None = None) -> int:
        """Run `download KEY SLUG VERSION`."""
        return self._run(["download", KEY, SLUG, installed], expected)

    def _run(
        self, arguments: list[str], expected: int | None, *, force: bool = False, product: str = ""
    ) -> int:
        status = self._program.run(
            arguments,
            {
                "LICCONFORM_URL": self.service.base_url,
                "LICCONFORM_STATE": str(self.state),
                "LICCONFORM_DOWNLOADS": str(self.downloads),
                "LICCONFORM_FORCE": "1" if force else "",
                "LICCONFORM_PRODUCT": product,
                "LICCONFORM_CLOCK": str(self._clock),
            },
        )
        if expected is not None:
            meaning = f"expected {expected} ({_MEANING[expected]})"
            expect(status == expected, f"`{arguments[0]}` exited with {status}, {meaning}")
        return status

    def never_yes(self, run: Callable[[], int]) -> None:
        """Run a verb, which must not exit with 0."""
        expect(run() != YES, "exited with 0, expected another status")

    # --- what happened ----------------------------------------------------------------------------

    @property
    def verifies(self) -> Requests:
        """The requests of verify so far."""
        return self.service.requests_for("/api/v1/licenses/verify")

    @property
    def checks(self) -> Requests:
        """The update checks so far."""
        return self.service.requests_for("/api/v1/update-check")

    @property
    def fetches(self) -> Requests:
        """The requests of the file so far."""
        return self.service.requests_for("/api/v1/update-download")

    def expect_verifies(self, count: int) -> None:
        """Compare the number of verify requests."""
        expect(len(self.verifies) == count, f"expected {count} verify requests, not {len(self.verifies)}")

    def expect_checks(self, count: int) -> None:
        """Compare the number of update checks."""
        expect(len(self.checks) == count, f"expected {count} update checks, not {len(self.checks)}")

    def files(self) -> list[bytes]:
        """Return the contents of the files in the folder of downloads."""
        return [path.read_bytes() for path in sorted(self.downloads.rglob("*")) if path.is_file()]


CASES: Catalogue[Client] = Catalogue()
