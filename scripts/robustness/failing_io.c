/* Lets writes below one folder fail, as a disk does that is full or broken, and moves the clock.
 *
 * CHAOS_FOLDER: what is meant. CHAOS_ERRNO: the error. CHAOS_AFTER: writes that still succeed.
 * CHAOS_COUNT: writes that fail, then all succeed again. CHAOS_CLOCK: seconds that the clock of the
 * day jumps, forward and back, each second.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>

static atomic_long seen;

static long number_of(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value == NULL ? otherwise : strtol(value, NULL, 10);
}

static int fails(int descriptor)
{
    char link[64], path[4096];
    const char *folder = getenv("CHAOS_FOLDER");
    if (folder == NULL) {
        return 0;
    }
    int error = errno;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    errno = error;
    if (length <= 0) {
        return 0;
    }
    path[length] = '\0';
    if (strncmp(path, folder, strlen(folder)) != 0) {
        return 0;
    }
    long number = atomic_fetch_add(&seen, 1), after = number_of("CHAOS_AFTER", 0);
    if (number < after || number >= after + number_of("CHAOS_COUNT", 1L << 40)) {
        return 0;
    }
    errno = (int)number_of("CHAOS_ERRNO", ENOSPC);
    return 1;
}

ssize_t write(int descriptor, const void *bytes, size_t count)
{
    return fails(descriptor) ? -1 : syscall(SYS_write, descriptor, bytes, count);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return fails(descriptor) ? -1 : syscall(SYS_writev, descriptor, parts, count);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset)
{
    return fails(descriptor) ? -1 : syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset)
{
    return pwrite64(descriptor, bytes, count, offset);
}

int clock_gettime(clockid_t clock, struct timespec *found)
{
    int status = (int)syscall(SYS_clock_gettime, clock, found);
    if (status == 0 && clock == CLOCK_REALTIME) {
        found->tv_sec += (found->tv_sec % 2 ? 1 : -1) * number_of("CHAOS_CLOCK", 0);
    }
    return status;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL) {
        *found = now.tv_sec;
    }
    return now.tv_sec;
}

int gettimeofday(struct timeval *found, void *zone)
{
    struct timespec now;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return status;
}
