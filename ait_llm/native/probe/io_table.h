// Rows of the operation and kernel tables.
#ifndef AIT_PROBE_IO_TABLE_H
#define AIT_PROBE_IO_TABLE_H

#include <cstdint>
#include <string>
#include <vector>

namespace ait {

struct IoTensor {
    std::string dtype; // names, "float16"
    std::string format;
    std::string shape;
    std::string path;
};

struct IoReport {
    bool kernel = false;
    uint64_t executeCount = 0;
    std::string opName;
    std::string opParam;
    std::vector<IoTensor> inputs;
    std::vector<IoTensor> outputs;
};

extern const char *const IO_TABLE_HEADER;

// One line with its end. Paths are written as they stand in the report; a '|' or a line break in
// a value becomes a JSON escape, because the format has no quoting.
std::string IoTableRow(const IoReport &report, uint64_t caseNumber);

} // namespace ait

#endif
