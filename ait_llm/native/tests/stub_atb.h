// atb::Probe as ATB declares it, with ATB's field names.
#ifndef AIT_TESTS_STUB_ATB_H
#define AIT_TESTS_STUB_ATB_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace atb {

class Probe {
public:
    struct Tensor {
        std::string dtype;
        std::string format;
        std::string shape;
        std::string filePath;
    };
    static bool IsTensorNeedSave(const std::vector<int64_t> &ids, const std::string &opType);
    static bool IsSaveTensorData();
    static bool IsSaveTensorDesc();
    static bool IsExecuteCountInRange(const uint64_t executeCount);
    static bool IsSaveTensorBefore();
    static bool IsSaveTensorAfter();
    static void SaveTensor(const std::string &format, const std::string &dtype,
                           const std::string &dims, const void *hostData, uint64_t dataSize,
                           const std::string &filePath);
    static bool IsSaveTiling();
    static void SaveTiling(const uint8_t *data, uint64_t dataSize, const std::string &filePath);
    static bool IsSaveParam();
    static void SaveParam(const std::string &param, const std::string &filePath);
    static bool ReportOperationIOTensorEnable();
    static void ReportOperationIOTensor(const size_t executeCount, const std::string &opName,
                                        const std::string &opParam,
                                        const std::vector<Tensor> &inTensors,
                                        const std::vector<Tensor> &outTensors);
    static bool ReportKernelIOTensorEnable();
    static void ReportKernelIOTensor(const size_t executeCount, const std::string &opName,
                                     const std::string &opParam,
                                     const std::vector<Tensor> &inTensors,
                                     const std::vector<Tensor> &outTensors);
    static bool ReportOperationStatisticEnable();
    static void ReportOperationSetupStatistic(const uint64_t executeCount,
                                              const std::string &opName, const std::string &st);
    static void ReportOperationExecuteStatistic(const uint64_t executeCount,
                                                const std::string &opName, const std::string &st);
    static bool ReportOperationGraphEnable();
    static void ReportOperationGraph(const std::string &opName, const std::string &graphJson);
    static bool IsOverflowCheck();
    static bool IsOverflowStop();
    static void ReportOverflowKernel(const std::string &kernelPath);
    static void UpdateConfig();
    static bool IsSaveTensorInSpecificDir(const std::string &tensorDir);
};

} // namespace atb

namespace atb_speed {

class SpeedProbe {
public:
    static bool IsReportModelTopoInfo(const std::string &modelName);
    static void ReportModelTopoInfo(const std::string &modelName, const std::string &graphJson);
};

} // namespace atb_speed

#endif
