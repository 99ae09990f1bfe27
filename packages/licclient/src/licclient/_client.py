"""`LicenseClient`: signatures, docstrings, and one line a method that runs a flow.

What is imported within functions is not needed by a start that is answered from the cache.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, Never, Self, overload

from licclient import _flows
from licclient._base_client import (
    CLOSE_SECONDS,
    BaseClient,
    Licensed,
    Otherwise,
    P,
    R,
    S_co,
    check_download,
    check_entitled,
    check_entitlement,
    split_entitlement,
)
from licclient._model import License, Update

if TYPE_CHECKING:
    from licclient._flows.downloads import Cancel, Progress
    from licclient._flows.runners import Flow
    from licclient._part_file import Downloaded
    from licclient._seat import OnLost, Seat
    from licclient._status import LicenseStatus
    from licclient._transport import Transport
    from licclient._worker import Deliver, OnStatus, OnUpdate, Refresh, Worker


class LicenseClient(BaseClient["Worker", "Transport"]):
    """Verifies license keys, and finds and downloads updates.

    Safe to share among threads. Use it as a context manager, or call `close`; a closed client opens again
    with the next call.

    Args:
        base_url: Address of the license service; or a `ClientSettings` with the address and all options.
        **options: As the attributes of `ClientSettings`, which describes them.
        clock: Returns the present instant as an aware datetime; for tests. If it has an attribute
            `worker_pause`, workers read it after so many seconds, and take a jump for time that passed.
        transport: An `httpx.BaseTransport` that sends the requests, such as `httpx.MockTransport`, and is
            closed with the client; the system's proxies are not used then. `AsyncLicenseClient` takes an
            `httpx.AsyncBaseTransport` as well.
        storage: Where the state is kept instead of `state_dir`.

    Warns:
        UserWarning: `base_url` is `http`, and not this very machine.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or no usable address.
        ImportError: `public_keys` or `release_keys` without the extra.
    """

    _is_async = False
    _refresh: "Refresh | None"

    def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds: from a fresh cache (D-41), else from the server.

        However many threads and processes ask in the same moment, one of them makes the call, and the others
        take its result (D-58).

        Args:
            key: White space and lower case are repaired (D-02). None for the key that was activated.
            force: Ask the server also when the cache is fresh.

        Raises:
            NotActivatedError: No key was given, and none was activated on this computer.
            LicenseRefusedError: The server said no, or the key is for another product.
            InvalidRequestError: There is no key in `key`, or the server called the request malformed.
            ServiceUnavailableError: No answer, and neither cache nor grace holds.
            UntrustedResponseError: What came as an answer was not signed by a pinned key for this very call.
        """
        flow = _flows.verification.verify(self._context, key, force=force)
        return _flows.runners.run(flow, self._transport)

    def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it when it is good.

        From then on `verify`, `check_for_update` and `require` need no key. It is kept in the system's
        keyring when the extra `licclient[keyring]` is installed and works, else in a private file of the
        state folder (D-57).

        Args:
            key: As typed or pasted: spaces, case, dashes of every kind and missing ones are repaired.

        Raises:
            MistypedKeyError: It cannot be a key, and says what is wrong; nobody was asked.
            LicclientError: As `verify`; whatever was remembered before stays.
        """
        found = self._run(_flows.activation.activate(self._context, key))
        self._nudge()
        return found

    def start_trial(self) -> License:
        """Start the trial of this computer, and remember its key as `activate` does; `is_trial` is True then.

        A computer has one trial of a product; while that runs, it gets the same one again. It is named by a
        hash of the id that its operating system gave it, or else by this installation's (D-234).

        Raises:
            LicenseRefusedError: For the reason `TRIAL_ENDED`, `TRIAL_NOT_OFFERED`, or `TRIAL_LIMIT`: too many
                were started today; or as `verify`.
            LicclientError: As `verify`; whatever was remembered before stays.
            ValueError: The client was made without `slug`.
        """
        found = self._run(_flows.activation.start_trial(self._context))
        self._nudge()
        return found

    def require(self, entitlement: str | None = None) -> License:
        """Return the license of the activated key, or raise.

        It does not wait for the network while anything remembered holds, grace included: it returns that
        and refreshes it in the background (D-59). When nothing holds it asks the server first, at most once a
        minute after a refusal (D-119).

        Args:
            entitlement: A feature that the license must include, such as ``"export"``: a flag that is set, a
                number that is not 0, or a text.

        Raises:
            NotActivatedError: No key has been activated on this computer.
            NotEntitledError: The license does not include the feature.
            LicclientError: As `verify`.
        """
        check_entitlement(entitlement)
        known, is_due = _flows.activation.remembered_license(self._context)
        if known is None:
            return check_entitled(self.verify(), entitlement)
        if is_due and self._may_refresh():
            from licclient._worker import Refresh

            self._refresh = Refresh(self.verify)
        return check_entitled(known, entitlement)

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def licensed(self, entitlement: str | None = None, /, *, otherwise: None = None) -> Licensed[Never]: ...

    @overload
    def licensed(
        self, entitlement: str | None = None, /, *, otherwise: Otherwise[S_co]
    ) -> Licensed[S_co]: ...

    def licensed(
        self, function: Callable[..., Any] | str | None = None, *, otherwise: Callable[..., Any] | None = None
    ) -> Any:
        """Decorate a function that needs a license: `require` is called before each call of it.

        ::

            @client.licensed                                  # raises what `require` raises
            def export(): ...

            @client.licensed(otherwise=show_license_dialog)   # calls that with the error instead
            def export(): ...

            @client.licensed("export")                        # the license must include this feature
            def export(): ...

        A decorated `async def` waits on a thread.

        Args:
            function: The function to decorate; or a feature's name, as of `require`.
            otherwise: Called with the error when there is no license. If it returns a `License`, as
                `ask_for_key` does, the function runs; anything else is returned in its place.

        Raises:
            TypeError: What is decorated is not a function: a license key, a class.
        """
        name, decorated = split_entitlement(function)
        decorate = Licensed[Any](partial(self.require, name), otherwise, name)
        return decorate if decorated is None else decorate(decorated)

    def forget_key(self) -> None:
        """Forget the key on this computer. The server is not notified, so the slot stays in use."""
        _flows.activation.forget_key(self._context)
        self._nudge()

    def deactivate(self, key: str | None = None) -> None:
        """Free the slot of this computer, so that another one can take it, and forget the key.

        Args:
            key: As in `verify`. None for the key that was activated.

        Raises:
            NotActivatedError: No key was given, and none was activated on this computer.
            DeactivationError: The customer has freed too many slots lately, or only the vendor's support can;
                `retry_at` says when it will be possible. The key stays, and the app goes on working.
            LicenseRefusedError: The server does not know the key.
            ServiceUnavailableError: No answer; nothing was forgotten.
        """
        self._run(_flows.activation.deactivate(self._context, key))
        self._nudge()

    def request_license_file(self) -> str:
        """Return the request for a license file for this computer; a `ValueError` without `public_keys`."""
        return _flows.activation.request_file(self._context)

    def install_license_file(self, file: "str | PathLike[str] | bytes") -> License:
        """Install a license file, by its path or content: it holds until its end without any request.

        Raises:
            LicenseFileError: It cannot be used here; what was installed before stays.
            OSError: It cannot be read.
            ValueError: The client was made without `public_keys`.
        """
        found = _flows.activation.install_file(self._context, file)
        self._nudge()
        return found

    def seat(
        self, key: str | None = None, *, on_lost: "OnLost | None" = None, deliver: "Deliver | None" = None
    ) -> "Seat":
        """Return a floating seat, of which a license has a number, to take as a context manager.

        Args:
            key: As in `verify`.
            on_lost: Called once with a `LicclientError` if the seat is lost.
            deliver: As in `start`.

        Raises:
            TypeError: Something that cannot be called, or a coroutine function.
        """
        from licclient._seat import Seat

        return self._create_seat(Seat, key, on_lost, deliver)

    def consume(self, entitlement: str, amount: int = 1) -> int:
        """Use some of a metered entitlement of the activated license, such as ``"exports"``.

        The service counts it, exactly once. While it does not answer a small part may be used, which is
        reported to it later: a tenth of the limit, at least 1, and never more than is left.

        Returns:
            How much is left of the period.

        Raises:
            QuotaExceededError: It does not fit into what is left; `resets_at` is when the next period begins.
            NotEntitledError: The license has no such metered entitlement.
            NotActivatedError: No key has been activated on this computer.
            LicenseRefusedError: The license does not hold, or not on this computer.
            ServiceUnavailableError: No answer, and nothing is left to be used without one.
            UntrustedResponseError: As `verify`.
        """
        return self._run(_flows.consumption.consume(self._context, entitlement, amount))

    def status(self) -> "LicenseStatus":
        """Return what a settings page shows; asks nobody, and raises for nothing."""
        return _flows.activation.status(self._context)

    def check_for_update(self, key: str | None = None, *, force: bool = False) -> Update | None:
        """Return a newer version that the customer may download, or None; `last_update_check` has the reason.

        Refusals and outages are None as well. Without `force` the server is asked at most once per
        `check_every`; in between, what it offered is returned again (D-46, D-48).

        Args:
            key: As in `verify`.
            force: Ask the server now, such as after a click on "Check now".

        Raises:
            ValueError: The client was made without `slug` or `version`.
        """
        return self._run(_flows.updates.check_for_update(self._context, key, force=force))

    def skip_update(self, update: Update) -> None:
        """Remember that a person does not want this version; in place of the one skipped before (D-87).

        It changes nothing but what `is_skipped` says: it is for windows that offer updates unasked.

        Raises:
            TypeError: No `Update`.
        """
        _flows.updates.skip_update(self._context, update)

    def is_skipped(self, update: Update) -> bool:
        """Return whether this very version was skipped, in this app, by this user; asks nobody."""
        return _flows.updates.is_skipped(self._context, update)

    def download(
        self,
        update: Update,
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
    ) -> "Downloaded":
        """Download an update into a folder, and verify it; an earlier try is resumed (D-48, D-55).

        Args:
            update: From `check_for_update`.
            to: The folder; made if it is missing. A file of the same name is replaced.
            progress: Called some twenty times a second with the bytes that are there, the bytes in all, and
                the speed in bytes a second; not backwards unless the server replaced the file meanwhile.
                What it raises ends the download; the part stays.
            cancel: Looked at ten times a second; when it `is_set`, such as a `threading.Event`, the download
                ends, and the part stays.

        Returns:
            The file, under the name that the server gave it, made safe; with its size and digest. If the
            service sent no digest, `is_verified` is False: only the length was checked.

        Raises:
            NotActivatedError: The key of a remembered offer was forgotten meanwhile.
            LicenseRefusedError: The key is refused by now, or its support is over.
            InvalidRequestError: The server called the request malformed.
            ServiceUnavailableError: No answer, too slow, or cut off too often; what has come stays for the
                next try.
            UntrustedResponseError: The file is not what the server declared, and nothing of it is kept; or no
                pinned key signed the response with the fresh link.
            DownloadCancelledError: `cancel` was set.
            OSError: The folder cannot be written, or the disk has no room for the file.
            TypeError: An argument is not what it must be.
            ValueError: The client was made without `slug` or `version`, or `to` is blank.
        """
        from licclient._storage import read_folder

        check_download(update, progress, cancel)
        flow = _flows.downloads.download(self._context, update, read_folder("to", to), progress)
        transport = self._transport()  # one for all of it: closing the client ends the download
        is_cancelled = cancel.is_set if cancel is not None else lambda: False
        return _flows.runners.run(flow, lambda: transport, is_cancelled)

    def start(
        self,
        *,
        on_status: "OnStatus | None" = None,
        on_update: "OnUpdate | None" = None,
        deliver: "Deliver | None" = None,
    ) -> "Worker":
        """Run one background worker that verifies the activated key and checks for updates when they are due.

        It reports the remembered status at once, then each change, and an update once. What no longer holds
        at its start, or when a suspended computer wakes up, is checked within half a minute; what holds and
        is due within four hours, so that not all apps ask at nine (D-137). It ends within a second, by its
        own `stop`, by `close` or as a context manager, and then calls nobody back any more (D-59).

        Args:
            on_status: Called with a `LicenseStatus`; its `update` is left to `on_update`.
            on_update: Called with an `Update`.
            deliver: Runs the callbacks on a thread of the app's choice, such as
                `licclient.deliver.to_tk(root)`; by default they are called on the worker's thread.

        Returns:
            The worker.

        Raises:
            RuntimeError: The client has one that runs.
            TypeError: Something that cannot be called, or a coroutine function: nobody would await it.
            ValueError: `on_update`, and the client was made without `slug` or `version`.
        """
        from licclient._worker import Worker

        return self._start_worker(Worker, on_status, on_update, deliver)

    def stop(self) -> None:
        """Stop the background worker, if one runs; no callback is called any more."""
        if self._worker is not None:
            self._worker.stop()

    def diagnose(self) -> str:
        """Find out why something does not work: a report for an e-mail to support, as of `licclient doctor`.

        It looks at name, proxy, TLS, the service and its clock, state folder, keyring and license. The key in
        it is masked, and the service is asked nothing about it. May take half a minute when a lot is wrong.
        """
        from licclient._doctor import diagnose

        return diagnose(self._context, self._agent, self._given_transport)[1]

    def close(self) -> None:
        """Stop what runs in the background, which takes less than a second, and close what is open.

        Dialogs of this client are closed, too: `ask_for_key` and `offer_update` return.
        """
        for dialog in list(self._dialogs):
            dialog.close()
        until = monotonic() + CLOSE_SECONDS
        self.stop()
        for seat in list(self._held_seats):
            seat.release(max(until - monotonic(), 0.0))
        if self._refresh is not None:
            self._refresh.join(until - monotonic())
        with self._opening:
            transport, self._open_transport = self._open_transport, None
        if transport is not None:
            transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: "Flow[R]") -> R:
        return _flows.runners.run(flow, self._transport)

    def _transport(self) -> "Transport":
        with self._opening:
            if self._open_transport is None:
                from licclient._transport import Transport

                self._open_transport = Transport(self._context.settings, self._agent, self._given_transport)
            return self._open_transport
