"""`LicenseClient`: signatures, docstrings, and one line a method that runs a flow.

What is imported within functions is not needed by a start that is answered from the cache.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Never, Self, overload

from licclient import _features
from licclient._base_client import (
    CLOSE_SECONDS,
    BaseClient,
    Licensed,
    Otherwise,
    P,
    R,
    S_co,
    check_download,
    check_downloaded,
    check_entitled,
    check_entitlement,
    check_installation,
    read_wait,
    split_entitlement,
    verify_cached,
    verify_forced,
)
from licclient._core.arguments import check_flag
from licclient._core.clock import monotonic
from licclient._core.lazy import lazy
from licclient._core.model import License
from licclient._core.window_loop import limit_wait
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    from licclient import _doctor, _worker
    from licclient._core import storage
    from licclient._core import transport as transport_module
    from licclient._core.runners import Deliver, Flow
    from licclient._core.status import LicenseStatus
    from licclient._core.transport import Transport
    from licclient._core.update_model import Downloaded, Update, UpdateCheck
    from licclient._updates.download import Cancel, Progress
    from licclient._worker import OnStatus, OnUpdate, Refresh, Worker
    from licclient.install._detection import DetectedInstallation
    from licclient.install._plan import InstallationReceipt, InstalledUpdate, UpdatePlan
else:
    storage = lazy("licclient._core.storage")
    transport_module = lazy("licclient._core.transport")
    _doctor = lazy("licclient._doctor")
    _worker = lazy("licclient._worker")


class LicenseClient(_features.Features, BaseClient["Worker", "Transport"]):
    """An app's client of its license service: it verifies license keys, and finds and downloads updates.

    Create one for the whole app; `help(licclient)` has a program. Safe to share among threads. Use it as a
    context manager, or call `close`. A closed client raises `RuntimeError`. By purpose:

    - **Enter a key**: `activate`, `start_trial`; ready windows: `licclient.dialogs`.
    - **Gate a feature**: `@client.licensed`, or `require`. Both take the name of a feature of the license.
    - **Offer updates**: `start(on_update=…)` in the background, until `stop`; on a click
      `check_for_update(force=True)`, then `install_update`, of which `plan_update` says what it
      does, and `installation_receipt` what it came to; `download` for an app that installs by itself.
      For windows that open unasked: `skip_update`, `is_skipped`. When the main window stands:
      `confirm_version`.
    - **Show a settings page**: `status`, which sends no request.
    - **Leave a computer**: `deactivate` frees its slot, `forget_key` only forgets.
    - **Help a customer**: `diagnose`, `reset`, `state_folder`.
    - **Check any key**, such as in a script: `verify`.
    - **Optional features** are the data descriptors that `help` lists, each with its first call.

    Args:
        base_url: Address of the license service; or a `ClientSettings` with the address and other arguments,
            of which those that are passed beside it replace its own.
        product: Product name that licenses must be for; another one is refused.
        slug: Product slug; update checks and trials need it.
        version: Installed version; update checks need it.
        domain: Where the product is installed; by default a random id of this installation.
        label: What the customer calls this computer: personal data, sent with each verify.
        storage: Where the state is kept: the path of a folder, or a `Storage`. By default the platform's
            folder for application state.
        timeout: Time limit of a call as a whole, in seconds or as a timedelta.
        updates: `Updates(channels=…, platform=…, kind=…, check_every=…, report_rollbacks=…, hand_over=…)`.
        trust: `Trust(public_keys=…, release_keys=…, download_origins=…, require_digest=…, cache_for=…,
            grace=…)`: what is accepted, and for how long.
        pages: `Pages(buy=…, support=…, manage=…)`: addresses that the dialogs link to.
        clock: Returns the present instant as an aware datetime; for tests. If it has an attribute
            `worker_pause`, workers read it after so many seconds, and take a jump for time that passed.
        transport: An `httpx.BaseTransport` that sends the requests, such as `httpx.MockTransport`, and is
            closed with the client; the system's proxies are not used then. `AsyncLicenseClient` takes an
            `httpx.AsyncBaseTransport` as well.

    Warns:
        UserWarning: `base_url` is `http`, and not this very machine.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or no usable address.
        ImportError: `public_keys` or `release_keys` without the extra.
    """

    _is_async = False
    _refresh: "Refresh | None"
    _question: "Refresh | None"

    def verify(self, key: str | None = None, *, force: bool = False) -> License:
        """Return the license if the key holds: from a fresh cache, else from the server.

        Of threads and processes that call it at the same time, one sends the request, and the others
        take its result.

        Args:
            key: White space and lower case are repaired. None for the key that was activated.
            force: Send a request also when the cache is fresh.

        Raises:
            NotActivatedError: No key was given, and none was activated on this computer.
            LicenseRefusedError: The server refused the key, or it is for another product.
            InvalidRequestError: There is no key in `key`, or the server called the request malformed.
            ServiceUnavailableError: No answer, and neither cache nor grace holds.
            UntrustedResponseError: What came as an answer was not signed by a pinned key for this very call.
        """
        flow = _features.verification.verify(self._session, key, force=force)
        try:
            return _features.runners.run(flow, self._transport)
        finally:
            if force:  # else the app's windows show an outage that is over
                self._look_again()

    def activate(self, key: str) -> License:
        """Verify a key that a person entered, and remember it when it is good.

        From then on `verify`, `check_for_update` and `require` need no key. It is kept in the system's
        keyring when the extra `licclient[keyring]` is installed and works, else in a private file of the
        state folder.

        Args:
            key: As typed or pasted: spaces, case, dashes of every kind and missing ones are repaired.

        Raises:
            MistypedKeyError: It cannot be a key; has the flaw. No request was sent.
            LicclientError: As `verify`; the remembered state stays.
        """
        license_ = self._run(_features.activation.activate(self._session, key, verify_cached))
        self._look_again()
        return license_

    def start_trial(self) -> License:
        """Start the trial of this computer, and remember its key as `activate` does; `is_trial` is True then.

        A computer has one trial of a product; while that runs, it gets the same one again. It is named by a
        hash of the id that its operating system gave it, or else by this installation's.

        Raises:
            LicenseRefusedError: For the reason `TRIAL_ENDED`, `TRIAL_NOT_OFFERED`, or `TRIAL_LIMIT`: too many
                were started today; or as `verify`.
            LicclientError: As `verify`; the remembered state stays.
            ValueError: The client was made without `slug`.
        """
        license_ = self._run(_features.trials.start_trial(self._session, verify_forced))
        self._look_again()
        return license_

    def require(self, entitlement: str | None = None, *, wait: float | timedelta | None = None) -> License:
        """Return the license of the activated key, or raise.

        It does not wait for the network while anything remembered holds, grace included: it returns that
        and refreshes it in the background. When nothing is valid it sends a request, and waits for the
        answer. A refusal or an outage is raised again for a minute, without a request.

        Args:
            entitlement: A feature that the license must include, such as ``"export"``: a flag that is set, a
                number that is not 0, or a text.
            wait: For how many seconds to wait for the answer, at most; it is asked for in the background all
                the same. None for the time limit, and in the event loop of Tk or Qt for 0: a click must not
                block the windows.

        Raises:
            NotActivatedError: No key has been activated on this computer.
            NotEntitledError: The license does not include the feature.
            ServiceUnavailableError: As `verify`; with `Outage.PENDING` if the answer was not waited for.
            LicclientError: As `verify`.
        """
        check_entitlement(entitlement)
        seconds = None if wait is None else read_wait(wait)
        license_, is_due = _features.require.remembered_license(self._session, seconds)
        if license_ is None:
            return check_entitled(self._confirm(limit_wait(seconds)), entitlement)
        if is_due and self._may_refresh():
            with suppress(StateUnreadableError):  # no file descriptor for the module: what is known holds
                self._refresh = _worker.Refresh(self._verify_in_background)
        return check_entitled(license_, entitlement)

    @overload
    def licensed(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def licensed(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def licensed(
        self,
        entitlement: str | None = None,
        /,
        *,
        otherwise: None = None,
        wait: float | timedelta | None = None,
    ) -> Licensed[Never]: ...

    @overload
    def licensed(
        self,
        entitlement: str | None = None,
        /,
        *,
        otherwise: Otherwise[S_co],
        wait: float | timedelta | None = None,
    ) -> Licensed[S_co]: ...

    def licensed(
        self,
        function: Callable[..., Any] | str | None = None,
        *,
        otherwise: Callable[..., Any] | None = None,
        wait: float | timedelta | None = None,
    ) -> Any:
        """Decorate a function that needs a license: `require` is called before each call of it.

        ::

            @client.licensed                                  # raises what `require` raises
            def export(): ...

            @client.licensed(otherwise=show_license_dialog)   # calls that with the error instead
            def export(): ...

            @client.licensed("export")                        # the license must include this feature
            def export(): ...

        A decorated `async def` waits on a thread; one that yields ends without items if there is no license.

        Args:
            function: The function to decorate; or a feature's name, as of `require`.
            otherwise: Called with the error when there is no license. If it returns a `License`, as
                `ask_for_key` does, the function runs; anything else is returned in its place.
            wait: As of `require`.

        Raises:
            TypeError: What is decorated is not a function: a license key, a class.
        """
        name, decorated = split_entitlement(function)
        seconds = None if wait is None else read_wait(wait)
        decorate = Licensed[Any](partial(self.require, name, wait=seconds), otherwise, name)
        return decorate if decorated is None else decorate(decorated)

    def reset(self) -> None:
        """Forget what this app remembers on this computer, as if it had just been installed.

        For support: it also removes damaged and unreadable state. The installation id stays, so the
        computer keeps its activation slot; so does what guards against tricks, such as uses that were not
        reported. The server is not notified.

        Raises:
            StateUnreadableError: The key may still be there: its file can be neither read nor removed.
        """
        _features.activation.reset(self._session)
        self._look_again()

    def forget_key(self) -> None:
        """Forget the key on this computer. The server is not notified, so the slot stays in use."""
        _features.activation.forget_key(self._session)
        self._look_again()

    def deactivate(self, key: str | None = None) -> None:
        """Free the slot of this computer, so that another one can take it, and forget the key.

        Args:
            key: As in `verify`. None for the key that was activated.

        Raises:
            NotActivatedError: No key was given, and none was activated on this computer.
            DeactivationError: The customer has freed too many slots lately, or only the vendor's support can;
                `retry_at` is when it will be possible. The key stays, and the app continues to work.
            LicenseRefusedError: The server does not know the key.
            ServiceUnavailableError: No answer; nothing was forgotten.
        """
        self._run(_features.activation.deactivate(self._session, key))
        self._look_again()

    def status(self) -> "LicenseStatus":
        """Return the state for a settings page; sends no request, and raises no error."""
        return _features.status.status(self._session)

    def check_for_update(self, key: str | None = None, *, force: bool = False) -> "UpdateCheck":
        """Return whether there is a newer version that the customer may download: `update`, or why none.

        Refusals and outages are reported in the result. Without `force` a request is sent at most once per
        `check_every`, or after no answer once in 30 to 60 minutes; in between, what it offered is returned
        again.

        Args:
            key: As in `verify`.
            force: Send a request now, such as after a click on "Check now".

        Raises:
            StateUnreadableError: A module cannot be loaded: the app has no file descriptor left, or its files
                were removed. A state folder that cannot be read is reported in the result.
            ValueError: The client was made without `slug` or `version`.
        """
        return self._run(_features.updates.check_for_update(self._session, key, force=force))

    def skip_update(self, update: "Update") -> None:
        """Remember that a person does not want this version; in place of the one skipped before.

        It changes only the result of `is_skipped`: it is for windows that offer updates on their own.

        Raises:
            TypeError: No `Update`.
        """
        _features.updates.skip_update(self._session, update)

    def is_skipped(self, update: "Update") -> bool:
        """Return whether this version was skipped, in this app, by this user; sends no request."""
        return _features.updates.is_skipped(self._session, update)

    def confirm_version(self, *, no_way_back: bool = False) -> None:
        """Report that this version of the app works: call it at each start, when the main window stands.

        The launcher goes back from a version that was started twice without it, if the version before called
        it. Without a folder of `licclient.install.Installation` it does nothing.

        Args:
            no_way_back: This version is about to change the user's data so that the one before cannot read
                them: nothing goes back any more. Call it before that.

        Raises:
            OSError: With `no_way_back`: the folder cannot be read or written, so do not change the data yet.
                Without it that is logged.
        """
        self._check_open()
        _features.install.confirm_running(no_way_back=no_way_back)

    def download(
        self,
        update: "Update",
        to: str | PathLike[str],
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
        *,
        key: str | None = None,
    ) -> "Downloaded":
        """Download an update into a folder, and verify it; an earlier try is resumed.

        Args:
            update: `update` of `check_for_update`, or that of `on_update`.
            to: The folder; made if it is missing. Another file of the same name stays: the new one gets a
                number.
            progress: Called some twenty times a second with the bytes that are there, the bytes in all, and
                the speed in bytes a second; not backwards unless the server replaced the file meanwhile.
                What it raises ends the download; the part stays.
            cancel: Looked at ten times a second; when it `is_set`, such as a `threading.Event`, the download
                ends, and the part stays.
            key: The key that was passed to `check_for_update`. None for the key that was activated.

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
        self._check_open()
        check_download(update, progress, cancel)
        flow = _features.downloads.download(
            self._session, update, storage.read_folder("to", to), progress, key
        )
        transport = self._transport()  # one for all of it: closing the client ends the download
        is_cancelled = cancel.is_set if cancel is not None else lambda: False
        return _features.runners.run(flow, lambda: transport, is_cancelled)

    def plan_update(self, *, installation: "DetectedInstallation | None" = None) -> "UpdatePlan":
        """Return what `install_update` does on this computer; `explain` makes it a sentence.

        It sends no request.

        Args:
            installation: How the app was installed, if the app knows better than `licclient.install.detect`.
        """
        self._check_open()
        check_installation(installation)
        return _features.installing.plan_update(self._session, installation)

    def install_update(
        self,
        update: "Update",
        progress: "Progress | None" = None,
        cancel: "Cancel | None" = None,
        *,
        key: str | None = None,
        downloaded: "Downloaded | None" = None,
        restart: bool = True,
        installation: "DetectedInstallation | None" = None,
    ) -> "InstalledUpdate":
        """Download an update, and install it in the way in which this app was installed.

        When it returns, end the app: a set-up of Windows waits for that, and the app opens again by itself.

        Args:
            update: As of `download`.
            progress: As of `download`.
            cancel: As of `download`; later than that nothing can be cancelled.
            key: As of `download`.
            downloaded: The file of this update, from `download` or a dialog; it is not downloaded again then.
            restart: Whether the app opens again when it has ended.
            installation: As of `plan_update`.

        Returns:
            What was done, and whether the app must quit.

        Raises:
            InstallationError: It cannot be installed from within, and nothing was downloaded: another program
                updates this app, or its place cannot be written. Or the file does not fit this installation.
            UnusableArchiveError: As of `Installation.apply`.
            UntrustedResponseError: As of `download`; or the service sent no digest of the file.
            LicclientError, OSError, TypeError, ValueError: As of `download`.
        """
        self._check_open()
        check_download(update, progress, cancel)
        check_flag("restart", restart)
        check_installation(installation)
        check_downloaded(downloaded)
        flow = _features.installing.install_update(
            self._session,
            update,
            progress,
            key,
            downloaded=downloaded,
            installation=installation,
            restart=restart,
        )
        transport = self._transport()  # as in `download`
        is_cancelled = cancel.is_set if cancel is not None else lambda: False
        return _features.runners.run(flow, lambda: transport, is_cancelled)

    def installation_receipt(self) -> "InstallationReceipt | None":
        """Return what the last `install_update` came to: whether the promised version runs now, else why not.

        Call it when the app has started. It sends no request; None if nothing was installed by it, or the
        result of a set-up cannot be read now.

        Raises:
            StateUnreadableError: The state folder cannot be read.
            ValueError: The client was made without `slug` or `version`.
        """
        return _features.installing.read_receipt(self._session)

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
        is due within four hours, so that apps spread their requests. It ends within a second, by its
        own `stop`, by `close` or as a context manager, and then runs no callback any more.

        Args:
            on_status: Called with a `LicenseStatus`; its `update` is left to `on_update`.
            on_update: Called with an `Update`.
            deliver: Runs the callbacks on a thread of the app's choice, such as
                `licclient.deliver.to_tk(root)`; by default they are called on the worker's thread.

        Returns:
            The worker.

        Raises:
            RuntimeError: The client has one that runs.
            TypeError: An argument is not callable, or a coroutine function, which would not be awaited.
            ValueError: `on_update`, and the client was made without `slug` or `version`.
        """
        return self._start_worker(_worker.Worker, on_status, on_update, deliver)

    def stop(self) -> None:
        """Stop the background worker, if one runs; no callback is called any more."""
        if self._worker is not None:
            self._worker.stop()

    def diagnose(self) -> str:
        """Find out why something does not work: a report for an e-mail to support, as of `licclient doctor`.

        It looks at name, proxy, TLS, the service and its clock, state folder, keyring and license. The key in
        it is masked, and no request contains it. May take half a minute when a lot is wrong.
        """
        return _doctor.diagnose(self._session, self._agent, self._given_transport)[1]

    def close(self) -> None:
        """Stop background work, which takes less than a second, and close all connections.

        Dialogs of this client are closed, too: `ask_for_key` and `offer_update` return.
        """
        for dialog in list(self._dialogs):
            dialog.close()
        until = monotonic() + CLOSE_SECONDS
        self.stop()
        for held in list(self._to_release):
            held.release(max(until - monotonic(), 0.0))
        self._wait_for_refresh(until - monotonic())
        with self._opening:
            self._is_closed = True
            transport = self._open_transport
        if transport is not None:
            transport.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_refresh(self, seconds: float) -> None:
        until = monotonic() + seconds
        for refresh in (self._refresh, self._question):
            if refresh is not None:
                refresh.join(until - monotonic())

    def _run(self, flow: "Flow[R]") -> R:
        return _features.runners.run(flow, self._transport)

    def _verify_in_background(self) -> License:
        flow = _features.verification.verify(self._own_session, None, force=False, is_background=True)
        return self._run(flow)

    def _confirm(self, seconds: float | None) -> License:
        """Send a request, and wait so long for the response; None for no limit of its own."""

        def ask() -> License:
            return self._run(_features.require.confirm(self._own_session))

        if seconds is None:
            return ask()
        with self._guard:
            if self._question is None or not self._question.is_running:
                self._question = _worker.Refresh(ask)
            question = self._question
        outcome = question.wait(seconds) or _features.require.not_asked()
        return _features.session.license_or_raise(outcome)

    def _transport(self) -> "Transport":
        with self._opening:
            if self._open_transport is None:
                edges = self._own_session.settings, self._agent, self._given_transport
                self._open_transport = transport_module.Transport(*edges)
                if self._is_closed:  # for what was under way
                    self._open_transport.refuse()
            return self._open_transport
