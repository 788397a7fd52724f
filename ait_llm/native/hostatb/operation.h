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
};

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
