#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.h"
#include "host_path.h"
#include "log.h"
#include "queue.h"
#include "spawn.h"

namespace ait {
namespace {

constexpr int START_MILLISECONDS = 10000;
constexpr int WAIT_MILLISECONDS = 100;
// Where the host writes itself while the writer is behind, a longer queue would only be memory that
// has to be touched first and lies in no cache.
constexpr uint64_t LONGEST_WITH_HELP = 16777216;

// Closes what is left when something on the way fails.
struct Resources {
    int memory = -1;
    int ownSocket = -1;
    int writerSocket = -1;
    int process = -1;
    void *mapping = MAP_FAILED;
    size_t mappingSize = 0;

    Resources() = default;
    Resources(const Resources &) = delete;
    Resources &operator=(const Resources &) = delete;
    ~Resources()
    {
        for (int fd : {memory, ownSocket, writerSocket, process}) {
            if (fd >= 0) {
                close(fd);
            }
        }
        if (mapping != MAP_FAILED) {
            munmap(mapping, mappingSize);
        }
    }
};

// Plain tensors may be written by the host's threads too; statistics and the search for identical
// tensors belong to the writer alone.
bool HostHelps(const Settings &settings)
{
    return settings.tensorData && !settings.stats && !settings.dedupe;
}

// What the settings ask for, as far as the limits of the host allow: growing a file beyond its
// limit would raise SIGXFSZ, and address space that we take is missing in the host.
uint64_t QueueCapacity(const Settings &settings)
{
    uint64_t capacity = std::max<uint64_t>(settings.queueBytes, Queue::MIN_BYTES);
    if (HostHelps(settings)) {
        capacity = std::min(capacity, LONGEST_WITH_HELP);
    }
    rlimit limit = {};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        capacity = std::min<uint64_t>(capacity, limit.rlim_cur / 16);
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        const uint64_t overhead = Queue::MappingSize(0);
        capacity = std::min<uint64_t>(
            capacity, limit.rlim_cur > overhead ? limit.rlim_cur - overhead : 0);
    }
    return capacity / 64 * 64;
}

bool MapQueue(uint64_t capacity, Resources &resources)
{
    resources.memory =
        static_cast<int>(syscall(SYS_memfd_create, "ait_probe_queue", 1u /* MFD_CLOEXEC */));
    resources.mappingSize = Queue::MappingSize(capacity);
    if (resources.memory < 0 ||
        ftruncate(resources.memory, static_cast<off_t>(resources.mappingSize)) != 0) {
        return false;
    }
    resources.mapping = mmap(nullptr, resources.mappingSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                             resources.memory, 0);
    if (resources.mapping == MAP_FAILED) {
        return false;
    }
    Queue::Initialise(resources.mapping, capacity);
    return true;
}

std::vector<std::string> WriterEnvironment(const Settings &settings)
{
    std::vector<std::string> environment;
    const auto keep = [&](const char *name) {
        const char *value = getenv(name);
        if (value != nullptr) {
            environment.push_back(std::string(name) + "=" + value);
        }
    };
    for (const char *name : SettingNames()) {
        const bool resolved = strcmp(name, "ATB_OUTPUT_DIR") == 0 ||
                              strcmp(name, "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH") == 0;
        if (!resolved) {
            keep(name);
        }
    }
    for (const char *name : {"ATB_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_RT_VISIBLE_DEVICES",
                             "RANK", "LOCAL_RANK", "WORLD_SIZE", "ASAN_OPTIONS"}) {
        keep(name);
    }
    if (settings.outputGiven || settings.ledger()) {
        environment.push_back("ATB_OUTPUT_DIR=" + settings.outputDir);
    }
    if (!settings.onnxHandOver.empty()) {
        environment.push_back("ATB_DUMP_SUB_PROC_INFO_SAVE_PATH=" + settings.onnxHandOver);
    }
    return environment;
}

class QueueChannel : public Channel {
public:
    QueueChannel(const Settings &settings, Resources &resources)
        : queue_(resources.mapping), mapping_(resources.mapping),
          mappingSize_(resources.mappingSize), socket_(resources.ownSocket),
          helps_(HostHelps(settings)),
          directories_(Recorder::Root(settings), false),
          store_(settings, directories_, [this] { return queue_.Used(); },
                 Recorder::HostTemporary(Pid())),
          queuedUntil_(PATH_SLOTS)
    {
        resources.mapping = MAP_FAILED;
        resources.ownSocket = -1;
    }

