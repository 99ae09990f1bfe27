"""Commands started by root act as the owner of the data folder (D-157)."""

import os
from pathlib import Path

from licserver.errors import InvalidInputError


def become_owner(folder: Path) -> None:
    """As root, become the owner of a folder for the rest of the process; otherwise do nothing.

    The owner could plant a link wherever root is about to write. If the folder does not exist, its nearest
    existing parent counts.

    Raises:
        InvalidInputError: if the system refuses.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return
    while not folder.exists():
        folder = folder.parent
    status = folder.stat()
    if status.st_uid == 0:
        return
    try:
        _become(status.st_uid, status.st_gid)
    except OSError as error:
        name = user_name(status.st_uid)
        raise InvalidInputError(
            f"cannot act as {name}, the owner of {folder}: {error.strerror}; run this command as {name}"
        ) from None


def _become(uid: int, gid: int) -> None:
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # a container often has a user id without a name
        os.setgroups([gid])
    else:
        gid = user.pw_gid
        os.setgroups(os.getgrouplist(user.pw_name, gid))
        os.environ["HOME"] = user.pw_dir  # libpq looks for certificates there, and fails if it may not
    os.setgid(gid)
    os.setuid(uid)  # last: afterwards the process may not call the others


def user_name(uid: int) -> str:
    """Return a user's name, or 'user 1000' if there is none."""
    import pwd  # noqa: PLC0415 - does not exist on Windows

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
