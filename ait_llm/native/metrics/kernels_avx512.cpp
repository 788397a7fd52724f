// Compiled for AVX-512 F, BW, DQ and VL; called only where the processor has them.
#include "kernels.h"

#include "kernels.inc"

namespace ait {

const PairKernels &Avx512PairKernels()
{
    return KERNELS;
}

} // namespace ait
