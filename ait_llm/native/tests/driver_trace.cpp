// Setup and Execute as ATB does them: ids, directories, counters, cached answers, short circuits.
#include "driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "stub_atb.h"

namespace driver {
namespace {

enum Generation : uint64_t { ATB_8_0 = 80, ATB_8_1 = 81, ATB_8_3 = 83, ATB_9_1 = 91 };

struct Kernel {
    std::string name;
    std::string mkiName;
    std::string param;
    bool needSave = false;
};

// A node of the graph with its runner.
struct Node {
    std::string type;
    std::string param; // "" for a graph
    std::vector<int> inIds, outIds; // in the tensors of the parent
    int inNum = 0, outNum = 0, internalNum = 0;
    std::vector<std::string> irNames; // inputs, then outputs
    std::vector<Kernel> kernels;
    std::vector<Node> children;

    std::vector<int64_t> ids;
    std::string directory;
    bool needSave = false;
    uint64_t count = 0;

    bool IsGraph() const { return !children.empty(); }
    std::string Name() const
    {
        std::string name = type;
        for (int64_t id : ids) {
            name += "_" + std::to_string(id);
        }
        return name;
    }
};

const char *const LINEAR_PARAM =
    R"({"enAccum":false,"hasBias":false,"matmulType":0,"outDataType":-1,"quantMode":0,"transposeA":false,"transposeB":true})";
const char *const SWISH_PARAM = R"({"activationType":4,"dim":-1,"scale":1.0})";
const char *const ADD_PARAM =
    R"({"elewiseType":8,"mulsParam":{"varAttr":0.0},"outTensorType":-1,"quantParam":{"asymmetric":false,"inputOffset":0,"inputScale":1.0}})";
const char *const MATMUL_KERNEL_PARAM =
    R"({"enDequant":false,"oriShape":[2,2,2],"tilingK":0,"tilingN":0,"transposeA":false,"transposeB":true,"withBias":false})";

Node Leaf(const char *type, const char *param, std::vector<int> inIds, std::vector<int> outIds,
          std::vector<std::string> irNames, Kernel kernel)
{
    Node node;
    node.type = type;
    node.param = param;
    node.inNum = static_cast<int>(inIds.size());
    node.outNum = static_cast<int>(outIds.size());
    node.inIds = std::move(inIds);
    node.outIds = std::move(outIds);
    node.irNames = std::move(irNames);
    node.kernels.push_back(std::move(kernel));
    return node;
}

Node Linear(std::vector<int> in, std::vector<int> out)
{
    return Leaf("LinearOperation", LINEAR_PARAM, std::move(in), std::move(out),
                {"input", "weight", "output"},
                {"PpMatMulF16Kernel", "MatMulOperation", MATMUL_KERNEL_PARAM});
}

Node Add(std::vector<int> in, std::vector<int> out)
{
    return Leaf("ElewiseOperation", ADD_PARAM, std::move(in), std::move(out), {"x", "y", "output"},
                {"AddF16Kernel", "ElewiseOperation",
                 R"({"elewiseType":8,"inputOffset":0,"inputScale":1.0,"outTensorType":-1,"varAttr":0.0})"});
}

Node DecoderLayer()
{
    Node mlp;
    mlp.type = "Mlp";
    mlp.inIds = {4, 2};
    mlp.outIds = {5};
    mlp.inNum = 2;
    mlp.outNum = 1;
    mlp.internalNum = 1;
    mlp.children.push_back(Linear({0, 1}, {3}));
    mlp.children.push_back(Leaf("ActivationOperation", SWISH_PARAM, {3}, {2}, {"x", "y"},
                                {"SwishF16Kernel", "ActivationOperation", "{}"}));
    Node layer;
    layer.type = "DecoderLayer";
    layer.inNum = 3;
    layer.outNum = 1;
    layer.internalNum = 2;
    layer.children.push_back(Linear({0, 1}, {4}));
    layer.children.push_back(std::move(mlp));
    layer.children.push_back(Add({0, 5}, {3}));
    return layer;
}

std::string Join(const std::vector<int> &numbers)
{
    std::string text;
    for (int number : numbers) {
        text += text.empty() ? "" : ",";
        text += std::to_string(number);
    }
    return text;
}

// Keys in byte order, as the JSON library of ATB writes them.
std::string GraphJson(const Node &node, bool root)
{
    std::string json = "{";
    if (!root) {
        json += "\"inTensorIds\":[" + Join(node.inIds) + "],";
    }
    json += "\"inTensorNum\":" + std::to_string(node.inNum);
    if (node.IsGraph()) {
        json += ",\"internalTensorNum\":" + std::to_string(node.internalNum) + ",\"nodes\":[";
        for (size_t i = 0; i < node.children.size(); ++i) {
            json += (i == 0 ? "" : ",") + GraphJson(node.children[i], false);
        }
        json += "]";
    }
    json += ",\"opName\":\"" + node.Name() + "\",\"opType\":\"" + node.type + "\"";
    if (!root) {
        json += ",\"outTensorIds\":[" + Join(node.outIds) + "]";
    }
    json += ",\"outTensorNum\":" + std::to_string(node.outNum) +
            ",\"param\":" + (node.param.empty() ? "\"\"" : node.param) + "}";
    return json;
}

std::atomic<int64_t> g_nextId{0};
std::atomic<int> g_failedCalls{0};

class Operation {
public:
    Operation(Generation generation, uint64_t device, bool overflow, bool empty)
        : generation_(generation), device_(device), overflow_(overflow), empty_(empty),
          root_(DecoderLayer())
    {
    }

