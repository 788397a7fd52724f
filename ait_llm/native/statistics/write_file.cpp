// Writing one captured tensor in one call, so that a Python thread gives up its lock only once.
#include "ait_statistics.h"
#include "kernels.h"
#include "reduce.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ait {
namespace {

// The bytes of a piece, with the checksum in its place.
std::string Completed(const AitPiece &piece, uint32_t checksum)
{
    std::string bytes(static_cast<const char *>(piece.bytes), piece.size);
    for (size_t k = 0; k < sizeof(checksum) && piece.checksum + k < piece.size; ++k) {
        bytes[piece.checksum + k] = static_cast<char>(checksum >> (8 * k));
    }
    return bytes;
}

// Writes everything, in more than one call where the system takes only some (2 GiB at a time).
int WriteAll(int file, iovec *parts, int count)
{
    while (count > 0) {
        if (parts->iov_len == 0) {
            ++parts;
            --count;
            continue;
        }
        const ssize_t done = writev(file, parts, count);
        if (done < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        auto written = static_cast<size_t>(done);
        while (count > 0 && written >= parts->iov_len) {
            written -= parts->iov_len;
            ++parts;
            --count;
        }
        if (written > 0) {
            parts->iov_base = static_cast<char *>(parts->iov_base) + written;
            parts->iov_len -= written;
        }
    }
    return 0;
}

int WriteFile(const char *temporary, const char *path, iovec *parts, int count)
{
    const int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (file < 0) {
        return errno;
    }
    int error = WriteAll(file, parts, count);
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(temporary, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(temporary);
    }
    return error;
}

} // namespace
} // namespace ait

extern "C" int ait_write_file(const char *temporary, const char *path, const AitPiece *head,
                              const void *data, uint64_t size, const AitPiece *tail)
try {
    const uint32_t checksum =
        ait::Crc32(ait::BestKernels(), 0, static_cast<const uint8_t *>(data), size);
    std::string before = ait::Completed(*head, checksum);
    std::string after = ait::Completed(*tail, checksum);
    iovec parts[] = {{before.data(), before.size()},
                     {const_cast<void *>(data), static_cast<size_t>(size)},
                     {after.data(), after.size()}};
    return ait::WriteFile(temporary, path, parts, 3);
} catch (const std::bad_alloc &) {
    return ENOMEM;
}
