"""Makes AppImages with the tools of Debian; a stand-in for the real runtime, which no registry has."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

NEEDED: Final = ("gcc", "mksquashfs", "unsquashfs")

# It unpacks what follows the program, as the real one does without FUSE, and sets the same variables.
RUNTIME: Final = r"""
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char self[PATH_MAX], folder[] = "/tmp/.mount_standinXXXXXX", offset[32], run[PATH_MAX], here[PATH_MAX];
    Elf64_Ehdr head;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    FILE *file;
    int status = 126;
    pid_t child;
    if (length < 0) return 126;
    self[length] = 0;
    file = fopen(self, "rb");
    if (!file || fread(&head, sizeof head, 1, file) != 1) return 126;
    fclose(file);
    snprintf(offset, sizeof offset, "%lu", head.e_shoff + head.e_shentsize * head.e_shnum);
    if (!mkdtemp(folder) || !getcwd(here, sizeof here)) return 126;
    if ((child = fork()) == 0) {
        freopen("/dev/null", "w", stdout);
        execlp("unsquashfs", "unsquashfs", "-f", "-no-progress", "-o", offset, "-d", folder, self, NULL);
        _exit(126);
    }
    waitpid(child, &status, 0);
    if (status) return 126;
    setenv("APPIMAGE", self, 1);
    setenv("APPDIR", folder, 1);
    setenv("ARGV0", argv[0], 1);
    setenv("OWD", here, 1);
    snprintf(run, sizeof run, "%s/AppRun", folder);
    argv[0] = run;
    execv(run, argv);
    return 126;
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
