"""The settings, read once from the environment and frozen."""

import difflib
import enum
import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from licserver.domain.environments import IpNetwork, parse_network
from licserver.domain.languages import LANGUAGES
from licserver.domain.mail_addresses import parse_sender
from licserver.errors import SettingsError
from licserver.limits import MAX_BODY_SECONDS

PREFIX = "LICSERVER_"

# Kubernetes sets these variables in every pod if a Service is named licserver.
_OF_KUBERNETES = re.compile(r"LICSERVER_(SERVICE_(HOST|PORT\w*)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")

# pydantic's type of an error → a message with valid values, which pydantic's own lacks
_MESSAGES = {
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "ip_v4_network": "must be addresses or networks like 127.0.0.1 or 10.0.0.0/8, separated by commas",
    "ip_v6_network": "must be addresses or networks like 127.0.0.1 or 10.0.0.0/8, separated by commas",
}

_LAST_PORT = 65535
_LISTEN = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()=+-]+)*/?")
_COLOR = re.compile("#[0-9A-Fa-f]{6}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_MIN_ACTIVATION_DAYS = 30  # a customer may be on holiday, and a client verifies only once a day (spec 1)


class LogFormat(enum.StrEnum):
    """The format of the server's log."""

    TEXT = "text"
    JSON = "json"


class MailTls(enum.StrEnum):
    """The encryption of the connection to the mail server."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class Settings(BaseSettings):
    """The server's settings: the environment variable of each is ``LICSERVER_`` and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the arguments and the environment; looking for files as well takes as long again."""
        return (init_settings, env_settings)

    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("licserver", appauthor=False),
        description="The folder of the database, the secrets and the artifacts.",
    )
    database_url: SecretStr | None = Field(  # may contain a password
        default=None,
        description=(
            "SQLAlchemy URL of a SQLite or PostgreSQL database, with `?pooler=transaction` behind a "
            "PgBouncer that pools by transaction; default: a file in the data folder."
        ),
    )
    replica_url: SecretStr | None = Field(  # as above
        default=None,
        description="URL of a standby of the PostgreSQL database, for lists and exports; default: none.",
    )
    base_url: str | None = Field(
        default=None,
        description=(
            "The address that customers use, without a trailing slash; part of every download link. "
            "Default: the `Host` of each request, which is safe only if no stranger can reach the "
            "server."
        ),
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Further names, separated by commas, besides that of the base URL, such as one that a "
            "proxy sends as `Host`; requests for other names are refused with 421."
        ),
    )
    trusted_proxies: Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="Addresses and networks, separated by commas, whose `X-Forwarded-For` counts.",
    )
    ipv6_prefix: int = Field(
        default=128,
        ge=1,
        le=128,
        description="The leading bits of an IPv6 address that distinguish environments.",
    )
    backup_dir: Path | None = Field(
        default=None,
        description=(
            "The folder of the backups that the console makes; default: `backups` in the data folder."
        ),
    )
    secrets: SecretStr | None = Field(
        default=None,
        description="The content of the secrets file, to keep it elsewhere.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description=(
            "The bucket of the artifacts, `s3://bucket/prefix`, with credentials in the `AWS_*` "
            "variables; default: a folder in the data folder."
        ),
    )
    artifacts_redirect: bool = Field(
        default=True,
        description="Whether downloads are redirected to presigned addresses of the bucket.",
    )
    access_log: bool = Field(
        default=False,
        description="Whether every request is logged (without its query).",
    )
    log_format: LogFormat = Field(
        default=LogFormat.TEXT,
        description="Format of the log: `text`, or `json` with an object a line.",
    )
    log_limit: int = Field(
        default=10,
        ge=0,
        description=(
            "Equal warnings or errors that a process logs in a minute, before it counts them; 0 for no limit."
        ),
    )
    metrics_listen: str | None = Field(
        default=None,
        description="The address for Prometheus, `127.0.0.1:9464`; default: no metrics.",
    )
    activation_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description=(
            "A slot whose environment was not seen for so many days is freed; 0 for never, otherwise "
            "at least 30."
        ),
    )
    unlimited_activation_days: int = Field(
        default=90,
        ge=0,
        le=36_500,
        description=(
            "A slot of a license with unlimited slots whose environment was not seen for so many days "
            "is freed; 0 for never, otherwise at least 30."
        ),
    )
    activation_limit: int = Field(
        default=1_000,
        ge=0,
        description=(
            "New activations in a day of a license with unlimited slots, half of them at once; 0 for "
            "no limit."
        ),
    )
    use_limit: int = Field(
        default=10_000,
        ge=0,
        description=(
            "Uses of metered entitlements in a day, of a license, half of them at once; 0 for no limit."
        ),
    )
    last_seen_days: int = Field(
        default=1,
        ge=1,
        le=7,
        description="The instant at which a machine was last seen is stored every so many days, 1 to 7.",
    )
    audit_days: int = Field(
        default=730,
        ge=0,
        le=36_500,
        description="Lines of the audit log are deleted after so many days; 0 for never.",
    )
    body_timeout: float = Field(
        default=MAX_BODY_SECONDS,
        gt=0,
        le=600,
        description="Seconds until a request's body must have arrived.",
    )
    header_timeout: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds from a connection to the end of its first request's head.",
    )
    send_timeout: float = Field(
        default=300.0,
        gt=0,
        le=3600,
        description="Seconds in which a client must receive some of a response, and a MiB of a file.",
    )
    miss_limit: int = Field(
        default=60,
        ge=0,
        description="Guesses of an address in a minute; 0 for no limit.",
    )
    flood_limit: int = Field(
        default=12_000,
        ge=0,
        description="Requests of an address in a minute; 0 for no limit.",
    )
    write_limit: int = Field(
        default=1_800,
        ge=0,
        description=(
            "Requests of an address in a minute that write, such as those for floating seats; 0 for "
            "no limit, also for each license."
        ),
    )
    connection_limit: int = Field(
        default=256,
        ge=0,
        description="Connections of an address in a process; 0 for no limit.",
    )
    trial_address_limit: int = Field(
        default=5,
        ge=0,
        description="New trials of a product in a day, from one address or IPv6 /64; 0 for no limit.",
    )
    trial_network_limit: int = Field(
        default=50,
        ge=0,
        description=(
            "New trials of a product in a day, from one network (IPv4 /24, IPv6 /48); 0 for no limit."
        ),
    )
    trial_limit: int = Field(
        default=1_000,
        ge=0,
        description="New trials of a product in a day; 0 for no limit.",
    )
    redis_url: SecretStr | None = Field(  # may contain a password
        default=None,
        description=(
            "Where several servers count guesses and floods together, `redis://host:6379/0`; default: "
            "each process counts its own."
        ),
    )
    admin_listen: str | None = Field(
        default=None,
        description="The address of admin API and console, `host:port`; default: the public one.",
    )
    second_factor_required: bool = Field(
        default=False,
        description="Whether every console user needs a second factor.",
    )
    session_idle_minutes: int = Field(
        default=60,
        ge=1,
        le=720,
        description="Minutes without a request until a console session ends.",
    )
    seat_lease: int = Field(
        default=120,
        ge=15,
        le=3600,
        description="Seconds after which a floating seat is free if its app does not renew it.",
    )
    account: bool = Field(
        default=False,
        description="Whether customers see their licenses at `/account`.",
    )
    account_name: str | None = Field(
        default=None,
        max_length=100,
        description="The vendor's name on the customer's page.",
    )
    account_color: str = Field(
        default="#1a5fb4",
        description="The color of the header and the buttons of the customer's page, `#1a5fb4`.",
    )
    account_file_days: int = Field(
        default=365,
        ge=0,
        le=3650,
        description="Validity of license files that customers make at `/account`, in days; 0 for none.",
    )
    account_logo: Path | None = Field(
        default=None,
        description="An SVG or PNG file of at most 1 MiB that the customer's page shows.",
    )
    upload_limit: int = Field(
        default=8 << 30,
        ge=0,
        description="Bytes of a file that is uploaded through the admin API.",
    )
    patch_limit: int = Field(  # clients apply none to larger files
        default=256 << 20,
        ge=0,
        le=512 << 20,
        description=(
            "Bytes of the largest file that patches are made for, in three times as much memory; 0 "
            "for no patches."
        ),
    )
    webhook_networks: Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], NoDecode] = Field(
        default=(),
        description=(
            "Addresses and networks, separated by commas, that webhooks may be sent to although they "
            "are not public."
        ),
    )
    mail_port: int | None = Field(
        default=None,
        ge=1,
        le=_LAST_PORT,
        description="Port of the SMTP server. Default: 587 with `starttls`, 465 with `tls`, 25 with `none`.",
    )
    mail_tls: MailTls = Field(
        default=MailTls.STARTTLS,
        description="Encryption of mail: `starttls`, `tls` from the first byte, or `none`.",
    )
    mail_user: str | None = Field(
        default=None,
        description="Name for the SMTP server; needs encryption.",
    )
    mail_password: SecretStr | None = Field(
        default=None,
        description="Password for the SMTP server.",
    )
    mail_sender: str | None = Field(
        default=None,
        description="The sender's address of mails, `Example Software <licenses@example.com>`.",
    )
    mail_host: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.:-]{1,253}$",
        description="The SMTP server for mail to customers; default: no mail is sent.",
    )
    mail_ending_days: int = Field(
        default=14,
        ge=0,
        le=365,
        description="Days before its end that a license's customer gets a mail; 0 for none.",
    )
    mail_activations: bool = Field(
        default=False,
        description="Whether customers get a mail when a new computer is activated.",
    )
    mail_language: str = Field(
        default=LANGUAGES[0],
        pattern=r"^[a-z]{2,3}$",
        description="Language of mails to customers whose language is not known, such as `de`.",
    )
    mail_admin: str | None = Field(
        default=None,
        pattern=r"^[^@\s,;<>]{1,64}@[^@\s,;<>]{1,180}$",
        description=(
            "Where mails to the vendor go, about a disabled webhook endpoint or sales that need a "
            "decision; default: nowhere."
        ),
    )
    paddle_api_key: SecretStr | None = Field(
        default=None,
        description="Key of Paddle's API, to look up the e-mail addresses of customers.",
    )
    drain_delay: float = Field(
        default=0.0,
        ge=0,
        le=600,
        description=(
            "Seconds in which a stopping server still accepts connections, while `/readyz` returns "
            "503 for load balancers; 0 for none."
        ),
    )
    drain_timeout: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="Seconds for running requests and downloads after `LICSERVER_DRAIN_DELAY`.",
    )

    @field_validator("allowed_hosts", "trusted_proxies", "webhook_networks", mode="before")
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
        # urlsplit ignores the spaces and line breaks that a settings file easily contains
        is_plain = value.isascii() and value.isprintable() and " " not in value and "@" not in parts.netloc
        if (
            parts.scheme not in {"http", "https"}
            or not (parts.hostname and is_plain)
            or "?" in value
            or "#" in value
        ):
            raise ValueError("must look like https://licenses.example.com")
        return value.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_HOST_NAME.fullmatch(name) for name in value):
            raise ValueError("must be names without a port, separated by commas, like licenses.example.com")
        return value

    @field_validator("replica_url")
    @classmethod
    def _check_replica_url(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        database = info.data.get("database_url")
        for url in (value, database) if value is not None else ():
            if url is None or not url.get_secret_value().startswith("postgres"):
                raise ValueError("names a standby of the PostgreSQL database of LICSERVER_DATABASE_URL")
        return value

    @field_validator("account_color")
    @classmethod
    def _check_color(cls, value: str) -> str:
        if _COLOR.fullmatch(value) is None:
            raise ValueError("must look like #1a5fb4")
        return value.lower()

    @field_validator("artifacts_url")
    @classmethod
    def _check_artifacts_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if _BUCKET.fullmatch(value) is None:  # not quoted: it may contain credentials
            raise ValueError("must look like s3://bucket/prefix; credentials go into the AWS_* variables")
        return value.rstrip("/")

    @field_validator("activation_days", "unlimited_activation_days")
    @classmethod
    def _check_activation_days(cls, value: int) -> int:
        if 0 < value < _MIN_ACTIVATION_DAYS:
            raise ValueError(f"must be 0 for never, or at least {_MIN_ACTIVATION_DAYS}")
        return value

    @field_validator("mail_user")
    @classmethod
    def _check_mail_user(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("mail_tls") is MailTls.NONE:
            raise ValueError("needs LICSERVER_MAIL_TLS=starttls or tls: the password would be readable")
        return value

    @field_validator("mail_sender")
    @classmethod
    def _check_mail_sender(cls, value: str | None) -> str | None:
        if value is not None:
            parse_sender(value)
        return value

    @field_validator("mail_host")
    @classmethod
    def _check_mail_host(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("mail_sender") is None:
            raise ValueError("needs LICSERVER_MAIL_SENDER")
        return value

    @field_validator("admin_listen", "metrics_listen")
    @classmethod
    def _check_listen(cls, value: str | None) -> str | None:
        if value is not None and (
            _LISTEN.fullmatch(value) is None or int(value.rpartition(":")[2]) > _LAST_PORT
        ):
            raise ValueError("must look like 127.0.0.1:8081 or [::1]:8081")
        return value

    @field_validator("data_dir", "backup_dir")
    @classmethod
    def _expand_home(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator(
        *("data_dir", "backup_dir", "account_logo"),
        *("database_url", "replica_url", "redis_url", "mail_password", "paddle_api_key"),
    )
    @classmethod
    def _check_line(cls, value: Path | SecretStr | None) -> Path | SecretStr | None:
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        if "".join(text.splitlines()) != text:
            raise ValueError("must be one line; a file may end with a line break that is not part of it")
        return value

    @field_validator("trusted_proxies", "webhook_networks")
    @classmethod
    def _read_mapped(cls, value: tuple[IpNetwork, ...]) -> tuple[IpNetwork, ...]:
        return tuple(parse_network(str(network)) for network in value)

    @property
    def admin_address(self) -> tuple[str, int] | None:
        """Host and port of `admin_listen`."""
        if self.admin_listen is None:
            return None
        host, _, port = self.admin_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def is_https(self) -> bool:
        """Whether customers reach the server by https."""
        return (self.base_url or "").startswith("https:")

    @property
    def mails_activations(self) -> bool:
        """Whether customers get a mail about a newly activated computer."""
        return self.mail_host is not None and self.mail_activations

    @property
    def database(self) -> str:
        """The SQLAlchemy URL; may contain a password, so never print it."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+pysqlite:///{self.data_dir / 'licserver.sqlite3'}"


class StandaloneSettings(Settings):
    """Settings that ignore the environment, for throwaway installations."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the arguments only."""
        return (init_settings,)


class SettingDescription(NamedTuple):
    """A setting for readers: on the settings page, by `licserver settings` and in the sample file."""

    variable: str
    text: str
    """One or two sentences; code is in backticks."""
    default: str
    """As it is written into the environment; empty if the text describes it."""


def describe_settings() -> list[SettingDescription]:
    """Describe each setting, in the order of the class."""
    return [
        SettingDescription(PREFIX + name.upper(), field.description or "", _format_default(field.default))
        for name, field in Settings.model_fields.items()
    ]


def _format_default(value: object) -> str:
    if value in (None, (), PydanticUndefined):
        return ""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def check_names() -> None:
    """Refuse unknown ``LICSERVER_*`` variables: pydantic-settings would ignore a misspelt name.

    Raises:
        SettingsError: A variable is unknown; the message has the most similar setting.
    """
    setting_names = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if not name.upper().startswith(PREFIX) or _OF_KUBERNETES.fullmatch(name):
            continue
        if name.upper() not in setting_names:
            near = difflib.get_close_matches(name.upper(), setting_names, n=1, cutoff=0.0)
            raise SettingsError(f"unknown setting {name}; did you mean {near[0]}?")


def load_settings(**given: Any) -> Settings:
    """Read the settings from the environment; arguments override it, None counts as not given.

    Raises:
        SettingsError: A value is invalid, or a variable is unknown.
    """
    check_names()
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as invalid:
        problem = invalid.errors(include_input=False, include_url=False)[0]
        where = PREFIX + str(problem["loc"][0]).upper() if problem["loc"] else "settings"
        message = _MESSAGES.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{where}: {message}") from None
