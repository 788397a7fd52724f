#include "tensor.h"

#include <algorithm>
#include <iterator>

namespace hostatb {
namespace {

struct DtypeRow {
    int32_t code;
    const char *name;
    uint32_t bits;
};

// aclDataType, with the names that the operation tables use.
constexpr DtypeRow kDtypes[] = {
    {0, "float", 32},        {1, "float16", 16},       {2, "int8", 8},
    {3, "int32", 32},        {4, "uint8", 8},          {6, "int16", 16},
    {7, "uint16", 16},       {8, "uint32", 32},        {9, "int64", 64},
    {10, "uint64", 64},      {11, "double", 64},       {12, "bool", 8},
    {13, "string", 0},       {16, "complex64", 64},    {17, "complex128", 128},
    {27, "bf16", 16},        {29, "int4", 4},          {30, "uint1", 1},
    {33, "complex32", 32},   {34, "hifloat8", 8},      {35, "float8_e5m2", 8},
    {36, "float8_e4m3fn", 8}, {37, "float8_e8m0", 8},  {38, "float6_e3m2", 6},
    {39, "float6_e2m3", 6},  {40, "float4_e2m1", 4},   {41, "float4_e1m2", 4},
};

struct FormatRow {
    int32_t code;
    const char *name;
};

// aclFormat, likewise.
constexpr FormatRow kFormats[] = {
    {0, "nchw"},        {1, "nhwc"},        {2, "nd"},
    {3, "nc1hwc0"},     {4, "fractal_z"},   {12, "nc1hwc0_c04"},
    {16, "hwcn"},       {27, "ndhwc"},      {29, "fractal_nz"},
    {30, "ncdhw"},      {32, "ndc1hwc0"},   {33, "fractal_z_3d"},
    {35, "nc"},         {47, "ncl"},        {50, "fractal_nz_c0_16"},
    {51, "fractal_nz_c0_32"},
};

const DtypeRow *FindDtype(int32_t code)
{
    const auto row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [code](const DtypeRow &each) { return each.code == code; });
    return row == std::end(kDtypes) ? nullptr : row;
}

} // namespace

uint64_t ByteCount(const HostatbDesc &desc)
{
    const DtypeRow *row = FindDtype(desc.dtype);
    uint64_t bits = row == nullptr ? 0 : row->bits;
    for (uint32_t i = 0; i < desc.ndim; ++i) {
        bits *= static_cast<uint64_t>(std::max<int64_t>(desc.dims[i], 0));
    }
    return (bits + 7) / 8;
}

std::string DimsText(const HostatbDesc &desc)
{
    std::string text;
    for (uint32_t i = 0; i < desc.ndim; ++i) {
        text += (i == 0 ? "" : ",") + std::to_string(desc.dims[i]);
    }
    return text;
}

const char *DtypeName(int32_t dtype)
{
    const DtypeRow *row = FindDtype(dtype);
    return row == nullptr ? "undefined" : row->name;
}

const char *FormatName(int32_t format)
{
    const auto row = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [format](const FormatRow &each) { return each.code == format; });
    return row == std::end(kFormats) ? "undefined" : row->name;
}

bool SameDesc(const HostatbDesc &a, const HostatbDesc &b)
{
    return a.dtype == b.dtype && a.format == b.format && a.ndim == b.ndim &&
           std::equal(a.dims, a.dims + a.ndim, b.dims);
}

bool SameDescs(const Descs &a, const Descs &b)
{
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameDesc);
}

std::string DescText(const HostatbDesc &desc)
{
    return std::string(DtypeName(desc.dtype)) + " " + FormatName(desc.format) + " [" +
           DimsText(desc) + "]";
}

} // namespace hostatb
