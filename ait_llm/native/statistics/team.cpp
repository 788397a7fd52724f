#include "team.h"

#include "ait_statistics.h"

#include <chrono>

namespace ait {
namespace {

using Parallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
using Threads = int (*)();

std::atomic<Parallel> g_parallel{nullptr};
std::atomic<Threads> g_threads{nullptr};
// A team whose threads have no processor of their own holds up the caller, who waits for all: after
// that, the next runs do without.
constexpr std::chrono::microseconds LATE{150};
constexpr uint32_t RUNS_ALONE = 256;
std::atomic<uint32_t> g_alone{0};

using Clock = std::chrono::steady_clock;

// Its address tells threads apart.
thread_local char t_mark;

struct Shared {
    bool (*step)(void *);
    void *context;
    const char *caller;
    Clock::time_point done; // when nothing was left for the caller to do
};

void Body(void *argument)
{
    auto &shared = *static_cast<Shared *>(argument);
    while (shared.step(shared.context)) {
    }
    if (&t_mark == shared.caller) {
        shared.done = Clock::now();
    }
}

} // namespace

void ShareWork(bool (*step)(void *), void *context)
{
    const Parallel parallel = g_parallel.load(std::memory_order_acquire);
    const Threads threads = g_threads.load(std::memory_order_acquire);
    uint32_t alone = g_alone.load(std::memory_order_relaxed);
    if (parallel == nullptr || threads == nullptr || alone > 0 || threads() < 2) {
        if (alone > 0) {
            g_alone.store(alone - 1, std::memory_order_relaxed);
        }
        while (step(context)) {
        }
        return;
    }
    Shared shared{step, context, &t_mark, {}};
    // Always the whole team: for a smaller one the runtime would end threads that the model's next
    // operator has to start again.
    parallel(Body, &shared, 0, 0);
    if (Clock::now() - shared.done > LATE) {
        g_alone.store(RUNS_ALONE, std::memory_order_relaxed);
    }
}

} // namespace ait

extern "C" void ait_use_openmp(void (*parallel)(void (*)(void *), void *, unsigned, unsigned),
                               int (*threads)(void))
{
    const bool usable = parallel != nullptr && threads != nullptr;
    ait::g_threads.store(nullptr, std::memory_order_release);
    ait::g_parallel.store(usable ? parallel : nullptr, std::memory_order_release);
    ait::g_threads.store(usable ? threads : nullptr, std::memory_order_release);
}
