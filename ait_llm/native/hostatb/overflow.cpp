#include "overflow.h"

#include <cstddef>

namespace hostatb {
namespace {

// Exponent and mantissa bits of an infinity; the next lower pattern is the largest finite value.
constexpr uint16_t kHalfInfinity = 0x7C00;
constexpr uint16_t kBfloatInfinity = 0x7F80;
constexpr uint32_t kFloatInfinity = 0x7F800000;

template <typename Bits> bool Scan(const HostatbTensor &tensor, Bits infinity)
{
    constexpr Bits magnitude = static_cast<Bits>(~Bits{0}) >> 1;
    const Bits *values = static_cast<const Bits *>(tensor.data);
    const size_t count = tensor.size / sizeof(Bits);
    bool found = false;
    for (size_t i = 0; i < count; ++i) {
        found |= static_cast<Bits>(values[i] & magnitude) == infinity;
    }
    return found;
}

template <typename Bits> bool Clamp(const HostatbTensor &tensor, Bits infinity)
{
    if (!Scan(tensor, infinity)) {
        return false;
    }
    constexpr Bits magnitude = static_cast<Bits>(~Bits{0}) >> 1;
    Bits *values = static_cast<Bits *>(tensor.data);
    for (size_t i = 0; i < tensor.size / sizeof(Bits); ++i) {
        if (static_cast<Bits>(values[i] & magnitude) == infinity) {
            values[i] = static_cast<Bits>(values[i] - 1);
        }
    }
    return true;
}

} // namespace

bool HasInfinity(const HostatbTensor &tensor)
{
    if (tensor.data == nullptr) {
        return false;
    }
    switch (tensor.desc.dtype) {
    case 0:
        return Scan(tensor, kFloatInfinity);
    case 1:
        return Scan(tensor, kHalfInfinity);
    case 27:
        return Scan(tensor, kBfloatInfinity);
    default:
        return false;
    }
}

bool ClampInfinities(const HostatbTensor &tensor)
{
    if (tensor.data == nullptr) {
        return false;
    }
    switch (tensor.desc.dtype) {
    case 0:
        return Clamp(tensor, kFloatInfinity);
    case 1:
        return Clamp(tensor, kHalfInfinity);
    case 27:
        return Clamp(tensor, kBfloatInfinity);
    default:
        return false;
    }
}

} // namespace hostatb
