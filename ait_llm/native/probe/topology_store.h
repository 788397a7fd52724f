// Layer and model topology files.
#ifndef AIT_PROBE_TOPOLOGY_STORE_H
#define AIT_PROBE_TOPOLOGY_STORE_H

#include <cstdint>
#include <map>
#include <string>

#include "directories.h"
#include "graph_json.h"
#include "settings.h"

namespace ait {

struct TopologyResult {
    std::string path; // relative to the root; empty where the report was not usable
    int error = 0;
    std::string reason;
};

class TopologyStore {
public:
    TopologyStore(const Settings &settings, Directories &directories, int pid);

    TopologyResult AddLayer(const std::string &opName, const std::string &graphJson);
    TopologyResult AddModel(const std::string &modelName, const std::string &modelJson);

private:
    TopologyResult Write(const std::string &folder, const std::string &name, const Json &value);
    ModelLayer TakeLayer(const std::string &opType, Json &graph);

    const Settings &settings_;
    Directories &directories_;
    std::string pid_;
    // Reported graphs that no model has used yet: by type, then by id.
    std::map<std::string, std::map<uint64_t, Json>> layers_;
    uint64_t nextId_ = 0; // for a model node whose graph was not reported
};

} // namespace ait

#endif
