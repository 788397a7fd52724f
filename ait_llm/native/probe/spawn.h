// Starts the writer process.
#ifndef AIT_PROBE_SPAWN_H
#define AIT_PROBE_SPAWN_H

#include <string>
#include <vector>

namespace ait {

// Runs `path` in a process that is no child of this one: the host never sees it in wait(), gets no
// SIGCHLD and runs no handler of pthread_atfork. `inherited` descriptors stay open in it. 0 or an
// errno.
int SpawnDetached(const std::string &path, const std::vector<std::string> &arguments,
                  const std::vector<std::string> &environment, const std::vector<int> &inherited);

// The writer beside this library, or "".
std::string WriterPath();

} // namespace ait

#endif
