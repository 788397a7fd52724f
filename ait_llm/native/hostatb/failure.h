// Failures inside the runtime: a status with a text. They never cross the C API.
#ifndef AIT_HOSTATB_FAILURE_H
#define AIT_HOSTATB_FAILURE_H

#include <stdexcept>
#include <string>

namespace hostatb {

// A failure with the status that ATB gives it.
class Failure : public std::runtime_error {
public:
    Failure(int status, const std::string &what) : std::runtime_error(what), status_(status) {}
    int status() const { return status_; }

private:
    int status_;
};

// Makes exceptions of a probe that brought its own copy of libgcc catchable here. Each copy fills the
// register tables of its unwinder at its first throw, and stepping into a frame of ours uses the
// tables of our copy: without a throw before, the process aborts.
void PrepareUnwinder() noexcept;

// The text that hostatb_last_error returns on this thread.
void SetLastError(const std::string &text) noexcept;
const char *LastError() noexcept;

} // namespace hostatb

#endif
