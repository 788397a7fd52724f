// What one thread of the host is saving at the moment.
#ifndef AIT_PROBE_THREAD_STATE_H
#define AIT_PROBE_THREAD_STATE_H

#include <cstdint>
#include <string>

namespace ait {

class Session;

struct ThreadState {
    Session *session = nullptr; // the one it belongs to; another one after fork()
    uint32_t id = 0;
    bool announced = false; // the host said that tensors follow, and none has come
    bool open = false;      // tensors of a unit were sent and it is not closed
    uint64_t lost = 0;      // of that unit
    int error = 0;
    const char *phase = "after";
    std::string directory; // of the unit, where the host told it
};

// Of the calling thread; made at its first capture and freed when it ends.
ThreadState &CurrentThread();

// The same if the thread has one already, otherwise null; never allocates.
ThreadState *CurrentThreadIfAny();

// Called with the state of a thread that ends.
void SetThreadEndHandler(void (*handler)(ThreadState &));

} // namespace ait

#endif
