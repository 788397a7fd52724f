// Element types: their size, their numbers, and which loops this processor runs.
#include "pass.h"

#include <cstring>

namespace ait {
namespace {

template <typename Raw, typename Number>
void Convert(const void *data, size_t count, Number *out)
{
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < count; ++i) {
        Raw raw;
        memcpy(&raw, bytes + i * sizeof(Raw), sizeof(Raw));
        out[i] = static_cast<Number>(raw);
    }
}

template <typename Number>
void Look(const float *table, const void *data, size_t count, Number *out)
{
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < count; ++i) {
        out[i] = static_cast<Number>(table[bytes[i]]);
    }
}

// Whether a table says what the bytes are as integers.
template <typename Integer> bool Counts(const float *table)
{
    for (int byte = 0; byte < 256; ++byte) {
        if (table[byte] != static_cast<float>(static_cast<Integer>(byte))) {
            return false;
        }
    }
    return true;
}

// The sixteen-bit loops want aligned elements.
void Sixteen(void (*decode)(const uint16_t *, size_t, float *), const void *data, size_t count,
             float *out)
{
    uint16_t aligned[PAIR_BLOCK];
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < count; i += PAIR_BLOCK) {
        const size_t here = count - i < PAIR_BLOCK ? count - i : PAIR_BLOCK;
        memcpy(aligned, bytes + 2 * i, 2 * here);
        decode(aligned, here, out + i);
    }
}

} // namespace

const PairKernels *KernelsOf(int variant)
{
#ifdef AIT_X86
    static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                             __builtin_cpu_supports("f16c");
    static const bool avx512 =
        avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && (variant == AIT_PAIR_BEST || variant == AIT_PAIR_AVX512)) {
        return &Avx512PairKernels();
    }
    if (avx2 && (variant == AIT_PAIR_BEST || variant == AIT_PAIR_AVX2)) {
        return &Avx2PairKernels();
    }
#endif
    if (variant == AIT_PAIR_BEST || variant == AIT_PAIR_PORTABLE) {
        return &PortablePairKernels();
    }
    return nullptr;
}

int Resolved(int type, const float *table)
{
    if (type != AIT_PAIR_BYTE) {
        return type;
    }
    return Counts<int8_t>(table)    ? SIGNED_BYTE
           : Counts<uint8_t>(table) ? UNSIGNED_BYTE
                                    : type;
}

size_t ElementSize(int type)
{
    switch (type) {
        case AIT_PAIR_BYTE:
        case SIGNED_BYTE:
        case UNSIGNED_BYTE: return 1;
        case AIT_PAIR_FLOAT16:
        case AIT_PAIR_BFLOAT16:
        case AIT_PAIR_INT16:
        case AIT_PAIR_UINT16: return 2;
        case AIT_PAIR_FLOAT32:
        case AIT_PAIR_INT32:
        case AIT_PAIR_UINT32: return 4;
        case AIT_PAIR_FLOAT64:
        case AIT_PAIR_INT64:
        case AIT_PAIR_UINT64: return 8;
        default: return 0;
    }
}

bool FitsFloat(int type)
{
    return type == AIT_PAIR_FLOAT32 || ElementSize(type) <= 2;
}

const PairLoops *LoopsOf(const PairKernels &kernels, int type)
{
    switch (type) {
        case AIT_PAIR_FLOAT16: return &kernels.halves;
        case AIT_PAIR_BFLOAT16: return &kernels.brains;
        case AIT_PAIR_FLOAT32: return &kernels.floats;
        default: return nullptr;
    }
}

void DecodeFloats(const PairKernels &kernels, int type, const float *table, const void *data,
                  size_t count, float *out)
{
    switch (type) {
        case AIT_PAIR_FLOAT32: memcpy(out, data, count * sizeof(float)); break;
        case AIT_PAIR_FLOAT16: Sixteen(kernels.decodeHalves, data, count, out); break;
        case AIT_PAIR_BFLOAT16: Sixteen(kernels.decodeBrains, data, count, out); break;
        case AIT_PAIR_INT16: Convert<int16_t>(data, count, out); break;
        case AIT_PAIR_UINT16: Convert<uint16_t>(data, count, out); break;
        case SIGNED_BYTE: kernels.decodeSigned(static_cast<const int8_t *>(data), count, out); break;
        case UNSIGNED_BYTE:
            kernels.decodeUnsigned(static_cast<const uint8_t *>(data), count, out);
            break;
        default: Look(table, data, count, out); break;
    }
}

void DecodeDoubles(const PairKernels &kernels, int type, const float *table, const void *data,
                   size_t count, double *out)
{
    switch (type) {
        case AIT_PAIR_FLOAT64: memcpy(out, data, count * sizeof(double)); break;
        case AIT_PAIR_FLOAT32: Convert<float>(data, count, out); break;
        case AIT_PAIR_INT16: Convert<int16_t>(data, count, out); break;
        case AIT_PAIR_UINT16: Convert<uint16_t>(data, count, out); break;
        case AIT_PAIR_INT32: Convert<int32_t>(data, count, out); break;
        case AIT_PAIR_UINT32: Convert<uint32_t>(data, count, out); break;
        case AIT_PAIR_INT64: Convert<int64_t>(data, count, out); break;
        case AIT_PAIR_UINT64: Convert<uint64_t>(data, count, out); break;
        case AIT_PAIR_BYTE:
        case SIGNED_BYTE:
        case UNSIGNED_BYTE: Look(table, data, count, out); break;
        default: {
            float floats[PAIR_BLOCK];
            const auto *bytes = static_cast<const unsigned char *>(data);
            for (size_t i = 0; i < count; i += PAIR_BLOCK) {
                const size_t here = count - i < PAIR_BLOCK ? count - i : PAIR_BLOCK;
                DecodeFloats(kernels, type, table, bytes + 2 * i, here, floats);
                for (size_t k = 0; k < here; ++k) {
                    out[i + k] = static_cast<double>(floats[k]);
                }
            }
        }
    }
}

} // namespace ait
