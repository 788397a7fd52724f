#include <algorithm>
#include <cerrno>
#include <chrono>
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
#include "descriptor.h"
#include "host_path.h"
#include "log.h"
#include "process.h"
#include "queue.h"
#include "spawn.h"

namespace ait {
namespace {

constexpr uint64_t START_SECONDS = 10;
constexpr int START_POLL_MILLISECONDS = 50;
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

// How long the host has been waiting in vain: counted in its own waits, because a clock also runs
// while both processes are frozen.
class Patience {
public:
    Patience(QueueHeader &header, uint64_t seconds)
        : header_(header), limit_(seconds * 1000 / WAIT_MILLISECONDS)
    {
    }

    // After each wait. Empty, or why it was the last one.
    std::string Waited()
    {
        const uint64_t tail = header_.tail.load();
        const uint64_t beats = header_.beats.load();
        still_ = tail == tail_ ? still_ + 1 : 0;
        silent_ = tail == tail_ && beats == beats_ ? silent_ + 1 : 0;
        tail_ = tail;
        beats_ = beats;
        // A writer that runs is waited for longer: its disk may be slow.
        if (silent_ <= limit_ && still_ <= PATIENCE_WITH_DISKS * limit_) {
            return "";
        }
        const uint64_t waits = silent_ > limit_ ? limit_ : PATIENCE_WITH_DISKS * limit_;
        return (silent_ > limit_ ? "has given no sign of life for "
                                 : "has not got anything to disk for ") +
               std::to_string(waits * WAIT_MILLISECONDS / 1000) + " s";
    }

private:
    static constexpr uint64_t PATIENCE_WITH_DISKS = 10;

    QueueHeader &header_;
    const uint64_t limit_;
    uint64_t tail_ = UINT64_MAX;
    uint64_t beats_ = 0;
    uint64_t still_ = 0;
    uint64_t silent_ = 0;
};

class QueueChannel : public Channel {
public:
    QueueChannel(const Settings &settings, Resources &resources, HeldDescriptor socket)
        : queue_(resources.mapping), mapping_(resources.mapping),
          mappingSize_(resources.mappingSize), socket_(std::move(socket)),
          patienceSeconds_(settings.patienceSeconds), helps_(HostHelps(settings)),
          directories_(Recorder::Root(settings)),
          store_(settings, directories_, [this] { return queue_.Used(); },
                 Recorder::HostTemporary(Pid())),
          queuedUntil_(PATH_SLOTS)
    {
        resources.mapping = MAP_FAILED;
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
                CountDropped(message.kind);
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
        Patience patience(queue_.Header(), patienceSeconds_);
        while (!dead_) {
            const uint64_t freed = queue_.Freed();
            if (queue_.Header().sealed.load() != before) {
                return;
            }
            Wait(freed, patience);
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
        socket_.Close(); // or the writer would not see the parent replace its program
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
        Patience patience(queue_.Header(), patienceSeconds_);
        while (!dead_) {
            const uint64_t freed = queue_.Freed();
            Record *record = queue_.Reserve(payload);
            if (record != nullptr) {
                return record;
            }
            Wait(freed, patience);
        }
        return nullptr;
    }

    void Wait(uint64_t freed, Patience &patience)
    {
        queue_.WaitForRoom(freed, WAIT_MILLISECONDS);
        if (WriterLives()) {
            const std::string reason = patience.Waited();
            if (!reason.empty() && !dead_.exchange(true)) {
                Log(LogLevel::ERROR, "the process that writes the dump " + reason +
                                         "; nothing more is captured, and where it goes on "
                                         "later, the ledger says how much is missing");
            }
        }
    }

    void Wake()
    {
        if (!queue_.WakeWriter()) {
            WriterLives(); // or it woke up by itself just now
        }
    }

    bool WriterLives()
    {
        QueueHeader &header = queue_.Header();
        const bool lives = Runs(header.writerPid.load(), header.writerStart.load());
        if (!lives && !dead_.exchange(true)) {
            Log(LogLevel::ERROR, "the process that writes the dump has ended; nothing more is "
                                 "captured and the ledger stays unsealed");
        }
        return lives;
    }

    // The writer adds it to the seal.
    void CountDropped(Kind kind)
    {
        if (kind == Kind::CLOSE || kind == Kind::EMPTY) {
            queue_.Header().droppedOperations.fetch_add(1);
        } else if (kind != Kind::TENSOR && kind != Kind::WRITTEN && kind != Kind::SEAL) {
            queue_.Header().droppedFiles.fetch_add(1);
        }
    }

    Queue queue_;
    void *mapping_;
    size_t mappingSize_;
    HeldDescriptor socket_; // closed with this process: the only thing it is for
    const uint64_t patienceSeconds_;
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

// True where a writer has the capture now; otherwise none will have it any more.
bool AwaitStart(Queue &queue, const HeldDescriptor &socket, uint64_t patienceSeconds)
{
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::seconds(std::min(START_SECONDS, patienceSeconds));
    bool waits = true;
    while (waits && std::chrono::steady_clock::now() < deadline) {
        pollfd wait = {socket.Get(), POLLIN, 0};
        // It has begun its ledger, or ended before.
        const bool told = poll(&wait, 1, START_POLL_MILLISECONDS) == 1;
        waits = !told && (wait.fd >= 0 || queue.Header().claim.load() == Claim::OPEN);
    }
    return !queue.Decide(Claim::WITHDRAWN);
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
                                                facts.device,
                                                facts.soc};
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
    Queue queue(resources.mapping);
    HeldDescriptor socket(resources.ownSocket);
    resources.ownSocket = -1;
    if (!AwaitStart(queue, socket, settings.patienceSeconds)) {
        return nullptr;
    }
    return std::make_unique<QueueChannel>(settings, resources, std::move(socket));
}

} // namespace ait
