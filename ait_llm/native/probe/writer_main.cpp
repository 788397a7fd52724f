// The process that writes what its host hands over. It outlives the host, however that ends, and
// then seals the ledger.
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "log.h"
#include "matcher.h"
#include "queue.h"
#include "recorder.h"
#include "settings.h"
#include "wire.h"

namespace ait {
namespace {

constexpr int POLL_MILLISECONDS = 200;

struct Arguments {
    int memory = -1;
    int socket = -1;
    int process = -1; // a pidfd of the host, or -1 on kernels without
    HostFacts facts;
};

void CloseOthers(const Arguments &arguments)
{
    // The host's files and sockets must not stay open because of us.
    DIR *directory = opendir("/proc/self/fd");
    if (directory == nullptr) {
        return;
    }
    while (const dirent *entry = readdir(directory)) {
        uint64_t number = 0;
        if (!ParseUnsigned(entry->d_name, number)) {
            continue;
        }
        const int fd = static_cast<int>(number);
        const bool needed = fd <= STDERR_FILENO || fd == arguments.memory ||
                            fd == arguments.socket || fd == arguments.process ||
                            fd == dirfd(directory);
        if (!needed) {
            close(fd);
        }
    }
    closedir(directory);
}

void Detach(const Arguments &arguments)
{
    prctl(PR_SET_NAME, "ait_probe_write");
    setsid(); // signals to the host's process group are not for us
    // Ctrl-C, a closed terminal or a full disk end the host, not the writing of what it did.
    for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ, SIGXCPU, SIGTSTP,
                       SIGTTOU, SIGTTIN, SIGUSR1, SIGUSR2, SIGALRM}) {
        signal(number, SIG_IGN);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    umask(0);
    static_cast<void>(chdir("/") == 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        if (fcntl(STDERR_FILENO, F_GETFD) < 0) {
            dup2(null, STDERR_FILENO);
        }
    }
    CloseOthers(arguments);
}

struct ProcessStatus {
    char state = '\0'; // '\0' where there is no such process
    bool exiting = false;
    long exitCode = 0; // of a zombie
};

ProcessStatus ReadStatus(int pid)
{
    ProcessStatus status;
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    char text[1024];
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (size <= 0) {
        return status;
    }
    text[size] = '\0';
    // The name in the second field may hold anything, but no field after it holds ')'.
    const char *rest = strrchr(text, ')');
    const std::vector<std::string> fields = Split(rest == nullptr ? "" : rest + 1, ' ');
    constexpr size_t STATE = 1;
    constexpr size_t FLAGS = 7;
    constexpr unsigned long PF_EXITING = 4; // linux/sched.h
    if (fields.size() > FLAGS && !fields[STATE].empty()) {
        status.state = fields[STATE][0];
        status.exiting = (strtoul(fields[FLAGS].c_str(), nullptr, 10) & PF_EXITING) != 0;
        status.exitCode = strtol(fields.back().c_str(), nullptr, 10);
    }
    return status;
}

// linux/pidfd.h of 6.15; older headers lack it and older kernels refuse it.
struct PidfdInfo {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exitCode;
};
constexpr uint64_t PIDFD_HAS_EXIT = 1u << 3;

bool PidfdExitCode(int process, long &exitCode)
{
    PidfdInfo info = {};
    info.mask = PIDFD_HAS_EXIT;
    const unsigned long request = _IOWR(0xFF, 11, PidfdInfo);
    if (process < 0 || ioctl(process, request, &info) != 0 || (info.mask & PIDFD_HAS_EXIT) == 0) {
        return false;
    }
    exitCode = info.exitCode;
    return true;
}

std::string DescribeExit(long exitCode)
{
    const int status = static_cast<int>(exitCode);
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "_exit";
}

class Writer {
public:
    Writer(const Arguments &arguments, void *memory)
        : arguments_(arguments), queue_(memory), settings_(ReadSettings()),
          recorder_(settings_, arguments.facts, [this] { return queue_.Used(); }),
          assembler_(recorder_)
    {
        SetLogLevel(settings_.logLevel);
    }

    void Run()
    {
        recorder_.Start();
        const char started = 1;
        static_cast<void>(send(arguments_.socket, &started, 1, MSG_NOSIGNAL) == 1);
        bool linked = true;
        while (linked) {
            Drain();
            linked = Await();
        }
        // At once: a program that replaced the host may end soon.
        const std::string end = sealed_ && queue_.Used() == 0 ? "exit" : HowItEnded();
        Drain();
        SkipUnfinished();
        if (queue_.Header().writingThread.load() != 0) {
            queue_.Header().writingPath[MAX_WRITING_PATH - 1] = '\0';
            recorder_.HostTensorCut(queue_.Header().writingThread.load(),
                                    queue_.Header().writingPath);
        }
        if (!sealed_) {
            recorder_.Finish(end, end != "exec");
        }
    }

private:
    // Handles what is ready.
    void Drain()
    {
        for (Record *record = queue_.Front(); record != nullptr; record = queue_.Front()) {
            if (record->state.load(std::memory_order_acquire) != RecordState::READY) {
                return;
            }
            Handle(*record);
            queue_.Pop(record);
        }
    }

