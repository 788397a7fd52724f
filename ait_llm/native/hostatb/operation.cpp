#include "operation.h"

#include "failure.h"
#include "top_level.h"

HostatbOperation::HostatbOperation() = default;
HostatbOperation::~HostatbOperation() = default;

namespace hostatb {
namespace {

Descs InferLeaf(const HostatbOperation &operation, const Descs &in)
{
    const HostatbCallbacks &callbacks = operation.leaf->callbacks;
    Descs out(operation.outNum);
    if (callbacks.infer_shape == nullptr) {
        throw Failure(HOSTATB_ERROR_INTERNAL_ERROR, operation.type + " has no shape inference");
    }
    const int status = callbacks.infer_shape(callbacks.user, operation.inNum, in.data(),
                                             operation.outNum, out.data());
    if (status != HOSTATB_NO_ERROR) {
        throw Failure(status, "shape inference of " + operation.type + " failed");
    }
    return out;
}

Descs InferGraph(const HostatbOperation &operation, const Descs &in)
{
    Descs tensors = GraphTensors(operation, in);
    for (const Node &node : operation.graph->nodes) {
        SetNodeOutputs(operation, node, InferShape(*node.operation, NodeInputs(node, tensors)),
                       tensors);
    }
    return GraphOutputs(operation, tensors);
}

} // namespace

Descs GraphTensors(const HostatbOperation &graph, const Descs &in)
{
    for (uint32_t i = 0; i < graph.outNum; ++i) {
        if (!graph.graph->known[graph.inNum + i]) {
            throw Failure(HOSTATB_ERROR_INVALID_GRAPH,
                          "no node of " + graph.type + " writes output " + std::to_string(i));
        }
    }
    Descs tensors = in;
    tensors.resize(in.size() + graph.outNum + graph.graph->internalNum);
    return tensors;
}

void SetNodeOutputs(const HostatbOperation &graph, const Node &node, const Descs &out,
                    Descs &tensors)
{
    for (size_t i = 0; i < out.size(); ++i) {
        if (node.outIds[i] >= graph.inNum) {
            tensors[node.outIds[i]] = out[i];
        }
    }
}

Descs GraphOutputs(const HostatbOperation &graph, const Descs &tensors)
{
    const auto first = tensors.begin() + graph.inNum;
    return Descs(first, first + graph.outNum);
}

Descs NodeInputs(const Node &node, const Descs &graphTensors)
{
    Descs in;
    for (uint32_t i = 0; i < node.inIds.size(); ++i) {
        in.push_back(graphTensors[node.inIds[i]]);
        if (node.reshape == nullptr) {
            continue;
        }
        const HostatbDesc before = in.back();
        const int status = node.reshape(node.reshapeUser, i, &in.back());
        if (status != HOSTATB_NO_ERROR || ByteCount(in.back()) != ByteCount(before)) {
            throw Failure(status != HOSTATB_NO_ERROR ? status : HOSTATB_ERROR_INVALID_TENSOR_DIM,
                          "input " + std::to_string(i) + " of " + node.operation->type +
                              " cannot be seen as " + DescText(in.back()) + " over " +
                              DescText(before));
        }
    }
    return in;
}

Descs InferShape(const HostatbOperation &operation, const Descs &in)
{
    if (in.size() != operation.inNum) {
        throw Failure(HOSTATB_ERROR_INVALID_IN_TENSOR_NUM,
                      operation.type + " takes " + std::to_string(operation.inNum) +
                          " input tensors, not " + std::to_string(in.size()));
    }
    return operation.IsGraph() ? InferGraph(operation, in) : InferLeaf(operation, in);
}

} // namespace hostatb
