// Infinities in float tensors, as ATB's overflow check and the device's saturation mode see them.
#ifndef AIT_HOSTATB_OVERFLOW_H
#define AIT_HOSTATB_OVERFLOW_H

#include "tensor.h"

namespace hostatb {

// True if a float16, bf16 or float tensor holds an infinity. Other dtypes never do.
bool HasInfinity(const HostatbTensor &tensor);

// Replaces infinities by the largest finite value of their sign. True if there was one.
bool ClampInfinities(const HostatbTensor &tensor);

} // namespace hostatb

#endif
