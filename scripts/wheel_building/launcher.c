// Stands where a program of another architecture would: starts it under QEMU with the same arguments.
// Linked statically: a dynamic linker would read the LD_PRELOAD that is meant for the program.
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
    char **all = calloc((size_t)count + 6, sizeof(char *));
    int size = 0;
    if (!all) return 126;
    all[size++] = QEMU;
    all[size++] = "-L";
    all[size++] = ROOT;
    all[size++] = "-0";
    all[size++] = count > 0 ? words[0] : PROGRAM;
    all[size++] = PROGRAM;
    for (int each = 1; each < count; ++each) all[size++] = words[each];
    execv(QEMU, all);
    return 127;
}
