#include "append_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

AppendFile::AppendFile(AppendFile &&other) noexcept
    : path_(std::move(other.path_)), fd_(other.fd_), reserved_(other.reserved_)
{
    other.fd_ = -1;
}

int AppendFile::Open(Directories &directories, const std::string &path, bool fresh)
{
    Close();
    path_ = path;
    const std::string directory = DirectoryOf(path);
    const std::string name = FileOf(path);
    if (fresh) {
        const int parent = directories.Open(directory);
        if (parent >= 0) {
            static_cast<void>(unlinkat(parent, name.c_str(), 0));
        }
    }
    fd_ = directories.OpenFile(directory, name, O_WRONLY | O_CREAT | O_APPEND);
    return fd_ < 0 ? errno : 0;
}

int AppendFile::Append(const std::string &lines)
{
    const int error = fd_ < 0 ? EBADF : WriteOnce(fd_, lines);
    if (error == 0 && reserved_ > 0) {
        reserved_ -= static_cast<long long>(lines.size());
        if (reserved_ < RESERVE_BYTES / 2) {
            Reserve();
        }
    }
    return error;
}

void AppendFile::Reserve()
{
    struct stat status = {};
    if (fd_ >= 0 && fstat(fd_, &status) == 0 &&
        fallocate(fd_, FALLOC_FL_KEEP_SIZE, status.st_size, RESERVE_BYTES) == 0) {
        reserved_ = RESERVE_BYTES;
    }
}

int AppendFile::Rewrite(const std::string &content)
{
    if (fd_ < 0) {
        return EBADF;
    }
    return ftruncate(fd_, 0) != 0 ? errno : WriteOnce(fd_, content);
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
    if (fd_ < 0) {
        return;
    }
    struct stat status = {};
    if (reserved_ > 0 && fstat(fd_, &status) == 0) {
        static_cast<void>(ftruncate(fd_, status.st_size) == 0); // gives the rest back
    }
    close(fd_);
    fd_ = -1;
    reserved_ = 0;
}

bool AppendFile::IsEmpty() const
{
    struct stat status = {};
    return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_size == 0;
}

bool AppendFile::Removed() const
{
    struct stat status = {};
    return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_nlink == 0;
}

void AppendFile::Lock() const
{
    if (fd_ >= 0) {
        static_cast<void>(flock(fd_, LOCK_EX | LOCK_NB));
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
