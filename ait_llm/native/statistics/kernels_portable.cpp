#include "kernels.h"

#include "kernels.inc"

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define AIT_ARM_CRC 1
#endif

namespace ait {
namespace {

#ifdef AIT_ARM_CRC
uint32_t Crc32(uint32_t state, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof(word));
        state = __crc32d(state, word);
    }
    for (; size > 0; ++data, --size) {
        state = __crc32b(state, *data);
    }
    return state;
}
#endif

} // namespace

const Kernels &PortableKernels()
{
#ifdef AIT_ARM_CRC
    static constexpr Kernels kernels = {ReduceFloats, ReduceDoubles, DecodeHalves, DecodeBrains,
                                        Crc32, nullptr};
#else
    static constexpr Kernels kernels = {ReduceFloats, ReduceDoubles, DecodeHalves, DecodeBrains,
                                        nullptr, nullptr};
#endif
    return kernels;
}

const Kernels &BestKernels()
{
#ifdef AIT_X86
    static const bool fits = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                             __builtin_cpu_supports("pclmul");
    static const bool wide = fits && __builtin_cpu_supports("avx512f") &&
                             __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("vpclmulqdq");
    if (fits) {
        return wide ? Avx512Kernels() : Avx2Kernels();
    }
#endif
    return PortableKernels();
}

} // namespace ait
