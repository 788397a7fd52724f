#include "tensor_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include "host_path.h"
#include "log.h"

namespace ait {
namespace {

int64_t DTypeCode(const TensorDesc &desc)
{
    return desc.dtype.empty() ? -1 : strtoll(desc.dtype.c_str(), nullptr, 10);
}

// Lengths, slots and block tables tell tokens from padding; they are small.
constexpr uint64_t SMALL_INDEX = 1 << 18;

bool Wanted(const Settings &settings, const TensorHead &head, const Statistics &stats)
{
    return !settings.oddOnly || !stats.Supported() || stats.Odd() ||
           (stats.WholeNumbers() && head.size <= SMALL_INDEX);
}

TensorResult Failed(int error, const std::string &reason)
{
    TensorResult result;
    result.state = TensorState::FAILED;
    result.error = error;
    result.reason = reason.empty() ? ErrorText(error) : reason;
    return result;
}

TensorResult Stored(uint64_t bytes, bool shared)
{
    TensorResult result;
    result.state = TensorState::DATA;
    result.bytes = bytes;
    result.shared = shared;
    return result;
}

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor()
    {
        if (fd_ >= 0) {
            close(fd_);
        }
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int Get() const { return fd_; }

private:
    int fd_;
};

} // namespace

TensorStore::TensorStore(const Settings &settings, Directories &directories,
                         std::function<uint64_t()> backlog, std::string temporary)
    : settings_(settings), directories_(directories), backlog_(std::move(backlog)),
      temporary_(std::move(temporary))
{
}

bool TensorStore::HasRoom(uint64_t size, std::string &reason)
{
    const auto now = std::chrono::steady_clock::now();
    const uint64_t needed = size + backlog_() + settings_.minFreeBytes;
    // One system call per tensor would be dear for small ones: ask again every 20 ms, and always
    // before refusing.
    const bool old = now - freeChecked_ > std::chrono::milliseconds(20);
    if (old || freeBytes_ < needed) {
        struct statvfs status = {};
        const int root = directories_.Open("");
        if (root < 0 || fstatvfs(root, &status) != 0) {
            return true; // the write itself will say what is wrong
        }
        freeBytes_ = static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
        freeChecked_ = now;
    }
    if (freeBytes_ < needed) {
        reason = "the disk has " + std::to_string(freeBytes_) + " bytes left, of which " +
                 std::to_string(settings_.minFreeBytes) + " are kept free";
        return false;
    }
    freeBytes_ -= size;
    return true;
}

void TensorStore::GiveOwnData(const std::string &target, const TensorAlias &alias)
{
    const std::string directory = DirectoryOf(target);
    const Descriptor source(directories_.OpenFile(directory, FileOf(target), O_RDONLY));
    ReplaceFile file(directories_);
    int error = source.Get() < 0 ? errno : 0;
    if (error == 0) {
        error = file.Create(alias.path, alias.header.size() + alias.size);
    }
    if (error == 0) {
        error = file.Write(alias.header.data(), alias.header.size());
    }
    std::vector<char> buffer(262144);
    for (uint64_t done = 0; error == 0 && done < alias.size;) {
        const auto n = static_cast<size_t>(std::min<uint64_t>(buffer.size(), alias.size - done));
        const ssize_t got = pread(source.Get(), buffer.data(), n,
                                  static_cast<off_t>(alias.targetOffset + done));
        if (got <= 0) {
            error = got < 0 ? errno : EIO;
            break;
        }
        error = file.Write(buffer.data(), static_cast<size_t>(got));
        done += static_cast<uint64_t>(got);
    }
    if (error == 0) {
        error = file.Commit();
    }
    if (error != 0) {
        Log(LogLevel::ERROR, alias.path + " refers to " + target +
                                 ", which changes now, and cannot be given its own data: " +
                                 ErrorText(error));
    }
}

void TensorStore::Release(const std::string &path)
{
    if (!settings_.dedupe) {
        return;
    }
    index_.RemoveAlias(path);
    for (const TensorAlias &alias : index_.TakeAliases(path)) {
        GiveOwnData(path, alias);
    }
    index_.Forget(path);
}

bool TensorStore::SameBytes(const StoredTensor &stored, const void *data, size_t size)
{
    const Descriptor file(
        directories_.OpenFile(DirectoryOf(stored.path), FileOf(stored.path), O_RDONLY));
    return file.Get() >= 0 &&
           FileEquals(file.Get(), 0, stored.header.data(), stored.header.size()) &&
           FileEquals(file.Get(), stored.header.size(), data, size);
}

bool TensorStore::SameBytes(const StoredTensor &stored, int fd, uint64_t offset)
{
    const Descriptor file(
        directories_.OpenFile(DirectoryOf(stored.path), FileOf(stored.path), O_RDONLY));
    return file.Get() >= 0 &&
           FileEquals(file.Get(), 0, stored.header.data(), stored.header.size()) &&
           FilesEqual(file.Get(), stored.header.size(), fd, offset, stored.size);
}

bool TensorStore::Share(const TensorHead &head, const std::string &header,
                        const std::string &extra, const StoredTensor &stored)
{
    const std::string path = FilePath(head);
    if (stored.path == path) {
        return header == stored.header; // saved again, unchanged
    }
    const StoredTensor target = stored; // Release may drop it from the index
    Release(path);
    if (header == target.header) {
        ReplaceFile link(directories_);
        // A link needs a file beside it to be renamed from, which Create would be too much for.
        if (link.Create(path, 0) == 0 && link.CommitLink(target.path) == 0) {
            return true;
        }
    }
    if (!index_.MayAlias()) {
        return false;
    }
    const std::string alias = DescriptionHeader(
        head.desc, extra + "data=" + RelativePath(path, target.path) + "\n");
    if (ReplaceWith(directories_, path, alias) != 0) {
        return false;
    }
    index_.AddAlias(target.path, {path, header, target.header.size(), target.size});
    return true;
}

TensorResult TensorStore::SaveDescription(const TensorHead &head, const Statistics &stats)
{
    const std::string path = FilePath(head);
    const std::string extra =
        settings_.stats && head.given > 0 ? stats.HeaderLines(false) : std::string();
    Release(path);
    std::string reason;
    if (!HasRoom(0, reason)) {
        return Failed(ENOSPC, reason);
    }
    const int error = ReplaceWith(directories_, path, DescriptionHeader(head.desc, extra));
    if (error != 0) {
        return Failed(error, "");
    }
    TensorResult result;
    result.state = TensorState::DESCRIPTION;
    return result;
}

TensorResult TensorStore::Save(const TensorHead &head, const void *data, Statistics &stats)
{
    if (settings_.stats) {
        stats.Add(data, head.given);
    }
    if (head.size == 0 && head.desc.dims.empty()) {
        return TensorResult(); // an optional tensor that was not given
    }
    if (head.given < head.size && (settings_.tensorData || settings_.stats)) {
        return Failed(EFAULT, "the host gave no data");
    }
    if (!settings_.tensorData || head.size == 0 || !Wanted(settings_, head, stats)) {
        return SaveDescription(head, stats);
    }
    const std::string path = FilePath(head);
    const std::string extra = settings_.stats ? stats.HeaderLines(false) : std::string();
    std::string header = DataHeader(head.desc, head.size, extra);
    ContentHash::Value hash;
    if (settings_.dedupe) {
        ContentHash content;
        content.Add(data, head.size);
        hash = content.Finish();
        const StoredTensor *stored = index_.Find(hash, head.size);
        if (stored != nullptr && SameBytes(*stored, data, head.size) &&
            Share(head, header, extra, *stored)) {
            return Stored(head.size, true);
        }
    }
    std::string reason;
    if (!HasRoom(head.size, reason)) {
        return Failed(ENOSPC, reason);
    }
    Release(path);
    ReplaceFile file(directories_, temporary_);
    int error = file.Create(path, header.size() + head.size);
    if (error == 0) {
        iovec parts[2] = {{&header[0], header.size()}, {const_cast<void *>(data), head.size}};
        error = file.Write(parts, 2);
    }
    if (error == 0) {
        error = file.Commit();
    }
    if (error != 0) {
        return Failed(error, "");
    }
    if (settings_.dedupe) {
        index_.Remember(hash, {path, header, head.size});
    }
    return Stored(head.size, false);
}

TensorStore::Job::Job(TensorStore &store, TensorHead head)
    : store_(store), head_(std::move(head)), stats_(DTypeCode(head_.desc)),
      file_(store.directories_)
{
    storesData_ = store_.settings_.tensorData;
    if (!storesData_) {
        return;
    }
    if (!store_.HasRoom(head_.size, reason_)) {
        error_ = ENOSPC;
        return;
    }
    std::string extra;
    if (store_.settings_.stats) {
        // The numbers are known at the end; lines of the same length hold their place.
        Statistics placeholder(DTypeCode(head_.desc));
        const uint64_t zero = 0;
        placeholder.Add(&zero, sizeof(zero));
        extra = placeholder.HeaderLines(true);
    }
    header_ = DataHeader(head_.desc, head_.size, extra);
    error_ = file_.Create(FilePath(head_), header_.size() + head_.size);
    if (error_ == 0) {
        error_ = file_.Write(header_.data(), header_.size());
    }
}

void TensorStore::Job::Add(const void *data, size_t size)
{
    if (store_.settings_.stats) {
        stats_.Add(data, size);
    }
    if (!storesData_ || error_ != 0) {
        return;
    }
    if (store_.settings_.dedupe) {
        hash_.Add(data, size);
    }
    error_ = file_.Write(data, size);
}

int TensorStore::Job::WriteHeader()
{
    std::string header = DataHeader(head_.desc, head_.size, stats_.HeaderLines(true));
    if (header.size() < header_.size()) {
        // "nan" instead of a number: an attribute without meaning fills the place.
        const size_t missing = header_.size() - header.size();
        const std::string name = "pad=";
        if (missing <= name.size() + 1) {
            return EINVAL;
        }
        const std::string pad = name + std::string(missing - name.size() - 1, '0') + "\n";
        header = DataHeader(head_.desc, head_.size, stats_.HeaderLines(true) + pad);
    }
    if (header.size() != header_.size()) {
        return EINVAL;
    }
    header_ = header;
    const ssize_t written = pwrite(file_.Descriptor(), header_.data(), header_.size(), 0);
    return written == static_cast<ssize_t>(header_.size()) ? 0 : (written < 0 ? errno : EIO);
}

TensorResult TensorStore::Job::Finish()
{
    if (error_ == 0 && storesData_ && !Wanted(store_.settings_, head_, stats_)) {
        file_.Discard();
        return store_.SaveDescription(head_, stats_);
    }
    if (error_ == 0 && !storesData_) {
        return store_.SaveDescription(head_, stats_);
    }
    if (error_ == 0 && store_.settings_.stats && stats_.Supported()) {
        error_ = WriteHeader();
    }
    if (error_ != 0) {
        return Failed(error_, reason_);
    }
    const std::string path = FilePath(head_);
    ContentHash::Value hash;
    if (store_.settings_.dedupe) {
        hash = hash_.Finish();
        const StoredTensor *stored = store_.index_.Find(hash, head_.size);
        const std::string extra = store_.settings_.stats ? stats_.HeaderLines(true) : "";
        if (stored != nullptr &&
            store_.SameBytes(*stored, file_.Descriptor(), header_.size()) &&
            store_.Share(head_, header_, extra, *stored)) {
            return Stored(head_.size, true);
        }
    }
    store_.Release(path);
    error_ = file_.Commit();
    if (error_ != 0) {
        return Failed(error_, "");
    }
    if (store_.settings_.dedupe) {
        store_.index_.Remember(hash, {path, header_, head_.size});
    }
    return Stored(head_.size, false);
}

} // namespace ait
