#include "kernels.h"

#include "kernels.inc"

namespace ait {

const PairKernels &PortablePairKernels()
{
    return KERNELS;
}

} // namespace ait
