#include "failure.h"

namespace hostatb {
namespace {

thread_local std::string lastError;

} // namespace

void PrepareUnwinder() noexcept
{
    static const bool prepared = [] {
        try {
            throw Failure(0, "");
        } catch (const Failure &) {
            return true;
        }
    }();
    static_cast<void>(prepared);
}

void SetLastError(const std::string &text) noexcept
{
    try {
        lastError = text;
    } catch (const std::bad_alloc &) {
        lastError.clear();
    }
}

const char *LastError() noexcept { return lastError.c_str(); }

} // namespace hostatb
