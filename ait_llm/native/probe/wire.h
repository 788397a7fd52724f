// Messages from the host's threads to the recorder: the same for a writer process and without one.
#ifndef AIT_PROBE_WIRE_H
#define AIT_PROBE_WIRE_H

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "io_table.h"
#include "recorder.h"

namespace ait {

enum class Kind : uint16_t {
    TENSOR = 1, // format, dtype, dims, path, size; data or nothing
    WRITTEN,    // path, size, errno, reason: a tensor that the host has written itself
    CLOSE,      // lost tensors, errno
    EMPTY,      // directory, phase
    TILING,     // path; data
    PARAMETERS, // path, JSON
    GRAPH,      // operation, JSON
    MODEL,      // model, JSON
    REPORT,     // kernel or operation, count, name, parameters, tensors
    STATISTIC,  // count, operation, text
    OVERFLOW_,  // kernel
    SEAL,       // the host ends by exit()
};

class MetaWriter {
public:
    MetaWriter &Text(const std::string &text);
    MetaWriter &Number(uint64_t number);
    MetaWriter &Tensors(const std::vector<IoTensor> &tensors);
    const std::string &Bytes() const { return bytes_; }

private:
    std::string bytes_;
};

struct Message {
    Kind kind = Kind::CLOSE;
    uint32_t thread = 0;
    const char *meta = nullptr;
    size_t metaSize = 0;
    const void *data = nullptr;
    uint64_t dataSize = 0;
};

// The values in front of the data of a tensor.
MetaWriter EncodeHead(const TensorHead &head);

// A whole message.
void Dispatch(Recorder &recorder, const Message &message);

// The pieces of messages that were too large for one record. The data of a tensor is passed on as
// it comes; everything else is collected.
class Assembler {
public:
    explicit Assembler(Recorder &recorder) : recorder_(recorder) {}
    void Add(const Message &whole, uint64_t stream, const char *piece, size_t size, bool last);

private:
    struct Partial {
        std::string meta;
        std::string data;
        bool begun = false; // a tensor whose data is being passed on
    };
    Recorder &recorder_;
    std::unordered_map<uint64_t, Partial> partials_;
};

} // namespace ait

#endif
