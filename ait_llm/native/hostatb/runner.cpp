#include "runner.h"

#include "atb_probe.h"

namespace hostatb {
namespace {

std::string ClassName(const HostatbOperation &operation)
{
    if (operation.IsGraph()) {
        return operation.type + "Runner";
    }
    if (operation.leaf->plugin) {
        return "PluginRunner";
    }
    const std::string suffix = "Operation";
    const bool hasSuffix = operation.type.size() > suffix.size() &&
                           operation.type.compare(operation.type.size() - suffix.size(),
                                                  suffix.size(), suffix) == 0;
    return operation.type.substr(0, operation.type.size() - (hasSuffix ? suffix.size() : 0)) +
           "OpsRunner";
}

} // namespace

std::string OperationName(const std::string &type, const std::vector<int64_t> &ids)
{
    std::string name = type;
    for (const int64_t id : ids) {
        name += "_" + std::to_string(id);
    }
    return name;
}

std::string Runner::Name() const { return OperationName(operation->type, ids); }

std::string Runner::KernelDirectory(size_t kernel) const
{
    return directory + "/" + std::to_string(kernel) + "_" + plan.kernels[kernel].name;
}

HostatbDesc Runner::TensorDesc(size_t tensor) const
{
    if (tensor < in.size()) {
        return in[tensor];
    }
    tensor -= in.size();
    return tensor < out.size() ? out[tensor] : plan.workspace[tensor - out.size()];
}

std::unique_ptr<Runner> CreateRunners(HostatbOperation &operation, std::vector<int64_t> ids)
{
    auto runner = std::make_unique<Runner>();
    runner->operation = &operation;
    runner->ids = std::move(ids);
    runner->directory = ClassName(operation);
    if (operation.IsGraph()) {
        for (const Node &node : operation.graph->nodes) {
            std::vector<int64_t> childIds = runner->ids;
            childIds.push_back(static_cast<int64_t>(runner->children.size()));
            auto child = CreateRunners(*node.operation, childIds);
            child->needSave = atb::Probe::IsTensorNeedSave(childIds, node.operation->type);
            runner->children.push_back(std::move(child));
        }
    }
    return runner;
}

void SetDirectories(Runner &runner, const std::string &directory)
{
    runner.directory = directory;
    for (size_t i = 0; i < runner.children.size(); ++i) {
        Runner &child = *runner.children[i];
        SetDirectories(child, directory + "/" + std::to_string(i) + "_" + child.operation->type);
    }
}

} // namespace hostatb
