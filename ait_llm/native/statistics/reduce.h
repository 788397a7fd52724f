// One pass over a tensor, in blocks that stay in the first-level cache.
#ifndef AIT_STATISTICS_REDUCE_H
#define AIT_STATISTICS_REDUCE_H

#include "ait_statistics.h"
#include "kernels.h"

namespace ait {

int Reduce(const Kernels &kernels, int element, const void *data, uint64_t count, double *numbers);
void ReduceBytes(const uint8_t *data, uint64_t count, const double *values, double *numbers);
bool Equal(const uint8_t *one, const uint8_t *other, uint64_t size);
uint64_t Sample(const uint8_t *data, uint64_t size);
uint32_t Crc32(const Kernels &kernels, uint32_t start, const uint8_t *data, uint64_t size);

} // namespace ait

#endif
