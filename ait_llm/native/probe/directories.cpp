#include "directories.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host_path.h"
#include "matcher.h"

namespace ait {
namespace {

constexpr mode_t DIRECTORY_MODE = 0750;
constexpr mode_t FILE_MODE = 0640;
constexpr size_t MAX_OPEN = 256; // far below the usual limit of 1024 descriptors
constexpr int DIRECTORY_FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

} // namespace

Directories::Directories(std::string root) : root_(std::move(root)) {}

int Directories::OpenRoot()
{
    // Only what lies above the root may contain links: the user chose it.
    for (size_t end = root_.find('/', 1);; end = root_.find('/', end + 1)) {
        const std::string prefix = root_.substr(0, end);
        if (mkdir(prefix.c_str(), DIRECTORY_MODE) != 0 && errno != EEXIST && errno != EISDIR && end == std::string::npos) {
            const int error = errno;
            const int fd = open(root_.c_str(), DIRECTORY_FLAGS | O_NOFOLLOW);
            errno = fd < 0 ? error : 0;
            return fd;
        }
        if (end == std::string::npos) {
            return open(root_.c_str(), DIRECTORY_FLAGS | O_NOFOLLOW);
        }
    }
}

int Directories::OpenChild(int parent, const std::string &name)
{
    // Most directories are new when they are asked for the first time.
    if (mkdirat(parent, name.c_str(), DIRECTORY_MODE) != 0 && errno != EEXIST) {
        const int error = errno; // on a read-only disk it may exist all the same
        const int fd = openat(parent, name.c_str(), DIRECTORY_FLAGS | O_NOFOLLOW);
        errno = fd < 0 ? error : 0;
        return fd;
    }
    return openat(parent, name.c_str(), DIRECTORY_FLAGS | O_NOFOLLOW);
}

int Directories::Open(const std::string &relative)
{
    const auto found = open_.find(relative);
    if (found != open_.end()) {
        const int held = found->second.Get();
        if (held >= 0) {
            return held;
        }
        open_.erase(found); // the host has closed it
    }
    if (open_.size() >= MAX_OPEN) {
        Forget();
    }
    int fd = -1;
    if (relative.empty()) {
        fd = OpenRoot();
    } else {
        const int parent = Open(DirectoryOf(relative));
        fd = parent < 0 ? -1 : OpenChild(parent, FileOf(relative));
    }
    if (fd >= 0) {
        open_.emplace(relative, HeldDescriptor(fd));
    }
    return fd;
}

int Directories::OpenFile(const std::string &directory, const std::string &name, int flags)
{
    for (int attempt = 0;; ++attempt) {
        const int parent = Open(directory);
        if (parent >= 0) {
            const int fd =
                openat(parent, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
            if (fd >= 0) {
                return fd;
            }
        }
        const bool stale = errno == ENOENT || errno == ESTALE;
        if (!stale || attempt > 0) {
            return -1;
        }
        Forget(); // a directory was removed while we held it open
    }
}

bool Directories::Claim(const std::string &relative)
{
    const int parent = Open(DirectoryOf(relative));
    return parent >= 0 && mkdirat(parent, FileOf(relative).c_str(), DIRECTORY_MODE) == 0;
}

bool FitsFileSizeLimit(uint64_t size)
{
    rlimit limit = {};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size > limit.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    return true;
}

} // namespace ait
