#include "replace_file.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "host_path.h"

namespace ait {
namespace {

// Short, so that it fits wherever a name of 255 characters fits.
std::string TemporaryName()
{
    static std::atomic<unsigned> number{0};
    return ".ait-" + std::to_string(getpid()) + "-" + std::to_string(number.fetch_add(1));
}

} // namespace

int ReplaceFile::Fail()
{
    const int error = errno == 0 ? EIO : errno;
    Discard();
    return error;
}

int ReplaceFile::Create(const std::string &path, uint64_t expectedSize)
{
    Discard();
    path_ = path;
    directory_ = DirectoryOf(path);
    temporary_ = fixedName_.empty() ? TemporaryName() : fixedName_;
    if (!FitsFileSizeLimit(expectedSize)) {
        return Fail();
    }
    const int flags = O_RDWR | O_CREAT | O_EXCL;
    fd_ = directories_->OpenFile(directory_, temporary_, flags);
    if (fd_ < 0 && errno == EEXIST) { // left by a process that had our id and was killed
        const int parent = directories_->Open(directory_);
        if (parent >= 0 && unlinkat(parent, temporary_.c_str(), 0) == 0) {
            fd_ = directories_->OpenFile(directory_, temporary_, flags);
        }
    }
    if (fd_ < 0) {
        return Fail();
    }
    named_ = true;
    return 0;
}

int ReplaceFile::Write(const void *data, size_t size)
{
    iovec part = {const_cast<void *>(data), size};
    return Write(&part, 1);
}

int ReplaceFile::Write(iovec *parts, int count)
{
    while (count > 0) {
        if (parts->iov_len == 0) {
            ++parts;
            --count;
            continue;
        }
        const ssize_t written = writev(fd_, parts, count);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return Fail();
        }
        auto rest = static_cast<size_t>(written);
        while (count > 0 && rest >= parts->iov_len) {
            rest -= parts->iov_len;
            ++parts;
            --count;
        }
        if (count > 0) {
            parts->iov_base = static_cast<char *>(parts->iov_base) + rest;
            parts->iov_len -= rest;
        }
    }
    return 0;
}

int ReplaceFile::Rename()
{
    const int parent = directories_->Open(directory_);
    if (parent < 0 ||
        renameat(parent, temporary_.c_str(), parent, FileOf(path_).c_str()) != 0) {
        return Fail();
    }
    named_ = false;
    return 0;
}

int ReplaceFile::Commit()
{
    // A network file system reports a failed write here at the latest.
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0 && errno != EINTR) {
        return Fail();
    }
    return Rename();
}

int ReplaceFile::CommitLink(const std::string &existing)
{
    const int source = directories_->Open(DirectoryOf(existing));
    const int parent = source < 0 ? -1 : directories_->Open(directory_);
    // Open may have closed the first descriptor to make room.
    const int sourceAgain = parent < 0 ? -1 : directories_->Open(DirectoryOf(existing));
    if (sourceAgain < 0) {
        return Fail();
    }
    if (named_) {
        static_cast<void>(unlinkat(parent, temporary_.c_str(), 0));
        named_ = false;
    }
    if (linkat(sourceAgain, FileOf(existing).c_str(), parent, temporary_.c_str(), 0) != 0) {
        return Fail();
    }
    named_ = true;
    const int result = Rename();
    if (result == 0) {
        // rename() of two links to one file does nothing, so the temporary name may be left.
        static_cast<void>(unlinkat(parent, temporary_.c_str(), 0));
        Discard();
    }
    return result;
}

void ReplaceFile::Discard()
{
    const int error = errno;
    if (fd_ >= 0) {
        close(fd_);
        fd_ = -1;
    }
    if (named_) {
        const int parent = directories_->Open(directory_);
        if (parent >= 0) {
            static_cast<void>(unlinkat(parent, temporary_.c_str(), 0));
        }
        named_ = false;
    }
    errno = error;
}

int ReplaceWith(Directories &directories, const std::string &path, const void *data, size_t size)
{
    ReplaceFile file(directories);
    int error = file.Create(path, size);
    if (error == 0) {
        error = file.Write(data, size);
    }
    return error == 0 ? file.Commit() : error;
}

int ReplaceWith(Directories &directories, const std::string &path, const std::string &content)
{
    return ReplaceWith(directories, path, content.data(), content.size());
}

} // namespace ait
