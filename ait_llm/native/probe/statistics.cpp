#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace ait {
namespace {

// aclDataType
enum : int64_t {
    FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, INT32 = 3, UINT8 = 4, INT16 = 6, UINT16 = 7, UINT32 = 8,
    INT64 = 9, UINT64 = 10, FLOAT64 = 11, BOOL = 12, BFLOAT16 = 27
};

size_t ElementSize(int64_t dtype)
{
    switch (dtype) {
        case INT8:
        case UINT8:
        case BOOL:
            return 1;
        case FLOAT16:
        case BFLOAT16:
        case INT16:
        case UINT16:
            return 2;
        case FLOAT32:
        case INT32:
        case UINT32:
            return 4;
        case INT64:
        case UINT64:
        case FLOAT64:
            return 8;
        default:
            return 0;
    }
}

template <typename To, typename From> To Bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same width");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

// Moves the exponent by multiplication, which also normalises subnormal halves; no branches, so
// that the loop vectorises.
float HalfToFloat(uint16_t half)
{
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const float scaled = Bits<float>(magnitude) * 0x1p112f;
    const uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    return Bits<float>(Bits<uint32_t>(scaled) | special | sign);
}

float BrainToFloat(uint16_t brain)
{
    return Bits<float>(static_cast<uint32_t>(brain) << 16);
}

template <typename Raw, typename Number, typename Decode>
void DecodeInto(const uint8_t *data, size_t count, Number *out, Decode decode)
{
    for (size_t i = 0; i < count; ++i) {
        Raw raw;
        memcpy(&raw, data + i * sizeof(Raw), sizeof(Raw));
        out[i] = static_cast<Number>(decode(raw));
    }
}

} // namespace

Statistics::Statistics(int64_t dtype) : dtype_(dtype), elementSize_(ElementSize(dtype))
{
    std::fill(min_, min_ + LANES, std::numeric_limits<double>::infinity());
    std::fill(max_, max_ + LANES, -std::numeric_limits<double>::infinity());
}

template <typename Number> void Statistics::Accumulate(const Number *values, size_t count)
{
    const Number limit = std::numeric_limits<Number>::max();
    const size_t first = static_cast<size_t>(count_ % LANES);
    uint64_t nan = 0;
    uint64_t finite = 0;
    const auto one = [&](Number value, size_t lane) {
        const bool isFinite = value >= -limit && value <= limit; // false for NaN
        nan += value != value ? 1 : 0;
        finite += isFinite ? 1 : 0;
        const double number = isFinite ? static_cast<double>(value) : 0.0;
        const double low = isFinite ? number : std::numeric_limits<double>::infinity();
        const double high = isFinite ? number : -std::numeric_limits<double>::infinity();
        min_[lane] = low < min_[lane] ? low : min_[lane];
        max_[lane] = high > max_[lane] ? high : max_[lane];
        sum_[lane] += number;
        squares_[lane] += number * number;
    };
    size_t i = 0;
    if (first == 0) {
        for (; i + LANES <= count; i += LANES) {
            for (size_t lane = 0; lane < LANES; ++lane) {
                one(values[i + lane], lane);
            }
        }
    }
    for (; i < count; ++i) {
        one(values[i], (first + i) % LANES);
    }
    count_ += count;
    nan_ += nan;
    inf_ += count - nan - finite;
}

void Statistics::AddElements(const uint8_t *data, size_t count)
{
    constexpr size_t BLOCK = 1024; // stays in the first-level cache
    float floats[BLOCK];
    double doubles[BLOCK];
    const auto same = [](auto value) { return value; };
    while (count > 0) {
        const size_t n = std::min(count, BLOCK);
        bool single = true;
        switch (dtype_) {
            case FLOAT16: DecodeInto<uint16_t>(data, n, floats, HalfToFloat); break;
            case BFLOAT16: DecodeInto<uint16_t>(data, n, floats, BrainToFloat); break;
            case FLOAT32: memcpy(floats, data, n * sizeof(float)); break;
            case INT8: DecodeInto<int8_t>(data, n, floats, same); break;
            case UINT8:
            case BOOL: DecodeInto<uint8_t>(data, n, floats, same); break;
            case INT16: DecodeInto<int16_t>(data, n, floats, same); break;
            case UINT16: DecodeInto<uint16_t>(data, n, floats, same); break;
            default: single = false; break;
        }
        switch (dtype_) {
            case INT32: DecodeInto<int32_t>(data, n, doubles, same); break;
            case UINT32: DecodeInto<uint32_t>(data, n, doubles, same); break;
            case INT64: DecodeInto<int64_t>(data, n, doubles, same); break;
            case UINT64: DecodeInto<uint64_t>(data, n, doubles, same); break;
            case FLOAT64: memcpy(doubles, data, n * sizeof(double)); break;
            default: break;
        }
        if (single) {
            Accumulate(floats, n);
        } else {
            Accumulate(doubles, n);
        }
        data += n * elementSize_;
        count -= n;
    }
}

