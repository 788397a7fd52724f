#include "spawn.h"

#include <cerrno>
#include <csignal>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer takes each clone for a fork, forgets the other threads there, and does so in the memory
// that this child shares with its parent. It does not know the other name of the function.
extern "C" int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
#define clone __clone
#define AIT_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define AIT_UNSEEN
#endif

namespace ait {
namespace {

constexpr size_t STACK_BYTES = 65536;

struct Plan {
    const char *path;
    char *const *arguments;
    char *const *environment;
    const int *inherited;
    size_t inheritedCount;
    char *innerStack;
    volatile int error;
};

// Both functions run on the host's memory while the calling thread is suspended: bare system calls only.
AIT_UNSEEN int RunWriter(void *argument)
{
    auto *plan = static_cast<Plan *>(argument);
    for (size_t i = 0; i < plan->inheritedCount; ++i) {
        syscall(SYS_fcntl, plan->inherited[i], F_SETFD, 0);
    }
    syscall(SYS_execve, plan->path, plan->arguments, plan->environment);
    plan->error = errno;
    syscall(SYS_exit_group, 127);
    return 127;
}

AIT_UNSEEN int RunBetween(void *argument)
{
    auto *plan = static_cast<Plan *>(argument);
    if (clone(RunWriter, plan->innerStack + STACK_BYTES, CLONE_VM | CLONE_VFORK, plan) < 0) {
        plan->error = errno;
    }
    syscall(SYS_exit_group, 0); // the writer now belongs to init
    return 0;
}

std::vector<char *> Pointers(const std::vector<std::string> &texts)
{
    std::vector<char *> pointers;
    for (const std::string &text : texts) {
        pointers.push_back(const_cast<char *>(text.c_str()));
    }
    pointers.push_back(nullptr);
    return pointers;
}

} // namespace

int SpawnDetached(const std::string &path, const std::vector<std::string> &arguments,
                  const std::vector<std::string> &environment, const std::vector<int> &inherited)
{
    const std::vector<char *> argv = Pointers(arguments);
    const std::vector<char *> envp = Pointers(environment);
    void *stacks = mmap(nullptr, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) {
        return errno;
    }
    Plan plan = {path.c_str(), argv.data(), envp.data(), inherited.data(), inherited.size(),
                 static_cast<char *>(stacks), 0};
    // A handler of the host must not run in a process that shares its memory.
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    // No exit signal: wait() and SIGCHLD handlers of the host do not notice this child.
    const pid_t child = clone(RunBetween, static_cast<char *>(stacks) + 2 * STACK_BYTES,
                              CLONE_VM | CLONE_VFORK, &plan);
    int error = child < 0 ? errno : 0;
    if (child > 0) {
        while (waitpid(child, nullptr, static_cast<int>(__WCLONE)) < 0 && errno == EINTR) {
        }
        error = plan.error;
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    munmap(stacks, 2 * STACK_BYTES);
    return error;
}

std::string WriterPath()
{
    Dl_info info = {};
    static const char anchor = 0;
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) {
        return "";
    }
    const std::string library = info.dli_fname;
    const size_t slash = library.rfind('/');
    return slash == std::string::npos ? std::string()
                                      : library.substr(0, slash) + "/ait_probe_writer";
}

} // namespace ait