    void Setup()
    {
        const bool first = root_.ids.empty();
        if (first) {
            root_.ids = {g_nextId.fetch_add(1)};
            CreateRunners(root_);
            if (atb::Probe::ReportOperationGraphEnable()) {
                atb::Probe::ReportOperationGraph(root_.Name(), GraphJson(root_, true));
            }
        }
        root_.needSave = atb::Probe::IsTensorNeedSave(root_.ids, root_.type);
        if (atb::Probe::IsSaveTensorDesc()) {
            SetDirectories(root_, std::to_string(device_) + "_" + std::to_string(getpid()) + "/" +
                                      std::to_string(setups_));
        }
        SetupRunner(root_, first);
        FillTiling(root_);
        ++setups_;
        if (atb::Probe::ReportOperationStatisticEnable()) {
            atb::Probe::ReportOperationSetupStatistic(
                setups_, root_.Name(), "totalTime:188, runnerCreateTime:12, runnerSetupTime:115");
        }
    }

    bool Execute()
    {
        const bool good = ExecuteRunner(root_);
        if (good && generation_ <= ATB_8_0 && atb::Probe::ReportOperationStatisticEnable()) {
            atb::Probe::ReportOperationExecuteStatistic(
                setups_, root_.Name(), "totalTime:535801, streamSyncTime:0, kernelExecuteTime:416");
        }
        return good;
    }

    const std::string &Type() const { return root_.type; }

private:
    void CreateRunners(Node &graph)
    {
        for (size_t i = 0; i < graph.children.size(); ++i) {
            Node &child = graph.children[i];
            child.ids = graph.ids;
            child.ids.push_back(static_cast<int64_t>(i));
            CreateRunners(child);
            child.needSave = atb::Probe::IsTensorNeedSave(child.ids, child.type);
        }
    }

    void SetDirectories(Node &node, const std::string &parent)
    {
        node.directory = parent + "/" + std::to_string(node.ids.back()) + "_" + node.type;
        for (Node &child : node.children) {
            SetDirectories(child, node.directory);
        }
    }

    void SetupRunner(Node &node, bool first)
    {
        for (Node &child : node.children) {
            SetupRunner(child, first);
        }
        for (size_t k = 0; first && k < node.kernels.size(); ++k) {
            std::vector<int64_t> ids = node.ids;
            ids.push_back(static_cast<int64_t>(k));
            node.kernels[k].needSave = atb::Probe::IsTensorNeedSave(ids, node.type);
        }
        if (generation_ >= ATB_8_3) {
            atb::Probe::UpdateConfig();
        }
    }

    std::string KernelDirectory(const Node &node, size_t k) const
    {
        return node.directory + "/" + std::to_string(k) + "_" + node.kernels[k].name;
    }

    bool DirectoryWanted(const std::string &directory) const
    {
        return generation_ < ATB_8_3 || atb::Probe::IsSaveTensorInSpecificDir(directory);
    }

    void FillTiling(Node &node)
    {
        for (Node &child : node.children) {
            FillTiling(child);
        }
        for (size_t k = 0; k < node.kernels.size(); ++k) {
            const std::string directory = KernelDirectory(node, k);
            if (node.kernels[k].needSave && atb::Probe::IsExecuteCountInRange(node.count) &&
                atb::Probe::IsSaveTiling() && DirectoryWanted(directory)) {
                const std::vector<uint8_t> tiling(160, 7);
                atb::Probe::SaveTiling(tiling.data(), tiling.size(),
                                       directory + "/kernel_tilingdata.bin");
            }
        }
    }

    // Values differ by operation, role, index and round, so that mixed-up files are found.
    std::vector<uint8_t> Values(const Node &node, bool input, int index, const char *phase) const
    {
        std::vector<uint8_t> values(8);
        for (size_t i = 0; i < values.size(); i += 2) {
            const auto value = static_cast<uint16_t>(
                0x3c00 + node.ids.back() * 64 + (input ? 0 : 32) + index * 8 +
                (phase[0] == 'a' ? 4 : 0) + static_cast<int64_t>(i / 2));
            values[i] = static_cast<uint8_t>(value);
            values[i + 1] = static_cast<uint8_t>(value >> 8);
        }
        return values;
    }

