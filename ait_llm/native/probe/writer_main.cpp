// The process that writes what its host hands over. It outlives the host, however that ends, and
// then seals the ledger.
#include <atomic>
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
#include <thread>
#include <unistd.h>
#include <vector>

#include "log.h"
#include "matcher.h"
#include "process.h"
#include "queue.h"
#include "recorder.h"
#include "settings.h"
#include "wire.h"

namespace ait {
namespace {

constexpr int POLL_MILLISECONDS = 200;
constexpr int MAPS_EVERY = 5; // polls between two looks at the memory of the host
constexpr const char *QUEUE_NAME = "memfd:ait_probe_queue";

struct Arguments {
    int memory = -1;
    int socket = -1;
    int process = -1; // a pidfd of the host, or -1 on kernels without
    ino_t inode = 0;  // of the memory
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

// Looks after the host in a thread of its own, and wakes the writer when the host is gone.
class Watch {
public:
    Watch(const Arguments &arguments, void *memory)
        : arguments_(arguments), queue_(memory), thread_([this] { Run(); })
    {
    }
    ~Watch()
    {
        stop_.store(true);
        thread_.join();
    }
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    bool HostIsGone() const { return gone_.load(); }
    // It runs another program now; seen at once, because that may end soon.
    bool HostWasReplaced() const { return replaced_.load(); }

private:
    void Run()
    {
        while (!stop_.load()) {
            queue_.Header().beats.fetch_add(1);
            if (Look()) {
                gone_.store(true);
                queue_.WakeWriter();
                return;
            }
        }
    }

    // True where the host has ended or runs another program now.
    bool Look()
    {
        pollfd waits[2] = {{linked_ ? arguments_.socket : -1, POLLIN, 0},
                           {arguments_.process, POLLIN, 0}};
        poll(waits, 2, POLL_MILLISECONDS); // negative descriptors are passed over
        if (waits[1].revents != 0) {
            return true;
        }
        if (waits[0].revents != 0) {
            char byte = 0;
            const ssize_t got = recv(arguments_.socket, &byte, 1, MSG_DONTWAIT);
            linked_ = got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
            return !linked_ && LeftMemory();
        }
        ++polls_;
        return (arguments_.process < 0 && !Alive()) ||
               (!linked_ && polls_ % MAPS_EVERY == 0 && LeftMemory());
    }

    bool Alive() const
    {
        const char state = ReadStatus(arguments_.facts.pid).state;
        return state != '\0' && state != 'Z' && state != 'X';
    }

    // The end of the socket is closed in the host. A program that closes whatever it inherited
    // goes on handing over; one that was replaced by exec has lost the memory of the queue.
    bool LeftMemory()
    {
        if (MapsFile(arguments_.facts.pid, QUEUE_NAME, arguments_.inode)) {
            return false; // or it cannot be seen: the descriptor of the process tells its end
        }
        // Read after the maps: a process that ends loses its memory a moment after it is marked
        // as ending, so that a mark read before them may be missing where it did not exec.
        const ProcessStatus status = ReadStatus(arguments_.facts.pid);
        const bool ended = status.state == '\0' || status.state == 'Z' || status.state == 'X';
        replaced_.store(!ended && !status.exiting);
        return true;
    }

    const Arguments &arguments_;
    Queue queue_;
    int polls_ = 0;
    bool linked_ = true;
    std::atomic<bool> stop_{false};
    std::atomic<bool> gone_{false};
    std::atomic<bool> replaced_{false};
    std::thread thread_;
};

class Writer {
public:
    Writer(const Arguments &arguments, void *memory)
        : arguments_(arguments), queue_(memory), settings_(ReadSettings()),
          recorder_(settings_, arguments.facts, [this] { return queue_.Used(); }),
          assembler_(recorder_), watch_(arguments_, memory)
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
        const bool complete = sealed_ && queue_.Used() == 0;
        const std::string end =
            complete ? "exit" : watch_.HostWasReplaced() ? "exec" : HowItEnded();
        Drain();
        SkipUnfinished();
        if (queue_.Header().writingThread.load() != 0) {
            queue_.Header().writingPath[MAX_WRITING_PATH - 1] = '\0';
            recorder_.HostTensorCut(queue_.Header().writingThread.load(),
                                    queue_.Header().writingPath);
        }
        QueueHeader &header = queue_.Header();
        recorder_.GivenUp(header.droppedOperations.load(), header.droppedFiles.load());
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
        queue_.SayThatWriterSleeps();
        if (Ready()) {
            queue_.Awake();
            return true;
        }
        if (watch_.HostIsGone()) {
            queue_.Awake();
            return false;
        }
        queue_.SleepAsSaid(POLL_MILLISECONDS);
        queue_.Awake();
        return true;
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
    Watch watch_;
    bool sealed_ = false; // and nothing came after
};

bool ParseArguments(int count, char **values, Arguments &arguments)
{
    if (count != 8) {
        return false;
    }
    arguments.memory = atoi(values[1]);
    arguments.socket = atoi(values[2]);
    arguments.process = atoi(values[3]);
    arguments.facts.pid = atoi(values[4]);
    arguments.facts.abi = atoi(values[5]);
    arguments.facts.device = values[6];
    arguments.facts.soc = values[7];
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
    arguments.inode = status.st_ino;
    close(arguments.memory);
    ait::Queue queue(memory);
    queue.Header().writerPid.store(getpid());
    queue.Header().writerStart.store(ait::ReadStatus(getpid()).startTime);
    if (!queue.Decide(ait::Claim::TAKEN)) {
        return 0; // too late: the host writes itself
    }
    try {
        ait::Writer(arguments, memory).Run();
    } catch (const std::exception &error) {
        ait::Log(ait::LogLevel::ERROR, std::string("the writer gives up: ") + error.what());
        return 1;
    }
    return 0;
}
