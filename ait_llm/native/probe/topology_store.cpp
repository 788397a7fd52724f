#include "topology_store.h"

#include "append_file.h"
#include "host_path.h"
#include "log.h"
#include "matcher.h"
#include "replace_file.h"

namespace ait {
namespace {

TopologyResult Unusable(const std::string &what, const std::string &reason)
{
    TopologyResult result;
    result.reason = what + " is not saved: " + reason;
    return result;
}

void Warn(const std::string &name, const std::vector<std::string> &warnings)
{
    for (const std::string &warning : warnings) {
        Log(LogLevel::WARNING, "topology of " + name + ": " + warning);
    }
}

} // namespace

TopologyStore::TopologyStore(const Settings &settings, Directories &directories, int pid)
    : settings_(settings), directories_(directories), pid_(std::to_string(pid))
{
}

TopologyResult TopologyStore::Write(const std::string &folder, const std::string &name,
                                    const Json &value)
{
    TopologyResult result;
    result.path = folder + "/" + pid_ + "/" + name + ".json";
    std::string text;
    value.Write(text);
    text += '\n';
    result.error = ReplaceWith(directories_, result.path, text);
    if (result.error != 0) {
        result.reason = ErrorText(result.error);
        return result;
    }
    if (!settings_.onnxHandOver.empty()) {
        const std::string list = settings_.onnxHandOver + "/subprocess_info.txt";
        const int error = AppendShared(list, directories_.Root() + "/" + result.path + "\n");
        if (error != 0) {
            Log(LogLevel::WARNING, list + ": " + ErrorText(error) + "; " + result.path +
                                       " will not be converted to ONNX");
        }
    }
    return result;
}

TopologyResult TopologyStore::AddLayer(const std::string &opName, const std::string &graphJson)
{
    const std::string what = "the graph of '" + opName + "'";
    std::string reason = RefuseName(opName, ".json");
    Json graph;
    Json layer;
    std::vector<std::string> warnings;
    if (!reason.empty() || !Json::Parse(graphJson, graph, reason) ||
        !ConvertLayer(graph, opName, layer, reason, warnings)) {
        return Unusable(what, reason);
    }
    Warn(opName, warnings);
    TopologyResult result = Write("layer", opName, layer);
    const size_t separator = opName.rfind('_');
    uint64_t id = 0;
    if (settings_.model && separator != std::string::npos &&
        ParseUnsigned(opName.substr(separator + 1), id)) {
        layers_[opName.substr(0, separator)][id] = std::move(graph);
    }
    return result;
}

ModelLayer TopologyStore::TakeLayer(const std::string &opType, Json &graph)
{
    // Operations that belong to no model, several threads or a model that was skipped shift a
    // plain counter; the graphs of this type in the order of their ids do not.
    ModelLayer layer;
    const auto found = layers_.find(opType);
    uint64_t id = nextId_;
    if (found != layers_.end()) {
        const auto first = found->second.begin();
        id = first->first;
        graph = std::move(first->second);
        layer.graph = &graph;
        found->second.erase(first);
        if (found->second.empty()) {
            layers_.erase(found);
        }
    }
    nextId_ = id + 1;
    layer.opName = opType + "_" + std::to_string(id);
    return layer;
}

TopologyResult TopologyStore::AddModel(const std::string &modelName, const std::string &modelJson)
{
    const std::string what = "the topology of model '" + modelName + "'";
    std::string reason = RefuseName(modelName, ".json");
    Json model;
    Json result;
    Json graph; // of the layer being converted
    std::vector<std::string> warnings;
    const auto find = [&](const std::string &opType) { return TakeLayer(opType, graph); };
    if (!reason.empty() || !Json::Parse(modelJson, model, reason) ||
        !ConvertModel(model, find, result, reason, warnings)) {
        return Unusable(what, reason);
    }
    Warn(modelName, warnings);
    return Write("model", modelName, result);
}

} // namespace ait
