// One pass over a tensor: minimum, maximum, mean and L2 norm of the finite elements, and how many
// are not finite.
#ifndef AIT_PROBE_STATISTICS_H
#define AIT_PROBE_STATISTICS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace ait {

// Sums run in eight lanes of double, chosen by the position in the tensor, so that the result does
// not depend on how the tensor was cut into pieces.
class Statistics {
public:
    // `dtype` is the ATB code; types without a number line (strings, complex, packed) have no
    // statistics.
    explicit Statistics(int64_t dtype);

    bool Supported() const { return elementSize_ != 0; }
    void Add(const void *data, size_t size);

    uint64_t Finite() const { return count_ - nan_ - inf_; }
    uint64_t NanCount() const { return nan_; }
    uint64_t InfCount() const { return inf_; }
    // NaN, an infinity, or the largest finite value of a type for which that means an overflow.
    bool Odd() const;
    bool WholeNumbers() const; // an integer type
    double Min() const; // NaN where no element is finite, like the three below
    double Max() const;
    double Mean() const;
    double L2Norm() const;

    // "max=…\nmin=…\nmean=…\nl2norm=…\nnan=…\ninf=…\n", or "" for an unsupported type.
    // `fixedWidth` pads the numbers, so that the length is known before the values are.
    std::string HeaderLines(bool fixedWidth) const;

private:
    static constexpr size_t LANES = 8;

    template <typename Number> void Accumulate(const Number *values, size_t count);
    void AddElements(const uint8_t *data, size_t count);

    int64_t dtype_;
    size_t elementSize_;
    uint8_t carry_[8] = {}; // an element cut by the end of a piece
    size_t carried_ = 0;
    uint64_t count_ = 0;
    uint64_t nan_ = 0;
    uint64_t inf_ = 0;
    double min_[LANES];
    double max_[LANES];
    double sum_[LANES] = {};
    double squares_[LANES] = {};
};

// The shortest decimal text that reads back as the same double; "nan" and "inf" as such.
std::string NumberText(double value);

} // namespace ait

#endif
