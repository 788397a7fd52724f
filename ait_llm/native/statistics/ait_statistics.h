// Reductions and checksums that the capture of PyTorch models needs, as a plain C interface.
#ifndef AIT_STATISTICS_H
#define AIT_STATISTICS_H

#include <stdint.h>

#define AIT_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum AitElement {
    AIT_FLOAT32 = 0,
    AIT_FLOAT64 = 1,
    AIT_FLOAT16 = 2,
    AIT_BFLOAT16 = 3,
    AIT_INT16 = 4,
    AIT_UINT16 = 5,
    AIT_INT32 = 6,
    AIT_UINT32 = 7,
    AIT_INT64 = 8,
    AIT_UINT64 = 9
};

// Positions in `numbers`. The first four cover the finite elements and are NaN if there are none.
enum AitNumber { AIT_MAX = 0, AIT_MIN, AIT_MEAN, AIT_L2NORM, AIT_NAN_COUNT, AIT_INF_COUNT };

// Reduces `count` contiguous elements in one pass, with sums in double. Returns 0, 1 for an
// unknown element type, or 2 without memory. The result does not depend on the number of threads.
AIT_EXPORT int ait_statistics(int element, const void *data, uint64_t count, double numbers[6]);

// The same for one-byte elements: `values` says which number each byte stands for.
AIT_EXPORT void ait_byte_statistics(const void *data, uint64_t count, const double values[256],
                                    double numbers[6]);

// A 64-bit mark of all bytes of up to 32 KiB, of larger data of 256 stretches of 64 bytes spread
// evenly, with the first and the last. To notice changes, not to prove equality.
AIT_EXPORT uint64_t ait_sample(const void *data, uint64_t size);

// Continues the CRC-32 of zip archives; `start` is 0 for the first piece.
AIT_EXPORT uint32_t ait_crc32(uint32_t start, const void *data, uint64_t size);

// True if the first `size` bytes at both addresses are the same.
AIT_EXPORT int ait_equal(const void *one, const void *other, uint64_t size);

// Shares the work on large data with the threads of an OpenMP runtime that the process has already:
// `parallel` is its GOMP_parallel, `threads` its omp_get_max_threads. Without it, and after a call
// with null pointers, everything runs on the calling thread.
AIT_EXPORT void ait_use_openmp(void (*parallel)(void (*)(void *), void *, unsigned, unsigned),
                               int (*threads)(void));

// A piece of a file; the CRC-32 of the data is put in at `checksum`, little-endian.
struct AitPiece {
    const void *bytes;
    uint64_t size;
    uint64_t checksum;
};

// Writes head, data and tail to `temporary` (mode 0640) and renames it to `path`. Returns 0 or an
// errno; then `temporary` is removed.
AIT_EXPORT int ait_write_file(const char *temporary, const char *path, const struct AitPiece *head,
                              const void *data, uint64_t size, const struct AitPiece *tail);

// AIT_BEGIN: the file is made anew, else it is added to. AIT_END: it gets its name.
enum AitOrderFlags { AIT_BEGIN = 1, AIT_END = 2 };

// What ait_write_file is given, and in the end its result in `error`.
struct AitOrder {
    const char *temporary;
    const char *path;
    const struct AitPiece *head;
    const void *data;
    uint64_t size;
    const struct AitPiece *tail;
    int flags;
    int error;
};

// Writes several, on a thread with descriptors of its own: a program that closes those that it did not
// open itself, and uses their numbers again, meets none of these.
AIT_EXPORT void ait_write_files(struct AitOrder *order, uint64_t count);

// Memory under which a file is mapped. Where the file became shorter meanwhile, reading there gives
// zeros instead of SIGBUS, and the range counts as hit. The first call installs a handler; what lies in
// no range goes to the one before it. Returns the range's number, -1 if it cannot be guarded.
AIT_EXPORT int ait_guard_begin(const void *start, uint64_t size);
// 1 if zeros were read in place of what the file had.
AIT_EXPORT int ait_guard_hit(int number);
// The same, and the range is given up.
AIT_EXPORT int ait_guard_end(int number);

#ifdef __cplusplus
}
#endif

#endif
