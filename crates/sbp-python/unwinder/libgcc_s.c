/* The names of libgcc_s.so.1, for a linker that has no such library: nothing here is ever run or shipped.
 *
 * A thread that waits in a call when the interpreter ends is ended by the C library, which walks through its frames with
 * libgcc_s. The frames of this module have to be described to that same library. Zig would link an unwinder of its own
 * into the module instead, which cannot read what the other one hands it, and the process would end by a signal. */
#define NAME(name) void name(void) {}
NAME(_Unwind_Backtrace)
NAME(_Unwind_DeleteException)
NAME(_Unwind_FindEnclosingFunction)
NAME(_Unwind_ForcedUnwind)
NAME(_Unwind_GetCFA)
NAME(_Unwind_GetDataRelBase)
NAME(_Unwind_GetIP)
NAME(_Unwind_GetIPInfo)
NAME(_Unwind_GetLanguageSpecificData)
NAME(_Unwind_GetRegionStart)
NAME(_Unwind_GetTextRelBase)
NAME(_Unwind_RaiseException)
NAME(_Unwind_Resume)
NAME(_Unwind_Resume_or_Rethrow)
NAME(_Unwind_SetGR)
NAME(_Unwind_SetIP)
