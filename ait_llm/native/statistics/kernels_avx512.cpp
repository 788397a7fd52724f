// Compiled for AVX-512 and VPCLMULQDQ; called only where the processor has them.
#include "kernels.h"

#include <cstring>

#include <immintrin.h>

namespace ait {
namespace {

// Sixteen single-precision numbers at a time; the sums are in double.
class Sums {
public:
    void Add(__m512 values)
    {
        low_ = _mm512_min_ps(values, low_);   // of a NaN and a number: the second operand
        high_ = _mm512_max_ps(values, high_);
        const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(values));
        const __m512d second = _mm512_cvtps_pd(_mm256_castpd_ps(
            _mm512_extractf64x4_pd(_mm512_castps_pd(values), 1)));
        Add(first, second);
    }

    // The same, with both halves from memory: cheaper than taking a register apart.
    void Add(const float *from)
    {
        const __m512 values = _mm512_loadu_ps(from);
        low_ = _mm512_min_ps(values, low_);
        high_ = _mm512_max_ps(values, high_);
        Add(_mm512_cvtps_pd(_mm256_loadu_ps(from)), _mm512_cvtps_pd(_mm256_loadu_ps(from + 8)));
    }

    void Join(const Sums &other, Block &block) const
    {
        block.low = static_cast<double>(_mm512_reduce_min_ps(_mm512_min_ps(low_, other.low_)));
        block.high = static_cast<double>(_mm512_reduce_max_ps(_mm512_max_ps(high_, other.high_)));
        block.sum = _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(sum_[0], sum_[1]),
                                                       _mm512_add_pd(other.sum_[0], other.sum_[1])));
        block.squares = _mm512_reduce_add_pd(
            _mm512_add_pd(_mm512_add_pd(squares_[0], squares_[1]),
                          _mm512_add_pd(other.squares_[0], other.squares_[1])));
    }

private:
    void Add(__m512d first, __m512d second)
    {
        sum_[0] = _mm512_add_pd(sum_[0], first);
        sum_[1] = _mm512_add_pd(sum_[1], second);
        squares_[0] = _mm512_fmadd_pd(first, first, squares_[0]);
        squares_[1] = _mm512_fmadd_pd(second, second, squares_[1]);
    }

    __m512 low_ = _mm512_set1_ps(__builtin_inff());
    __m512 high_ = _mm512_set1_ps(-__builtin_inff());
    __m512d sum_[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
    __m512d squares_[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};
};

void AddOne(double value, Block &block)
{
    block.low = value < block.low ? value : block.low;
    block.high = value > block.high ? value : block.high;
    block.sum += value;
    block.squares += value * value;
}

void ReduceFloats(const float *values, size_t count, Block &block)
{
    Sums even;
    Sums odd;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        even.Add(values + i);
        odd.Add(values + i + 16);
    }
    even.Join(odd, block);
    for (; i < count; ++i) {
        AddOne(static_cast<double>(values[i]), block);
    }
}

__m512 Widen(const uint16_t *from)
{
    const __m256i brains = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(brains), 16));
}

void ReduceBrains(const uint16_t *values, size_t count, Block &block)
{
    Sums even;
    Sums odd;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        even.Add(Widen(values + i));
        odd.Add(Widen(values + i + 16));
    }
    even.Join(odd, block);
    for (; i < count; ++i) {
        const uint32_t bits = static_cast<uint32_t>(values[i]) << 16;
        float value;
        memcpy(&value, &bits, sizeof(value));
        AddOne(static_cast<double>(value), block);
    }
}

// Folding constants for the reflected polynomial 0xEDB88320, computed as those of kernels_avx2.cpp:
// remainders of x^n for n = 4 * 512 + 32, 4 * 512 - 32 and 512 + 32, 512 - 32.
constexpr long long FOLD256_LOW = 0x011542778a;
constexpr long long FOLD256_HIGH = 0x01322d1430;
constexpr long long FOLD64_LOW = 0x0154442bd4;
constexpr long long FOLD64_HIGH = 0x01c6e41596;
constexpr size_t STRIDE = 256;

__m512i Load(const uint8_t *from)
{
    return _mm512_loadu_si512(from);
}

__m512i Fold(__m512i state, __m512i constants, __m512i next)
{
    const __m512i low = _mm512_clmulepi64_epi128(state, constants, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(state, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); // exclusive or of all three
}

uint32_t Crc32(uint32_t state, const uint8_t *data, size_t size)
{
    if (size < 2 * STRIDE) {
        return Avx2Kernels().crc32(state, data, size);
    }
    __m512i a = _mm512_xor_si512(
        Load(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
    __m512i b = Load(data + 64);
    __m512i c = Load(data + 128);
    __m512i d = Load(data + 192);
    const __m512i far = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD256_HIGH, FOLD256_LOW));
    for (data += STRIDE, size -= STRIDE; size >= STRIDE; data += STRIDE, size -= STRIDE) {
        a = Fold(a, far, Load(data));
        b = Fold(b, far, Load(data + 64));
        c = Fold(c, far, Load(data + 128));
        d = Fold(d, far, Load(data + 192));
    }
    const __m512i near = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD64_HIGH, FOLD64_LOW));
    a = Fold(a, near, b);
    a = Fold(a, near, c);
    a = Fold(a, near, d);
    // The 64 bytes of `a` have the same remainder as all that they stand for: the narrower kernel
    // ends the calculation, with a start that changes nothing.
    alignas(64) uint8_t rest[64 + STRIDE];
    _mm512_store_si512(rest, a);
    memcpy(rest + 64, data, size);
    return Avx2Kernels().crc32(0, rest, 64 + size);
}

} // namespace

const Kernels &Avx512Kernels()
{
    static const Kernels kernels = [] {
        Kernels best = Avx2Kernels();
        best.reduceFloats = ReduceFloats;
        best.reduceBrains = ReduceBrains;
        best.crc32 = Crc32;
        return best;
    }();
    return kernels;
}

} // namespace ait