    void DumpTensors(const Node &node, const std::string &directory, const char *phase,
                     bool withIrNames)
    {
        atb::Probe::IsSaveTensorData();
        for (int i = 0; i < node.inNum + node.outNum; ++i) {
            const bool input = i < node.inNum;
            const int index = input ? i : i - node.inNum;
            std::string file = (input ? "intensor" : "outtensor") + std::to_string(index);
            if (withIrNames && generation_ >= ATB_9_1 && !node.irNames.empty()) {
                file += "_" + node.irNames[static_cast<size_t>(i)];
            }
            const std::string path = directory + "/" + phase + "/" + file + ".bin";
            if (empty_ && input && index == 1) {
                atb::Probe::SaveTensor("-1", "-1", "", nullptr, 0, path);
                continue;
            }
            std::vector<uint8_t> values = Values(node, input, index, phase);
            auto buffer = std::make_unique<uint8_t[]>(values.size());
            memcpy(buffer.get(), values.data(), values.size());
            atb::Probe::SaveTensor("2", "1", "2,2", buffer.get(), values.size(), path);
            memset(buffer.get(), 0xaa, values.size()); // ATB frees it now
        }
    }

    bool Wanted(const Node &node) const
    {
        return atb::Probe::IsExecuteCountInRange(node.count) && node.needSave &&
               DirectoryWanted(node.directory);
    }

    std::vector<atb::Probe::Tensor> Described(const Node &node, bool input) const
    {
        std::vector<atb::Probe::Tensor> tensors;
        const std::string phase = before_ ? "/before/" : "/after/";
        for (int i = 0; i < (input ? node.inNum : node.outNum); ++i) {
            tensors.push_back({"float16", "nd", "2,2",
                               node.directory + phase + (input ? "intensor" : "outtensor") +
                                   std::to_string(i) + ".bin"});
        }
        return tensors;
    }

    bool RunKernel(Node &node, size_t k)
    {
        const Kernel &kernel = node.kernels[k];
        const std::string directory = KernelDirectory(node, k);
        if (kernel.needSave && atb::Probe::IsExecuteCountInRange(node.count) &&
            atb::Probe::IsSaveTensorBefore() && DirectoryWanted(directory)) {
            DumpTensors(node, directory, "before", false);
        }
        bool good = true;
        if (atb::Probe::IsOverflowCheck() && overflow_) {
            atb::Probe::ReportOverflowKernel(node.Name() + ":" + kernel.name);
            good = !atb::Probe::IsOverflowStop();
        }
        if (atb::Probe::ReportKernelIOTensorEnable()) {
            before_ = atb::Probe::IsSaveTensorBefore();
            atb::Probe::ReportKernelIOTensor(node.count, kernel.mkiName, kernel.param,
                                             Described(node, true), Described(node, false));
        }
        if (good && kernel.needSave && atb::Probe::IsExecuteCountInRange(node.count) &&
            atb::Probe::IsSaveTensorAfter() && DirectoryWanted(directory)) {
            DumpTensors(node, directory, "after", false);
        }
        return good;
    }

    bool ExecuteRunner(Node &node)
    {
        if (Wanted(node) && atb::Probe::IsSaveTensorBefore()) {
            DumpTensors(node, node.directory, "before", true);
        }
        bool good = true;
        for (size_t i = 0; good && i < node.children.size(); ++i) {
            good = ExecuteRunner(node.children[i]);
        }
        for (size_t k = 0; good && k < node.kernels.size(); ++k) {
            good = RunKernel(node, k);
        }
        if (Wanted(node) && atb::Probe::IsSaveTensorAfter()) {
            DumpTensors(node, node.directory, "after", true);
        }
        if (Wanted(node) && atb::Probe::IsSaveParam() && !node.param.empty()) {
            atb::Probe::SaveParam(node.param, node.directory + "/op_param.json");
        }
        if (atb::Probe::ReportOperationIOTensorEnable() && !node.IsGraph()) {
            before_ = atb::Probe::IsSaveTensorBefore();
            atb::Probe::ReportOperationIOTensor(node.count, node.Name(), node.param,
                                                Described(node, true), Described(node, false));
        }
        ++node.count;
        return good;
    }

