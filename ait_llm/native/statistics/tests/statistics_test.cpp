// Compares every version of the kernels with plain loops in long double.
#include "reduce.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace {

int g_failures = 0;

void Expect(bool holds, const char *what, double got, double wanted)
{
    if (!holds) {
        ++g_failures;
        fprintf(stderr, "%s: got %.17g, expected %.17g\n", what, got, wanted);
    }
}

bool Near(double got, long double wanted, long double scale)
{
    if (std::isnan(got) || std::isnan(wanted)) {
        return std::isnan(got) && std::isnan(wanted);
    }
    const long double rounding = std::numeric_limits<double>::denorm_min() / 2.0L;
    return std::fabs(static_cast<long double>(got) - wanted) <= 1e-13L * scale + rounding;
}

template <typename Number>
void CheckAgainstLoop(const ait::Kernels &kernels, int element, const void *data,
                      const std::vector<Number> &values)
{
    long double low = std::numeric_limits<double>::infinity();
    long double high = -low;
    long double sum = 0;
    long double magnitude = 0;
    long double squares = 0;
    double nan = 0;
    double inf = 0;
    size_t finite = 0;
    for (Number each : values) {
        const auto value = static_cast<long double>(each);
        if (std::isnan(value)) {
            ++nan;
        } else if (std::isinf(value)) {
            ++inf;
        } else {
            low = std::fmin(low, value);
            high = std::fmax(high, value);
            sum += value;
            magnitude += std::fabs(value);
            squares += value * value;
            ++finite;
        }
    }
    double numbers[6];
    Expect(ait::Reduce(kernels, element, data, values.size(), numbers) == 0, "known", 1, 0);
    const long double none = std::numeric_limits<double>::quiet_NaN();
    const auto count = static_cast<long double>(finite);
    const long double wanted[4] = {finite ? high : none, finite ? low : none,
                                   finite ? sum / count : none,
                                   finite ? std::sqrt(squares) : none};
    Expect(Near(numbers[AIT_MAX], wanted[0], 0) || (std::isnan(wanted[0]) && !finite), "max",
           numbers[AIT_MAX], static_cast<double>(wanted[0]));
    Expect(Near(numbers[AIT_MIN], wanted[1], 0) || (std::isnan(wanted[1]) && !finite), "min",
           numbers[AIT_MIN], static_cast<double>(wanted[1]));
    Expect(Near(numbers[AIT_MEAN], wanted[2], finite ? magnitude / count : 0), "mean",
           numbers[AIT_MEAN], static_cast<double>(wanted[2]));
    Expect(Near(numbers[AIT_L2NORM], wanted[3], std::sqrt(squares)), "norm", numbers[AIT_L2NORM],
           static_cast<double>(wanted[3]));
    Expect(numbers[AIT_NAN_COUNT] == nan, "nan", numbers[AIT_NAN_COUNT], nan);
    Expect(numbers[AIT_INF_COUNT] == inf, "inf", numbers[AIT_INF_COUNT], inf);
}

template <typename Number, typename Make>
void CheckSizes(const ait::Kernels &kernels, int element, Make make)
{
    for (size_t size : {0u, 1u, 3u, 15u, 16u, 17u, 255u, 2048u, 2049u, 5000u}) {
        std::vector<Number> values(size);
        for (Number &value : values) {
            value = make();
        }
        CheckAgainstLoop(kernels, element, values.data(), values);
        // A view may begin anywhere.
        std::vector<uint8_t> shifted(size * sizeof(Number) + 1);
        if (size != 0) {
            memcpy(shifted.data() + 1, values.data(), size * sizeof(Number));
        }
        CheckAgainstLoop(kernels, element, shifted.data() + 1, values);
    }
}

float ExactHalf(uint16_t half)
{
    const int exponent = (half >> 10) & 31;
    const int fraction = half & 1023;
    float value = exponent == 31 ? (fraction ? std::nanf("") : INFINITY)
                  : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                  : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    return (half & 0x8000) != 0 ? -value : value;
}

