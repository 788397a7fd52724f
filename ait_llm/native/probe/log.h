// Messages to the user, on stderr only.
#ifndef AIT_PROBE_LOG_H
#define AIT_PROBE_LOG_H

#include <string>

namespace ait {

enum class LogLevel { DEBUG = 0, INFO = 1, WARNING = 2, ERROR = 3 };

void SetLogLevel(int level);

// One line, in one write(), so that the lines of several processes do not mix.
void Log(LogLevel level, const std::string &text);

// "No space left on device" for ENOSPC.
std::string ErrorText(int error);

} // namespace ait

#endif