    Generation generation_;
    uint64_t device_;
    bool overflow_;
    bool empty_;
    bool before_ = false;
    uint64_t setups_ = 0;
    Node root_;
};

void ReportModel(const std::string &name, uint64_t layers)
{
    if (!atb_speed::SpeedProbe::IsReportModelTopoInfo(name)) {
        return;
    }
    std::string nodes;
    for (uint64_t i = 0; i < layers; ++i) {
        const std::string in = i == 0 ? "input_0" : "internal_" + std::to_string(i - 1);
        const std::string out = i + 1 == layers ? "output_0" : "internal_" + std::to_string(i);
        nodes += std::string(i == 0 ? "" : ",") + "{\"inTensors\":[\"" + name + "_" + in +
                 "\",\"" + name + "_weight_0\",\"" + name +
                 "_weight_1\"],\"opName\":\"DecoderLayer\",\"outTensors\":[\"" + name + "_" + out +
                 "\"]}";
    }
    atb_speed::SpeedProbe::ReportModelTopoInfo(
        name, "{\"inTensors\":[\"" + name + "_input_0\"],\"modelName\":\"" + name +
                  "\",\"nodes\":[" + nodes + "],\"outTensors\":[\"" + name + "_output_0\"]}");
}

void RunThread(const Options &options, uint64_t layers)
{
    const auto generation = static_cast<Generation>(Number(options, "generation", ATB_8_3));
    const uint64_t rounds = Number(options, "rounds", 1);
    const uint64_t pause = Number(options, "pause_ms", 0);
    std::vector<std::unique_ptr<Operation>> operations;
    for (uint64_t i = 0; i < layers; ++i) {
        operations.push_back(std::make_unique<Operation>(
            generation, Number(options, "device", 0), Number(options, "overflow", 0) != 0,
            Number(options, "empty", 0) != 0));
    }
    for (uint64_t round = 0; round < rounds; ++round) {
        for (auto &operation : operations) {
            try {
                operation->Setup();
                if (!operation->Execute()) {
                    ++g_failedCalls;
                }
            } catch (const std::exception &error) {
                fprintf(stderr, "an exception reached the host: %s\n", error.what());
                g_failedCalls += 1000;
            }
        }
        if (pause > 0) {
            usleep(static_cast<useconds_t>(pause * 1000));
        }
    }
}

uint64_t CountBins(const std::string &directory)
{
    uint64_t count = 0;
    DIR *stream = opendir(directory.c_str());
    while (const dirent *entry = stream == nullptr ? nullptr : readdir(stream)) {
        const std::string name = entry->d_name;
        struct stat status = {};
        const std::string path = directory + "/" + name;
        if (name[0] == '.' || lstat(path.c_str(), &status) != 0) {
            continue;
        }
        const bool isBin = name.size() > 4 && name.compare(name.size() - 4, 4, ".bin") == 0;
        count += S_ISDIR(status.st_mode) ? CountBins(path) : (isBin ? 1 : 0);
    }
    if (stream != nullptr) {
        closedir(stream);
    }
    return count;
}

// For ctest, which has no Python: a child captures, this process counts what it left.
int RunAndCount(const Options &options, uint64_t expected)
{
    const pid_t child = fork();
    if (child == 0) {
        RunThread(options, Number(options, "layers", 1));
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const char *output = getenv("ATB_OUTPUT_DIR");
    const std::string folder = std::string(output == nullptr ? "." : output) +
                               "/ait_dump/tensors/0_" + std::to_string(child);
    const uint64_t found = CountBins(folder);
    printf("{\"expected\": %llu, \"found\": %llu, \"status\": %d}\n",
           static_cast<unsigned long long>(expected), static_cast<unsigned long long>(found),
           status);
    return found == expected && status == 0 ? 0 : 1;
}

} // namespace

int RunTrace(const Options &options)
{
    if (options.count("expect_files") > 0) {
        return RunAndCount(options, Number(options, "expect_files", 0));
    }
    const uint64_t threads = Number(options, "threads", 1);
    const uint64_t layers = Number(options, "layers", 1);
    const uint64_t models = Number(options, "models", 0);
    if (threads > 1) {
        std::vector<std::thread> running;
        for (uint64_t i = 0; i < threads; ++i) {
            running.emplace_back([&] { RunThread(options, layers); });
        }
        for (std::thread &thread : running) {
            thread.join();
        }
    } else {
        RunThread(options, layers);
        for (uint64_t i = 0; i < models; ++i) {
            if (i > 0) {
                RunThread(options, layers);
            }
            ReportModel(i == 0 ? "DemoModel" : "DemoModel" + std::to_string(i), layers);
        }
    }
    pid_t child = -1;
    int childStatus = 0;
    if (Number(options, "fork", 0) != 0) {
        fflush(stdout);
        child = fork();
        if (child == 0) {
            RunThread(options, layers);
            EndAs(Text(options, "child_end", "exit"));
            exit(0);
        }
        waitpid(child, &childStatus, 0);
    }
    printf("{\"pid\": %d, \"child\": %d, \"child_status\": %d, \"failed\": %d}\n", getpid(), child,
           childStatus, g_failedCalls.load());
    fflush(stdout);
    EndAs(Text(options, "end", "exit"));
    return 0;
}

} // namespace driver