    void Handle(Record &record)
    {
        Message message;
        message.kind = static_cast<Kind>(record.kind);
        message.thread = record.thread;
        message.metaSize = record.metaSize;
        message.dataSize = record.dataSize;
        const char *payload = record.Payload();
        try {
            sealed_ = message.kind == Kind::SEAL;
            if (record.stream != 0) {
                assembler_.Add(message, record.stream, payload, record.payload, record.more == 0);
            } else {
                message.meta = payload;
                message.data = payload + record.metaSize;
                Dispatch(recorder_, message);
            }
        } catch (const std::exception &error) {
            Log(LogLevel::ERROR, std::string("something could not be written: ") + error.what());
        }
        if (message.kind == Kind::SEAL) {
            queue_.Header().sealed.fetch_add(1);
        }
    }

    bool Ready()
    {
        Record *record = queue_.Front();
        return record != nullptr &&
               record->state.load(std::memory_order_acquire) == RecordState::READY;
    }

    // Waits for the next record; false when the host is gone.
    bool Await()
    {
        for (int i = 0; i < 20; ++i) { // often the next tensor is being copied right now
            if (Ready()) {
                return true;
            }
            sched_yield();
        }
        recorder_.Flush();
        queue_.Header().writerSleeps.store(1);
        if (Ready()) {
            queue_.Header().writerSleeps.store(0);
            return true;
        }
        pollfd waits[2] = {{arguments_.socket, POLLIN, 0}, {arguments_.process, POLLIN, 0}};
        const nfds_t count = arguments_.process >= 0 ? 2 : 1;
        poll(waits, count, POLL_MILLISECONDS);
        queue_.Header().writerSleeps.store(0);
        if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            char bytes[64];
            const ssize_t got = recv(arguments_.socket, bytes, sizeof(bytes), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno == ECONNRESET)) {
                return false;
            }
        }
        if (count == 2) {
            return waits[1].revents == 0;
        }
        const char state = ReadStatus(arguments_.facts.pid).state;
        return state != '\0' && state != 'Z' && state != 'X';
    }

    std::string HowItEnded()
    {
        for (int i = 0; i < 200; ++i) {
            const ProcessStatus status = ReadStatus(arguments_.facts.pid);
            long code = 0;
            if (status.state == 'Z' || status.state == 'X') {
                return DescribeExit(status.exitCode);
            }
            if (PidfdExitCode(arguments_.process, code)) {
                return DescribeExit(code);
            }
            if (status.state != '\0' && !status.exiting && i == 0) {
                return "exec"; // it let go of us and lives on
            }
            const timespec pause = {0, i < 100 ? 100000 : 10000000};
            nanosleep(&pause, nullptr);
        }
        return "unknown";
    }

    // Records that the host was filling when it ended. Their messages stay incomplete.
    void SkipUnfinished()
    {
        for (Record *record = queue_.Front(); record != nullptr; record = queue_.Front()) {
            queue_.Pop(record);
            Drain();
        }
    }

    Arguments arguments_;
    Queue queue_;
    Settings settings_;
    Recorder recorder_;
    Assembler assembler_;
    bool sealed_ = false; // and nothing came after
};

bool ParseArguments(int count, char **values, Arguments &arguments)
{
    if (count != 7) {
        return false;
    }
    arguments.memory = atoi(values[1]);
    arguments.socket = atoi(values[2]);
    arguments.process = atoi(values[3]);
    arguments.facts.pid = atoi(values[4]);
    arguments.facts.abi = atoi(values[5]);
    arguments.facts.device = values[6];
    arguments.facts.ownsUmask = true;
    arguments.facts.writer = "process";
    char path[PATH_MAX];
    const std::string link = "/proc/" + std::string(values[4]) + "/exe";
    const ssize_t length = readlink(link.c_str(), path, sizeof(path));
    arguments.facts.executable.assign(path, length > 0 ? static_cast<size_t>(length) : 0);
    return true;
}

} // namespace
} // namespace ait

int main(int argc, char **argv)
{
    ait::Arguments arguments;
    if (!ait::ParseArguments(argc, argv, arguments)) {
        ait::Log(ait::LogLevel::ERROR, "ait_probe_writer is started by the probe only");
        return 2;
    }
    ait::Detach(arguments);
    struct stat status = {};
    if (fstat(arguments.memory, &status) != 0) {
        return 1;
    }
    void *memory = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE,
                        MAP_SHARED, arguments.memory, 0);
    if (memory == MAP_FAILED) {
        return 1;
    }
    close(arguments.memory);
    try {
        ait::Writer(arguments, memory).Run();
    } catch (const std::exception &error) {
        ait::Log(ait::LogLevel::ERROR, std::string("the writer gives up: ") + error.what());
        return 1;
    }
    return 0;
}