    bool Send(const Message &message) override
    {
        const uint64_t total = message.metaSize + message.dataSize;
        const uint64_t most = queue_.MaxPayload();
        const uint64_t stream = total > most ? nextStream_.fetch_add(1) : 0;
        uint64_t done = 0;
        do {
            const auto size = static_cast<uint32_t>(std::min(total - done, most));
            Record *record = Reserve(size);
            if (record == nullptr) {
                return false;
            }
            record->kind = static_cast<uint16_t>(message.kind);
            record->thread = message.thread;
            record->metaSize = static_cast<uint32_t>(message.metaSize);
            record->dataSize = message.dataSize;
            record->stream = stream;
            record->more = done + size < total ? 1 : 0;
            Copy(message, done, size, record->Payload());
            if (queue_.Commit(record)) {
                Wake();
            }
            done += size;
        } while (done < total);
        return true;
    }

    bool SaveTensor(uint32_t thread, const TensorHead &head, const void *data) override
    {
        std::atomic<uint64_t> &until =
            queuedUntil_[std::hash<std::string>()(head.path) % queuedUntil_.size()];
        // While the writer is far behind, a copy into the queue only delays the write: the host's
        // own thread writes as well. Not while an older tensor of that path may be waiting.
        if (helps_ && head.given >= MIN_HELP_BYTES &&
            queue_.Used() > queue_.Header().capacity / 4 && until.load() <= queue_.Freed()) {
            const std::unique_lock<std::mutex> lock(writing_, std::try_to_lock);
            if (lock.owns_lock() && RefusePath(head.path).empty() &&
                RefuseDesc(head.desc).empty()) {
                return WriteTensor(thread, head, data);
            }
        }
        const MetaWriter meta = EncodeHead(head);
        const bool sent = Send(Encoded(Kind::TENSOR, thread, meta, data, head.given));
        until.store(queue_.Header().head.load());
        return sent;
    }

    void Seal(uint32_t thread) override
    {
        const uint32_t before = queue_.Header().sealed.load();
        Message message;
        message.kind = Kind::SEAL;
        message.thread = thread;
        if (!Send(message)) {
            return;
        }
        while (true) {
            const uint64_t freed = queue_.Freed();
            if (queue_.Header().sealed.load() != before || !WriterLives()) {
                return;
            }
            queue_.WaitForRoom(freed, WAIT_MILLISECONDS);
        }
    }

    void BeforeFork() override
    {
        writing_.lock();
        mutex_.lock();
    }
    void AfterForkInParent() override
    {
        mutex_.unlock();
        writing_.unlock();
    }
    void AfterForkInChild() override
    {
        mutex_.unlock();
        writing_.unlock();
        directories_.Forget();
        close(socket_); // or the writer would not see the parent replace its program
        munmap(mapping_, mappingSize_);
    }

private:
    static constexpr uint64_t MIN_HELP_BYTES = 32768;
    static constexpr size_t PATH_SLOTS = 16384;

    static Message Encoded(Kind kind, uint32_t thread, const MetaWriter &meta, const void *data,
                           uint64_t size)
    {
        Message message;
        message.kind = kind;
        message.thread = thread;
        message.meta = meta.Bytes().data();
        message.metaSize = meta.Bytes().size();
        message.data = data;
        message.dataSize = size;
        return message;
    }

    bool WriteTensor(uint32_t thread, const TensorHead &head, const void *data)
    {
        QueueHeader &header = queue_.Header();
        snprintf(header.writingPath, MAX_WRITING_PATH, "%s", head.path.c_str());
        header.writingThread.store(thread);
        Statistics none(-1);
        const TensorResult result = store_.Save(head, data, none);
        MetaWriter meta;
        meta.Text(head.path).Number(result.bytes).Number(static_cast<uint64_t>(result.error));
        meta.Text(result.reason);
        const bool sent = Send(Encoded(Kind::WRITTEN, thread, meta, nullptr, 0));
        header.writingThread.store(0);
        return sent;
    }

