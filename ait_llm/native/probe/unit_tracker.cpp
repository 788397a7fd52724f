#include "unit_tracker.h"

#include "host_path.h"

namespace ait {

Unit &UnitTracker::Enter(uint32_t thread, const std::string &path)
{
    const std::string folder = DirectoryOf(path);
    const std::string phase = FileOf(folder);
    // A path of another shape, from an unknown ATB, is a unit of its own folder.
    const bool known = phase == "before" || phase == "after";
    const std::string directory = known ? DirectoryOf(folder) : folder;
    const auto found = open_.find(thread);
    if (found != open_.end()) {
        Unit &unit = found->second;
        if (unit.directory == directory && unit.phase == (known ? phase : std::string())) {
            return unit;
        }
        Close(thread, 0, 0);
    }
    Unit &unit = open_[thread];
    unit.directory = directory;
    unit.phase = known ? phase : std::string();
    return unit;
}

void UnitTracker::Add(Unit &unit, const std::string &path, const TensorResult &result)
{
    switch (result.state) {
        case TensorState::DATA:
            ++unit.saved;
            unit.bytes += result.bytes;
            unit.shared += result.shared ? 1 : 0;
            break;
        case TensorState::DESCRIPTION:
            ++unit.described;
            break;
        case TensorState::SKIPPED:
            return;
        case TensorState::FAILED:
            ++unit.lost;
            if (unit.reason.empty()) {
                unit.error = result.error;
                unit.reason = result.reason;
            }
            return;
    }
    unit.files.push_back(FileOf(path));
}

void UnitTracker::Finish(uint32_t thread, Unit &unit)
{
    const std::string key = unit.directory + "/" + unit.phase;
    if (recent_.find(key) == recent_.end()) {
        order_.push_back(key);
        if (order_.size() > MAX_RECENT) {
            recent_.erase(order_.front());
            order_.pop_front();
        }
    }
    recent_[key] = unit.files;
    closed_(thread, unit);
}

void UnitTracker::Close(uint32_t thread, uint64_t lost, int error)
{
    const auto found = open_.find(thread);
    if (found == open_.end()) {
        return;
    }
    Unit unit = std::move(found->second);
    open_.erase(found);
    unit.lost += lost;
    if (lost > 0 && unit.reason.empty()) {
        unit.error = error;
        unit.reason = "the tensor could not be handed to the writer";
    }
    Finish(thread, unit);
}

void UnitTracker::CloseAll(bool cut)
{
    auto open = std::move(open_);
    open_.clear();
    for (auto &entry : open) {
        entry.second.cut = cut;
        Finish(entry.first, entry.second);
    }
}

std::string UnitTracker::SavedPath(const std::string &path, const std::string &directory,
                                   bool isInput) const
{
    const char *prefix = isInput ? "intensor" : "outtensor";
    const int64_t index = TensorIndex(FileOf(path), prefix);
    if (index < 0) {
        return path;
    }
    const char *phases[] = {isInput ? "before" : "after", isInput ? "after" : "before"};
    for (const char *phase : phases) {
        const auto found = recent_.find(directory + "/" + phase);
        if (found == recent_.end()) {
            continue;
        }
        for (const std::string &file : found->second) {
            if (TensorIndex(file, prefix) == index) {
                return directory + "/" + phase + "/" + file;
            }
        }
    }
    return path;
}

} // namespace ait
