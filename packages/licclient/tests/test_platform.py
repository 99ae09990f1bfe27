"""The name of a computer's platform, as update checks send it (D-187)."""

import pytest

from licclient._core.computer import name_platform, own_platform
from licclient._core.model import AUTO, is_platform


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("win32", "AMD64", "windows-x86_64"),
        ("win32", "ARM64", "windows-arm64"),
        ("win32", "x86", "windows-x86"),
        ("darwin", "arm64", "macos-arm64"),
        ("darwin", "x86_64", "macos-x86_64"),
        ("linux", "aarch64", "linux-arm64"),
        ("linux", "i686", "linux-x86"),
        ("linux", "riscv64", "linux-riscv64"),
        ("linux", "", None),
        ("linux", "two words", None),
    ],
)
def test_a_platform_is_system_and_machine(system, machine, name):
    """Each has one name, however Python calls it; without a usable one nothing is sent."""
    assert name_platform(system, machine) == name


def test_the_setting_comes_first():
    """Only the default looks at the computer."""
    assert (own_platform("mine"), own_platform(None)) == ("mine", None)
    assert is_platform(own_platform(AUTO) or "")
