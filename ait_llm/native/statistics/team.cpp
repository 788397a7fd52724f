#include "team.h"

#include "ait_statistics.h"

namespace ait {
namespace {

using Parallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
using Threads = int (*)();

std::atomic<Parallel> g_parallel{nullptr};
std::atomic<Threads> g_threads{nullptr};

} // namespace

bool HasTeam()
{
    const Threads threads = g_threads.load(std::memory_order_acquire);
    return threads != nullptr && threads() > 1;
}

void ShareWork(void (*body)(void *), void *context)
{
    const Parallel parallel = g_parallel.load(std::memory_order_acquire);
    if (parallel == nullptr) {
        body(context);
        return;
    }
    // Always the whole team: for a smaller one the runtime would end threads that the model's next
    // operator has to start again.
    parallel(body, context, 0, 0);
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
