#include "append_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "directories.h"
#include "host_path.h"

namespace ait {
namespace {

constexpr long long RESERVE_BYTES = 65536; // some hundred lines of a ledger

// One write() of everything: with O_APPEND the lines of several writers do not mix.
int WriteOnce(int fd, const std::string &lines)
{
    struct stat before = {};
    if (fstat(fd, &before) != 0 ||
        !FitsFileSizeLimit(static_cast<uint64_t>(before.st_size) + lines.size())) {
        return errno;
    }
    ssize_t written = 0;
    do {
        written = write(fd, lines.data(), lines.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(lines.size())) {
        return 0;
    }
    const int error = written < 0 ? errno : ENOSPC;
    if (written > 0) {
        static_cast<void>(ftruncate(fd, before.st_size) == 0);
    }
    return error;
}

} // namespace

int AppendFile::Open(Directories &directories, const std::string &path, bool fresh)
{
    Close();
    directories_ = &directories;
    path_ = path;
    const std::string directory = DirectoryOf(path);
    const std::string name = FileOf(path);
    if (fresh) {
        const int parent = directories.Open(directory);
        if (parent >= 0) {
            static_cast<void>(unlinkat(parent, name.c_str(), 0));
        }
    }
    const int fd = directories.OpenFile(directory, name, O_WRONLY | O_CREAT | O_APPEND);
    const int error = fd < 0 ? errno : 0;
    file_ = HeldDescriptor(fd);
    return error;
}

int AppendFile::Descriptor()
{
    const int fd = file_.Get();
    if (fd >= 0 || !file_.Opened()) {
        return fd;
    }
    HeldDescriptor again(
        directories_->OpenFile(DirectoryOf(path_), FileOf(path_), O_WRONLY | O_APPEND));
    if (!again.SameFile(file_)) {
        return -1;
    }
    file_ = std::move(again);
    if (locked_) {
        Lock();
    }
    return file_.Get();
}

int AppendFile::Append(const std::string &lines, long long keep)
{
    const int fd = Descriptor();
    const auto size = static_cast<long long>(lines.size());
    // Not tried where it cannot fit: taking back half a line would give the reserve back as well.
    if (keep > 0 && reserves_ && reserved_ - size < keep && !Reserve(size + keep)) {
        return ENOSPC;
    }
    const int error = fd < 0 ? EBADF : WriteOnce(fd, lines);
    if (error == 0 && reserves_) {
        reserved_ -= std::min(reserved_, size);
        if (reserved_ < RESERVE_BYTES / 2) {
            Reserve();
        }
    }
    return error;
}

bool AppendFile::Reserve()
{
    return reserved_ >= RESERVE_BYTES / 2 || Reserve(RESERVE_BYTES - reserved_);
}

bool AppendFile::Reserve(long long bytes)
{
    struct stat status = {};
    const int fd = Descriptor();
    if (fd < 0 || fstat(fd, &status) != 0) {
        return false;
    }
    // Behind what is kept already: where it fails, tmpfs takes back the blocks that it was asked for, and
    // above the limit of file sizes it raises a signal.
    const long long begin = status.st_size + reserved_;
    if (FitsFileSizeLimit(static_cast<uint64_t>(begin + bytes)) &&
        fallocate(fd, FALLOC_FL_KEEP_SIZE, begin, bytes) == 0) {
        reserves_ = true;
        reserved_ += bytes;
        return true;
    }
    const bool full = errno == ENOSPC || errno == EDQUOT;
    reserves_ = reserves_ || full;
    return !full;
}

int AppendFile::Rewrite(const std::string &content)
{
    const int fd = Descriptor();
    if (fd < 0) {
        return EBADF;
    }
    if (ftruncate(fd, 0) != 0) {
        return errno;
    }
    reserved_ = 0; // given back with the content
    const int error = WriteOnce(fd, content);
    if (reserves_) {
        Reserve();
    }
    return error;
}

int AppendFile::MoveTo(Directories &directories, const std::string &path)
{
    // Both names lie in one directory: only the name of a ledger changes.
    const int parent = directories.Open(DirectoryOf(path));
    if (parent < 0 ||
        renameat(parent, FileOf(path_).c_str(), parent, FileOf(path).c_str()) != 0) {
        return errno;
    }
    path_ = path;
    return 0;
}

void AppendFile::Close()
{
    struct stat status = {};
    const int fd = reserved_ > 0 ? Descriptor() : -1;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        static_cast<void>(ftruncate(fd, status.st_size) == 0); // gives the rest back
    }
    file_.Close();
    reserved_ = 0;
    locked_ = false;
    reserves_ = false;
}

bool AppendFile::IsEmpty()
{
    struct stat status = {};
    const int fd = Descriptor();
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_size == 0;
}

bool AppendFile::Removed()
{
    if (!file_.Opened()) {
        return false;
    }
    struct stat status = {};
    const int fd = Descriptor();
    return fd < 0 || (fstat(fd, &status) == 0 && status.st_nlink == 0);
}

void AppendFile::Lock()
{
    const int fd = Descriptor();
    if (fd >= 0) {
        locked_ = true;
        static_cast<void>(flock(fd, LOCK_EX | LOCK_NB));
    }
}

int AppendShared(const std::string &path, const std::string &line)
{
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return errno;
    }
    const int error = WriteOnce(fd, line);
    close(fd);
    return error;
}

} // namespace ait
