#include "context.h"

#include <utility>

#include "hostatb.h"

namespace hostatb {
namespace {

constexpr int32_t kNoDevice = -1;
constexpr int kAclNoContext = 107002; // ACL_ERROR_RT_CONTEXT_NULL

thread_local int32_t currentDevice = kNoDevice;
thread_local bool floatStatus = false;

} // namespace

void SetCurrentDevice(int32_t device) { currentDevice = device; }
void RaiseFloatStatus() { floatStatus = true; }
bool TakeFloatStatus() { return std::exchange(floatStatus, false); }

static int CurrentDevice(int32_t *device)
{
    *device = currentDevice;
    return currentDevice == kNoDevice ? kAclNoContext : 0;
}

} // namespace hostatb

extern "C" int aclrtGetDevice(int32_t *deviceId)
{
    return hostatb::CurrentDevice(deviceId);
}
