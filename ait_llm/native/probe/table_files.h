// Tables that grow row by row; the most recently used ones stay open.
#ifndef AIT_PROBE_TABLE_FILES_H
#define AIT_PROBE_TABLE_FILES_H

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "append_file.h"
#include "directories.h"

namespace ait {

class TableFiles {
public:
    explicit TableFiles(Directories &directories) : directories_(directories) {}

    // The number of the next row of that table, from 1.
    uint64_t NextRow(const std::string &path) const;

    // Adds one row; the first one of this process replaces an older file and puts `header` in
    // front. 0 or an errno.
    int Append(const std::string &path, const std::string &header, const std::string &row);

private:
    struct Table {
        std::string path;
        AppendFile file;
    };
    int OpenTable(const std::string &path, const std::string &header, AppendFile &file);

    static constexpr size_t MAX_OPEN = 32;
    Directories &directories_;
    std::unordered_map<std::string, uint64_t> rows_; // of tables of this process
    std::list<Table> open_;                          // newest first
};

} // namespace ait

#endif
