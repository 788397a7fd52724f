#include "thread_state.h"

#include <memory>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ait {
namespace {

// The library is loaded with the program, so the fast access to its one word is always available.
__attribute__((tls_model("initial-exec"))) thread_local ThreadState *t_state = nullptr;

void (*g_handler)(ThreadState &) = nullptr;

void EndThread(void *value)
{
    auto *state = static_cast<ThreadState *>(value);
    t_state = nullptr;
    if (g_handler != nullptr) {
        g_handler(*state);
    }
    delete state;
}

pthread_key_t MakeKey()
{
    pthread_key_t key = 0;
    pthread_key_create(&key, EndThread);
    return key;
}

} // namespace

void SetThreadEndHandler(void (*handler)(ThreadState &))
{
    g_handler = handler;
}

ThreadState *CurrentThreadIfAny()
{
    return t_state;
}

ThreadState &CurrentThread()
{
    if (t_state == nullptr) {
        static const pthread_key_t key = MakeKey();
        auto state = std::make_unique<ThreadState>();
        state->id = static_cast<uint32_t>(syscall(SYS_gettid));
        pthread_setspecific(key, state.get());
        t_state = state.release();
    }
    return *t_state;
}

} // namespace ait
