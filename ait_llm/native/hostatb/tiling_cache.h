// The process-wide cache of kernel tilings that ATB consults at Setup.
#ifndef AIT_HOSTATB_TILING_CACHE_H
#define AIT_HOSTATB_TILING_CACHE_H

#include <string>

#include "runner.h"

namespace hostatb {

// What a tiling depends on: the kernel, its parameters and its tensors.
std::string TilingKey(const Runner &runner, const Kernel &kernel);

// The cache holds the latest tiling per operation type and kernel index: in the recorded model run a
// Muls tiling is gone once an Add of the same operation type has stored its own.
bool IsTilingCached(const std::string &type, size_t kernel, const std::string &key);
void StoreTiling(const std::string &type, size_t kernel, const std::string &key);

} // namespace hostatb

#endif
