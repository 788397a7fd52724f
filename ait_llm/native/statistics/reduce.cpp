#include "reduce.h"

#include "team.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace ait {
namespace {

constexpr size_t BLOCK = 2048;
// Elements that one thread reduces at a time; a multiple of BLOCK. Sums are always formed within
// such a piece first, so that they are the same with any number of threads.
constexpr uint64_t PIECE = 1 << 15;
constexpr double INFINITE = std::numeric_limits<double>::infinity();
// Squares of doubles beyond these overflow, or lose digits to underflow.
constexpr double LARGE = 0x1p500;
constexpr double SMALL = 0x1p-450;

struct Total {
    double low = INFINITE;
    double high = -INFINITE;
    double sum = 0;
    double squares = 0;
    uint64_t finite = 0;
    uint64_t nan = 0;
    uint64_t inf = 0;

    void Add(const Block &block)
    {
        low = std::min(low, block.low);
        high = std::max(high, block.high);
        sum += block.sum;
        squares += block.squares;
    }

    void Join(const Total &other)
    {
        Add(Block{other.low, other.high, other.sum, other.squares});
        finite += other.finite;
        nan += other.nan;
        inf += other.inf;
    }

    void Write(double *numbers) const
    {
        const double none = std::numeric_limits<double>::quiet_NaN();
        numbers[AIT_MAX] = finite ? high : none;
        numbers[AIT_MIN] = finite ? low : none;
        numbers[AIT_MEAN] = finite ? sum / static_cast<double>(finite) : none;
        numbers[AIT_L2NORM] = finite ? std::sqrt(squares) : none;
        numbers[AIT_NAN_COUNT] = static_cast<double>(nan);
        numbers[AIT_INF_COUNT] = static_cast<double>(inf);
    }
};

// For blocks with elements that are not finite.
template <typename Number> void AddCarefully(const Number *values, size_t count, Total &total)
{
    Block block = {INFINITE, -INFINITE, 0, 0};
    for (size_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(values[i]);
        if (std::isfinite(value)) {
            block.low = std::min(block.low, value);
            block.high = std::max(block.high, value);
            block.sum += value;
            block.squares += value * value;
            ++total.finite;
        } else if (std::isnan(value)) {
            ++total.nan;
        } else {
            ++total.inf;
        }
    }
    total.Add(block);
}

template <typename Number, typename Kernel>
void AddBlock(Kernel kernel, const Number *values, size_t count, Total &total)
{
    Block block;
    kernel(values, count, block);
    if (std::isfinite(block.squares)) {
        total.Add(block);
        total.finite += count;
    } else {
        AddCarefully(values, count, total);
    }
}

// Calls action(block of Number, size) for pieces of `data`, converted by decode(from, size, out).
template <typename Raw, typename Number, typename Decode, typename Action>
void ForBlocks(const void *data, uint64_t count, Decode decode, Action action)
{
    Raw raw[BLOCK];
    Number numbers[BLOCK];
    const auto *bytes = static_cast<const uint8_t *>(data);
    while (count > 0) {
        const auto size = static_cast<size_t>(std::min<uint64_t>(count, BLOCK));
        memcpy(raw, bytes, size * sizeof(Raw));
        decode(raw, size, numbers);
        action(numbers, size);
        bytes += size * sizeof(Raw);
        count -= size;
    }
}

// The same without a copy, for data that lie where their type wants them.
template <typename Number, typename Action>
void ForBlocksInPlace(const void *data, uint64_t count, Action action)
{
    if (reinterpret_cast<uintptr_t>(data) % alignof(Number) != 0) {
        const auto same = [](const Number *from, size_t size, Number *to) {
            memcpy(to, from, size * sizeof(Number));
        };
        ForBlocks<Number, Number>(data, count, same, action);
        return;
    }
    const auto *numbers = static_cast<const Number *>(data);
    while (count > 0) {
        const auto size = static_cast<size_t>(std::min<uint64_t>(count, BLOCK));
        action(numbers, size);
        numbers += size;
        count -= size;
    }
}

void ReduceBrains(const Kernels &kernels, const void *data, uint64_t count, Total &total)
{
    if (kernels.reduceBrains == nullptr || reinterpret_cast<uintptr_t>(data) % 2 != 0) {
        ForBlocks<uint16_t, float>(data, count, kernels.decodeBrains,
                                   [&](const float *values, size_t size) {
                                       AddBlock(kernels.reduceFloats, values, size, total);
                                   });
        return;
    }
    const auto *brains = static_cast<const uint16_t *>(data);
    while (count > 0) {
        const auto size = static_cast<size_t>(std::min<uint64_t>(count, BLOCK));
        Block block;
        kernels.reduceBrains(brains, size, block);
        if (std::isfinite(block.squares)) {
            total.Add(block);
            total.finite += size;
        } else {
            float values[BLOCK];
            kernels.decodeBrains(brains, size, values);
            AddCarefully(values, size, total);
        }
        brains += size;
        count -= size;
    }
}

// A second pass with the numbers brought near 1 by a power of two, so that sum and squares are in
// range.
void RescaleDoubles(const void *data, uint64_t count, const Total &total, double *numbers)
{
    const int exponent = std::ilogb(std::max(std::abs(total.low), std::abs(total.high)));
    double sum = 0;
    double squares = 0;
    ForBlocksInPlace<double>(data, count, [&](const double *values, size_t size) {
        for (size_t i = 0; i < size; ++i) {
            if (std::isfinite(values[i])) {
                const double scaled = std::ldexp(values[i], -exponent);
                sum += scaled;
                squares += scaled * scaled;
            }
        }
    });
    numbers[AIT_MEAN] = std::ldexp(sum / static_cast<double>(total.finite), exponent);
    numbers[AIT_L2NORM] = std::ldexp(std::sqrt(squares), exponent);
}

template <typename Integer>
void ReduceIntegers(const Kernels &kernels, const void *data, uint64_t count, Total &total)
{
    const auto convert = [](const Integer *from, size_t size, double *to) {
        for (size_t i = 0; i < size; ++i) {
            to[i] = static_cast<double>(from[i]);
        }
    };
    ForBlocks<Integer, double>(data, count, convert, [&](const double *values, size_t size) {
        AddBlock(kernels.reduceDoubles, values, size, total);
    });
}

// Bytes of an element; 0 for unknown types.
uint64_t ElementSize(int element)
{
    switch (element) {
        case AIT_FLOAT16:
        case AIT_BFLOAT16:
        case AIT_INT16:
        case AIT_UINT16: return 2;
        case AIT_FLOAT32:
        case AIT_INT32:
        case AIT_UINT32: return 4;
        case AIT_FLOAT64:
        case AIT_INT64:
        case AIT_UINT64: return 8;
        default: return 0;
    }
}

// Adds elements of a known type.
void ReducePiece(const Kernels &kernels, int element, const void *data, uint64_t count, Total &total)
{
    const auto addFloats = [&](const float *values, size_t size) {
        AddBlock(kernels.reduceFloats, values, size, total);
    };
    switch (element) {
        case AIT_FLOAT32: ForBlocksInPlace<float>(data, count, addFloats); break;
        case AIT_FLOAT64:
            ForBlocksInPlace<double>(data, count, [&](const double *values, size_t size) {
                AddBlock(kernels.reduceDoubles, values, size, total);
            });
            break;
        case AIT_FLOAT16:
            ForBlocks<uint16_t, float>(data, count, kernels.decodeHalves, addFloats);
            break;
        case AIT_BFLOAT16: ReduceBrains(kernels, data, count, total); break;
        case AIT_INT16: ReduceIntegers<int16_t>(kernels, data, count, total); break;
        case AIT_UINT16: ReduceIntegers<uint16_t>(kernels, data, count, total); break;
        case AIT_INT32: ReduceIntegers<int32_t>(kernels, data, count, total); break;
        case AIT_UINT32: ReduceIntegers<uint32_t>(kernels, data, count, total); break;
        case AIT_INT64: ReduceIntegers<int64_t>(kernels, data, count, total); break;
        default: ReduceIntegers<uint64_t>(kernels, data, count, total); break;
    }
}

// CRC-32, one table for each of the bytes of a 64-bit word.
struct CrcTables {
    uint32_t table[8][256];

