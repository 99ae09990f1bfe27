"""Makes an app for Windows, and set-ups of it.

NSIS and Windows Installer by the tools of Debian, Inno Setup by its own compiler.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.windows.wine import Windows, find_inno_compiler

ROOT: Final = Path(__file__).parents[2]
NEEDED: Final = ("makensis", "wixl", "x86_64-w64-mingw32-gcc")

PROGRAM: Final = r"""
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char path[1024], note[1100];
    FILE *file;
    GetModuleFileNameA(0, path, sizeof path);
    snprintf(note, sizeof note, "%s.opened", path);
    file = fopen(note, "a");
    if (file) { fprintf(file, "%s\n", VERSION); fclose(file); }
    printf("%s\n", VERSION);
    fflush(stdout);
    if (argc > 1) Sleep(1000 * atoi(argv[1]));
    return 0;
}
"""

# The new file is complete before it takes the old one's name, in one step: a kill leaves an app that starts.
NSIS: Final = r"""
Target amd64-unicode
Unicode true
Name "Photo Lab"
OutFile "${OUT}"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\Photo Lab"
!ifdef SILENT
  SilentInstall silent
!endif
Section
  !ifdef REFUSE
    SetErrorLevel 1223
    Quit
  !endif
  SetOutPath "$INSTDIR"
  ClearErrors
  File "/oname=photo-lab.exe.new" "${PROGRAM}"
  IfErrors failed
  !ifdef SLEEP
    Sleep ${SLEEP}
  !endif
  System::Call 'kernel32::MoveFileExW(w "$INSTDIR\photo-lab.exe.new", w "$INSTDIR\photo-lab.exe", i 9) i .r0'
  StrCmp $0 0 failed done
  failed:
    Delete "$INSTDIR\photo-lab.exe.new"
    SetErrorLevel 5
    Quit
  done:
SectionEnd
"""

MSI: Final = """<?xml version="1.0" encoding="utf-8"?>
<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
  <Product Name="Photo Lab" Id="*" UpgradeCode="6f0f6c7e-2d0b-4c57-9f6e-1d7f9a2a1b10" Language="1033"
           Version="{version}" Manufacturer="Example">
    <Package Id="*" InstallerVersion="200" Compressed="yes" Languages="1033"/>
    <MajorUpgrade DowngradeErrorMessage="A newer version is installed."/>
    <!-- By default the old version is removed first, and a kill after that leaves none. -->
    <InstallExecuteSequence><RemoveExistingProducts After="InstallFinalize"/>{custom}</InstallExecuteSequence>
    <Media Id="1" Cabinet="app.cab" EmbedCab="yes"/>{actions}
    <Directory Id="TARGETDIR" Name="SourceDir"><Directory Id="ProgramFiles64Folder">
      <Directory Id="INSTALLFOLDER" Name="Photo Lab">
        <Component Id="App" Guid="*">
          <File Id="App" Name="photo-lab.exe" Source="{program}" KeyPath="yes"/>
        </Component>
      </Directory>
    </Directory></Directory>
    <Feature Id="All" Level="1"><ComponentRef Id="App"/></Feature>
  </Product>
</Wix>
"""

# The recipe, and what is to go wrong with it: the result of a function that Setup calls before it begins, an
# exception in the middle, or time.
INNO: Final = r"""
#include "photo_lab.iss"
#ifdef OPENS
[Run]
Filename: "{app}\photo-lab.exe"; Flags: nowait; Check: WizardSilent
#endif
[Code]
#ifdef REFUSE
function InitializeSetup: Boolean;
begin
  Result := False;
