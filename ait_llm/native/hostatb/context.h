// The device that operations run on.
#ifndef AIT_HOSTATB_CONTEXT_H
#define AIT_HOSTATB_CONTEXT_H

#include <atomic>
#include <cstdint>

struct HostatbContext {
    int32_t device = 0;
    bool graphLaunch = false;
    std::atomic<bool> floatStatus{false}; // an overflow happened; ATB never clears it
};

namespace hostatb {

// The device that aclrtGetDevice reports on this thread.
void SetCurrentDevice(int32_t device);

// Overflows that a running kernel signals on this thread; taking resets.
void RaiseFloatStatus();
bool TakeFloatStatus();

} // namespace hostatb

#endif
