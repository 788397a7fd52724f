#include "settings.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace hostatb {
namespace {

std::string Variable(const char *name, const char *fallback)
{
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : fallback;
}

Release ReadRelease()
{
    const std::string text = Variable("HOSTATB_ATB_VERSION", "9.1");
    if (text == "8.0") {
        return Release::k80;
    }
    if (text == "8.1") {
        return Release::k81;
    }
    if (text == "8.2") {
        return Release::k82;
    }
    if (text == "8.3" || text == "8.5" || text == "9.0") { // 8.5 and 9.0 call the Probe as 8.3
        return Release::k83;
    }
    if (text == "9.1") {
        return Release::k91;
    }
    throw std::invalid_argument("HOSTATB_ATB_VERSION is '" + text +
                                "'; it must be 8.0, 8.1, 8.2, 8.3 or 9.1");
}

bool ReadSaturate()
{
    const std::string text = Variable("HOSTATB_SAT_MODE", "infnan");
    if (text != "infnan" && text != "saturation") {
        throw std::invalid_argument("HOSTATB_SAT_MODE is '" + text +
                                    "'; it must be infnan or saturation");
    }
    return text == "saturation";
}

} // namespace

const Settings &GetSettings()
{
    static const Settings settings{ReadRelease(), ReadSaturate()};
    return settings;
}

} // namespace hostatb
