#include "wire.h"

#include <algorithm>
#include <cstring>

namespace ait {
namespace {

// Reads what MetaWriter wrote. The other side is our own code in another process, so damage means
// damaged memory: it yields empty values, never a read beyond the end.
class MetaReader {
public:
    MetaReader(const char *bytes, size_t size) : at_(bytes), left_(size) {}

    uint64_t Number()
    {
        uint64_t number = 0;
        if (left_ >= sizeof(number)) {
            memcpy(&number, at_, sizeof(number));
            Advance(sizeof(number));
        }
        return number;
    }

    std::string Text()
    {
        const auto size = static_cast<size_t>(std::min<uint64_t>(Number(), left_));
        std::string text(at_, size);
        Advance(size);
        return text;
    }

    std::vector<IoTensor> Tensors()
    {
        std::vector<IoTensor> tensors;
        for (uint64_t count = Number(); count > 0 && left_ > 0; --count) {
            IoTensor tensor;
            tensor.dtype = Text();
            tensor.format = Text();
            tensor.shape = Text();
            tensor.path = Text();
            tensors.push_back(std::move(tensor));
        }
        return tensors;
    }

private:
    void Advance(size_t size)
    {
        at_ += size;
        left_ -= size;
    }
    const char *at_;
    size_t left_;
};

TensorHead ReadHead(const char *meta, size_t metaSize, uint64_t dataSize)
{
    MetaReader reader(meta, metaSize);
    TensorHead head;
    head.desc.format = reader.Text();
    head.desc.dtype = reader.Text();
    head.desc.dims = reader.Text();
    head.path = reader.Text();
    head.size = reader.Number();
    head.given = dataSize;
    return head;
}

} // namespace

MetaWriter &MetaWriter::Number(uint64_t number)
{
    bytes_.append(reinterpret_cast<const char *>(&number), sizeof(number));
    return *this;
}

MetaWriter &MetaWriter::Text(const std::string &text)
{
    Number(text.size());
    bytes_ += text;
    return *this;
}

MetaWriter &MetaWriter::Tensors(const std::vector<IoTensor> &tensors)
{
    Number(tensors.size());
    for (const IoTensor &tensor : tensors) {
        Text(tensor.dtype).Text(tensor.format).Text(tensor.shape).Text(tensor.path);
    }
    return *this;
}

MetaWriter EncodeHead(const TensorHead &head)
{
    MetaWriter meta;
    meta.Text(head.desc.format).Text(head.desc.dtype).Text(head.desc.dims).Text(head.path);
    return meta.Number(head.size);
}

void Dispatch(Recorder &recorder, const Message &message)
{
    MetaReader reader(message.meta, message.metaSize);
    switch (message.kind) {
        case Kind::TENSOR:
            recorder.Tensor(message.thread,
                            ReadHead(message.meta, message.metaSize, message.dataSize),
                            message.data);
            break;
        case Kind::WRITTEN: {
            const std::string path = reader.Text();
            TensorResult result;
            result.bytes = reader.Number();
            result.error = static_cast<int>(reader.Number());
            result.reason = reader.Text();
            result.state = result.error == 0 ? TensorState::DATA : TensorState::FAILED;
            recorder.Written(message.thread, path, result);
            break;
        }
        case Kind::CLOSE: {
            const uint64_t lost = reader.Number();
            recorder.CloseUnit(message.thread, lost, static_cast<int>(reader.Number()));
            break;
        }
        case Kind::EMPTY: {
            const std::string directory = reader.Text();
            recorder.EmptyUnit(message.thread, directory, reader.Text());
            break;
        }
        case Kind::TILING:
            recorder.Tiling(reader.Text(), message.data, static_cast<size_t>(message.dataSize));
            break;
        case Kind::PARAMETERS: {
            const std::string path = reader.Text();
            recorder.Parameters(path, reader.Text());
            break;
        }
        case Kind::GRAPH: {
            const std::string name = reader.Text();
            recorder.Graph(name, reader.Text());
            break;
        }
        case Kind::MODEL: {
            const std::string name = reader.Text();
            recorder.Model(name, reader.Text());
            break;
        }
        case Kind::REPORT: {
            IoReport report;
            report.kernel = reader.Number() != 0;
            report.executeCount = reader.Number();
            report.opName = reader.Text();
            report.opParam = reader.Text();
            report.inputs = reader.Tensors();
            report.outputs = reader.Tensors();
            recorder.Report(message.thread, std::move(report));
            break;
        }
        case Kind::STATISTIC: {
            const uint64_t count = reader.Number();
            const std::string name = reader.Text();
            recorder.Statistic(count, name, reader.Text());
            break;
        }
        case Kind::OVERFLOW_:
            recorder.Overflow(reader.Text());
            break;
        case Kind::SEAL:
            recorder.Finish("exit", false);
            break;
    }
}

void Assembler::Add(const Message &whole, uint64_t stream, const char *piece, size_t size,
                    bool last)
{
    Partial &partial = partials_[stream];
    const size_t toMeta = std::min(size, whole.metaSize - partial.meta.size());
    partial.meta.append(piece, toMeta);
    piece += toMeta;
    size -= toMeta;
    if (partial.meta.size() == whole.metaSize && whole.kind == Kind::TENSOR) {
        if (!partial.begun) {
            partial.begun = true;
            recorder_.BeginTensor(
                whole.thread, stream,
                ReadHead(partial.meta.data(), partial.meta.size(), whole.dataSize));
        }
        recorder_.AddToTensor(stream, piece, size);
    } else {
        partial.data.append(piece, size);
    }
    if (!last) {
        return;
    }
    const Partial complete = std::move(partial);
    partials_.erase(stream);
    if (complete.begun) {
        recorder_.EndTensor(stream);
        return;
    }
    Message message = whole;
    message.meta = complete.meta.data();
    message.data = complete.data.data();
    Dispatch(recorder_, message);
}

} // namespace ait
