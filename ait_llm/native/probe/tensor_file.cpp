#include "tensor_file.h"

namespace ait {
namespace {

constexpr size_t MAX_VALUE_LENGTH = 1024; // far beyond eight dimensions of 20 digits

std::string Header(const TensorDesc &desc, const char *count, uint64_t size,
                   const std::string &extra)
{
    return std::string("$Version=1.0\n$Object.Count=") + count +
           "\n$Object.Length=" + std::to_string(size) + "\nformat=" + desc.format +
           "\ndtype=" + desc.dtype + "\ndims=" + desc.dims + "\n" + extra;
}

} // namespace

std::string RefuseDesc(const TensorDesc &desc)
{
    for (const std::string *value : {&desc.format, &desc.dtype, &desc.dims}) {
        if (value->size() > MAX_VALUE_LENGTH ||
            value->find_first_not_of("-0123456789,") != std::string::npos) {
            return "its format, type or shape is not made of numbers";
        }
    }
    return "";
}

std::string DataHeader(const TensorDesc &desc, uint64_t size, const std::string &extra)
{
    return Header(desc, "1", size, extra) + "$Object.data=0," + std::to_string(size) +
           "\n$End=1\n";
}

std::string DescriptionHeader(const TensorDesc &desc, const std::string &extra)
{
    return Header(desc, "0", 0, extra) + "$End=1\n";
}

} // namespace ait
