// The C API: checks of arguments, and a wall that no exception passes.
#include <algorithm>
#include <cctype>
#include <exception>
#include <string>

#include "atb_probe.h"
#include "context.h"
#include "failure.h"
#include "hostatb.h"
#include "operation.h"
#include "runner.h"
#include "settings.h"
#include "top_level.h"

namespace {

using namespace hostatb;

constexpr size_t kMaxGraphName = 128; // of GraphParam.name

template <typename Body> int Guarded(Body body)
{
    PrepareUnwinder();
    try {
        SetLastError("");
        return body();
    } catch (const Failure &failure) {
        SetLastError(failure.what());
        return failure.status();
    } catch (const std::exception &exception) {
        SetLastError(exception.what());
    } catch (...) {
        SetLastError("an exception of unknown type");
    }
    return HOSTATB_ERROR_OUT_OF_HOST_MEMORY;
}

void Require(bool condition, const std::string &what)
{
    if (!condition) {
        throw Failure(HOSTATB_ERROR_INVALID_PARAM, what);
    }
}

std::vector<std::string> Names(uint32_t count, const char *const *names)
{
    std::vector<std::string> copy;
    for (uint32_t i = 0; names != nullptr && i < count; ++i) {
        copy.emplace_back(names[i] != nullptr ? names[i] : "");
    }
    return copy;
}

bool IsGraphName(const std::string &name)
{
    for (const char c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') {
            return false;
        }
    }
    return name.size() <= kMaxGraphName;
}

TopLevel &TopOf(HostatbOperation *operation, const HostatbContext *context)
{
    Require(operation != nullptr && context != nullptr, "an operation and a context are needed");
    Require(!operation->owned, operation->type + " is a node of a graph; run the graph");
    if (!operation->top) {
        operation->top = std::make_unique<TopLevel>(*operation);
    }
    return *operation->top;
}

std::vector<uint32_t> Ids(uint32_t count, const uint32_t *ids)
{
    return count == 0 ? std::vector<uint32_t>() : std::vector<uint32_t>(ids, ids + count);
}

void CheckNode(const HostatbOperation &graph, const Node &node, const HostatbOperation &operation)
{
    const std::vector<bool> &known = graph.graph->known;
    for (const std::vector<uint32_t> *ids : {&node.inIds, &node.outIds}) {
        for (const uint32_t id : *ids) {
            if (id >= known.size()) {
                throw Failure(HOSTATB_ERROR_INVALID_GRAPH,
                              graph.type + " has " + std::to_string(known.size()) +
                                  " tensors; a node refers to number " + std::to_string(id));
            }
        }
    }
    for (const uint32_t id : node.inIds) {
        if (!known[id]) {
            throw Failure(HOSTATB_ERROR_INVALID_GRAPH,
                          operation.type + " in " + graph.type + " reads tensor " +
                              std::to_string(id) + ", which no earlier node writes");
        }
    }
}

Tensors TensorList(uint32_t count, const HostatbTensor *tensors)
{
    return count == 0 ? Tensors() : Tensors(tensors, tensors + count);
}

} // namespace

