// A kernel as a C++ extension has it: y = x / sqrt(mean(x * x) + eps) * weight, rows of float32.
// `fault` plants one bug: 0 none, 1 the tail behind whole vectors is not written, 2 rows behind the
// first few have the scale of the one before, 3 epsilon is added after the root, 4 the mean is of
// the padded width.
#include <cmath>
#include <cstdint>

extern "C" void rms_norm(const float *x, const float *weight, float *y, int64_t rows, int64_t width,
                         float eps, int fault)
{
    constexpr int64_t VECTOR = 8;
    float scale = 0;
    for (int64_t row = 0; row < rows; ++row) {
        const float *in = x + row * width;
        float *out = y + row * width;
        float sum = 0;
        for (int64_t i = 0; i < width; ++i) {
            sum += in[i] * in[i];
        }
        const int64_t padded = (width + VECTOR - 1) / VECTOR * VECTOR;
        const float mean = sum / static_cast<float>(fault == 4 ? padded : width);
        if (fault != 2 || row < 3) {
            scale = fault == 3 ? 1 / (std::sqrt(mean) + eps) : 1 / std::sqrt(mean + eps);
        }
        const int64_t written = fault == 1 ? width / VECTOR * VECTOR : width;
        for (int64_t i = 0; i < written; ++i) {
            out[i] = in[i] * scale * weight[i];
        }
    }
}
