// One capture in one process.
#ifndef AIT_PROBE_SESSION_H
#define AIT_PROBE_SESSION_H

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "channel.h"
#include "settings.h"
#include "thread_state.h"

namespace ait {

class Session {
public:
    // The answers that the host asks for all the time, decided once.
    struct Gates {
        bool tensors, data, before, after, description, tiling;
        bool op, kernel, statistic, graph, model, overflowCheck, overflowStop;
    };

    // Made at the first call and never destroyed: the host may call from its own static
    // destructors.
    static Session &Get()
    {
        Session *session = s_current.load(std::memory_order_acquire);
        return __builtin_expect(session != nullptr, 1) ? *session : Create();
    }

    const Gates gates;
    const Settings &settings;

    // Any gate that the host asks after the tensors of a unit ends that unit.
    void EndUnit()
    {
        if (gates.tensors) {
            ThreadState *state = CurrentThreadIfAny();
            if (state != nullptr && (state->open || state->announced)) {
                EndUnit(*state);
            }
        }
    }
    void Announce();
    void SetPhase(const char *phase);
    void SetDirectory(const std::string &directory);

    void SaveTensor(const std::string &format, const std::string &dtype, const std::string &dims,
                    const void *data, uint64_t size, const std::string &path);
    // Where the copy of a tensor failed in the host, for example for lack of memory.
    void NoteLost(int error) noexcept;

    // False where it did not arrive. `data` may follow the encoded values.
    bool Send(Kind kind, const MetaWriter &meta, const void *data = nullptr, uint64_t size = 0);

    // True where this device is to be captured. `path` may lack a device; then the driver knows.
    bool WantsDevice(const std::string &path) const;

    // True the first time for each model.
    bool IsNewModel(const std::string &name);
    void RememberModel(const std::string &name);

private:
    explicit Session(const Settings &given);
    static Session &Create();
    static void PrepareFork();
    static void ParentAfterFork();
    static void ChildAfterFork();
    static void AtExit();
    static void ThreadEnds(ThreadState &state);

    ThreadState &Thread();
    void EndUnit(ThreadState &state);
    Channel &OpenChannel();

    static std::atomic<Session *> s_current;

    std::mutex mutex_;
    std::atomic<Channel *> channel_{nullptr};
    std::set<std::string> models_;
};

} // namespace ait

#endif