    CrcTables()
    {
        for (uint32_t byte = 0; byte < 256; ++byte) {
            uint32_t value = byte;
            for (int bit = 0; bit < 8; ++bit) {
                value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
            }
            table[0][byte] = value;
        }
        for (size_t k = 1; k < 8; ++k) {
            for (size_t byte = 0; byte < 256; ++byte) {
                const uint32_t before = table[k - 1][byte];
                table[k][byte] = (before >> 8) ^ table[0][before & 0xff];
            }
        }
    }
};

uint32_t TableCrc32(uint32_t state, const uint8_t *data, uint64_t size)
{
    static const CrcTables tables;
    const auto &t = tables.table;
    for (; size >= 8; data += 8, size -= 8) {
        state = t[7][(state ^ data[0]) & 0xff] ^ t[6][((state >> 8) ^ data[1]) & 0xff] ^
                t[5][((state >> 16) ^ data[2]) & 0xff] ^ t[4][((state >> 24) ^ data[3]) & 0xff] ^
                t[3][data[4]] ^ t[2][data[5]] ^ t[1][data[6]] ^ t[0][data[7]];
    }
    for (; size > 0; ++data, --size) {
        state = (state >> 8) ^ t[0][(state ^ *data) & 0xff];
    }
    return state;
}

} // namespace

