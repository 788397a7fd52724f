// A bounded queue of records in memory that two processes share: the host appends, its writer
// takes. What the host has handed over outlives the host.
#ifndef AIT_PROBE_QUEUE_H
#define AIT_PROBE_QUEUE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ait {

enum class RecordState : uint32_t { RESERVED = 0, READY = 1, SKIP = 2 };

struct alignas(64) Record {
    std::atomic<RecordState> state;
    uint32_t span;    // bytes up to the next record
    uint32_t payload; // bytes behind this header
    uint16_t kind;
    uint16_t more; // 1 where further pieces of the same message follow
    uint32_t thread;
    uint32_t metaSize; // of the whole message
    uint64_t stream;   // of a message in several pieces
    uint64_t dataSize; // of the whole message

    char *Payload() { return reinterpret_cast<char *>(this + 1); }
};
static_assert(sizeof(Record) == 64, "records are aligned to cache lines");

constexpr size_t MAX_WRITING_PATH = 4352;

// Whether the writer has the capture: it takes it once, unless the host stopped waiting before.
enum class Claim : uint32_t { OPEN = 0, TAKEN = 1, WITHDRAWN = 2 };

// Positions grow without limit; the place in memory is the position modulo the capacity.
struct alignas(64) QueueHeader {
    uint64_t capacity;
    alignas(64) std::atomic<uint64_t> head; // written by the host
    alignas(64) std::atomic<uint64_t> tail; // written by the writer
    alignas(64) std::atomic<uint32_t> writerSleeps;
    alignas(64) std::atomic<uint32_t> spaceChanges;
    std::atomic<uint32_t> hostWaits;
    std::atomic<uint32_t> sealed; // how many seals the writer has written
    // Who writes, so that no descriptor is needed to ask whether that process lives.
    std::atomic<Claim> claim;
    std::atomic<int32_t> writerPid;
    std::atomic<uint64_t> writerStart; // as in ProcessStatus
    std::atomic<uint64_t> beats;       // grows while the writer is able to run
    // What the host did not hand over after it had waited in vain.
    std::atomic<uint64_t> droppedOperations;
    std::atomic<uint64_t> droppedFiles;
    // The tensor that the host is writing itself, for the case that it ends meanwhile.
    std::atomic<uint32_t> writingThread; // 0 for none
    char writingPath[MAX_WRITING_PATH];
};

class Queue {
public:
    static constexpr size_t MIN_BYTES = 65536;

    // Bytes of shared memory for a queue of that capacity.
    static size_t MappingSize(uint64_t capacity);
    // In fresh zeroed memory, by the host.
    static void Initialise(void *memory, uint64_t capacity);

    explicit Queue(void *memory);

    // Largest payload of one record: several must fit, so that both sides work at the same time.
    uint64_t MaxPayload() const;
    uint64_t Used() const;

    // Host, one thread at a time. Null where there is no room now.
    Record *Reserve(uint32_t payload);
    // Host, any thread. True where the writer has to be woken.
    bool Commit(Record *record);
    // False where nobody was asleep.
    bool WakeWriter();
    // One of both sides decides who has the capture; false where the other one was faster.
    bool Decide(Claim claim);

    // Writer. The oldest record, ready or not; null where the queue is empty.
    Record *Front();
    // Frees it and wakes the host where that waits for room.
    void Pop(const Record *record);
    // Between the call and SleepAsSaid, the host and other threads may wake the writer already.
    void SayThatWriterSleeps() { header_->writerSleeps.store(1, std::memory_order_seq_cst); }
    void SleepAsSaid(int milliseconds);
    void Awake() { header_->writerSleeps.store(0); }

    // Host: sleeps until something was freed since `Freed` gave `seen`, or `milliseconds`.
    uint64_t Freed() const { return header_->tail.load(std::memory_order_seq_cst); }
    void WaitForRoom(uint64_t seen, int milliseconds);

    QueueHeader &Header() { return *header_; }

private:
    Record *At(uint64_t position);
    Record *Write(uint64_t position, uint32_t span, RecordState state);

    QueueHeader *header_;
    char *data_;
};

} // namespace ait

#endif
