// Compiled for AVX2, FMA and PCLMULQDQ; called only where the processor has them.
#include "kernels.h"

#include <immintrin.h>

#include "kernels.inc"

namespace ait {
namespace {

// Folding constants for the reflected polynomial 0xEDB88320: remainders of x^n modulo it, for the
// distances that one step of 64 or 16 bytes covers (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel 2009).
constexpr long long FOLD64_LOW = 0x0154442bd4;   // n = 4 * 128 + 32
constexpr long long FOLD64_HIGH = 0x01c6e41596;  // n = 4 * 128 - 32
constexpr long long FOLD16_LOW = 0x01751997d0;   // n = 128 + 32
constexpr long long FOLD16_HIGH = 0x00ccaa009e;  // n = 128 - 32
constexpr long long FOLD8 = 0x0163cd6124;        // n = 64
constexpr long long POLYNOMIAL = 0x01db710641;
constexpr long long QUOTIENT = 0x01f7011641;     // floor(x^64 / polynomial)

inline __m128i Load(const uint8_t *from)
{
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
}

inline __m128i Fold(__m128i state, __m128i constants, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(state, constants, 0x00);
    const __m128i high = _mm_clmulepi64_si128(state, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// `size` is a multiple of 16 and at least 64.
uint32_t Crc32(uint32_t state, const uint8_t *data, size_t size)
{
    __m128i a = _mm_xor_si128(Load(data), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = Load(data + 16);
    __m128i c = Load(data + 32);
    __m128i d = Load(data + 48);
    const __m128i wide = _mm_set_epi64x(FOLD64_HIGH, FOLD64_LOW);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        a = Fold(a, wide, Load(data));
        b = Fold(b, wide, Load(data + 16));
        c = Fold(c, wide, Load(data + 32));
        d = Fold(d, wide, Load(data + 48));
    }
    const __m128i narrow = _mm_set_epi64x(FOLD16_HIGH, FOLD16_LOW);
    a = Fold(a, narrow, b);
    a = Fold(a, narrow, c);
    a = Fold(a, narrow, d);
    for (; size >= 16; data += 16, size -= 16) {
        a = Fold(a, narrow, Load(data));
    }
    // 128 bits to 64, then Barrett's reduction to 32.
    const __m128i mask = _mm_set_epi32(0, 0, 0, -1);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, narrow, 0x10));
    const __m128i upper = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(
        _mm_clmulepi64_si128(_mm_and_si128(a, mask), _mm_set_epi64x(0, FOLD8), 0x00), upper);
    const __m128i barrett = _mm_set_epi64x(QUOTIENT, POLYNOMIAL);
    __m128i t = _mm_clmulepi64_si128(_mm_and_si128(a, mask), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, mask), barrett, 0x00);
    return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(a, t), 1));
}

} // namespace

const Kernels &Avx2Kernels()
{
    static constexpr Kernels kernels = {ReduceFloats, ReduceDoubles, DecodeHalves, DecodeBrains,
                                        Crc32, nullptr};
    return kernels;
}

} // namespace ait
