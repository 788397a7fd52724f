// The inner loops, compiled once for any processor and, on x86-64, once more for AVX2 and AVX-512.
#ifndef AIT_STATISTICS_KERNELS_H
#define AIT_STATISTICS_KERNELS_H

#include <cstddef>
#include <cstdint>

namespace ait {

// Partial results over elements that are all finite.
struct Block {
    double low;
    double high;
    double sum;
    double squares; // not finite if an element is not, or if a double's square overflows
};

struct Kernels {
    void (*reduceFloats)(const float *values, size_t count, Block &block);
    void (*reduceDoubles)(const double *values, size_t count, Block &block);
    void (*decodeHalves)(const uint16_t *values, size_t count, float *out);
    void (*decodeBrains)(const uint16_t *values, size_t count, float *out);
    // nullptr where the processor has no instructions for it.
    uint32_t (*crc32)(uint32_t state, const uint8_t *data, size_t size);
    // Decodes and reduces in one; nullptr where decodeBrains and reduceFloats do it.
    void (*reduceBrains)(const uint16_t *values, size_t count, Block &block);
};

const Kernels &PortableKernels();
// Only for processors with AVX2, FMA and PCLMULQDQ; absent on other architectures.
const Kernels &Avx2Kernels();
// Only for processors that also have AVX-512 and VPCLMULQDQ.
const Kernels &Avx512Kernels();
// The best for this processor.
const Kernels &BestKernels();

} // namespace ait

#endif
