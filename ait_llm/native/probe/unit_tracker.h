// Which operation or kernel, and which phase, each thread of the host is saving.
#ifndef AIT_PROBE_UNIT_TRACKER_H
#define AIT_PROBE_UNIT_TRACKER_H

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor_store.h"

namespace ait {

// The tensors of one operation or kernel in one phase.
struct Unit {
    std::string directory; // "0_4242/0/0_Layer/1_Linear"
    std::string phase;     // "before" or "after"
    uint64_t saved = 0;
    uint64_t described = 0;
    uint64_t bytes = 0;
    uint64_t shared = 0;
    uint64_t lost = 0;
    int error = 0;
    std::string reason;
    bool cut = false; // the process ended here
    std::vector<std::string> files;
};

class UnitTracker {
public:
    using Closed = std::function<void(uint32_t thread, const Unit &unit)>;
    explicit UnitTracker(Closed closed) : closed_(std::move(closed)) {}

    // The unit that a tensor at this path belongs to; closes the one before it.
    Unit &Enter(uint32_t thread, const std::string &path);
    void Add(Unit &unit, const std::string &path, const TensorResult &result);
    // `lost` tensors did not even arrive.
    void Close(uint32_t thread, uint64_t lost, int error);
    void CloseAll(bool cut);

    // The file that was really written for the tensor that ATB reports as
    // "{directory}/{phase}/{file}": an input as it was before the operation if that was saved, an
    // output as it was after. `path` itself where nothing was saved.
    std::string SavedPath(const std::string &path, const std::string &directory,
                          bool isInput) const;

private:
    void Finish(uint32_t thread, Unit &unit);

    static constexpr size_t MAX_RECENT = 4096;
    Closed closed_;
    std::unordered_map<uint32_t, Unit> open_;
    std::unordered_map<std::string, std::vector<std::string>> recent_; // by directory/phase
    std::deque<std::string> order_;
};

} // namespace ait

#endif
