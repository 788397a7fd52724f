// A program that runs one addition a few times and calls the Probe as ATB does.
// Usage: atb_host EXECUTES ENDING, where ENDING is an exit code, "kill" or "_exit".
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

namespace atb {
class Probe {
public:
    struct Tensor {
        std::string dtype, format, shape, path;
    };
    static bool IsTensorNeedSave(const std::vector<int64_t> &ids, const std::string &opType);
    static bool IsSaveTensorData();
    static bool IsSaveTensorDesc();
    static bool IsExecuteCountInRange(uint64_t count);
    static bool IsSaveTensorAfter();
    static void SaveTensor(const std::string &format, const std::string &dtype,
                           const std::string &dims, const void *data, uint64_t size,
                           const std::string &path);
    static bool IsSaveParam();
    static void SaveParam(const std::string &param, const std::string &path);
    static bool ReportOperationGraphEnable();
    static void ReportOperationGraph(const std::string &name, const std::string &graph);
    static bool ReportOperationIOTensorEnable();
    static void ReportOperationIOTensor(size_t count, const std::string &name,
                                        const std::string &param, const std::vector<Tensor> &in,
                                        const std::vector<Tensor> &out);
    static bool ReportOperationStatisticEnable();
    static void ReportOperationSetupStatistic(uint64_t count, const std::string &name,
                                              const std::string &text);
};
} // namespace atb

using atb::Probe;

static int Device()
{
    const char *rank = getenv("LOCAL_RANK");
    return rank != nullptr ? atoi(rank) : 0;
}

// The driver's answer for a thread that has chosen its device.
extern "C" int aclrtGetDevice(int32_t *device)
{
    *device = Device();
    return 0;
}

extern "C" const char *aclrtGetSocName()
{
    return "Ascend910B4";
}

static const char *GRAPH = "{\"inTensorNum\":2,\"opName\":\"AddOperation_0\","
                           "\"opType\":\"AddOperation\",\"outTensorNum\":1,\"param\":{\"k\":1}}";

static void Execute(uint64_t count, bool need, const std::string &root)
{
    const uint16_t data[4] = {0x3c00, 0xc000, 0x3800, 0x7c00};
    const std::string dir = root + "/" + std::to_string(count) + "/0_AddOperation";
    const bool save = Probe::IsExecuteCountInRange(count) && need;
    if (save && Probe::IsSaveTensorAfter()) {
        Probe::IsSaveTensorData();
        for (const char *name : {"intensor0", "intensor1", "outtensor0"}) {
            Probe::SaveTensor("2", "1", "2,2", data, sizeof(data),
                              dir + "/after/" + name + ".bin");
        }
    }
    if (save && Probe::IsSaveParam()) {
        Probe::SaveParam("{\"k\":1}", dir + "/op_param.json");
    }
    if (Probe::ReportOperationIOTensorEnable()) {
        const std::vector<Probe::Tensor> in(2, {"float16", "nd", "2,2", dir + "/after/intensor0.bin"});
        const std::vector<Probe::Tensor> out(1, {"float16", "nd", "2,2", dir + "/after/outtensor0.bin"});
        Probe::ReportOperationIOTensor(count, "AddOperation_0", "{\"k\":1}", in, out);
    }
}

int main(int argc, char **argv)
{
    const int executes = argc > 1 ? atoi(argv[1]) : 1;
    const char *ending = argc > 2 ? argv[2] : "0";
    const std::string root = std::to_string(Device()) + "_" + std::to_string(getpid());
    const bool need = Probe::IsTensorNeedSave({0}, "AddOperation");
    if (Probe::ReportOperationGraphEnable()) {
        Probe::ReportOperationGraph("AddOperation_0", GRAPH);
    }
    for (int i = 0; i < executes; ++i) {
        Probe::IsSaveTensorDesc();
        if (Probe::ReportOperationStatisticEnable()) {
            Probe::ReportOperationSetupStatistic(static_cast<uint64_t>(i) + 1, "AddOperation_0",
                                                 "totalTime:9, runnerSetupTime:4");
        }
        Execute(static_cast<uint64_t>(i), need, root);
    }
    puts("result 42");
    fflush(stdout);
    if (strcmp(ending, "kill") == 0) {
        raise(SIGKILL);
    }
    if (strcmp(ending, "_exit") == 0) {
        _exit(0);
    }
    return atoi(ending);
}