int Reduce(const Kernels &kernels, int element, const void *data, uint64_t count, double *numbers)
{
    const uint64_t width = ElementSize(element);
    if (width == 0) {
        return 1;
    }
    std::vector<Total> totals((count + PIECE - 1) / PIECE);
    ForPieces(totals.size(), [&](uint64_t k) {
        const void *from = static_cast<const uint8_t *>(data) + k * PIECE * width;
        // Not in the vector, whose neighbours other threads write.
        Total total;
        ReducePiece(kernels, element, from, std::min(PIECE, count - k * PIECE), total);
        totals[k] = total;
    });
    Total total;
    for (const Total &piece : totals) {
        total.Join(piece);
    }
    total.Write(numbers);
    const double largest = std::max(std::abs(total.low), std::abs(total.high));
    if (element == AIT_FLOAT64 && total.finite != 0 && largest != 0 &&
        (largest > LARGE || largest < SMALL)) {
        RescaleDoubles(data, count, total, numbers);
    }
    return 0;
}

bool Equal(const uint8_t *one, const uint8_t *other, uint64_t size)
{
    constexpr uint64_t STRETCH = 1 << 18;
    std::atomic<bool> same{true};
    ForPieces((size + STRETCH - 1) / STRETCH, [&](uint64_t k) {
        const uint64_t from = k * STRETCH;
        if (same.load(std::memory_order_relaxed) &&
            memcmp(one + from, other + from, std::min(STRETCH, size - from)) != 0) {
            same.store(false, std::memory_order_relaxed);
        }
    });
    return same.load();
}

void ReduceBytes(const uint8_t *data, uint64_t count, const double *values, double *numbers)
{
    // Two histograms, because equal neighbours would wait for each other's counter.
    uint64_t seen[2][256] = {};
    uint64_t i = 0;
    for (; i + 2 <= count; i += 2) {
        ++seen[0][data[i]];
        ++seen[1][data[i + 1]];
    }
    if (i < count) {
        ++seen[0][data[i]];
    }
    Total total;
    for (size_t byte = 0; byte < 256; ++byte) {
        const uint64_t times = seen[0][byte] + seen[1][byte];
        const double value = values[byte];
        if (times == 0) {
            continue;
        }
        if (std::isfinite(value)) {
            const auto weight = static_cast<double>(times);
            total.Add({value, value, value * weight, value * value * weight});
            total.finite += times;
        } else {
            (std::isnan(value) ? total.nan : total.inf) += times;
        }
    }
    total.Write(numbers);
}

uint64_t Sample(const uint8_t *data, uint64_t size)
{
    constexpr uint64_t STRETCH = 64;
    constexpr uint64_t STRETCHES = 256;
    constexpr size_t LANES = STRETCH / sizeof(uint64_t);
    // An odd multiplier makes each step a bijection: one changed word always changes the mark.
    constexpr uint64_t ODD = 0x9E3779B97F4A7C15u;
    const auto step = [](uint64_t mark, uint64_t word) {
        mark = (mark ^ word) * ODD;
        return mark ^ (mark >> 32);
    };
    // A mark for each word of a stretch, because one step has to wait for the step before it.
    uint64_t lanes[LANES] = {};
    const auto mix = [&](const uint8_t *from) {
        uint64_t words[LANES];
        memcpy(words, from, STRETCH);
        for (size_t i = 0; i < LANES; ++i) {
            lanes[i] = step(lanes[i], words[i]);
        }
    };
    uint64_t mark = size;
    if (size <= 2 * STRETCH * STRETCHES) {
        for (; size >= STRETCH; data += STRETCH, size -= STRETCH) {
            mix(data);
        }
        for (; size > 0; ++data, --size) {
            mark = step(mark, *data);
        }
    } else {
        const uint64_t last = size - STRETCH;
        for (uint64_t k = 0; k + 1 < STRETCHES; ++k) {
            mix(data + last / (STRETCHES - 1) * k);
        }
        mix(data + last);
    }
    for (const uint64_t lane : lanes) {
        mark = step(mark, lane);
    }
    return mark;
}

uint32_t Crc32(const Kernels &kernels, uint32_t start, const uint8_t *data, uint64_t size)
{
    uint32_t state = ~start;
    if (kernels.crc32 != nullptr && size >= 64) {
        const uint64_t whole = size & ~static_cast<uint64_t>(15);
        state = kernels.crc32(state, data, static_cast<size_t>(whole));
        data += whole;
        size -= whole;
    }
    return ~TableCrc32(state, data, size);
}

} // namespace ait

extern "C" {

int ait_statistics(int element, const void *data, uint64_t count, double numbers[6])
try {
    return ait::Reduce(ait::BestKernels(), element, data, count, numbers);
} catch (const std::bad_alloc &) {
    return 2;
}

void ait_byte_statistics(const void *data, uint64_t count, const double values[256],
                         double numbers[6])
{
    ait::ReduceBytes(static_cast<const uint8_t *>(data), count, values, numbers);
}

uint64_t ait_sample(const void *data, uint64_t size)
{
    return ait::Sample(static_cast<const uint8_t *>(data), size);
}

int ait_equal(const void *one, const void *other, uint64_t size)
{
    return ait::Equal(static_cast<const uint8_t *>(one), static_cast<const uint8_t *>(other), size);
}

uint32_t ait_crc32(uint32_t start, const void *data, uint64_t size)
{
    return ait::Crc32(ait::BestKernels(), start, static_cast<const uint8_t *>(data), size);
}

} // extern "C"
