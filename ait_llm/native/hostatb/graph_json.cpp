#include "graph_json.h"

#include <cstdio>

namespace hostatb {
namespace {

std::string Quoted(const std::string &text)
{
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            quoted += escape;
        } else {
            quoted += c;
        }
    }
    return quoted + '"';
}

std::string IdList(const std::vector<uint32_t> &ids)
{
    std::string text = "[";
    for (const uint32_t id : ids) {
        text += (text.size() == 1 ? "" : ",") + std::to_string(id);
    }
    return text + "]";
}

std::string NodeJson(const Runner &runner, const Node *node)
{
    const HostatbOperation &operation = *runner.operation;
    const std::string type =
        !operation.IsGraph() && operation.leaf->plugin ? "PluginOperation" : operation.type;
    std::string json = "{";
    if (node != nullptr) {
        json += "\"inTensorIds\":" + IdList(node->inIds) + ",";
    }
    json += "\"inTensorNum\":" + std::to_string(operation.inNum);
    if (operation.IsGraph()) {
        json += ",\"internalTensorNum\":" + std::to_string(operation.graph->internalNum);
        std::string nodes;
        for (size_t i = 0; i < runner.children.size(); ++i) {
            nodes += (nodes.empty() ? "" : ",") +
                     NodeJson(*runner.children[i], &operation.graph->nodes[i]);
        }
        if (!nodes.empty()) {
            json += ",\"nodes\":[" + nodes + "]";
        }
    }
    json += ",\"opName\":" + Quoted(OperationName(type, runner.ids));
    json += ",\"opType\":" + Quoted(type);
    if (node != nullptr) {
        json += ",\"outTensorIds\":" + IdList(node->outIds);
    }
    json += ",\"outTensorNum\":" + std::to_string(operation.outNum);
    const std::string param =
        operation.IsGraph() ? "\"\"" : operation.leaf->paramJson.value_or("null");
    return json + ",\"param\":" + param + "}";
}

} // namespace

std::string GraphJson(const Runner &root) { return NodeJson(root, nullptr); }

} // namespace hostatb