    static void Copy(const Message &message, uint64_t from, size_t size, char *out)
    {
        if (from < message.metaSize) {
            const size_t part = std::min(size, static_cast<size_t>(message.metaSize - from));
            memcpy(out, message.meta + from, part);
            out += part;
            from += part;
            size -= part;
        }
        if (size > 0) {
            memcpy(out, static_cast<const char *>(message.data) + (from - message.metaSize), size);
        }
    }

    Record *Reserve(uint32_t payload)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        while (!dead_) {
            const uint64_t freed = queue_.Freed();
            Record *record = queue_.Reserve(payload);
            if (record != nullptr) {
                return record;
            }
            queue_.WaitForRoom(freed, WAIT_MILLISECONDS);
            WriterLives();
        }
        return nullptr;
    }

    void Wake()
    {
        const char byte = 0;
        if (send(socket_, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE) {
            WriterLives();
        }
    }

    bool WriterLives()
    {
        char byte = 0;
        const ssize_t got = recv(socket_, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        const bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK &&
                                       errno != EINTR);
        if (gone && !dead_.exchange(true)) {
            Log(LogLevel::ERROR, "the process that writes the dump has ended; nothing more is "
                                 "captured and the ledger stays unsealed");
        }
        return !gone;
    }

    Queue queue_;
    void *mapping_;
    size_t mappingSize_;
    int socket_;
    std::mutex mutex_;
    // For tensors that the host writes itself.
    const bool helps_;
    std::mutex writing_;
    Directories directories_;
    TensorStore store_;
    std::vector<std::atomic<uint64_t>> queuedUntil_; // position in the queue, by hash of the path

    std::atomic<bool> dead_{false};
    std::atomic<uint64_t> nextStream_{1};
};

bool AwaitStart(int socket)
{
    pollfd wait = {socket, POLLIN, 0};
    char byte = 0;
    int result = 0;
    do {
        result = poll(&wait, 1, START_MILLISECONDS);
    } while (result < 0 && errno == EINTR);
    return result == 1 && recv(socket, &byte, 1, 0) == 1;
}

} // namespace

std::unique_ptr<Channel> OpenQueueChannel(const Settings &settings, const HostFacts &facts)
{
    Resources resources;
    const std::string writer = WriterPath();
    if (writer.empty() || access(writer.c_str(), X_OK) != 0) {
        return nullptr;
    }
    const uint64_t capacity = QueueCapacity(settings);
    if (capacity < Queue::MIN_BYTES || !MapQueue(capacity, resources)) {
        return nullptr;
    }
    int sockets[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        return nullptr;
    }
    resources.ownSocket = sockets[0];
    resources.writerSocket = sockets[1];
#ifdef SYS_pidfd_open
    resources.process = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    if (resources.process >= 0) {
        fcntl(resources.process, F_SETFD, FD_CLOEXEC);
    }
#endif
    const std::vector<std::string> arguments = {writer,
                                                std::to_string(resources.memory),
                                                std::to_string(resources.writerSocket),
                                                std::to_string(resources.process),
                                                std::to_string(facts.pid),
                                                std::to_string(facts.abi),
                                                facts.device};
    std::vector<int> inherited = {resources.memory, resources.writerSocket};
    if (resources.process >= 0) {
        inherited.push_back(resources.process);
    }
    const int error = SpawnDetached(writer, arguments, WriterEnvironment(settings), inherited);
    if (error != 0) {
        Log(LogLevel::DEBUG, writer + ": " + ErrorText(error));
        return nullptr;
    }
    close(resources.writerSocket);
    resources.writerSocket = -1;
    if (!AwaitStart(resources.ownSocket)) {
        return nullptr;
    }
    return std::make_unique<QueueChannel>(settings, resources);
}

} // namespace ait