float ExactBrain(uint16_t brain)
{
    const uint32_t bits = static_cast<uint32_t>(brain) << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <typename Decode>
void CheckAllCodes(const ait::Kernels &kernels, int element, Decode decode)
{
    std::vector<uint16_t> codes;
    std::vector<float> values;
    for (uint32_t code = 0; code < 65536; ++code) {
        codes.push_back(static_cast<uint16_t>(code));
        values.push_back(decode(static_cast<uint16_t>(code)));
    }
    CheckAgainstLoop(kernels, element, codes.data(), values);
    for (size_t i = 0; i < codes.size(); i += 257) {
        CheckAgainstLoop(kernels, element, &codes[i], std::vector<float>{values[i]});
    }
}

void CheckCrc(const ait::Kernels &kernels, std::mt19937_64 &random)
{
    Expect(ait::Crc32(kernels, 0, reinterpret_cast<const uint8_t *>("123456789"), 9) == 0xCBF43926u,
           "crc of the check word", 0, 0);
    std::vector<uint8_t> data(5000);
    for (uint8_t &byte : data) {
        byte = static_cast<uint8_t>(random());
    }
    for (size_t size : {0u, 1u, 7u, 63u, 64u, 65u, 80u, 127u, 128u, 191u, 1000u, 4999u}) {
        uint32_t wanted = 0xffffffffu;
        for (size_t i = 1; i <= size; ++i) {
            wanted ^= data[i];
            for (int bit = 0; bit < 8; ++bit) {
                wanted = (wanted >> 1) ^ ((wanted & 1) != 0 ? 0xEDB88320u : 0u);
            }
        }
        const uint32_t got = ait::Crc32(kernels, 0, data.data() + 1, size);
        Expect(got == ~wanted, "crc", got, ~wanted);
        const uint32_t first = ait::Crc32(kernels, 0, data.data() + 1, size / 3);
        const uint32_t both = ait::Crc32(kernels, first, data.data() + 1 + size / 3, size - size / 3);
        Expect(both == got, "crc in pieces", both, got);
    }
}

void CheckSample()
{
    for (size_t size : {1u, 7u, 8u, 1000u, 32768u, 32769u, 100001u}) {
        std::vector<uint8_t> data(size, 3);
        const uint64_t before = ait::Sample(data.data(), size);
        Expect(before == ait::Sample(std::vector<uint8_t>(data).data(), size), "same", 0, 0);
        for (size_t at : {size_t{0}, size_t{1}, size - 1}) {
            data[at % size] ^= 64;
            Expect(before != ait::Sample(data.data(), size), "changed byte", 0, 0);
            data[at % size] ^= 64;
        }
    }
}

void CheckKernels(const ait::Kernels &kernels)
{
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal(0.5, 3);
    const auto special = [&](double value) {
        switch (random() % 64) {
            case 0: return std::nan("");
            case 1: return HUGE_VAL;
            case 2: return -HUGE_VAL;
            default: return value;
        }
    };
    CheckSizes<float>(kernels, AIT_FLOAT32, [&] { return static_cast<float>(normal(random)); });
    CheckSizes<float>(kernels, AIT_FLOAT32,
                      [&] { return static_cast<float>(special(normal(random))); });
    CheckSizes<float>(kernels, AIT_FLOAT32, [] { return std::numeric_limits<float>::max(); });
    CheckSizes<float>(kernels, AIT_FLOAT32, [] { return -std::numeric_limits<float>::denorm_min(); });
    CheckSizes<float>(kernels, AIT_FLOAT32, [] { return INFINITY; });
    CheckSizes<double>(kernels, AIT_FLOAT64, [&] { return special(normal(random)); });
    CheckSizes<double>(kernels, AIT_FLOAT64, [] { return std::numeric_limits<double>::max() / 128; });
    CheckSizes<double>(kernels, AIT_FLOAT64, [] { return -0x1p-1000; });
    CheckSizes<double>(kernels, AIT_FLOAT64, [] { return 0x1p-1074; });
    CheckSizes<int16_t>(kernels, AIT_INT16, [&] { return static_cast<int16_t>(random()); });
    CheckSizes<uint16_t>(kernels, AIT_UINT16, [&] { return static_cast<uint16_t>(random()); });
    CheckSizes<int32_t>(kernels, AIT_INT32, [&] { return static_cast<int32_t>(random()); });
    CheckSizes<uint32_t>(kernels, AIT_UINT32, [&] { return static_cast<uint32_t>(random()); });
    CheckSizes<int64_t>(kernels, AIT_INT64, [&] { return static_cast<int64_t>(random()) >> 11; });
    CheckSizes<uint64_t>(kernels, AIT_UINT64, [&] { return random() >> 11; });
    CheckAllCodes(kernels, AIT_FLOAT16, ExactHalf);
    CheckAllCodes(kernels, AIT_BFLOAT16, ExactBrain);
    CheckCrc(kernels, random);
    double numbers[6];
    Expect(ait::Reduce(kernels, 99, numbers, 1, numbers) == 1, "unknown element", 0, 1);
}

} // namespace

int main()
{
    CheckKernels(ait::PortableKernels());
    CheckKernels(ait::BestKernels());
#ifdef AIT_X86
    if (&ait::BestKernels() != &ait::PortableKernels()) {
        CheckKernels(ait::Avx2Kernels());
    }
#endif
    CheckSample();
    return g_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
