// Sharing a loop with the threads that the process has for its model.
#ifndef AIT_STATISTICS_TEAM_H
#define AIT_STATISTICS_TEAM_H

#include <atomic>
#include <cstdint>

namespace ait {

// Pieces below which waking threads costs more than it saves.
constexpr uint64_t WORTH_SHARING = 4;

// True if ShareWork can use more than the calling thread.
bool HasTeam();
// Runs body(context) on every thread of the team, and returns when all have returned.
void ShareWork(void (*body)(void *), void *context);

// Calls action(k) once for each k below `pieces`, on one or more threads.
template <typename Action> void ForPieces(uint64_t pieces, Action action)
{
    if (pieces < WORTH_SHARING || !HasTeam()) {
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
            for (uint64_t k; (k = shared.next.fetch_add(1)) < shared.pieces;) {
                shared.action(k);
            }
        },
        &loop);
}

} // namespace ait

#endif
