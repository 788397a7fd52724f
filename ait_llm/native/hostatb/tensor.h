// Descriptions of tensors: sizes, names and texts as ATB prints them.
#ifndef AIT_HOSTATB_TENSOR_H
#define AIT_HOSTATB_TENSOR_H

#include <string>
#include <vector>

#include "hostatb.h"

namespace hostatb {

using Descs = std::vector<HostatbDesc>;
using Tensors = std::vector<HostatbTensor>;

// Bytes of the packed data; 0 for the undefined dtype of an absent optional tensor.
uint64_t ByteCount(const HostatbDesc &desc);

// "4,32"; empty for rank 0.
std::string DimsText(const HostatbDesc &desc);

// Lower-case names of the report tables; "undefined" for codes without one.
const char *DtypeName(int32_t dtype);
const char *FormatName(int32_t format);

bool SameDesc(const HostatbDesc &a, const HostatbDesc &b);
bool SameDescs(const Descs &a, const Descs &b);

// "float16 nd 4,32", for messages.
std::string DescText(const HostatbDesc &desc);

} // namespace hostatb

#endif
