// Reading a mapped file beyond an end that moved raises SIGBUS, which ends a process. Within ranges
// that were named here, the page becomes one of zeros instead, and the range is marked.
#include "ait_statistics.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr int SLOTS = 1 << 15;

struct Slot {
    std::atomic<uintptr_t> first{0};
    std::atomic<uintptr_t> last{0}; // behind the last byte; 0 for a free slot
    std::atomic<bool> hit{false};
};

Slot g_slots[SLOTS];
std::atomic<int> g_used{0}; // slots that were ever taken: the others are not looked at
std::mutex g_mutex;
int g_free[SLOTS];
int g_freeCount = 0;
struct sigaction g_before;
uintptr_t g_page = 0;

bool PutZeros(uintptr_t address)
{
    const uintptr_t page = address & ~(g_page - 1);
    void *made = mmap(reinterpret_cast<void *>(page), g_page, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return made != MAP_FAILED;
}

void PassOn(int signal, siginfo_t *info, void *context)
{
    if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr) {
        g_before.sa_sigaction(signal, info, context);
        return;
    }
    if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
        g_before.sa_handler(signal);
        return;
    }
    // The instruction runs again and meets the signal as if nobody had looked at it.
    struct sigaction plain;
    std::memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &plain, nullptr);
    if (info->si_code <= 0) { // sent by a process: no instruction runs again
        raise(SIGBUS);
    }
}

// Atomics without locks and mmap, which is a system call: all may be used in a handler.
void OnBusError(int signal, siginfo_t *info, void *context)
{
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    const int used = g_used.load(std::memory_order_acquire);
    for (int i = 0; info->si_code == BUS_ADRERR && i < used; ++i) {
        Slot &slot = g_slots[i];
        if (address < slot.last.load(std::memory_order_acquire) &&
            address >= slot.first.load(std::memory_order_acquire) && PutZeros(address)) {
            slot.hit.store(true, std::memory_order_release);
            return;
        }
    }
    PassOn(signal, info, context);
}

bool Install()
{
    if (g_page != 0) {
        return true;
    }
    struct sigaction ours;
    std::memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = OnBusError;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    const long page = sysconf(_SC_PAGESIZE);
    if (page <= 0 || sigaction(SIGBUS, &ours, &g_before) != 0) {
        return false;
    }
    g_page = static_cast<uintptr_t>(page);
    return true;
}

} // namespace

extern "C" {

int ait_guard_begin(const void *start, uint64_t size)
{
    const std::lock_guard<std::mutex> lock(g_mutex);
    const int used = g_used.load(std::memory_order_relaxed);
    if (size == 0 || !Install() || (g_freeCount == 0 && used == SLOTS)) {
        return -1;
    }
    const int chosen = g_freeCount > 0 ? g_free[--g_freeCount] : used;
    Slot &slot = g_slots[chosen];
    const uintptr_t first = reinterpret_cast<uintptr_t>(start) & ~(g_page - 1);
    const uintptr_t last = reinterpret_cast<uintptr_t>(start) + size;
    slot.hit.store(false, std::memory_order_relaxed);
    slot.first.store(first, std::memory_order_release);
    slot.last.store((last + g_page - 1) & ~(g_page - 1), std::memory_order_release);
    if (chosen == used) {
        g_used.store(used + 1, std::memory_order_release);
    }
    return chosen;
}

int ait_guard_hit(int number)
{
    return number >= 0 && number < SLOTS && g_slots[number].hit.load(std::memory_order_acquire);
}

int ait_guard_end(int number)
{
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (number < 0 || number >= g_used.load(std::memory_order_relaxed) ||
        g_slots[number].last.load(std::memory_order_relaxed) == 0) {
        return 0;
    }
    g_slots[number].last.store(0, std::memory_order_release);
    g_free[g_freeCount++] = number;
    return g_slots[number].hit.load(std::memory_order_acquire);
}

} // extern "C"
