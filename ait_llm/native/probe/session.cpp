#include "session.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <pthread.h>

#include "host_path.h"
#include "log.h"
#include "matcher.h"

namespace ait {
namespace {

// Leaky: see Session::Get.
std::mutex &CreationMutex()
{
    static auto *mutex = new std::mutex();
    return *mutex;
}

const Settings *g_settings = nullptr; // kept for children, whose directory may be another by then

Session::Gates MakeGates(const Settings &settings)
{
    Session::Gates gates = {};
    gates.tensors = settings.tensors();
    // Statistics need the values, so the host has to wait for the device.
    gates.data = settings.tensorData || settings.stats;
    gates.before = settings.before;
    gates.after = settings.after;
    gates.description = settings.tensors() || settings.op || settings.kernel;
    gates.tiling = settings.tiling;
    gates.op = settings.op;
    gates.kernel = settings.kernel;
    gates.statistic = settings.cpuProfiling;
    gates.graph = settings.graphs();
    gates.model = settings.model;
    gates.overflowCheck = settings.overflowCheck;
    gates.overflowStop = settings.overflowStop;
    return gates;
}

// The logical device of the calling thread, or "" where no driver is loaded.
std::string DriverDevice()
{
    using GetDevice = int (*)(int32_t *);
    const auto function = reinterpret_cast<GetDevice>(dlsym(RTLD_DEFAULT, "aclrtGetDevice"));
    int32_t device = -1;
    if (function == nullptr) {
        return "";
    }
    return function(&device) == 0 ? std::to_string(device) : "-1";
}

// The name of the chip, or "" where no driver is loaded.
std::string DriverSoc()
{
    using GetName = const char *(*)();
    const auto function = reinterpret_cast<GetName>(dlsym(RTLD_DEFAULT, "aclrtGetSocName"));
    const char *name = function == nullptr ? nullptr : function();
    return name == nullptr ? "" : name;
}

std::string ProgramPath()
{
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

} // namespace

std::atomic<Session *> Session::s_current{nullptr};

Session::Session(const Settings &given) : gates(MakeGates(given)), settings(given) {}

Session &Session::Create()
{
    const std::lock_guard<std::mutex> lock(CreationMutex());
    Session *session = s_current.load();
    if (session != nullptr) {
        return *session;
    }
    if (g_settings == nullptr) {
        g_settings = new Settings(ReadSettings());
        SetLogLevel(g_settings->logLevel);
        if (g_settings->anything()) {
            SetThreadEndHandler(ThreadEnds);
            pthread_atfork(PrepareFork, ParentAfterFork, ChildAfterFork);
            atexit(AtExit);
        }
        if (!g_settings->ledger()) { // where there is one, who writes it says them
            for (const std::string &warning : g_settings->warnings) {
                Log(LogLevel::WARNING, warning);
            }
        }
    }
    session = new Session(*g_settings);
    if (g_settings->ledger()) {
        // From here on a ledger says that the host has called us, whatever the filters select.
        session->OpenChannel();
    }
    s_current.store(session, std::memory_order_release);
    return *session;
}

Channel &Session::OpenChannel()
{
    Channel *channel = channel_.load(std::memory_order_acquire);
    const pid_t pid = getpid();
    if (channel != nullptr && channel->Pid() == pid) {
        return *channel;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    channel = channel_.load();
    if (channel != nullptr && channel->Pid() == pid) {
        return *channel;
    }
    HostFacts facts;
    facts.pid = pid;
    facts.abi = _GLIBCXX_USE_CXX11_ABI;
    facts.device = DriverDevice();
    facts.soc = DriverSoc();
    facts.executable = ProgramPath();
    std::unique_ptr<Channel> opened;
    if (settings.queueBytes > 0) {
        facts.writer = "process";
        opened = OpenQueueChannel(settings, facts);
    }
    if (opened == nullptr) {
        facts.writer = "host";
        opened = OpenDirectChannel(settings, facts);
    }
    channel_.store(opened.get(), std::memory_order_release);
    return *opened.release();
}

bool Session::Send(Kind kind, const MetaWriter &meta, const void *data, uint64_t size)
{
    Message message;
    message.kind = kind;
    message.thread = Thread().id;
    message.meta = meta.Bytes().data();
    message.metaSize = meta.Bytes().size();
    message.data = data;
    message.dataSize = size;
    return OpenChannel().Send(message);
}

ThreadState &Session::Thread()
{
    ThreadState &state = CurrentThread();
    if (state.session != this) {
        const uint32_t id = state.id;
        state = ThreadState();
        state.session = this;
        state.id = id;
    }
    return state;
}

void Session::EndUnit(ThreadState &state)
{
    if (state.session != this) {
        return;
    }
    const bool open = state.open;
    state.open = false;
    state.announced = false;
    MetaWriter meta;
    if (open) {
        meta.Number(state.lost).Number(static_cast<uint64_t>(state.error));
        Send(Kind::CLOSE, meta);
    } else {
        meta.Text(state.directory).Text(state.phase);
        Send(Kind::EMPTY, meta);
    }
    state.lost = 0;
    state.error = 0;
    state.directory.clear();
}

void Session::Announce()
{
    if (gates.tensors) {
        EndUnit();
        Thread().announced = true;
    }
}

void Session::SetPhase(const char *phase)
{
    if (gates.tensors) {
        EndUnit();
        Thread().phase = phase;
    }
}

void Session::SetDirectory(const std::string &directory)
{
    EndUnit();
    Thread().directory = directory;
}

bool Session::WantsDevice(const std::string &path) const
{
    if (settings.devices.empty()) {
        return true;
    }
    std::string device = DeviceOfPath(path);
    if (device.empty()) {
        device = DriverDevice();
    }
    return device.empty() || MatchesDeviceId(settings, device);
}

void Session::SaveTensor(const std::string &format, const std::string &dtype,
                         const std::string &dims, const void *data, uint64_t size,
                         const std::string &path)
{
    if (!gates.tensors) {
        return;
    }
    ThreadState &state = Thread();
    if (!MatchesDevice(settings, path)) {
        state.announced = false;
        return;
    }
    const std::string file = FileOf(path);
    const std::string folder = DirectoryOf(path);
    const bool isInput = file.compare(0, 8, "intensor") == 0;
    const bool isOutput = file.compare(0, 9, "outtensor") == 0;
    const std::string phase = FileOf(folder);
    const bool wrongPart = (isInput && !settings.inTensors) || (isOutput && !settings.outTensors) ||
                           (!settings.inTensors && !settings.outTensors);
    const bool wrongPhase = settings.inBeforeOutAfter && ((isInput && phase == "after") ||
                                                          (isOutput && phase == "before"));
    if (wrongPart || wrongPhase) {
        if (state.directory.empty()) {
            state.directory = DirectoryOf(folder);
        }
        return;
    }
    TensorHead head;
    head.desc = {format, dtype, dims};
    head.path = path;
    head.size = size;
    state.announced = false;
    state.open = true;
    // Only statistics look at the values of a tensor that is not stored.
    const bool described = !settings.tensorData && !settings.stats;
    head.given = described || data == nullptr ? 0 : size;
    if (!OpenChannel().SaveTensor(state.id, head, data)) {
        ++state.lost;
        state.error = EPIPE;
    }
}

void Session::NoteLost(int error) noexcept
{
    ThreadState *state = CurrentThreadIfAny();
    if (state != nullptr && state->session == this) {
        state->open = true;
        ++state->lost;
        state->error = error;
    }
}

bool Session::IsNewModel(const std::string &name)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return models_.count(name) == 0;
}

void Session::RememberModel(const std::string &name)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    models_.insert(name);
}

void Session::PrepareFork()
{
    CreationMutex().lock();
    Session *session = s_current.load();
    if (session != nullptr) {
        session->mutex_.lock();
        Channel *channel = session->channel_.load();
        if (channel != nullptr && channel->Pid() == getpid()) {
            channel->BeforeFork();
        }
    }
}

void Session::ParentAfterFork()
{
    Session *session = s_current.load();
    if (session != nullptr) {
        Channel *channel = session->channel_.load();
        if (channel != nullptr && channel->Pid() == getpid()) {
            channel->AfterForkInParent();
        }
        session->mutex_.unlock();
    }
    CreationMutex().unlock();
}

void Session::ChildAfterFork()
{
    Session *session = s_current.load();
    if (session != nullptr) {
        Channel *channel = session->channel_.load();
        if (channel != nullptr) {
            channel->AfterForkInChild();
        }
        session->mutex_.unlock();
        // The child is a capture of its own, from its first call on.
        s_current.store(nullptr);
    }
    CreationMutex().unlock();
}

void Session::AtExit()
{
    Session *session = s_current.load();
    Channel *channel = session == nullptr ? nullptr : session->channel_.load();
    if (channel == nullptr || channel->Pid() != getpid()) {
        return;
    }
    try {
        ThreadState *state = CurrentThreadIfAny();
        if (state != nullptr && (state->open || state->announced)) {
            session->EndUnit(*state);
        }
        channel->Seal(0);
    } catch (const std::exception &error) {
        Log(LogLevel::ERROR, std::string("the dump could not be completed: ") + error.what());
    }
}

void Session::ThreadEnds(ThreadState &state)
{
    Session *session = s_current.load();
    if (session == nullptr || state.session != session || !(state.open || state.announced)) {
        return;
    }
    try {
        MetaWriter meta;
        Message message;
        message.kind = state.open ? Kind::CLOSE : Kind::EMPTY;
        if (state.open) {
            meta.Number(state.lost).Number(static_cast<uint64_t>(state.error));
        } else {
            meta.Text(state.directory).Text(state.phase);
        }
        message.thread = state.id;
        message.meta = meta.Bytes().data();
        message.metaSize = meta.Bytes().size();
        session->OpenChannel().Send(message);
    } catch (const std::exception &error) {
        Log(LogLevel::ERROR, std::string("the last tensors of a thread: ") + error.what());
    }
}

} // namespace ait
