#include "descriptor.h"

#include <unistd.h>

namespace ait {

HeldDescriptor::HeldDescriptor(int fd)
{
    struct stat status = {};
    if (fd < 0 || fstat(fd, &status) != 0) {
        return;
    }
    fd_ = fd;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    type_ = status.st_mode & S_IFMT;
}

HeldDescriptor::HeldDescriptor(HeldDescriptor &&other) noexcept
    : fd_(other.fd_), device_(other.device_), inode_(other.inode_), type_(other.type_)
{
    other.fd_ = -1;
}

HeldDescriptor &HeldDescriptor::operator=(HeldDescriptor &&other) noexcept
{
    if (this != &other) {
        Close();
        fd_ = other.fd_;
        device_ = other.device_;
        inode_ = other.inode_;
        type_ = other.type_;
        other.fd_ = -1;
    }
    return *this;
}

int HeldDescriptor::Get() const
{
    struct stat status = {};
    const bool ours = fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ &&
                      status.st_ino == inode_ && (status.st_mode & S_IFMT) == type_;
    return ours ? fd_ : -1;
}

bool HeldDescriptor::SameFile(const HeldDescriptor &other) const
{
    return Opened() && other.Opened() && device_ == other.device_ && inode_ == other.inode_ &&
           type_ == other.type_;
}

void HeldDescriptor::Close()
{
    const int fd = Get();
    if (fd >= 0) {
        close(fd);
    }
    fd_ = -1;
}

} // namespace ait
