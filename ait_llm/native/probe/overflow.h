// The report of kernels whose results overflowed.
#ifndef AIT_PROBE_OVERFLOW_H
#define AIT_PROBE_OVERFLOW_H

#include <cstdint>
#include <string>
#include <unordered_set>

#include "settings.h"

namespace ait {

class OverflowReport {
public:
    OverflowReport(const Settings &settings, int pid);

    // Appends a line for the first overflow of that kernel; later ones are only counted. 0 or an errno.
    int Add(const std::string &kernelPath);
    // Says how many reports repeated an earlier one.
    void Finish();

private:
    static constexpr size_t MAX_KERNELS = 100000;
    const Settings &settings_;
    std::string path_;
    std::unordered_set<std::string> reported_;
    uint64_t repeated_ = 0;
};

} // namespace ait

#endif
