#include "failure.h"

namespace hostatb {
namespace {

thread_local std::string lastError;

} // namespace

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
