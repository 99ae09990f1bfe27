/* python3.dll, the stable ABI, has no code: its table of exports forwards to the interpreter's DLL. */
int __stdcall DllMain(void *library, unsigned reason, void *reserved) { return 1; }
