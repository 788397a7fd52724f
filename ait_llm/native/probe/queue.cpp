#include "queue.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void *address);
extern "C" void __tsan_release(void *address);
#endif

namespace ait {
namespace {

// Memory goes from the thread that fills it to the writer, and from there to the next thread. What happens
// in the writer, another process, ThreadSanitizer does not see: without these two, it takes the threads for
// writing at the same time. The store that hands over comes after what it hands over, and is not shown.
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize("thread"), noinline)) void HandOver(QueueHeader *header, Record *record)
{
    __tsan_release(header);
    const auto ready = static_cast<uint32_t>(RecordState::READY);
    __atomic_store_n(reinterpret_cast<uint32_t *>(&record->state), ready, __ATOMIC_SEQ_CST);
}
void TakeBack(QueueHeader *header)
{
    __tsan_acquire(header);
}
#else
void HandOver(QueueHeader *, Record *record)
{
    record->state.store(RecordState::READY, std::memory_order_seq_cst);
}
void TakeBack(QueueHeader *) {}
#endif

constexpr uint64_t DATA_OFFSET = 8192;
static_assert(sizeof(QueueHeader) <= DATA_OFFSET, "the header fits before the data");
// Below this the memory stays in the processor's cache; an empty queue starts again from here.
constexpr uint64_t WARM_BYTES = 4194304;
constexpr uint64_t MAX_PIECE = 1048576;

long Futex(std::atomic<uint32_t> *word, int operation, uint32_t value, const timespec *timeout)
{
    return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), operation, value, timeout,
                   nullptr, 0);
}

} // namespace

size_t Queue::MappingSize(uint64_t capacity)
{
    return static_cast<size_t>(DATA_OFFSET + capacity);
}

void Queue::Initialise(void *memory, uint64_t capacity)
{
    auto *header = new (memory) QueueHeader();
    header->capacity = capacity;
}

Queue::Queue(void *memory)
    : header_(static_cast<QueueHeader *>(memory)), data_(static_cast<char *>(memory) + DATA_OFFSET)
{
}

uint64_t Queue::MaxPayload() const
{
    const uint64_t quarter = header_->capacity / 4 - sizeof(Record);
    return quarter < MAX_PIECE ? quarter : MAX_PIECE;
}

uint64_t Queue::Used() const
{
    const uint64_t tail = header_->tail.load(std::memory_order_acquire);
    return header_->head.load(std::memory_order_acquire) - tail;
}

Record *Queue::At(uint64_t position)
{
    return reinterpret_cast<Record *>(data_ + position % header_->capacity);
}

Record *Queue::Write(uint64_t position, uint32_t span, RecordState state)
{
    Record *record = At(position);
    record->span = span;
    record->state.store(state, std::memory_order_relaxed);
    header_->head.store(position + span, std::memory_order_release);
    return record;
}

Record *Queue::Reserve(uint32_t payload)
{
    const uint64_t capacity = header_->capacity;
    const auto span = static_cast<uint32_t>((sizeof(Record) + payload + 63) / 64 * 64);
    uint64_t head = header_->head.load(std::memory_order_relaxed);
    const uint64_t tail = header_->tail.load(std::memory_order_acquire);
    TakeBack(header_);
    uint64_t offset = head % capacity;
    const uint64_t room = capacity - (head - tail);
    const bool startAgain = head == tail && offset >= WARM_BYTES;
    const uint64_t skip = startAgain || capacity - offset < span ? capacity - offset : 0;
    if (skip + span > room) {
        return nullptr;
    }
    for (uint64_t rest = skip; rest > 0;) {
        // A span has 32 bits; the queue may be larger.
        constexpr uint64_t MAX_SPAN = 1u << 30;
        const auto part = static_cast<uint32_t>(rest < MAX_SPAN ? rest : MAX_SPAN);
        Write(head, part, RecordState::SKIP);
        head += part;
        rest -= part;
    }
    Record *record = Write(head, span, RecordState::RESERVED);
    record->payload = payload;
    return record;
}

bool Queue::Commit(Record *record)
{
    HandOver(header_, record);
    return header_->writerSleeps.load(std::memory_order_seq_cst) != 0 &&
           header_->writerSleeps.exchange(0) != 0;
}

bool Queue::WakeWriter()
{
    header_->writerSleeps.store(0);
    return Futex(&header_->writerSleeps, FUTEX_WAKE, INT_MAX, nullptr) > 0;
}

bool Queue::Decide(Claim claim)
{
    Claim open = Claim::OPEN;
    return header_->claim.compare_exchange_strong(open, claim);
}

void Queue::SleepAsSaid(int milliseconds)
{
    const timespec timeout = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    Futex(&header_->writerSleeps, FUTEX_WAIT, 1, &timeout);
}

Record *Queue::Front()
{
    while (true) {
        const uint64_t tail = header_->tail.load(std::memory_order_relaxed);
        if (tail == header_->head.load(std::memory_order_acquire)) {
            return nullptr;
        }
        Record *record = At(tail);
        if (record->state.load(std::memory_order_acquire) != RecordState::SKIP) {
            return record;
        }
        Pop(record);
    }
}

void Queue::Pop(const Record *record)
{
    const uint64_t tail = header_->tail.load(std::memory_order_relaxed);
    header_->tail.store(tail + record->span, std::memory_order_seq_cst);
    if (header_->hostWaits.load(std::memory_order_seq_cst) != 0) {
        header_->spaceChanges.fetch_add(1);
        Futex(&header_->spaceChanges, FUTEX_WAKE, INT_MAX, nullptr);
    }
}

void Queue::WaitForRoom(uint64_t seen, int milliseconds)
{
    const uint32_t changes = header_->spaceChanges.load();
    header_->hostWaits.fetch_add(1);
    // Freed in between: the wake-up may have been before we said that we wait.
    if (Freed() == seen) {
        const timespec timeout = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
        Futex(&header_->spaceChanges, FUTEX_WAIT, changes, &timeout);
    }
    header_->hostWaits.fetch_sub(1);
}

} // namespace ait
