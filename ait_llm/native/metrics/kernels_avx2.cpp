// Compiled for AVX2, FMA and F16C; called only where the processor has them.
#include "kernels.h"

#include "kernels.inc"

namespace ait {

const PairKernels &Avx2PairKernels()
{
    return KERNELS;
}

} // namespace ait
