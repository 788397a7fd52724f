// Which operations, steps and devices a capture selects. Pure functions of the settings.
#ifndef AIT_PROBE_MATCHER_H
#define AIT_PROBE_MATCHER_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "settings.h"

namespace ait {

std::string Trim(const std::string &text);
std::string LowerCase(std::string text);
std::vector<std::string> Split(const std::string &text, char separator);

// The elements of a comma list, trimmed; empty ones are left out.
std::vector<std::string> TrimmedElements(const std::string &list);

// A decimal number without sign that fits; false for anything else.
bool ParseUnsigned(const std::string &text, uint64_t &value);

// "3,5,7,7" is [3,5] and [7,7]; "all" is every step; an odd last element is ignored.
std::vector<std::pair<uint64_t, uint64_t>> ParseSteps(const std::string &list, bool &everyStep,
                                                      std::vector<std::string> &warnings);

bool MatchesOperation(const Settings &settings, const std::vector<int64_t> &ids,
                      const std::string &opType);
bool MatchesStep(const Settings &settings, uint64_t executeCount);

// `path` starts with "{device}_{pid}"; a path without a device matches only without a filter.
bool MatchesDevice(const Settings &settings, const std::string &path);
bool MatchesDeviceId(const Settings &settings, const std::string &device);

// The text before the first '_' of a path, or "" if that is not a device number.
std::string DeviceOfPath(const std::string &path);

} // namespace ait

#endif
