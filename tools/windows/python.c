/* python.exe: runs the interpreter that is in a DLL beside it. */
#include <stdio.h>
#include <windows.h>

typedef int(__cdecl *main_function)(int, wchar_t **);

int wmain(int count, wchar_t **arguments) {
    HMODULE interpreter = LoadLibraryW(INTERPRETER);
    main_function run = interpreter ? (main_function)(void (*)(void))GetProcAddress(interpreter, "Py_Main") : NULL;
    if (!run) {
        fprintf(stderr, "%ls: error %lu\n", INTERPRETER, GetLastError());
        return 120;
    }
    return run(count, arguments);
}
