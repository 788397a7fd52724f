// Sharing a loop with the threads that the process has for its model.
#ifndef AIT_STATISTICS_TEAM_H
#define AIT_STATISTICS_TEAM_H

#include <atomic>
#include <cstdint>

namespace ait {

// Pieces below which waking threads costs more than it saves.
constexpr uint64_t WORTH_SHARING = 4;

// Runs step(context) on every thread of the team until it returns false, and returns when all have
// ended. Only the calling thread runs it where there is no team, or where the team was late lately.
void ShareWork(bool (*step)(void *), void *context);

// Calls action(k) once for each k below `pieces`, on one or more threads.
template <typename Action> void ForPieces(uint64_t pieces, Action action)
{
    if (pieces < WORTH_SHARING) {
        for (uint64_t k = 0; k < pieces; ++k) {
            action(k);
        }
        return;
    }
    struct Loop {
        std::atomic<uint64_t> next;
        uint64_t pieces;
        Action &action;
    } loop{{0}, pieces, action};
    ShareWork(
        [](void *context) {
            auto &shared = *static_cast<Loop *>(context);
            const uint64_t k = shared.next.fetch_add(1);
            if (k >= shared.pieces) {
                return false;
            }
            shared.action(k);
            return true;
        },
        &loop);
}

} // namespace ait

#endif
