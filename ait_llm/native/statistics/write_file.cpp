// Writing captured tensors in one call, so that a Python thread gives up its lock only once.
#include "ait_statistics.h"
#include "kernels.h"
#include "own_table.h"
#include "reduce.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ait {
namespace {

// How often a file is begun anew whose number the program closed meanwhile.
constexpr int TURNS = 8;

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

// Whether a number still stands for the file of a name; the program may have closed it, and have been
// given it for a file of its own.
bool IsFileOf(int file, const char *path)
{
    struct stat open;
    struct stat named;
    return fstat(file, &open) == 0 && lstat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

int Open(const AitOrder &order)
{
    const int how = (order.flags & AIT_BEGIN) != 0 ? O_CREAT | O_TRUNC : O_APPEND;
    return open(order.temporary, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | how, 0640);
}

// Returns an errno; EBADF where the program took the number away.
int Write(const AitOrder &order, iovec *parts, int count, bool alone)
{
    const int file = Open(order);
    if (file < 0) {
        return errno;
    }
    const auto is_lost = [&] { return !alone && !IsFileOf(file, order.temporary); };
    int error = is_lost() ? EBADF : WriteAll(file, parts, count);
    if (is_lost()) {
        return EBADF;
    }
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
    return error;
}

// `alone`: nobody else uses this table of descriptors.
int Obey(const AitOrder &order, bool alone)
{
    const uint32_t checksum =
        Crc32(BestKernels(), 0, static_cast<const uint8_t *>(order.data), order.size);
    std::string before = Completed(*order.head, checksum);
    std::string after = Completed(*order.tail, checksum);
    int error = EBADF;
    for (int turn = 0; error == EBADF && turn < TURNS; ++turn) {
        iovec parts[] = {{before.data(), before.size()},
                         {const_cast<void *>(order.data), static_cast<size_t>(order.size)},
                         {after.data(), after.size()}};
        error = Write(order, parts, 3, alone);
        if ((order.flags & AIT_BEGIN) == 0) {
            break; // some of it may be there already
        }
    }
    if (error == 0 && (order.flags & AIT_END) != 0 && rename(order.temporary, order.path) != 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(order.temporary);
    }
    return error;
}

struct Orders {
    AitOrder *first;
    uint64_t count;
    bool alone;
};

void ObeyAll(void *argument)
{
    const auto &orders = *static_cast<Orders *>(argument);
    for (uint64_t k = 0; k < orders.count; ++k) {
        AitOrder &order = orders.first[k];
        try {
            order.error = Obey(order, orders.alone);
        } catch (const std::bad_alloc &) {
            order.error = ENOMEM;
        }
    }
}

} // namespace
} // namespace ait

extern "C" int ait_write_file(const char *temporary, const char *path, const AitPiece *head,
                              const void *data, uint64_t size, const AitPiece *tail)
{
    AitOrder order{temporary, path, head, data, size, tail, AIT_BEGIN | AIT_END, 0};
    ait::Orders orders{&order, 1, false};
    ait::ObeyAll(&orders);
    return order.error;
}

extern "C" void ait_write_files(AitOrder *order, uint64_t count)
{
    ait::Orders orders{order, count, true};
    if (!ait::RunInOwnTable(ait::ObeyAll, &orders)) {
        orders.alone = false;
        ait::ObeyAll(&orders);
    }
}
