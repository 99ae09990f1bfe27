"""Settings: read once, refused with the variable's name."""

import json
import os
import re
from importlib.resources import files
from ipaddress import ip_network
from pathlib import Path

import pydantic
import pytest

from licserver.cli import main
from licserver.cli.settings import format_setting
from licserver.errors import SettingsError
from licserver.settings import Settings, StandaloneSettings, describe_settings, load_settings

SAMPLE = Path(str(files("licserver") / "deploy_files/licserver.env"))
DOCS = Path(__file__).parents[3] / "docs"

GOOD = {
    "LICSERVER_DATA_DIR": ("/srv/licenses", "data_dir", Path("/srv/licenses")),
    "LICSERVER_BASE_URL": ("https://l.example/sub/", "base_url", "https://l.example/sub"),
    "LICSERVER_ALLOWED_HOSTS": ("backend, L.example", "allowed_hosts", ("backend", "L.example")),
    "LICSERVER_TRUSTED_PROXIES": (
        "10.0.0.1, 2001:db8::/32, ::ffff:127.0.0.1,",
        "trusted_proxies",
        (ip_network("10.0.0.1/32"), ip_network("2001:db8::/32"), ip_network("127.0.0.1/32")),
    ),
    "LICSERVER_BACKUP_DIR": ("/srv/backups", "backup_dir", Path("/srv/backups")),
    "LICSERVER_IPV6_PREFIX": ("64", "ipv6_prefix", 64),
    "LICSERVER_ARTIFACTS_URL": ("s3://my-bucket/a/b/", "artifacts_url", "s3://my-bucket/a/b"),
    "LICSERVER_ARTIFACTS_REDIRECT": ("no", "artifacts_redirect", False),
    "LICSERVER_ACCESS_LOG": ("true", "access_log", True),
    "LICSERVER_ACTIVATION_DAYS": ("180", "activation_days", 180),
    "LICSERVER_UNLIMITED_ACTIVATION_DAYS": ("0", "unlimited_activation_days", 0),
    "LICSERVER_ACTIVATION_LIMIT": ("0", "activation_limit", 0),
    "LICSERVER_USE_LIMIT": ("1000000", "use_limit", 1_000_000),
    "LICSERVER_LAST_SEEN_DAYS": ("7", "last_seen_days", 7),
    "LICSERVER_AUDIT_DAYS": ("400", "audit_days", 400),
    "LICSERVER_LOG_FORMAT": ("json", "log_format", "json"),
    "LICSERVER_METRICS_LISTEN": ("[::1]:9464", "metrics_listen", "[::1]:9464"),
    "LICSERVER_BODY_TIMEOUT": ("2.5", "body_timeout", 2.5),
    "LICSERVER_HEADER_TIMEOUT": ("5", "header_timeout", 5.0),
    "LICSERVER_SEND_TIMEOUT": ("30", "send_timeout", 30.0),
    "LICSERVER_MISS_LIMIT": ("0", "miss_limit", 0),
    "LICSERVER_FLOOD_LIMIT": ("1000", "flood_limit", 1000),
    "LICSERVER_TRIAL_ADDRESS_LIMIT": ("50", "trial_address_limit", 50),
    "LICSERVER_TRIAL_LIMIT": ("0", "trial_limit", 0),
    "LICSERVER_TRIAL_NETWORK_LIMIT": ("0", "trial_network_limit", 0),
    "LICSERVER_WRITE_LIMIT": ("0", "write_limit", 0),
    "LICSERVER_CONNECTION_LIMIT": ("20", "connection_limit", 20),
    "LICSERVER_ADMIN_LISTEN": ("[::1]:8081", "admin_address", ("::1", 8081)),
    "LICSERVER_ACCOUNT": ("on", "account", True),
    "LICSERVER_ACCOUNT_NAME": ("Example Soft", "account_name", "Example Soft"),
    "LICSERVER_ACCOUNT_COLOR": ("#1A5FB4", "account_color", "#1a5fb4"),
    "LICSERVER_ACCOUNT_FILE_DAYS": ("30", "account_file_days", 30),
    "LICSERVER_ACCOUNT_LOGO": ("/srv/logo.svg", "account_logo", Path("/srv/logo.svg")),
    "LICSERVER_SEAT_LEASE": ("60", "seat_lease", 60),
    "LICSERVER_UPLOAD_LIMIT": ("1000000", "upload_limit", 1_000_000),
    "LICSERVER_SECOND_FACTOR_REQUIRED": ("true", "second_factor_required", True),
    "LICSERVER_SESSION_IDLE_MINUTES": ("30", "session_idle_minutes", 30),
    "LICSERVER_MAIL_PORT": ("2525", "mail_port", 2525),
    "LICSERVER_MAIL_TLS": ("tls", "mail_tls", "tls"),
    "LICSERVER_MAIL_USER": ("ann", "mail_user", "ann"),
    "LICSERVER_MAIL_SENDER": ("App <a@example.com>", "mail_sender", "App <a@example.com>"),
    "LICSERVER_MAIL_LANGUAGE": ("de", "mail_language", "de"),
    "LICSERVER_MAIL_ENDING_DAYS": ("30", "mail_ending_days", 30),
    "LICSERVER_MAIL_ACTIVATIONS": ("true", "mail_activations", True),
    "LICSERVER_MAIL_ADMIN": ("me@example.com", "mail_admin", "me@example.com"),
    "LICSERVER_PATCH_LIMIT": ("0", "patch_limit", 0),
    "LICSERVER_WEBHOOK_NETWORKS": ("10.1.0.0/16", "webhook_networks", (ip_network("10.1.0.0/16"),)),
    "LICSERVER_LOG_LIMIT": ("0", "log_limit", 0),
    "LICSERVER_DRAIN_DELAY": ("5", "drain_delay", 5.0),
    "LICSERVER_DRAIN_TIMEOUT": ("0", "drain_timeout", 0.0),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_variable_sets_its_setting(name, monkeypatch):
    """Each setting is its name in capitals behind LICSERVER_."""
    text, attribute, value = GOOD[name]
    monkeypatch.setenv(name, text)
    assert getattr(load_settings(), attribute) == value


def test_defaults_are_safe():
    """Out of the box no header is believed and nothing is logged."""
    settings = load_settings()
    assert settings.trusted_proxies == ()
    assert settings.ipv6_prefix == 128
    assert settings.base_url is None
    assert settings.access_log is False
    assert settings.data_dir.is_absolute()
    assert settings.database.endswith("licserver.sqlite3")


def test_every_setting_is_shown_here():
    """A new setting needs a line in this file."""
    secret = {"LICSERVER_DATABASE_URL", "LICSERVER_REDIS_URL", "LICSERVER_SECRETS"}
    secret |= {"LICSERVER_MAIL_PASSWORD", "LICSERVER_PADDLE_API_KEY", "LICSERVER_REPLICA_URL"}
    others = {"LICSERVER_MAIL_HOST"}  # needs another one
    assert {f"LICSERVER_{name.upper()}" for name in Settings.model_fields} == set(GOOD) | secret | others


def test_each_setting_is_described():
    """The settings page, `licserver settings` and the sample file have this text; there is no other."""
    for setting in describe_settings():
        assert re.fullmatch(r"[A-Z`].*\.", setting.text), setting.variable
        assert "\n" not in setting.text


def test_the_sample_file_describes_settings_in_the_same_words():
    """`LICENSING_WRITE_SETTINGS=1` writes the comments above its lines."""
    described = {setting.variable: setting for setting in describe_settings()}
    text = SAMPLE.read_text("utf-8")
    head, *parts = text.rstrip("\n").split("\n\n")
    lines = [part.splitlines()[-1] for part in parts]
    settings = [described[line.removeprefix("# ").partition("=")[0]] for line in lines]
    expected = "\n\n".join([head, *map(format_setting, settings, lines)]) + "\n"
    if os.environ.get("LICENSING_WRITE_SETTINGS"):
        SAMPLE.write_text(expected, "utf-8")
    assert SAMPLE.read_text("utf-8") == expected


def test_tables_of_the_documentation_have_the_defaults():
    """A row that begins with a variable and a number."""
    defaults = {setting.variable: setting.default for setting in describe_settings()}
    rows = [
        row
        for page in sorted(DOCS.rglob("*.md"))
        for row in re.findall(r"^\| `(LICSERVER_\w+)` \| ([0-9.]+)\b", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert rows
    assert rows == [(variable, defaults[variable]) for variable, _ in rows]


def test_the_command_prints_a_file_that_changes_nothing(capsys, monkeypatch, tmp_path):
    """All settings are comments; without the #, each default is a value that the setting accepts."""
    with pytest.raises(SystemExit) as ended:
        main(["settings"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    lines = [line for line in printed.splitlines() if line.startswith("# LICSERVER_")]
    assert [line.removeprefix("# ").partition("=")[0] for line in lines] == [
        f"LICSERVER_{name.upper()}" for name in Settings.model_fields
    ]
    assert all(line.startswith("#") for line in printed.splitlines() if line)
    defaults = load_settings()
    for line in lines:
        name, _, value = line.removeprefix("# ").partition("=")
        monkeypatch.setenv(name, value)
    assert load_settings() == defaults


def test_the_command_has_the_same_for_programs(capsys):
    """Name, text and default of each."""
    with pytest.raises(SystemExit):
        main(["settings", "--json"])
    assert json.loads(capsys.readouterr().out) == [setting._asdict() for setting in describe_settings()]


def test_mail_needs_a_sender_and_a_password_needs_encryption(monkeypatch):
    """Named by the variable that is missing something."""
    monkeypatch.setenv("LICSERVER_MAIL_HOST", "mail.example")
    with pytest.raises(SettingsError, match=r"^LICSERVER_MAIL_HOST: needs LICSERVER_MAIL_SENDER"):
        load_settings()
    monkeypatch.setenv("LICSERVER_MAIL_SENDER", "a@example.com")
    assert load_settings().mail_host == "mail.example"
    monkeypatch.setenv("LICSERVER_MAIL_USER", "ann")
    monkeypatch.setenv("LICSERVER_MAIL_TLS", "none")
    with pytest.raises(SettingsError, match=r"^LICSERVER_MAIL_USER: needs LICSERVER_MAIL_TLS"):
        load_settings()


def test_what_may_hold_a_password_is_not_shown(monkeypatch):
    """The database's address and the secrets stay out of every repr, and reach only who asks."""
    monkeypatch.setenv("LICSERVER_DATABASE_URL", "postgresql://me:hunter2@db/x")
    monkeypatch.setenv("LICSERVER_REPLICA_URL", "postgresql://me:hunter2@standby/x")
    monkeypatch.setenv("LICSERVER_SECRETS", '{"index_secret": "hunter2"}')
    monkeypatch.setenv("LICSERVER_REDIS_URL", "redis://:hunter2@redis/0")
    monkeypatch.setenv("LICSERVER_PADDLE_API_KEY", "pdl_live_apikey_hunter2")
    settings = load_settings()
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()
    assert settings.database == "postgresql://me:hunter2@db/x"


BAD = {
    "LICSERVER_BASE_URL": [
        "licenses.example",
        "ftp://l.example",
        "https://",
        "https://l.example?x=1",
        "https://l.example/?",
        "https://l.example/#x",
        "https://l.example ",
        "https://l.exa mple",
        "https://l.example\n",
        "https://me:secret@l.example",
        "https://bücher.example",
        "https://[::1",
    ],
    "LICSERVER_DATA_DIR": ["/srv/licserver\n"],
    "LICSERVER_BACKUP_DIR": ["/srv/backups\r\n"],
    "LICSERVER_ACCOUNT_LOGO": ["/srv/logo.svg\n"],
    "LICSERVER_DATABASE_URL": ["postgresql://db/licserver\n"],
    "LICSERVER_REDIS_URL": ["redis://localhost\n"],
    "LICSERVER_MAIL_PASSWORD": ["secret\n"],
    "LICSERVER_PADDLE_API_KEY": ["secret\n"],
    "LICSERVER_TRUSTED_PROXIES": ["proxy.example", "10.0.0.0/33", "10.0.0.1 10.0.0.2", "*"],
    "LICSERVER_IPV6_PREFIX": ["0", "129", "-1", "many", "64.5"],
    "LICSERVER_ACCESS_LOG": ["perhaps"],
    "LICSERVER_BODY_TIMEOUT": ["0", "-1", "601", "soon", "nan", "inf"],
    "LICSERVER_MAIL_TLS": ["yes"],
    "LICSERVER_MAIL_SENDER": [
        "nobody",
        "a@b, c@d",
        "A <a@b>\n",
        "A\tB <a@b.example",
        "A <b> <a@b>",
        "jörg@b",
    ],
    "LICSERVER_MAIL_LANGUAGE": ["German", "de-AT"],
    "LICSERVER_MAIL_ADMIN": ["nobody", "a@b, c@d", "A <a@b.example>"],
    "LICSERVER_WEBHOOK_NETWORKS": ["somewhere", "10.1.2.3/16"],
    "LICSERVER_DRAIN_TIMEOUT": ["-1", "3601", "nan"],
    "LICSERVER_MISS_LIMIT": ["-1"],
    "LICSERVER_TRIAL_LIMIT": ["-1"],
    "LICSERVER_UNLIMITED_ACTIVATION_DAYS": ["29", "-1"],
    "LICSERVER_ACTIVATION_LIMIT": ["-1"],
    "LICSERVER_USE_LIMIT": ["many"],
    "LICSERVER_WRITE_LIMIT": ["-1"],
    "LICSERVER_TRIAL_NETWORK_LIMIT": ["-1"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_value_that_cannot_be_is_refused_by_name(name, value, monkeypatch):
    """The message begins with the variable that is to be mended, and repeats no value."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{name}: ") as refusal:
        load_settings()
    assert "secret" not in str(refusal.value)


UNKNOWN = {
    "LICSERVER_DATADIR": "LICSERVER_DATA_DIR",
    "LICSERVER_BASEURL": "LICSERVER_BASE_URL",
    "LICSERVER_TRUSTED_PROXY": "LICSERVER_TRUSTED_PROXIES",
    "licserver_databse_url": "LICSERVER_DATABASE_URL",
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LICSERVER_ACCOUNT", "maybe", "must be true or false"),
        ("LICSERVER_TRIAL_LIMIT", "many", "must be a whole number"),
        ("LICSERVER_DRAIN_DELAY", "soon", "must be a number"),
        ("LICSERVER_TRUSTED_PROXIES", "proxy", "must be addresses or networks like 127.0.0.1"),
        ("LICSERVER_WEBHOOK_NETWORKS", "10.1.0.0/99", "must be addresses or networks like 127.0.0.1"),
    ],
)
def test_a_wrong_value_is_answered_with_what_to_type(name, value, message, monkeypatch):
    """Not in pydantic's words."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{name}: {message}"):
        load_settings()


@pytest.mark.parametrize(("name", "near"), UNKNOWN.items())
def test_a_misspelt_variable_is_refused_and_the_nearest_named(name, near, monkeypatch):
    """A setting that does nothing is an error, not ignored."""
    monkeypatch.setenv(name, "x")
    with pytest.raises(SettingsError, match=f"^unknown setting {name}; did you mean {near}\\?$"):
        load_settings()


@pytest.mark.parametrize("name", ["LICSERVER_", "LICSERVER_PORT_NUMBER"])
def test_even_a_name_like_nothing_is_refused(monkeypatch, name):
    """There is always a nearest one."""
    monkeypatch.setenv(name, "80")
    with pytest.raises(SettingsError, match="did you mean LICSERVER_"):
        load_settings()


def test_an_empty_variable_is_as_good_as_none(monkeypatch):
    """A line left empty in a file of settings means the default."""
    for name in GOOD:
        monkeypatch.setenv(name, "")
    assert load_settings() == Settings()


def test_what_is_given_wins(monkeypatch, tmp_path):
    """The command line beats the environment, and None on it is not given."""
    monkeypatch.setenv("LICSERVER_DATA_DIR", "/elsewhere")
    assert load_settings(data_dir=tmp_path).data_dir == tmp_path
    assert load_settings(data_dir=None).data_dir == Path("/elsewhere")


def test_a_folder_may_lie_at_home_or_be_relative(monkeypatch, tmp_path):
    """The folder is absolute from the start: nothing changes when the process changes its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load_settings(data_dir=Path("~/x")).data_dir == tmp_path / "x"
    assert load_settings(data_dir=Path("x")).data_dir == tmp_path / "x"


def test_settings_are_frozen():
    """Nobody changes a setting on the way."""
    with pytest.raises(pydantic.ValidationError):
        Settings().access_log = True  # type: ignore[misc]


def test_a_throwaway_store_takes_nothing_from_the_environment(monkeypatch, tmp_path):
    """Standalone settings are what they are given, however wrong the vendor's own are."""
    monkeypatch.setenv("LICSERVER_BODY_TIMEOUT", "soon")
    monkeypatch.setenv("LICSERVER_SECRETS", "x")
    monkeypatch.setenv("LICSERVER_DATABASE_URL", "x")
    settings = StandaloneSettings(data_dir=tmp_path)
    assert settings.secrets is None
    assert settings.database == f"sqlite+pysqlite:///{tmp_path}/licserver.sqlite3"


@pytest.mark.parametrize(
    "name", ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"]
)
def test_what_kubernetes_says_of_a_service_of_our_name_is_passed_over(name, monkeypatch):
    """It is set in every pod beside a Service `licserver`, and nobody has misspelt it."""
    monkeypatch.setenv(f"LICSERVER_{name}", "tcp://10.0.0.1:80")
    load_settings()
