// Behaviour that the environment chooses, read once per process.
#ifndef AIT_HOSTATB_SETTINGS_H
#define AIT_HOSTATB_SETTINGS_H

namespace hostatb {

// Releases of ATB whose calls to the Probe differ.
enum class Release { k80, k81, k82, k83, k91 };

struct Settings {
    Release release = Release::k91;
    bool saturate = false; // the device clamps infinities instead of storing them

    bool HasSpecificDir() const { return release >= Release::k83; }
    bool HasUpdateConfig() const { return release >= Release::k83; }
    bool HasIrNames() const { return release >= Release::k91; }
    bool AsksForCachedTiling() const { return release >= Release::k81; }
    bool MeasuresSetup() const { return release <= Release::k81; }
    bool ReportsExecuteStatistic() const { return release == Release::k80; }
};

// From HOSTATB_ATB_VERSION (8.0, 8.1, 8.2, 8.3, 9.1) and HOSTATB_SAT_MODE (infnan, saturation).
// Throws std::invalid_argument for a value that is none of these.
const Settings &GetSettings();

} // namespace hostatb

#endif