void Statistics::Add(const void *data, size_t size)
{
    if (!Supported()) {
        return;
    }
    const auto *bytes = static_cast<const uint8_t *>(data);
    if (carried_ > 0) {
        const size_t missing = std::min(elementSize_ - carried_, size);
        memcpy(carry_ + carried_, bytes, missing);
        carried_ += missing;
        bytes += missing;
        size -= missing;
        if (carried_ < elementSize_) {
            return;
        }
        AddElements(carry_, 1);
        carried_ = 0;
    }
    AddElements(bytes, size / elementSize_);
    carried_ = size % elementSize_;
    memcpy(carry_, bytes + (size - carried_), carried_);
}

double Statistics::Min() const
{
    return Finite() == 0 ? std::nan("") : *std::min_element(min_, min_ + LANES);
}

double Statistics::Max() const
{
    return Finite() == 0 ? std::nan("") : *std::max_element(max_, max_ + LANES);
}

double Statistics::Mean() const
{
    double sum = 0;
    for (double lane : sum_) {
        sum += lane;
    }
    return Finite() == 0 ? std::nan("") : sum / static_cast<double>(Finite());
}

double Statistics::L2Norm() const
{
    double squares = 0;
    for (double lane : squares_) {
        squares += lane;
    }
    return Finite() == 0 ? std::nan("") : std::sqrt(squares);
}

bool Statistics::WholeNumbers() const
{
    return Supported() && dtype_ != FLOAT16 && dtype_ != BFLOAT16 && dtype_ != FLOAT32 &&
           dtype_ != FLOAT64;
}

bool Statistics::Odd() const
{
    double end = 0;
    switch (dtype_) {
        case FLOAT16: end = 65504.0; break;
        case BFLOAT16: end = BrainToFloat(0x7F7F); break;
        case FLOAT32: end = std::numeric_limits<float>::max(); break;
        case FLOAT64: end = std::numeric_limits<double>::max(); break;
        default: return false;
    }
    // comparing with NaN, where no element is finite, is false
    return nan_ + inf_ > 0 || Max() >= end || Min() <= -end;
}

std::string NumberText(double value)
{
    if (std::isnan(value)) {
        return "nan";
    }
    if (std::isinf(value)) {
        return value < 0 ? "-inf" : "inf";
    }
    char text[40];
    for (int digits = 1; digits <= 17; ++digits) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, nullptr) == value) {
            break;
        }
    }
    return text;
}

std::string Statistics::HeaderLines(bool fixedWidth) const
{
    if (!Supported()) {
        return "";
    }
    const auto number = [&](double value) {
        if (!fixedWidth || !std::isfinite(value)) {
            return NumberText(value);
        }
        char text[40];
        const bool wideExponent = std::abs(value) >= 1e100 ||
                                  (value != 0 && std::abs(value) < 1e-99);
        snprintf(text, sizeof(text), "%+.*e", wideExponent ? 15 : 16, value);
        return std::string(text);
    };
    const auto whole = [&](uint64_t value) {
        char text[24];
        snprintf(text, sizeof(text), fixedWidth ? "%012llu" : "%llu",
                 static_cast<unsigned long long>(value));
        return std::string(text);
    };
    return "max=" + number(Max()) + "\nmin=" + number(Min()) + "\nmean=" + number(Mean()) +
           "\nl2norm=" + number(L2Norm()) + "\nnan=" + whole(nan_) + "\ninf=" + whole(inf_) + "\n";
}

} // namespace ait
