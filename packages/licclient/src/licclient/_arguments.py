"""What an app hands in, looked at before anything is done with it: a slip is told where it was made."""

from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from os import PathLike, fspath
from pathlib import Path

from licclient._model import Settings, Update


def read_folder(name: str, value: str | PathLike[str]) -> Path:
    """Read a folder's path, once: it stays the same folder wherever the app works later.

    Raise `TypeError` for no path of text, and `ValueError` for a blank one: that would be the working folder.
    """
    text = fspath(value)
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path of text, not of {type(text).__name__}")
    if not text.strip() or "\0" in text:
        raise ValueError(f"{name} must be the path of a folder")
    path = Path(text)
    with suppress(RuntimeError):  # no home folder: then ~ is a name like any other
        path = path.expanduser()
    return path.absolute()


def check_transport(transport: object, *, is_async: bool) -> None:
    """Raise `TypeError` for what cannot send the requests of this client."""
    if transport is None or callable(getattr(transport, "handle_request", None)):
        return
    if not callable(getattr(transport, "handle_async_request", None)):
        kinds = "httpx.AsyncBaseTransport or httpx.BaseTransport" if is_async else "httpx.BaseTransport"
        raise TypeError(f"transport must be an {kinds}, such as httpx.MockTransport")
    if not is_async:
        raise TypeError(
            "transport must be an httpx.BaseTransport; an AsyncBaseTransport is for AsyncLicenseClient"
        )


def check_edges(clock: object, storage: object) -> None:
    """Raise `TypeError` for what cannot stand in for the clock or the disk."""
    if clock is not None and not callable(clock):
        raise TypeError("clock must be callable and return an aware datetime")
    if storage is not None and not all(
        callable(getattr(storage, name, None)) for name in ("load", "change", "folder")
    ):
        raise TypeError("storage must have load, change and folder, as licclient.Storage has")


def check_update(update: object) -> None:
    """Raise `TypeError` unless it is an `Update`."""
    if not isinstance(update, Update):
        raise TypeError(f"update must be what check_for_update returned, not {type(update).__name__}")


def check_download(update: object, progress: object, cancel: object) -> None:
    """Raise `TypeError` for what cannot be downloaded, reported to, or asked whether it `is_set`."""
    check_update(update)
    check_call("progress", progress)
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise TypeError("cancel must have is_set(), such as threading.Event has")


def check_callbacks(
    settings: Settings, on_status: object, on_update: object, deliver: Callable[..., object] | None
) -> None:
    """Raise `TypeError` for what cannot be called, `ValueError` for `on_update` without slug or version."""
    check_call("on_status", on_status)
    check_call("on_update", on_update)
    check_call("deliver", deliver)
    if on_update is not None and (settings.slug is None or settings.version is None):
        raise ValueError("on_update needs a client that was made with slug and version")


def check_call(name: str, value: object) -> None:
    """Raise `TypeError` for what cannot be called back."""
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} must be callable")
    if iscoroutinefunction(value):
        raise TypeError(f"{name} must be a plain function: nobody awaits what it returns")
