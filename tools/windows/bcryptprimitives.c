/* Rust's standard library takes random numbers from bcryptprimitives.dll, which Windows has and Wine before 8.12 lacks.
 * For tests under such a Wine: the same function, by Wine's own generator. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
	return RtlGenRandom(data, (ULONG)length);
}
