#include "table_files.h"

#include <algorithm>
#include <utility>

namespace ait {

uint64_t TableFiles::NextRow(const std::string &path) const
{
    const auto found = rows_.find(path);
    return found == rows_.end() ? 1 : found->second + 1;
}

int TableFiles::OpenTable(const std::string &path, const std::string &header, AppendFile &file)
{
    const bool fresh = rows_.find(path) == rows_.end();
    const int error = file.Open(directories_, path, fresh);
    if (error != 0 || header.empty() || !file.IsEmpty()) {
        return error;
    }
    return file.Append(header);
}

int TableFiles::Append(const std::string &path, const std::string &header, const std::string &row)
{
    auto table = std::find_if(open_.begin(), open_.end(),
                              [&](const Table &entry) { return entry.path == path; });
    if (table != open_.end() && table->file.Removed()) {
        open_.erase(table);
        table = open_.end();
    }
    if (table == open_.end()) {
        AppendFile file;
        const int error = OpenTable(path, header, file);
        if (error != 0) {
            return error;
        }
        open_.push_front(Table{path, std::move(file)});
        if (open_.size() > MAX_OPEN) {
            open_.pop_back();
        }
        rows_.emplace(path, 0);
    } else if (table != open_.begin()) {
        open_.splice(open_.begin(), open_, table);
    }
    const int error = open_.front().file.Append(row);
    if (error == 0) {
        ++rows_[path];
    }
    return error;
}

} // namespace ait
