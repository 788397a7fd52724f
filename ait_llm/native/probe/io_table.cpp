#include "io_table.h"

namespace ait {
namespace {

std::string Escape(const std::string &text)
{
    std::string out;
    for (char c : text) {
        switch (c) {
            case '|': out += "\\u007c"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            default: out += c; break;
        }
    }
    return out;
}

template <typename Field>
std::string Join(const std::vector<IoTensor> &tensors, Field field)
{
    std::string out;
    for (size_t i = 0; i < tensors.size(); ++i) {
        out += i == 0 ? "" : ";";
        out += Escape(field(tensors[i]));
    }
    return out;
}

std::string Columns(const std::vector<IoTensor> &tensors)
{
    return std::to_string(tensors.size()) + "|" +
           Join(tensors, [](const IoTensor &tensor) { return tensor.dtype; }) + "|" +
           Join(tensors, [](const IoTensor &tensor) { return tensor.format; }) + "|" +
           Join(tensors, [](const IoTensor &tensor) { return tensor.shape; });
}

} // namespace

const char *const IO_TABLE_HEADER =
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError\n";

std::string IoTableRow(const IoReport &report, uint64_t caseNumber)
{
    const std::string number = std::to_string(caseNumber);
    const std::string opName = Escape(report.opName);
    const auto path = [](const IoTensor &tensor) { return tensor.path; };
    const auto generated = [](const IoTensor &) { return std::string("customize"); };
    return number + "|" + opName + number + "|" + opName + "|" + Escape(report.opParam) + "|" +
           Columns(report.inputs) + "|" + Columns(report.outputs) + "|" +
           Join(report.inputs, generated) + "| |" + Join(report.inputs, path) + "|" +
           Join(report.outputs, path) + "| | | | |NO_ERROR\n";
}

} // namespace ait
