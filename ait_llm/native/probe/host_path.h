// Paths and names that come from the host: checked before they touch the file system.
#ifndef AIT_PROBE_HOST_PATH_H
#define AIT_PROBE_HOST_PATH_H

#include <cstdint>
#include <string>

namespace ait {

// Why `path` may not be used below the output directory, or "" if it may.
std::string RefusePath(const std::string &path);

// Why `name` may not be used as one file name of that suffix, or "" if it may.
std::string RefuseName(const std::string &name, const char *suffix);

// What a tensor directory says about the operation: "0_4242/0/0_Layer/1_Linear".
struct UnitName {
    std::string op;    // "0_1"
    std::string type;  // "Linear"
    int64_t step = -1; // 0
};
UnitName ParseUnit(const std::string &directory);

// "a/b/c" is ("a/b", "c"); a path without '/' has an empty directory.
std::string DirectoryOf(const std::string &path);
std::string FileOf(const std::string &path);

// The number after a prefix: 12 for ("intensor12_x.bin", "intensor"); -1 if it is not of that form.
int64_t TensorIndex(const std::string &file, const char *prefix);

} // namespace ait

#endif
