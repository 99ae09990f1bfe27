"""The hosts that a PostgreSQL URL names, and which of them to use. Pure."""

import enum
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

_HOST: Final = r"(?:\[[^\]@/?]+\]|[^\[\]:/?,@]*)(?::\d*)?"
_SEVERAL_HOSTS: Final = re.compile(rf"([\w+]+://(?:[^@]*@)?)({_HOST}(?:,{_HOST})+)((?:[/?].*)?)", re.DOTALL)
_LISTS: Final = ("host", "hostaddr", "port")


class HostRole(enum.StrEnum):
    """The role of a server for a session."""

    PRIMARY = "primary"
    READ_ONLY = "read-only"
    STANDBY = "standby"


class Server(NamedTuple):
    """A server's report of itself.

    Args:
        system: Identifies the primary and its standbys; empty if it is unknown.
        timeline: Each promotion begins a higher timeline; 0 if it is unknown, or for a standby.
        started: When it started, which shows whether two names belong to the same server; empty if unknown.
    """

    role: HostRole
    system: str = ""
    timeline: int = 0
    started: str = ""


class HostState(NamedTuple):
    """The state of a host; `fault` is what to do, and empty if all is well."""

    name: str
    description: str
    fault: str = ""
    is_warning: bool = False


RIVALS: Final = (
    "stop the one that is not the primary, or take it out of the URL: they are two databases, and neither "
    "follows the other"
)

READ_WRITE: Final = "read-write"
ROLES_BY_TARGET: Final = {
    READ_WRITE: (HostRole.PRIMARY,),
    "primary": (HostRole.PRIMARY, HostRole.READ_ONLY),
    "standby": (HostRole.STANDBY,),
    "read-only": (HostRole.STANDBY, HostRole.READ_ONLY),
    "prefer-standby": (HostRole.STANDBY, HostRole.PRIMARY, HostRole.READ_ONLY),
    "any": (HostRole.PRIMARY, HostRole.READ_ONLY, HostRole.STANDBY),
}
"""Values of libpq's `target_session_attrs`, and the roles that they allow, the best first."""


def is_former(server: Server, newest: Mapping[str, int]) -> bool:
    """Return whether another server was promoted since this one; `newest` has each system's timeline."""
    return 0 < server.timeline < newest.get(server.system, 0)


def are_rivals(server: Server, other: Server) -> bool:
    """Return whether two servers can be written to, without a sign which of them is the primary.

    They are different databases, or two standbys were promoted, or one was started without being promoted.
    """
    return (
        server.role is other.role is HostRole.PRIMARY
        and bool(server.started and other.started)
        and server.started != other.started
        and (server.system != other.system or server.timeline == other.timeline)
    )


def describe(
    name: str, server: Server | None, newest: Mapping[str, int], all_: Iterable[Server] = ()
) -> HostState:
    """Describe a host among all that answer, and what to do; None for one that cannot be reached."""
    if server is None:
        fault = "see that it runs: until then it cannot take over"
        return HostState(name, "cannot be reached", fault, is_warning=True)
    if is_former(server, newest):
        fault = "stop it, or make it a standby: what is written to it will be lost"
        return HostState(name, "is a former primary that can still be written to", fault)
    if any(are_rivals(server, other) for other in all_ if not is_former(other, newest)):
        return HostState(name, "can be written to, as another host can", RIVALS)
    match server.role:
        case HostRole.READ_ONLY:
            return HostState(
                name, "is read-only", "no license can be activated; see default_transaction_read_only"
            )
        case HostRole.STANDBY:
            return HostState(name, "is a standby")
        case HostRole.PRIMARY:
            return HostState(name, "is the primary")


def choose(servers: Mapping[str, Server], target: str, newest: Mapping[str, int]) -> str | None:
    """Return the server to use, of those that have answered, or None.

    Of two that can be written to, one was not stopped before the other was promoted: the higher timeline
    wins. Rivals are not used.

    Args:
        servers: By name, in the order of their answers, which decides between equals.
        target: A key of `ROLES_BY_TARGET`.
        newest: The highest timeline of each system that was ever seen: an older one is a former primary.
    """
    roles = ROLES_BY_TARGET[target]
    usable = [
        name for name, server in servers.items() if server.role in roles and not is_former(server, newest)
    ]
    best = max(
        usable,
        key=lambda name: (-roles.index(servers[name].role), servers[name].timeline),
        default=None,
    )
    if best is None or any(are_rivals(servers[best], servers[name]) for name in usable):
        return None
    return best


def split_libpq_url(url: str) -> tuple[str, dict[str, str]]:
    """Move the hosts of a URL such as ``postgresql://a:5433,b:5434/db`` into its parameters.

    Returns:
        The URL, without hosts if there were several, and the parameters `host` and `port` in their place.
    """
    match = _SEVERAL_HOSTS.fullmatch(url)
    if match is None:
        return url, {}
    before, hosts, rest = match.groups()
    names, ports = [], []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":") if re.search(r":\d*$", host) else (host, "", "")
        names.append(unquote(name.strip("[]")))
        ports.append(port)
    return before + rest, {"host": ",".join(names), **({"port": ",".join(ports)} if any(ports) else {})}


def split_hosts(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parameters of a connection to each host, by the host's name in messages.

    Raises:
        ValueError: unless there is one port, or one for each host.
    """
    lists = {name: str(parameters[name]).split(",") for name in _LISTS if parameters.get(name)}
    count = len(lists.get("host") or lists.get("hostaddr") or [""])
    if len(lists.get("port", "")) == 1:
        lists["port"] *= count
    if any(len(values) != count for values in lists.values()):
        raise ValueError("as many ports as hosts")
    common = {name: value for name, value in parameters.items() if name not in _LISTS}
    by_host = {}
    for index in range(count):
        own = {name: values[index] for name, values in lists.items() if values[index]}
        host = own.get("host") or own.get("hostaddr") or "the local host"
        by_host[f"{host}:{own['port']}" if "port" in own else host] = {**common, **own}
    return by_host
