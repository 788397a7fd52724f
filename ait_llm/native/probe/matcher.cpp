#include "matcher.h"

#include <algorithm>

namespace ait {

std::string Trim(const std::string &text)
{
    const char *blanks = " \t\r\n";
    const size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string::npos) {
        return "";
    }
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string LowerCase(std::string text)
{
    // Operation names are ASCII; the host's locale must not matter.
    for (char &c : text) {
        if (c >= 'A' && c <= 'Z') {
            c = static_cast<char>(c - 'A' + 'a');
        }
    }
    return text;
}

std::vector<std::string> Split(const std::string &text, char separator)
{
    std::vector<std::string> parts;
    size_t begin = 0;
    while (true) {
        const size_t end = text.find(separator, begin);
        if (end == std::string::npos) {
            parts.push_back(text.substr(begin));
            return parts;
        }
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
}

std::vector<std::string> TrimmedElements(const std::string &list)
{
    std::vector<std::string> elements;
    for (const std::string &part : Split(list, ',')) {
        std::string element = Trim(part);
        if (!element.empty()) {
            elements.push_back(std::move(element));
        }
    }
    return elements;
}

bool ParseUnsigned(const std::string &text, uint64_t &value)
{
    if (text.empty()) {
        return false;
    }
    uint64_t result = 0;
    for (char c : text) {
        if (c < '0' || c > '9') {
            return false;
        }
        const auto digit = static_cast<uint64_t>(c - '0');
        if (result > (UINT64_MAX - digit) / 10) {
            return false;
        }
        result = result * 10 + digit;
    }
    value = result;
    return true;
}

std::vector<std::pair<uint64_t, uint64_t>> ParseSteps(const std::string &list, bool &everyStep,
                                                      std::vector<std::string> &warnings)
{
    std::vector<std::pair<uint64_t, uint64_t>> steps;
    everyStep = Trim(list) == "all";
    if (everyStep) {
        return steps;
    }
    const std::vector<std::string> elements = TrimmedElements(list);
    for (size_t i = 0; i + 1 < elements.size(); i += 2) {
        uint64_t first = 0;
        uint64_t last = 0;
        if (ParseUnsigned(elements[i], first) && ParseUnsigned(elements[i + 1], last)) {
            steps.emplace_back(first, last);
        } else {
            warnings.push_back("the step range '" + elements[i] + "," + elements[i + 1] +
                               "' is not a pair of numbers and is ignored");
        }
    }
    if (elements.size() % 2 != 0) {
        warnings.push_back("the step list '" + list +
                           "' has an odd number of elements; the last one is ignored");
    }
    return steps;
}

bool MatchesOperation(const Settings &settings, const std::vector<int64_t> &ids,
                      const std::string &opType)
{
    if (!settings.tensors()) {
        return false;
    }
    if (settings.ids.empty() && settings.opNames.empty()) {
        return true;
    }
    if (!settings.ids.empty()) {
        std::string query;
        for (int64_t id : ids) {
            query += query.empty() ? "" : "_";
            query += std::to_string(id);
        }
        for (const std::string &id : settings.ids) {
            const bool starts = query.compare(0, id.size(), id) == 0;
            if (starts && (query.size() == id.size() ||
                           (settings.saveChild && query[id.size()] == '_'))) {
                return true;
            }
        }
    }
    if (!settings.opNames.empty()) {
        const std::string type = LowerCase(opType);
        return std::any_of(settings.opNames.begin(), settings.opNames.end(),
                           [&](const std::string &name) {
                               return type.compare(0, name.size(), name) == 0;
                           });
    }
    return false;
}

bool MatchesStep(const Settings &settings, uint64_t executeCount)
{
    if (settings.everyStep) {
        return true;
    }
    return std::any_of(settings.steps.begin(), settings.steps.end(), [&](const auto &range) {
        return range.first <= executeCount && executeCount <= range.second;
    });
}

std::string DeviceOfPath(const std::string &path)
{
    const size_t end = path.find('_');
    if (end == std::string::npos || end == 0) {
        return "";
    }
    const std::string device = path.substr(0, end);
    uint64_t number = 0;
    // ATB writes -1 where it could not ask the driver.
    return device == "-1" || ParseUnsigned(device, number) ? device : "";
}

bool MatchesDeviceId(const Settings &settings, const std::string &device)
{
    return settings.devices.empty() ||
           std::find(settings.devices.begin(), settings.devices.end(), device) !=
               settings.devices.end();
}

bool MatchesDevice(const Settings &settings, const std::string &path)
{
    return settings.devices.empty() || MatchesDeviceId(settings, DeviceOfPath(path));
}

} // namespace ait
