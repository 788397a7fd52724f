// Directories below the root of a capture, created on demand and kept open.
#ifndef AIT_PROBE_DIRECTORIES_H
#define AIT_PROBE_DIRECTORIES_H

#include <cstdint>
#include <string>
#include <unordered_map>

#include "descriptor.h"

namespace ait {

class Directories {
public:
    explicit Directories(std::string root);
    Directories(const Directories &) = delete;
    Directories &operator=(const Directories &) = delete;

    // An open descriptor of `relative` ("" is the root), created where missing with mode 0750
    // less the umask, which the writer has from the host.
    // -1 with errno on failure. It stays valid until the next call of Open or Forget.
    int Open(const std::string &relative);

    // Opens a file below the root, creating its directory; a directory that was removed behind
    // our back is created again. -1 with errno on failure.
    int OpenFile(const std::string &directory, const std::string &name, int flags);

    // mkdir of `relative` itself; false with errno (EEXIST where it is there already).
    bool Claim(const std::string &relative);

    void Forget() { open_.clear(); }

    const std::string &Root() const { return root_; }

private:
    int OpenRoot();
    int OpenChild(int parent, const std::string &name);

    std::string root_;
    std::unordered_map<std::string, HeldDescriptor> open_;
};

// False with errno EFBIG where a file of that size would raise SIGXFSZ in the host.
bool FitsFileSizeLimit(uint64_t size);

} // namespace ait

#endif
