"""Connects to all hosts of a PostgreSQL URL at once, and keeps the connection to the right one (D-244).

libpq tries one host after the other, and waits at least two seconds for each: a silent first one would keep
every process from ever reaching the second. So an attempt starts a thread for each address, and ends

    when                                                                        with
    --------------------------------------------------------------------------  ------------------------
    every address has answered                                                  the host to use, or none
    0.2 s after a host that may be used: another may be promoted after it       the host to use
    at once after that host, if only addresses are pending that were silent     the host to use
      in the attempt before
    after `CONNECT_LIMIT`                                                       the host to use, or none

"The host to use" is what `hosts.choose` returns for all responses so far; if none, `Connector._problem` has
why. Addresses whose server cannot be used, such as a standby, are queried again until the attempt ends. A
connection that arrives later is closed by its thread.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_attempts

from licserver.database import cancellation
from licserver.database.hosts import (
    RIVALS,
    ROLES_BY_TARGET,
    HostRole,
    HostState,
    Server,
    are_rivals,
    choose,
    describe,
    is_former,
    split_hosts,
)
from licserver.database.limited_connection import CONNECT_LIMIT, LimitedConnection, NoResponseError
from licserver.database.timelines import Timelines

_log = logging.getLogger("licserver.database")

_GRACE: Final = 0.2
"""Seconds that the other hosts have, once a host may be used, to report that they were promoted after it."""

_AGAIN: Final = 0.25  # seconds until a host that cannot be used is queried again, while others are silent
_LOOK_INTERVAL: Final = 2.0
_LOOK_INTERVAL_OF_ONE: Final = 10.0
_MOST_THREADS: Final = 100
"""Threads that still connect: looking up a name cannot be cancelled, and may take half a minute."""

Open = Callable[[dict[str, Any]], LimitedConnection]


class _HostResponses:
    """The responses of the hosts in one attempt; filled by a thread for each address."""

    def __init__(self, names: list[str]) -> None:
        self.changed = threading.Condition()
        self.pending = set(names)
        self.servers: dict[str, Server] = {}
        self.problems: dict[str, Exception] = {}
        self.connections: dict[str, LimitedConnection] = {}
        self.is_over = False

    def put(self, name: str, response: LimitedConnection | Exception, *, usable: bool = False) -> bool:
        """Store a response; return whether to query again. Close a connection that is not needed."""
        is_kept = False
        with self.changed:
            self.pending.discard(name)
            self.problems.pop(name, None)
            self.servers.pop(name, None)
            if isinstance(response, Exception):
                self.problems[name] = response
            else:
                self.servers[name] = response.server
                if is_kept := usable and not self.is_over:
                    self.connections[name] = response
            self.changed.notify_all()
            again = not (is_kept or self.is_over)
        if not is_kept and not isinstance(response, Exception):
            response.close()
        return again


class Connector:
    """Opens connections to the hosts of a URL. Thread-safe.

    Args:
        parameters: libpq's.
        timelines: The highest ones that were seen: a server with a lower one is a former primary.

    Raises:
        ValueError: for parameters that contradict each other.
    """

    def __init__(self, parameters: Mapping[str, Any], timelines: Timelines | None = None) -> None:
        given = dict(parameters)
        self._target = str(given.pop("target_session_attrs", "read-write"))
        if self._target not in ROLES_BY_TARGET:
            raise ValueError("target_session_attrs")
        self._hosts = split_hosts(given)
        self._timelines = timelines or Timelines()
        self._reported: set[str] = set()
        self._threads = 0
        self._lock = threading.Lock()
        self._silent: frozenset[str] = frozenset()
        self.has_several: Final = len(self._hosts) > 1

    def connect(self, open_: Open) -> LimitedConnection:
        """Return a connection to the host to use, within `CONNECT_LIMIT`; `open_` may block for longer."""
        responses = self._query_all(open_)
        deadline, chosen = time.monotonic() + CONNECT_LIMIT, None
        with responses.changed:
            while responses.pending and (remaining := deadline - time.monotonic()) > 0:
                if chosen is None and (chosen := self._choose(responses)) is not None:
                    deadline = min(deadline, time.monotonic() + _GRACE)
                elif chosen is not None and responses.pending <= self._silent:
                    break
                else:
                    responses.changed.wait(remaining)
            chosen = self._choose(responses)
            self._silent = frozenset(responses.pending)  # the next one does not wait for these
            responses.is_over = True
            responses.changed.notify_all()
            connection = None if chosen is None else responses.connections.pop(chosen)
        for other in responses.connections.values():
            other.close()
        if connection is None:
            raise self._problem(responses)
        return connection

    def ask(self, open_: Open) -> list[HostState]:
        """Query the role of every host, within `CONNECT_LIMIT`."""
        responses = self._query_all(open_)
        with responses.changed:
            responses.changed.wait_for(lambda: not responses.pending, CONNECT_LIMIT)
            responses.is_over = True
            responses.changed.notify_all()
            names = sorted({*responses.servers, *responses.problems, *responses.pending})
        for connection in responses.connections.values():
            connection.close()
        newest, servers = self._timelines.newest, responses.servers
        return [describe(name, servers.get(name), newest, servers.values()) for name in names]

    def is_former(self, connection: LimitedConnection) -> bool:
        """Return whether a connection is to a server that has been replaced by another one."""
        return is_former(connection.server, self._timelines.newest)

    def look(self, open_: Open) -> float:
        """Look in the background whether another host was promoted; return after how many seconds to repeat.

        A single name is looked up again, too: it may have moved to another host, while the old one keeps our
        connections.
        """
        threading.Thread(target=self._look, args=(open_,), name="postgres-look", daemon=True).start()
        return _LOOK_INTERVAL if self.has_several else _LOOK_INTERVAL_OF_ONE

    def _look(self, open_: Open) -> None:
        with contextlib.suppress(psycopg.Error):
            self.connect(open_).close()

    def _choose(self, responses: _HostResponses) -> str | None:
        servers = {name: connection.server for name, connection in responses.connections.items()}
        return choose(servers, self._target, self._timelines.newest)

    def _query_all(self, open_: Open) -> _HostResponses:
        if self._threads > _MOST_THREADS or cancellation.are_too_many():
            raise NoResponseError("too many connections that were given up have not ended yet")
        responses = _HostResponses(list(self._hosts))
        for name, parameters in self._hosts.items():
            self._start(self._query_host, responses, open_, name, parameters)
        return responses

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                target(*arguments)
            finally:
                with self._lock:
                    self._threads -= 1

        with self._lock:
            self._threads += 1
        threading.Thread(target=run, name="postgres-connect", daemon=True).start()

    def _query_host(
        self, responses: _HostResponses, open_: Open, name: str, parameters: dict[str, Any]
    ) -> None:
        """Look up a host's addresses, and query each."""
        try:
            attempts = conninfo_attempts(parameters)
        except Exception as problem:  # noqa: BLE001 - raised by `connect`
            responses.put(name, problem)
            return
        if len(attempts) == 1:
            self._query_address(responses, open_, name, dict(attempts[0]))
            return
        addresses = {f"{name} ({host.get('hostaddr')})": dict(host) for host in attempts}
        with responses.changed:
            responses.pending.discard(name)
            responses.pending.update(addresses)
        for address, its in addresses.items():
            self._start(self._query_address, responses, open_, address, its)

    def _query_address(
        self, responses: _HostResponses, open_: Open, name: str, parameters: dict[str, Any]
    ) -> None:
        """Query an address until it can be used or the attempt is over."""
        while True:
            response: LimitedConnection | Exception
            try:
                response = open_(parameters)
            except Exception as problem:  # noqa: BLE001 - raised by `connect`
                response, usable = problem, False
            else:
                usable = self._note(name, response.server)
            if not responses.put(name, response, usable=usable):
                return
            with responses.changed:
                if responses.changed.wait_for(lambda: responses.is_over, _AGAIN):
                    return

    def _note(self, name: str, server: Server) -> bool:
        """Remember a server's timeline; return whether it may be used."""
        self._timelines.note(server)
        newest = self._timelines.newest
        with self._lock:
            is_new = is_former(server, newest) and name not in self._reported
            if is_new:
                self._reported.add(name)
        if is_new:
            _log.error(
                "%s can be written to and is a former primary: another host was promoted since; stop it, or "
                "make it a standby",
                name,
            )
        return choose({name: server}, self._target, newest) is not None

    def _problem(self, responses: _HostResponses) -> Exception:
        """Return why no host can be used."""
        states = {name: f" {self._describe(server)}" for name, server in responses.servers.items()}
        states |= {name: f": {problem}".partition("\n")[0] for name, problem in responses.problems.items()}
        states |= dict.fromkeys(responses.pending, " does not answer")
        if not responses.servers and len(states) == 1:
            return next(iter(responses.problems.values()), NoResponseError("no connection in time"))
        message = "no host can be used: " + "; ".join(name + state for name, state in sorted(states.items()))
        if any(is_former(server, self._timelines.newest) for server in responses.servers.values()):
            message += f"; if an older state was restored on purpose, {self._timelines.how_to_forget}"
        servers = [connection.server for connection in responses.connections.values()]
        if any(are_rivals(server, other) for server in servers for other in servers):
            message += f"; {RIVALS}"
        return (NoResponseError if responses.pending else psycopg.OperationalError)(message)

    def _describe(self, server: Server) -> str:
        newest = self._timelines.newest
        if is_former(server, newest):
            own, newer = server.timeline, newest[server.system]
            return f"is a former primary (its timeline is {own}, and another host had {newer})"
        return "is read-only" if server.role is HostRole.READ_ONLY else f"is a {server.role}"
