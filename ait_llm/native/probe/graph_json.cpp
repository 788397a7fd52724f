#include "graph_json.h"

namespace ait {
namespace {

using Names = std::vector<std::string>;

// A count far beyond any graph is a damaged report, and names for it would fill the memory.
constexpr uint64_t MAX_TENSORS = 1000000;

Json ToArray(const Names &names)
{
    Json array = Json::Array();
    for (const std::string &name : names) {
        array.Push(Json::String(name));
    }
    return array;
}

Names NumberedNames(const std::string &owner, const char *role, uint64_t count)
{
    Names names;
    for (uint64_t i = 0; i < count; ++i) {
        names.push_back(owner + "_" + role + "_" + std::to_string(i));
    }
    return names;
}

Names Concatenate(const Names &a, const Names &b, const Names &c)
{
    Names all = a;
    all.insert(all.end(), b.begin(), b.end());
    all.insert(all.end(), c.begin(), c.end());
    return all;
}

uint64_t Count(const Json &graph, const char *key)
{
    const Json *value = graph.Find(key);
    uint64_t count = 0;
    return value != nullptr && value->AsIndex(count) && count <= MAX_TENSORS ? count : 0;
}

std::string Text(const Json &graph, const char *key)
{
    const Json *value = graph.Find(key);
    return value == nullptr ? std::string() : value->AsString();
}

class Converter {
public:
    explicit Converter(std::vector<std::string> &warnings) : warnings_(warnings) {}

    // Opening members that every layer node has.
    Json Head(const Json &graph)
    {
        Json node = Json::Object();
        for (const char *key : {"opName", "opType", "param"}) {
            const Json *value = graph.Find(key);
            if (value != nullptr) {
                node.Set(key, *value);
            }
        }
        return node;
    }

    // internalTensors and nodes; `internals` may be empty.
    void AddChildren(const Json &graph, const Names &inputs, const Names &outputs, Json &node,
                     const std::string &opName)
    {
        const Json *children = graph.Find("nodes");
        const Names internals =
            NumberedNames(opName, "internal", Count(graph, "internalTensorNum"));
        if (graph.Find("internalTensorNum") != nullptr || !internals.empty()) {
            node.Set("internalTensors", ToArray(internals));
        }
        if (children == nullptr || !children->IsArray() || children->Items().empty()) {
            return;
        }
        const Names tensors = Concatenate(inputs, outputs, internals);
        Json nodes = Json::Array();
        for (const Json &child : children->Items()) {
            nodes.Push(Child(child, tensors));
        }
        node.Set("nodes", std::move(nodes));
    }

private:
    Json Child(const Json &graph, const Names &parent)
    {
        Json node = Head(graph);
        const std::string opName = Text(graph, "opName");
        const Names inputs = Select(graph, "inTensorIds", parent, opName);
        const Names outputs = Select(graph, "outTensorIds", parent, opName);
        node.Set("inTensors", ToArray(inputs));
        node.Set("outTensors", ToArray(outputs));
        AddChildren(graph, inputs, outputs, node, opName);
        return node;
    }

    Names Select(const Json &graph, const char *key, const Names &parent,
                 const std::string &opName)
    {
        Names names;
        const Json *ids = graph.Find(key);
        if (ids == nullptr || !ids->IsArray()) {
            return names;
        }
        for (const Json &id : ids->Items()) {
            uint64_t index = 0;
            if (id.AsIndex(index) && index < parent.size()) {
                names.push_back(parent[index]);
            } else {
                warnings_.push_back("node " + opName + ": a tensor of " + key +
                                    " is out of range; the node is incomplete");
            }
        }
        return names;
    }

    std::vector<std::string> &warnings_;
};

Names StringsOf(const Json &node, const char *key)
{
    Names names;
    const Json *list = node.Find(key);
    if (list != nullptr && list->IsArray()) {
        for (const Json &item : list->Items()) {
            names.push_back(item.AsString());
        }
    }
    return names;
}

} // namespace

bool ConvertLayer(const Json &graph, const std::string &opName, Json &layer, std::string &reason,
                  std::vector<std::string> &warnings)
{
    for (const char *key : {"opName", "opType", "inTensorNum", "outTensorNum"}) {
        if (!graph.IsObject() || graph.Find(key) == nullptr) {
            reason = std::string("the graph has no ") + key;
            return false;
        }
    }
    if (Text(graph, "opName") != opName) {
        reason = "the graph is of operation '" + Text(graph, "opName") + "'";
        return false;
    }
    Converter converter(warnings);
    layer = converter.Head(graph);
    const Names inputs = NumberedNames(opName, "input", Count(graph, "inTensorNum"));
    const Names outputs = NumberedNames(opName, "output", Count(graph, "outTensorNum"));
    layer.Set("inTensors", ToArray(inputs));
    layer.Set("outTensors", ToArray(outputs));
    converter.AddChildren(graph, inputs, outputs, layer, opName);
    return true;
}

bool ConvertModel(const Json &model, const FindLayer &findLayer, Json &result,
                  std::string &reason, std::vector<std::string> &warnings)
{
    const Json *nodes = model.IsObject() ? model.Find("nodes") : nullptr;
    if (nodes == nullptr || !nodes->IsArray()) {
        reason = "the model has no list of nodes";
        return false;
    }
    Converter converter(warnings);
    Json converted = Json::Array();
    for (const Json &original : nodes->Items()) {
        if (!original.IsObject() || original.Find("opName") == nullptr) {
            reason = "a node of the model has no opName";
            return false;
        }
        Json node = original;
        const std::string opType = Text(original, "opName");
        const ModelLayer layer = findLayer(opType);
        node.Set("opName", Json::String(layer.opName));
        node.Set("opType", Json::String(opType));
        if (layer.graph != nullptr) {
            converter.AddChildren(*layer.graph, StringsOf(original, "inTensors"),
                                  StringsOf(original, "outTensors"), node, layer.opName);
        }
        converted.Push(std::move(node));
    }
    result = model;
    result.Set("nodes", std::move(converted));
    return true;
}

} // namespace ait