end;
#endif
#ifdef PREPARE
function PrepareToInstall(var NeedsRestart: Boolean): String;
begin
  NeedsRestart := {#PREPARE} = 8;
  Result := 'This computer is not ready.';
end;
#endif
#ifdef RESTART
function NeedRestart: Boolean;
begin
  Result := True;
end;
#endif
procedure CurStepChanged(CurStep: TSetupStep);
begin
  if CurStep <> ssInstall then exit;
  #ifdef SLEEP
  Sleep({#SLEEP});
  #endif
  #ifdef RAISE
  RaiseException('Something is wrong.');
  #endif
end;
"""


WAITING: Final = "waiting.txt"
"""The file on drive C that says that a package waits in the middle."""

# Before its files: whatever was removed by then is missing if it is killed here.
_WAIT: Final = """
    <Binary Id="Library" SourceFile="wait.dll"/>
    <CustomAction Id="Wait" BinaryKey="Library" DllEntry="Wait" Execute="immediate" Return="check"/>"""
_WAITS: Final = '<Custom Action="Wait" After="RemoveFiles">1</Custom>'
_LIBRARY: Final = r"""
#include <windows.h>
#include <stdio.h>
__declspec(dllexport) UINT __stdcall Wait(unsigned long session) {
    FILE *file = fopen("C:/" WAITING, "w");
    if (file) fclose(file);
    Sleep(120000);
    return 0;
}
"""


def missing_tools() -> list[str]:
    """Return the tools that this machine lacks."""
    return [name for name in NEEDED if shutil.which(name) is None]


def make_program(folder: Path, version: str) -> Path:
    """Compile an app that notes each start beside itself, prints its version, and waits for some seconds."""
    source, program = folder / "app.c", folder / f"photo-lab-{version}.exe"
    source.write_text(PROGRAM)
    _run("x86_64-w64-mingw32-gcc", "-O1", "-mwindows", f'-DVERSION="{version}"', source, "-o", program)
    return program


def make_nsis(folder: Path, version: str, *options: str) -> Path:
    """Return a set-up of NSIS; `options` are `-DREFUSE`, `-DSILENT` or `-DSLEEP=milliseconds`."""
    script, setup = folder / "app.nsi", folder / f"setup-{version}{len(options)}.exe"
    script.write_text(NSIS)
    _run("makensis", "-V2", f"-DOUT={setup}", f"-DPROGRAM={make_program(folder, version)}", *options, script)
    return setup


def make_nsis_recipe(folder: Path, version: str) -> Path:
    """Return a set-up by the recipe of `examples`, of a program and a file of data with its version."""
    files, recipe = folder / f"files-{version}", ROOT / "examples" / "nsis" / "photo_lab.nsi"
    (files / "data").mkdir(parents=True, exist_ok=True)
    shutil.copy(make_program(folder, version), files / "photo-lab.exe")
    for place in (files / "a.txt", files / "data" / "z.txt"):  # one before the program, one behind it
        place.write_text(version)
    setup = folder / f"recipe-{version}.exe"
    _run("makensis", "-V2", f"-DVERSION={version}", f"-DFOLDER={files}", recipe, f"-XOutFile {setup}")
    return setup


def make_msi(folder: Path, version: str, number: str | None = None, *, waits: bool = False) -> Path:
    """Return a package of Windows Installer for the folder of programs.

    Args:
        number: Its own version, if that is not the program's.
        waits: Whether it waits for two minutes before it installs files, and says so by a file `WAITING`.
    """
    source, setup = folder / "app.wxs", folder / f"setup-{version}-{number}{'-waits' * waits}.msi"
    program, library = make_program(folder, version), folder / "wait.c"
    if waits:
        library.write_text(_LIBRARY)
        compiler = ("x86_64-w64-mingw32-gcc", "-shared", f'-DWAITING="{WAITING}"')
        _run(*compiler, library, "-o", folder / "wait.dll")
    extra = {"actions": _WAIT if waits else "", "custom": _WAITS if waits else ""}
    source.write_text(MSI.format(version=number or version, program=program.name, **extra))
    _run("wixl", "-a", "x64", "-o", setup, source.name, folder=folder)  # it takes no absolute paths
    return setup


def make_inno(windows: Windows, folder: Path, version: str, *options: str) -> Path:
    """Return a set-up of Inno Setup by the recipe of `examples`; `options` are those of `INNO`."""
    compiler = find_inno_compiler()
    assert compiler is not None
    files, script = folder / f"files-{version}", folder / "app.iss"
    files.mkdir(exist_ok=True)
    shutil.copy(make_program(folder, version), files / "photo-lab.exe")
    shutil.copy(ROOT / "examples" / "inno" / "photo_lab.iss", folder)
    script.write_text(INNO)
    name = f"setup-{version}{len(options)}"
    defined = (f"/DVERSION={version}", f"/DFOLDER={windows.path(files)}", *options)
    place = (f"/O{windows.path(folder)}", f"/F{name}")
    done = windows.run("/Q", *defined, *place, windows.path(script), program=compiler)
    if done.returncode != 0:
        raise AssertionError(f"ISCC failed: {done.stdout}")
    return folder / f"{name}.exe"


def _run(*command: str | Path, folder: Path | None = None) -> None:
    arguments: Sequence[str] = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} failed: {done.stdout}{done.stderr}")
