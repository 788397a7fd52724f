// The text header in front of the bytes of a tensor.
#ifndef AIT_PROBE_TENSOR_FILE_H
#define AIT_PROBE_TENSOR_FILE_H

#include <cstdint>
#include <string>

namespace ait {

struct TensorDesc {
    std::string format; // decimal codes and "2,3", as ATB hands them over
    std::string dtype;
    std::string dims;
};

// Why a header with these values could not be read back, or "".
std::string RefuseDesc(const TensorDesc &desc);

// With the data behind it. `extra` are further lines, each ended by '\n'.
std::string DataHeader(const TensorDesc &desc, uint64_t size, const std::string &extra);

// Without data.
std::string DescriptionHeader(const TensorDesc &desc, const std::string &extra);

} // namespace ait

#endif
