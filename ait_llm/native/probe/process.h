// What the system says about another process.
#ifndef AIT_PROBE_PROCESS_H
#define AIT_PROBE_PROCESS_H

#include <cstdint>
#include <sys/types.h>

namespace ait {

struct ProcessStatus {
    char state = '\0'; // '\0' where nothing could be read
    bool exiting = false;
    long exitCode = 0;      // of a zombie
    uint64_t startTime = 0; // in ticks since boot: an id that is used again has another one
};

ProcessStatus ReadStatus(int pid);

// False where no such process runs: it ended, only waits to be reaped, or its id is another's now.
bool Runs(int pid, uint64_t startTime);

// True where the process maps the memory file of that inode, or where that cannot be seen.
bool MapsFile(int pid, const char *name, ino_t inode);

} // namespace ait

#endif
