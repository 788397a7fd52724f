#include "log.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace ait {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::INFO)};

// Writing to a closed pipe would end the host, so the signal is held back and taken away again.
class NoBrokenPipeSignal {
public:
    NoBrokenPipeSignal()
    {
        sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        wasPending_ = sigismember(&pending, SIGPIPE) == 1;
        blocked_ = pthread_sigmask(SIG_BLOCK, &pipe_, &old_) == 0;
    }
    ~NoBrokenPipeSignal()
    {
        if (!blocked_) {
            return;
        }
        const timespec noWait = {0, 0};
        if (!wasPending_) {
            while (sigtimedwait(&pipe_, nullptr, &noWait) < 0 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &old_, nullptr);
    }
    NoBrokenPipeSignal(const NoBrokenPipeSignal &) = delete;
    NoBrokenPipeSignal &operator=(const NoBrokenPipeSignal &) = delete;

private:
    sigset_t pipe_;
    sigset_t old_;
    bool wasPending_ = false;
    bool blocked_ = false;
};

} // namespace

void SetLogLevel(int level)
{
    g_level.store(level, std::memory_order_relaxed);
}

void Log(LogLevel level, const std::string &text)
{
    if (static_cast<int>(level) < g_level.load(std::memory_order_relaxed)) {
        return;
    }
    static const char *const names[] = {"debug", "info", "warning", "error"};
    const std::string line = std::string("ait probe [") + names[static_cast<int>(level)] + "] " +
                             std::to_string(getpid()) + ": " + text + "\n";
    const int error = errno;
    const NoBrokenPipeSignal guard;
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    static_cast<void>(written); // nowhere left to say it
    errno = error;
}

std::string ErrorText(int error)
{
    char buffer[128] = "";
    // The GNU variant may return a constant instead of filling the buffer.
    return strerror_r(error, buffer, sizeof(buffer));
}

} // namespace ait
