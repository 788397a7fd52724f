// Stands in for CANN's libascend_dump_parser.so, so that msprobe's parser runs without CANN.
//
// The one function that the parser calls: the header of a dump file as JSON, written to a file.
// It is small and native, so that it takes nothing away from the speed of the parser around it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace {

struct Cursor {
    const uint8_t *at;
    const uint8_t *end;

    uint64_t Varint()
    {
        uint64_t value = 0;
        for (int shift = 0; at < end; shift += 7) {
            const uint8_t byte = *at++;
            value |= static_cast<uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) {
                break;
            }
        }
        return value;
    }

    Cursor Inner()
    {
        const uint64_t length = Varint();
        Cursor inner{at, at + length};
        at = inner.end;
        return inner;
    }
};

std::string Quoted(const Cursor &text)
{
    return "\"" + std::string(text.at, text.end) + "\"";  // names of the benchmark need no escapes
}

std::string Dims(Cursor shape)
{
    std::string out;
    while (shape.at < shape.end) {
        shape.Varint();  // the only field, packed
        Cursor dims = shape.Inner();
        while (dims.at < dims.end) {
            out += (out.empty() ? "" : ",") + std::to_string(dims.Varint());
        }
    }
    return "{\"dim\":[" + out + "]}";
}

std::string Tensor(Cursor tensor, bool output)
{
    const char *const inputs[] = {"", "data_type", "format", "", "", "size", "", "sub_format", "address"};
    const char *const outputs[] = {"", "data_type", "format", "", "", "", "size", "", "sub_format", "address"};
    std::string out;
    while (tensor.at < tensor.end) {
        const uint64_t key = tensor.Varint();
        const uint64_t field = key >> 3;
        std::string part;
        if ((key & 7) == 0) {
            const uint64_t value = tensor.Varint();
            if (field < (output ? 10U : 9U)) {
                part = "\"" + std::string((output ? outputs : inputs)[field]) + "\":" + std::to_string(value);
            }
        } else {
            const Cursor inner = tensor.Inner();
            if (field == 3 || field == (output ? 7U : 6U)) {
                part = (field == 3 ? "\"shape\":" : "\"original_shape\":") + Dims(inner);
            }
        }
        if (!part.empty()) {
            out += (out.empty() ? "" : ",") + part;
        }
    }
    return "{" + out + "}";
}

}  // namespace

extern "C" int ParseDumpProtoToJson(const char *data, size_t size, const char *path)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) {
        length = length << 8 | static_cast<uint8_t>(data[i]);
    }
    if (length + 8 > size) {
        return 1;
    }
    const auto *const begin = reinterpret_cast<const uint8_t *>(data) + 8;
    Cursor header{begin, begin + length};
    std::string inputs;
    std::string outputs;
    std::string rest;
    while (header.at < header.end) {
        const uint64_t key = header.Varint();
        const uint64_t field = key >> 3;
        if ((key & 7) == 0) {
            rest += ",\"dump_time\":" + std::to_string(header.Varint());
            continue;
        }
        const Cursor inner = header.Inner();
        if (field == 3) {
            outputs += (outputs.empty() ? "" : ",") + Tensor(inner, true);
        } else if (field == 4) {
            inputs += (inputs.empty() ? "" : ",") + Tensor(inner, false);
        } else if (field == 1 || field == 6) {
            rest += (field == 1 ? ",\"version\":" : ",\"op_name\":") + Quoted(inner);
        }
    }
    FILE *const file = std::fopen(path, "w");
    if (file == nullptr) {
        return 1;
    }
    const std::string json = "{\"input\":[" + inputs + "],\"output\":[" + outputs + "]" + rest + "}";
    std::fwrite(json.data(), 1, json.size(), file);
    return std::fclose(file) == 0 ? 0 : 1;
}
