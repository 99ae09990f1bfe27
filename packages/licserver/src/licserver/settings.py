"""What a vendor can set, read once from the environment and frozen."""

import difflib
import enum
import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from licserver.errors import SettingsError

PREFIX = "LICSERVER_"

# What Kubernetes tells every pod about a Service that is named licserver.
_OF_KUBERNETES = re.compile(r"LICSERVER_(SERVICE_(HOST|PORT\w*)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")

_LAST_PORT = 65535
_LISTEN = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()=+-]+)*/?")


_SHORTEST_ABSENCE = 30
"""Days: a customer may be on holiday, and asks only once a day when all is well (spec 1)."""


class LogFormat(enum.StrEnum):
    """How the server writes its log."""

    TEXT = "text"
    JSON = "json"


class Settings(BaseSettings):
    """The server's settings; each is the environment variable ``LICSERVER_`` + its name in capitals.

    Args:
        data_dir: Folder of the database, the secrets and the artifacts.
        database_url: SQLAlchemy URL of a SQLite file or a PostgreSQL database; absent, a file in the data
            folder.
        base_url: The address under which customers reach the server, without a trailing slash; it
            begins every download link (D-30). Absent, the ``Host`` of each request is believed,
            which is right only as long as nobody else can reach the server.
        trusted_proxies: Addresses and networks, separated by commas, whose ``X-Forwarded-For`` is
            believed (D-05).
        ipv6_prefix: Leading bits of an IPv6 address that tell environments apart (D-05).
        secrets: The content of the secrets file, for vendors who keep it elsewhere.
        artifacts_url: Bucket of the artifacts, ``s3://bucket/prefix``; absent, a folder in the data
            folder. The ``AWS_*`` variables say how to get at it.
        artifacts_redirect: Whether downloads are redirected to presigned addresses of the bucket (D-34).
        access_log: Whether every request is logged (never with its query).
        log_format: ``text`` for people, ``json`` for programs: an object a line.
        metrics_listen: Where Prometheus asks, ``127.0.0.1:9464``; absent, nothing is counted (D-101).
        activation_days: Days without being seen after which `licserver sweep` frees a slot; 0 for never,
            otherwise at least 30 (D-105).
        audit_days: Days after which it removes a line of the audit log; 0 for never.
        body_timeout: Seconds within which a request's body must have arrived.
        header_timeout: Seconds from a connection to the end of its first request's head (D-72).
        send_timeout: Seconds in which a caller must take some of an answer, and a MiB of a file (D-72).
        miss_limit: Guesses that an address may make in a minute; 0 counts none (D-70).
        flood_limit: Requests that an address may send in a minute; 0 counts none (D-71).
        connection_limit: Connections that an address may hold in a process; 0 for no limit (D-163).
        redis_url: Where several servers count guesses together, ``redis://host:6379/0``; absent, each
            process counts by itself.
        admin_listen: Where the admin API is reached, ``host:port``; then it is not at the public address.
        second_factor_required: Whether every user of the console must have a second factor (D-167).
        session_idle_minutes: Minutes without a request after which a session of the console ends.
        upload_limit: Bytes that a file may have which is uploaded through the admin API.
        drain_timeout: Seconds that running requests and downloads get when the server stops.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("licserver", appauthor=False))
    database_url: SecretStr | None = None  # it may hold a password
    base_url: str | None = None
    trusted_proxies: Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], NoDecode] = ()
    ipv6_prefix: int = Field(default=128, ge=1, le=128)
    secrets: SecretStr | None = None
    artifacts_url: str | None = None
    artifacts_redirect: bool = True
    access_log: bool = False
    log_format: LogFormat = LogFormat.TEXT
    metrics_listen: str | None = None
    activation_days: int = Field(default=0, ge=0, le=36_500)
    audit_days: int = Field(default=0, ge=0, le=36_500)
    body_timeout: float = Field(default=10.0, gt=0, le=600)
    header_timeout: float = Field(default=10.0, gt=0, le=600)
    send_timeout: float = Field(default=300.0, gt=0, le=3600)
    miss_limit: int = Field(default=60, ge=0)
    flood_limit: int = Field(default=12_000, ge=0)
    connection_limit: int = Field(default=256, ge=0)
    redis_url: SecretStr | None = None  # it may hold a password
    admin_listen: str | None = None
    second_factor_required: bool = False
    session_idle_minutes: int = Field(default=60, ge=1, le=720)
    upload_limit: int = Field(default=8 << 30, ge=0)
    drain_timeout: float = Field(default=30.0, ge=0, le=3600)

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        # urlsplit passes over blanks and line breaks, which a file of settings easily leaves behind
        is_plain = value.isascii() and value.isprintable() and " " not in value and "@" not in parts.netloc
        if (
            parts.scheme not in {"http", "https"}
            or not (parts.hostname and is_plain)
            or "?" in value
            or "#" in value
        ):
            raise ValueError("must look like https://licenses.example.com")
        return value.rstrip("/")

    @field_validator("artifacts_url")
    @classmethod
    def _check_artifacts_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if _BUCKET.fullmatch(value) is None:  # nothing of it is repeated: it may hold credentials
            raise ValueError("must look like s3://bucket/prefix; credentials go into the AWS_* variables")
        return value.rstrip("/")

    @field_validator("activation_days")
    @classmethod
    def _check_activation_days(cls, value: int) -> int:
        if 0 < value < _SHORTEST_ABSENCE:
            raise ValueError(f"must be 0 for never, or at least {_SHORTEST_ABSENCE}")
        return value

    @field_validator("admin_listen", "metrics_listen")
    @classmethod
    def _check_listen(cls, value: str | None) -> str | None:
        if value is not None and (
            _LISTEN.fullmatch(value) is None or int(value.rpartition(":")[2]) > _LAST_PORT
        ):
            raise ValueError("must look like 127.0.0.1:8081 or [::1]:8081")
        return value

    @field_validator("data_dir")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @property
    def admin_address(self) -> tuple[str, int] | None:
        """Host and port of `admin_listen`."""
        if self.admin_listen is None:
            return None
        host, _, port = self.admin_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def database(self) -> str:
        """The SQLAlchemy URL to use; may hold a password, so it is not for printing."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+pysqlite:///{self.data_dir / 'licserver.sqlite3'}"


class StandaloneSettings(Settings):
    """Settings that are only what they are given: for a throwaway store, which the vendor's are not for."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's shape
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Look nowhere else."""
        return (init_settings,)


def check_names() -> None:
    """Refuse a ``LICSERVER_*`` variable that is none of ours: a misspelt setting must not be silent.

    Raises:
        SettingsError: naming the variable and the nearest one that there is. What Kubernetes sets by itself
            is passed over: nobody could have misspelt it.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if not name.upper().startswith(PREFIX) or _OF_KUBERNETES.fullmatch(name):
            continue
        if name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.0)
            raise SettingsError(f"unknown setting {name}; did you mean {near[0]}?")


def load_settings(**given: Any) -> Settings:
    """Read the settings from the environment.

    Args:
        **given: Settings named on the command line; they win, and None means not given.

    Returns:
        The frozen settings.

    Raises:
        SettingsError: for a value that cannot be used, and as `check_names` does.
    """
    check_names()
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as invalid:
        problem = invalid.errors(include_input=False, include_url=False)[0]
        where = PREFIX + str(problem["loc"][0]).upper() if problem["loc"] else "settings"
        raise SettingsError(f"{where}: {problem['msg'].removeprefix('Value error, ')}") from None
