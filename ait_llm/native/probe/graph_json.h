// Topology: from the JSON that ATB reports to the JSON of the dump.
#ifndef AIT_PROBE_GRAPH_JSON_H
#define AIT_PROBE_GRAPH_JSON_H

#include <functional>
#include <string>
#include <vector>

#include "json.h"

namespace ait {

// The layer JSON of a reported graph: keys in the order opName, opType, param, inTensors,
// outTensors, internalTensors, nodes, and tensors by name instead of by index. False and a reason
// where the graph lacks what is needed or belongs to another operation; `warnings` get the nodes
// that could only be written incompletely.
bool ConvertLayer(const Json &graph, const std::string &opName, Json &layer, std::string &reason,
                  std::vector<std::string> &warnings);

// The layer that a model node stands for: its full name, and its reported graph or null.
struct ModelLayer {
    std::string opName;
    const Json *graph = nullptr;
};
using FindLayer = std::function<ModelLayer(const std::string &opType)>;

// The model JSON: keys in the order they came, each node named after its layer and extended by the
// layer's nodes.
bool ConvertModel(const Json &model, const FindLayer &findLayer, Json &result,
                  std::string &reason, std::vector<std::string> &warnings);

} // namespace ait

#endif
