/* A stand-in for AppImage's runtime, which cannot be had from a package registry: unpacks the squashfs that
   follows this program, sets what the real one sets, and runs AppRun. Needs `unsquashfs`. */
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(127);
}

int main(int count, char **words) {
    char image[PATH_MAX], folder[] = "/tmp/.mount_labXXXXXX", root[64], program[80], offset[32], start[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", image, sizeof image - 1);
    Elf64_Ehdr head;
    FILE *file;
    pid_t child;
    int status;
    if (length < 0)
        fail("/proc/self/exe");
    image[length] = 0;
    file = fopen(image, "rb");
    if (!file || fread(&head, sizeof head, 1, file) != 1)
        fail(image);
    fclose(file);
    if (!mkdtemp(folder))
        fail(folder);
    snprintf(root, sizeof root, "%s/root", folder);
    snprintf(program, sizeof program, "%s/AppRun", root);
    snprintf(offset, sizeof offset, "%lu", (unsigned long)(head.e_shoff + head.e_shentsize * head.e_shnum));
    child = fork();
    if (child == 0) {
        execlp("unsquashfs", "unsquashfs", "-q", "-n", "-d", root, "-o", offset, image, (char *)0);
        fail("unsquashfs");
    }
    if (waitpid(child, &status, 0) < 0 || status != 0)
        fail("unsquashfs");
    setenv("APPIMAGE", image, 1);
    setenv("APPDIR", root, 1);
    setenv("ARGV0", words[0], 1);
    setenv("OWD", getcwd(start, sizeof start) ? start : "/", 1);
    child = fork();
    if (child == 0) {
        words[0] = program;
        execv(program, words);
        fail(program);
    }
    (void)count;
    waitpid(child, &status, 0);
    snprintf(program, sizeof program, "rm -rf %s", folder);
    if (system(program) != 0)
        perror(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