extern "C" {

int hostatb_plan_add_kernel(HostatbPlan *plan, const char *name, const char *mkiOp,
                            const char *mkiParam, uint64_t tilingSize, uint32_t inNum,
                            const uint32_t *in, uint32_t outNum, const uint32_t *out)
{
    return Guarded([&] {
        Require(plan != nullptr && name != nullptr && *name != '\0', "a kernel needs a name");
        plan->kernels.push_back({name, mkiOp != nullptr ? mkiOp : "",
                                 mkiParam != nullptr ? mkiParam : "", tilingSize, Ids(inNum, in),
                                 Ids(outNum, out)});
        return HOSTATB_NO_ERROR;
    });
}

int hostatb_plan_add_workspace(HostatbPlan *plan, const HostatbDesc *desc)
{
    return Guarded([&] {
        Require(plan != nullptr && desc != nullptr, "a workspace tensor needs a description");
        plan->workspace.push_back(*desc);
        return HOSTATB_NO_ERROR;
    });
}

void hostatb_raise_float_status(void) { RaiseFloatStatus(); }

HostatbOperation *hostatb_leaf_create(const char *type, const char *paramJson, uint32_t inNum,
                                      const char *const *inNames, uint32_t outNum,
                                      const char *const *outNames, int plugin,
                                      const HostatbCallbacks *callbacks)
{
    HostatbOperation *created = nullptr;
    Guarded([&] {
        Require(type != nullptr && *type != '\0', "an operation needs a type");
        Require(callbacks != nullptr, std::string(type) + " needs callbacks");
        auto operation = std::make_unique<HostatbOperation>();
        operation->type = type;
        operation->inNum = inNum;
        operation->outNum = outNum;
        Leaf &leaf = operation->leaf.emplace();
        if (paramJson != nullptr) {
            leaf.paramJson = paramJson;
        }
        leaf.inNames = Names(inNum, inNames);
        leaf.outNames = Names(outNum, outNames);
        leaf.plugin = plugin != 0;
        leaf.callbacks = *callbacks;
        created = operation.release();
        return HOSTATB_NO_ERROR;
    });
    return created;
}

HostatbOperation *hostatb_graph_create(const char *name, uint32_t inNum, uint32_t outNum,
                                       uint32_t internalNum)
{
    HostatbOperation *created = nullptr;
    Guarded([&] {
        const std::string text = name != nullptr ? name : "";
        Require(IsGraphName(text), "graph name '" + text +
                                       "' is not at most 128 letters, digits and underscores");
        auto operation = std::make_unique<HostatbOperation>();
        operation->type = text.empty() ? "GraphOperation" : text;
        operation->inNum = inNum;
        operation->outNum = outNum;
        Graph &graph = operation->graph.emplace();
        graph.internalNum = internalNum;
        graph.known.resize(size_t{inNum} + outNum + internalNum);
        std::fill_n(graph.known.begin(), inNum, true);
        created = operation.release();
        return HOSTATB_NO_ERROR;
    });
    return created;
}

int hostatb_graph_add_node(HostatbOperation *graph, HostatbOperation *node, uint32_t inNum,
                           const uint32_t *inIds, uint32_t outNum, const uint32_t *outIds,
                           HostatbReshape reshape, void *reshapeUser)
{
    return Guarded([&] {
        Require(graph != nullptr && graph->IsGraph() && node != nullptr && node != graph,
                "a node is added to a graph");
        Require(!graph->top && !graph->owned, graph->type + " is in use and cannot change");
        Require(!node->owned && !node->top, node->type + " is in use already");
        if (inNum != node->inNum || outNum != node->outNum) {
            throw Failure(HOSTATB_ERROR_INVALID_GRAPH,
                          node->type + " has " + std::to_string(node->inNum) + " inputs and " +
                              std::to_string(node->outNum) + " outputs, not " +
                              std::to_string(inNum) + " and " + std::to_string(outNum));
        }
        Node added{nullptr, Ids(inNum, inIds), Ids(outNum, outIds), reshape, reshapeUser};
        CheckNode(*graph, added, *node);
        for (const uint32_t id : added.outIds) {
            graph->graph->known[id] = true;
        }
        graph->graph->nodes.push_back(std::move(added));
        graph->graph->nodes.back().operation.reset(node);
        node->owned = true;
        return HOSTATB_NO_ERROR;
    });
}

HostatbContext *hostatb_context_create(int32_t device)
{
    HostatbContext *created = nullptr;
    Guarded([&] {
        GetSettings();
        auto context = std::make_unique<HostatbContext>();
        context->device = device;
        SetCurrentDevice(device);
        atb::Probe::IsOverflowCheck(); // ATB allocates its status tensor if true
        created = context.release();
        return HOSTATB_NO_ERROR;
    });
    return created;
}

int hostatb_context_set_stream(HostatbContext *context)
{
    return Guarded([&] {
        Require(context != nullptr, "a stream is bound to a context");
        SetCurrentDevice(context->device);
        atb::Probe::IsOverflowCheck(); // ATB switches the stream's overflow detection if true
        return HOSTATB_NO_ERROR;
    });
}

int hostatb_context_set_launch_mode(HostatbContext *context, int graph)
{
    return Guarded([&] {
        Require(context != nullptr, "a launch mode belongs to a context");
        context->graphLaunch = graph != 0;
        return HOSTATB_NO_ERROR;
    });
}

void hostatb_context_destroy(HostatbContext *context)
{
    if (context == nullptr) {
        return;
    }
    Guarded([&] {
        atb::Probe::IsOverflowCheck();
        return HOSTATB_NO_ERROR;
    });
    delete context;
}

int hostatb_infer_shape(HostatbOperation *op, uint32_t inNum, const HostatbDesc *in,
                        uint32_t outNum, HostatbDesc *out)
{
    return Guarded([&] {
        Require(op != nullptr && outNum == op->outNum, "the outputs do not match the operation");
        const Descs found =
            InferShape(*op, inNum == 0 ? Descs() : Descs(in, in + inNum));
        std::copy(found.begin(), found.end(), out);
        return HOSTATB_NO_ERROR;
    });
}

int hostatb_setup(HostatbOperation *op, HostatbContext *context, uint32_t inNum,
                  const HostatbTensor *in, uint32_t outNum, const HostatbTensor *out)
{
    return Guarded([&] {
        return TopOf(op, context).Setup(*context, TensorList(inNum, in), TensorList(outNum, out));
    });
}

int hostatb_execute(HostatbOperation *op, HostatbContext *context, uint32_t inNum,
                    const HostatbTensor *in, uint32_t outNum, const HostatbTensor *out)
{
    return Guarded([&] {
        Require(op != nullptr && op->top != nullptr, "the operation was never set up");
        return TopOf(op, context).Execute(*context, TensorList(inNum, in),
                                          TensorList(outNum, out));
    });
}

void hostatb_operation_destroy(HostatbOperation *op)
{
    if (op != nullptr && !op->owned) {
        delete op;
    }
}

int hostatb_report_model(const char *modelName, const char *topologyJson)
{
    return Guarded([&] {
        Require(modelName != nullptr && topologyJson != nullptr, "a model has a name and a text");
        const std::string name = modelName;
        if (atb_speed::SpeedProbe::IsReportModelTopoInfo(name)) {
            atb_speed::SpeedProbe::ReportModelTopoInfo(name, topologyJson);
        }
        return HOSTATB_NO_ERROR;
    });
}

const char *hostatb_last_error(void) { return LastError(); }

} // extern "C"
