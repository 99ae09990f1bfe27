/* bcryptprimitives.dll, which Rust programs take random bytes from; wine has it from version 9 on. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count) {
    return RtlGenRandom(bytes, (ULONG)count);
}
