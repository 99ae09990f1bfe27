"""Makes AppImages with the tools of Debian; a stand-in for the real runtime, which no registry has."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

NEEDED: Final = ("gcc", "mksquashfs", "unsquashfs", "md5sum")

# It mounts what follows the program, or unpacks it as `--appimage-extract-and-run` does: under the names of
# the real one, with the same variables, and below TMPDIR. Its mounts stay: `unmount` ends them.
RUNTIME: Final = r"""
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
static char self[PATH_MAX], folder[PATH_MAX], run[PATH_MAX], here[PATH_MAX];
static char offset[64], command[2 * PATH_MAX];
static int start(char **words) {
    int status = 126;
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stdout);
        execvp(words[0][0] == '/' ? "squashfuse" : words[0], words);
        _exit(126);
    }
    waitpid(child, &status, 0);
    return status;
}
static void become(char **argv) {
    setenv("APPIMAGE", self, 1);
    setenv("APPDIR", folder, 1);
    setenv("ARGV0", argv[0], 1);
    setenv("OWD", here, 1);
    snprintf(run, sizeof run, "%s/AppRun", folder);
    argv[0] = run;
    execv(run, argv);
    _exit(126);
}
int main(int argc, char **argv) {
    const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    Elf64_Ehdr head;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    FILE *file;
    int status = 126;
    pid_t child;
    if (length < 0 || !getcwd(here, sizeof here)) return 126;
    self[length] = 0;
    file = fopen(self, "rb");
    if (!file || fread(&head, sizeof head, 1, file) != 1) return 126;
    fclose(file);
    if (!getenv("APPIMAGE_EXTRACT_AND_RUN")) {
        char *mount[] = {self, "-o", offset, self, folder, NULL};
        snprintf(offset, sizeof offset, "ro,offset=%lu", head.e_shoff + head.e_shentsize * head.e_shnum);
        snprintf(folder, sizeof folder, "%s/.mount_PhotoLXXXXXX", base);
        if (!mkdtemp(folder) || start(mount)) return 126;
        become(argv);
    }
    char *unpack[] = {"unsquashfs", "-f", "-no-progress", "-o", offset, "-d", folder, self, NULL};
    char digest[33] = "";
    snprintf(offset, sizeof offset, "%lu", head.e_shoff + head.e_shentsize * head.e_shnum);
    snprintf(command, sizeof command, "md5sum < /proc/%d/exe", getpid());
    file = popen(command, "r");
    if (!file || fread(digest, 32, 1, file) != 1) return 126;
    pclose(file);
    snprintf(folder, sizeof folder, "%s/appimage_extracted_%s", base, digest);
    if (start(unpack)) return 126;
    if ((child = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  /* a test that kills the runtime means the app */
        become(argv);
    }
    waitpid(child, &status, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
"""


def missing_tools() -> list[str]:
    """Return the tools that this machine lacks."""
    return [name for name in NEEDED if shutil.which(name) is None]


def make_runtime(folder: Path) -> Path:
    """Compile the runtime, with the mark of an AppImage of type 2."""
    source, program = folder / "runtime.c", folder / "runtime"
    source.write_text(RUNTIME)
    subprocess.run(["gcc", "-w", "-O1", "-static", "-o", program, source], check=True)
    raw = bytearray(program.read_bytes())
    raw[8:11] = b"AI\x02"
    program.write_bytes(raw)
    return program


def make_appimage(folder: Path, runtime: Path, files: dict[str, str], name: str) -> Path:
    """Make an AppImage of text files, of which `AppRun` is started."""
    content, image = folder / f"{name}.content", folder / name
    content.mkdir()
    for path, text in files.items():
        (content / path).write_text(text)
    (content / "AppRun").chmod(0o755)
    squashed = folder / f"{name}.squashfs"
    subprocess.run(
        ["mksquashfs", content, squashed, "-quiet", "-no-progress"], check=True, capture_output=True
    )
    image.write_bytes(runtime.read_bytes() + squashed.read_bytes())
    image.chmod(0o755)
    return image


def can_mount() -> bool:
    """Return whether this user may mount a file by FUSE."""
    helper = shutil.which("fusermount3") or shutil.which("fusermount")
    has_tools = shutil.which("squashfuse") is not None and (os.geteuid() == 0 or helper is not None)
    return has_tools and Path("/dev/fuse").exists()


def unmount(folder: Path) -> None:
    """End what has a folder for its temporary files, such as an app that was opened again, and its mounts."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended by itself
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
    for path in folder.glob(".mount_*"):
        subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
