#include "process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "matcher.h"

namespace ait {

ProcessStatus ReadStatus(int pid)
{
    ProcessStatus status;
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    char text[1024];
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (size <= 0) {
        return status;
    }
    text[size] = '\0';
    // The name in the second field may hold anything, but no field after it holds ')'.
    const char *rest = strrchr(text, ')');
    const std::vector<std::string> fields = Split(rest == nullptr ? "" : rest + 1, ' ');
    constexpr size_t STATE = 1;
    constexpr size_t FLAGS = 7;
    constexpr size_t START_TIME = 20;
    constexpr unsigned long PF_EXITING = 4; // linux/sched.h
    if (fields.size() > START_TIME && !fields[STATE].empty()) {
        status.state = fields[STATE][0];
        status.exiting = (strtoul(fields[FLAGS].c_str(), nullptr, 10) & PF_EXITING) != 0;
        status.startTime = strtoull(fields[START_TIME].c_str(), nullptr, 10);
        status.exitCode = strtol(fields.back().c_str(), nullptr, 10);
    }
    return status;
}

bool Runs(int pid, uint64_t startTime)
{
    const ProcessStatus status = ReadStatus(pid);
    if (status.state == '\0') { // ended, or no descriptor or /proc to see it by
        return kill(pid, 0) == 0 || errno != ESRCH;
    }
    return status.state != 'Z' && status.state != 'X' && status.startTime == startTime;
}

bool MapsFile(int pid, const char *name, ino_t inode)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/maps";
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return true;
    }
    // address permissions offset device inode path
    const std::string wanted = " " + std::to_string(inode) + " ";
    std::string line;
    char text[16384];
    bool found = false;
    bool readable = true;
    while (!found) {
        const ssize_t size = read(fd, text, sizeof(text));
        if (size < 0 && errno == EINTR) {
            continue;
        }
        readable = size >= 0;
        if (size <= 0) {
            break;
        }
        for (const char *at = text; at < text + size && !found; ++at) {
            if (*at != '\n') {
                line += *at;
                continue;
            }
            found = line.find(wanted) != std::string::npos && line.find(name) != std::string::npos;
            line.clear();
        }
    }
    close(fd);
    return found || !readable;
}

} // namespace ait
