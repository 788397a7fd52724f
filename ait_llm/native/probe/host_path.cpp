#include "host_path.h"

#include <cstring>

#include "matcher.h"

namespace ait {
namespace {

constexpr size_t MAX_PATH_LENGTH = 4096;
constexpr size_t MAX_COMPONENT_LENGTH = 255;

std::string RefuseComponent(const std::string &component)
{
    if (component.empty()) {
        return "it has an empty component";
    }
    if (component == "." || component == "..") {
        return "it has the component '" + component + "'";
    }
    if (component.size() > MAX_COMPONENT_LENGTH) {
        return "it has a component of more than 255 characters";
    }
    for (char c : component) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            return "it has a control character";
        }
    }
    return "";
}

} // namespace

std::string RefusePath(const std::string &path)
{
    if (path.empty()) {
        return "it is empty";
    }
    if (path.size() > MAX_PATH_LENGTH) {
        return "it is longer than 4096 characters";
    }
    if (path[0] == '/') {
        return "it is absolute";
    }
    for (const std::string &component : Split(path, '/')) {
        const std::string reason = RefuseComponent(component);
        if (!reason.empty()) {
            return reason;
        }
    }
    return "";
}

std::string RefuseName(const std::string &name, const char *suffix)
{
    if (name.find('/') != std::string::npos) {
        return "it contains '/'";
    }
    if (name.empty() || name == "." || name == "..") {
        return "it is not a file name";
    }
    return RefuseComponent(name + suffix);
}

std::string DirectoryOf(const std::string &path)
{
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string FileOf(const std::string &path)
{
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

UnitName ParseUnit(const std::string &directory)
{
    UnitName unit;
    const std::vector<std::string> parts = Split(directory, '/');
    uint64_t step = 0;
    // Without a device directory in front (an ATB that was not asked for descriptions) there are
    // no ids in the path.
    if (parts.size() < 3 || DeviceOfPath(directory).empty() || !ParseUnsigned(parts[1], step)) {
        unit.type = parts.back();
        return unit;
    }
    unit.step = static_cast<int64_t>(step);
    for (size_t i = 2; i < parts.size(); ++i) {
        const size_t end = parts[i].find('_');
        unit.op += unit.op.empty() ? "" : "_";
        unit.op += parts[i].substr(0, end);
        unit.type = end == std::string::npos ? parts[i] : parts[i].substr(end + 1);
    }
    return unit;
}

int64_t TensorIndex(const std::string &file, const char *prefix)
{
    const size_t length = strlen(prefix);
    if (file.compare(0, length, prefix) != 0) {
        return -1;
    }
    const size_t end = file.find_first_of("_.", length);
    uint64_t index = 0;
    if (end == std::string::npos || end - length > 9 ||
        !ParseUnsigned(file.substr(length, end - length), index)) {
        return -1;
    }
    return static_cast<int64_t>(index);
}

} // namespace ait
