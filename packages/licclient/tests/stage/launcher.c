/* A launcher in another language, written after docs/app/launcher.md alone: protocol 1, for Linux and macOS.
 *
 * launcher FOLDER ARGUMENT …
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "photo-lab"
#define PLACE 4096
#define TEXT 8192
#define MOST 2

static char root[PLACE / 2];
static volatile sig_atomic_t asked;
static volatile pid_t child;

static void place(char *path, const char *first, const char *second, const char *third) {
    snprintf(path, PLACE, "%s/%s%s%s%s", root, first, second, third[0] ? "/" : "", third);
}

/* Read a small file: 1, 0 if there is none, -1 if it cannot be read. */
static int read_text(const char *name, char *text) {
    char path[PLACE];
    place(path, name, "", "");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? 0 : -1;
    ssize_t size = read(file, text, TEXT - 1);
    close(file);
    if (size < 0) return -1;
    text[size] = 0;
    return 1;
}

/* Replace a file at one stroke; 0 if that has worked. */
static int write_text(const char *name, const char *text) {
    char path[PLACE], draft[PLACE];
    place(path, name, "", "");
    place(draft, name, ".draft", "");
    unlink(draft);
    int file = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return -1;
    size_t length = strlen(text);
    int failed = write(file, text, length) != (ssize_t)length || fsync(file) != 0;
    failed |= close(file) != 0;
    if (failed || rename(draft, path) != 0) {
        unlink(draft);
        return -1;
    }
    int folder = open(root, O_RDONLY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return 0;
}

/* Take the first line of a text; the rest, or NULL if no line ends here. */
static char *next_line(char *text) {
    char *end = strchr(text, '\n');
    if (end == NULL) return NULL;
    *end = 0;
    if (end > text && end[-1] == '\r') end[-1] = 0;
    return end + 1;
}

/* Read the pointer: how many lines it has, of 1 or 2; 0 otherwise. */
static int read_pointer(char *current, char *before) {
    static char text[TEXT];
    *current = *before = 0;
    if (read_text("current.txt", text) != 1) return 0;
    char *second = next_line(text);
    if (second == NULL) return 0;
    snprintf(current, PLACE, "%.1000s", text);
    if (second[0] == 0) return 1;
    next_line(second);
    snprintf(before, PLACE, "%.1000s", second);
    return 2;
}

static void version_of(char *version, const char *folder) {
    snprintf(version, PLACE, "%.1000s", folder);
    char *dash = strrchr(version, '-');
    if (dash != NULL) *dash = 0;
}

/* Whether a file of a version exists: 1, 0, or -1 if that cannot be found out. */
static int has(const char *folder, const char *name) {
    char path[PLACE];
    struct stat status;
    place(path, "versions/", folder, name);
    if (stat(path, &status) == 0) return 1;
    return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

static int is_rolled_back(const char *version) {
    static char text[TEXT];
    int read = read_text("rolled-back.txt", text);
    if (read != 1) return read;
    for (char *line = text, *rest; (rest = next_line(line)) != NULL; line = rest)
        if (strcmp(line, version) == 0) return 1;
    return 0;
}

static int is_on_probation(const char *current, const char *before) {
    char version[PLACE];
    if (before[0] == 0) return 0;
    version_of(version, before);
    return has(current, ".licclient-confirmed") == 0 && has(before, ".licclient-confirmed") == 1
           && has(before, PROGRAM) == 1 && is_rolled_back(version) == 0;
}

/* Read the number of starts of a version; -1 if the file is damaged or cannot be read. */
static int read_starts(const char *folder) {
    static char text[TEXT];
    int read = read_text("probation.txt", text);
    if (read != 1) return read;
    char *name = next_line(text), *number, *rest;
    if (name == NULL || (number = next_line(name)) == NULL || (rest = next_line(number)) == NULL) return -1;
    if (strcmp(text, "1") != 0 || number[0] < '0' || number[0] > '0' + MOST || number[1] || rest[0]) return -1;
    return strcmp(name, folder) == 0 ? number[0] - '0' : 0;
}

static int write_starts(const char *folder, int starts) {
    char text[TEXT];
    snprintf(text, sizeof text, "1\n%s\n%d\n", folder, starts);
    return write_text("probation.txt", text);
}

/* Take a lock for at most so many tenths of a second; its file, or -1. */
static int lock(const char *first, const char *second, const char *third, int tenths) {
    char path[PLACE];
    struct timespec pause = {0, 100000000};
    place(path, first, second, third);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || tenths-- == 0) {
            close(file);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return file;
}

static void receive(int number) {
    asked = 1;
    if (number != SIGINT && child > 0) kill(child, number);
}

static void replace_me(const char *folder, char **arguments) {
    char path[PLACE];
    place(path, "versions/", folder, PROGRAM);
    arguments[0] = path;
    execv(path, arguments);
    perror(path);
    exit(1);
}

static int run_counted(const char *folder, char **arguments, int before) {
    struct sigaction action = {.sa_handler = receive, .sa_flags = SA_RESTART};
    int numbers[] = {SIGTERM, SIGHUP, SIGINT}, status;
    sigset_t all, none;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &none);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &action, NULL);
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) signal(numbers[i], SIG_DFL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        replace_me(folder, arguments);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    waitpid(child, &status, 0);
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (asked || code == 0 || code == 143 || code == 129 || code == 130) write_starts(folder, before);
    return code;
}

/* Note the bad version, then move the pointer; the version to start. */
static const char *go_back(char *current, char *before) {
    static char text[TEXT], bad[PLACE], good[PLACE], now[PLACE], then[PLACE];
    int file = lock(".licclient.lock", "", "", 20);
    if (file < 0) return before;
    read_pointer(now, then);
    if (strcmp(now, current) != 0 || strcmp(then, before) != 0) {
        strcpy(current, now);
        before = current;
    } else {
        version_of(bad, current);
        version_of(good, before);
        int read = read_text("rolled-back.txt", text);
        if (read == 0) text[0] = 0;
        int failed = read < 0;
        if (!failed && strcmp(bad, good) != 0 && is_rolled_back(bad) != 1) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", bad);
            failed = write_text("rolled-back.txt", text) != 0;
        }
        if (!failed) {
            snprintf(text, sizeof text, "%s\n", before);
            write_text("current.txt", text);
        }
    }
    close(file);
    return before;
}

int main(int count, char **arguments) {
    char current[PLACE], before[PLACE];
    if (count < 2) return 2;
    snprintf(root, sizeof root, "%s", arguments[1]);
    arguments++;
    if (!read_pointer(current, before) || has(current, "") != 1) {
        fprintf(stderr, "No version of the app is installed: %s\n", root);
        return 1;
    }
    if (!is_on_probation(current, before)) replace_me(current, arguments);
    int file = lock("versions/", current, ".licclient-starting", 0);
    int starts = file < 0 ? -1 : read_starts(current);
    if (starts == MOST) replace_me(go_back(current, before), arguments);
    if (starts < 0 || write_starts(current, starts + 1) != 0) replace_me(current, arguments);
    return run_counted(current, arguments, starts);
}
