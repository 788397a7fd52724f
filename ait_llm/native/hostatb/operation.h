// Operations as the user built them: leaves with callbacks, and graphs of operations.
#ifndef AIT_HOSTATB_OPERATION_H
#define AIT_HOSTATB_OPERATION_H

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hostatb.h"
#include "tensor.h"

namespace hostatb {

class TopLevel;

struct Leaf {
    std::optional<std::string> paramJson;
    std::vector<std::string> inNames;  // empty: no IR
    std::vector<std::string> outNames;
    bool plugin = false;
    HostatbCallbacks callbacks{};
};

struct Node {
    std::unique_ptr<HostatbOperation> operation;
    std::vector<uint32_t> inIds;
    std::vector<uint32_t> outIds;
    HostatbReshape reshape = nullptr;
    void *reshapeUser = nullptr;
};

struct Graph {
    uint32_t internalNum = 0;
    std::vector<Node> nodes;
    std::vector<bool> known; // tensors that are inputs or that a node has written
};

// Descriptions of a graph's inputs, outputs and internals; the last two still unknown. Throws
// Failure if a graph output is never written.
Descs GraphTensors(const HostatbOperation &graph, const Descs &in);

// Enters what a node writes. An input that a node updates in place stays what it is.
void SetNodeOutputs(const HostatbOperation &graph, const Node &node, const Descs &out,
                    Descs &tensors);

// The graph's own outputs among its tensors.
Descs GraphOutputs(const HostatbOperation &graph, const Descs &tensors);

// What input `descs` of a node look like after its reshape. Throws Failure.
Descs NodeInputs(const Node &node, const Descs &graphTensors);

// Output descriptions from input descriptions. Throws Failure.
Descs InferShape(const HostatbOperation &operation, const Descs &in);

} // namespace hostatb

struct HostatbOperation {
    std::string type;
    uint32_t inNum = 0;
    uint32_t outNum = 0;
    bool owned = false;                   // it is a node of a graph
    std::optional<hostatb::Leaf> leaf;    // exactly one of these two
    std::optional<hostatb::Graph> graph;
    std::unique_ptr<hostatb::TopLevel> top; // since the first Setup

    HostatbOperation();
    ~HostatbOperation();
    bool IsGraph() const { return graph.has_value(); }
};

#endif
