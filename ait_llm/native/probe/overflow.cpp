#include "overflow.h"

#include "append_file.h"
#include "log.h"

namespace ait {

OverflowReport::OverflowReport(const Settings &settings, int pid)
    : settings_(settings),
      path_(settings.outputDir + "/ait_overflow_res_" + std::to_string(pid) + ".txt")
{
}

int OverflowReport::Add(const std::string &kernelPath)
{
    if (kernelPath.empty() || !settings_.outputGiven) {
        return 0;
    }
    std::string name = kernelPath;
    for (char &c : name) {
        c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    if (reported_.count(name) > 0 || reported_.size() >= MAX_KERNELS) {
        ++repeated_; // a status that is never cleared repeats itself for every later kernel
        return 0;
    }
    const int error = AppendShared(path_, "Overflow detected! Operator name: " + name + "\n");
    if (error == 0) {
        reported_.insert(std::move(name));
    }
    return error;
}

void OverflowReport::Finish()
{
    if (repeated_ > 0) {
        Log(LogLevel::INFO, std::to_string(repeated_) + " further overflows of the kernels in " +
                                path_);
    }
    repeated_ = 0;
}

} // namespace ait
