// The interface that ATB and the ATB model layer call. Names and signatures are the ABI: they are
// fixed by the host libraries, and every function below replaces the host's own by interposition.
#ifndef AIT_PROBE_ATB_PROBE_H
#define AIT_PROBE_ATB_PROBE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#define AIT_EXPORT __attribute__((visibility("default")))

namespace atb {

class Probe {
public:
    // Declared hidden, so that its implicit members can never replace those of the host library.
    struct __attribute__((visibility("hidden"))) Tensor {
        std::string dtype;
        std::string format;
        std::string shape;
        std::string path;
    };

    AIT_EXPORT static bool IsTensorNeedSave(const std::vector<int64_t> &ids,
                                            const std::string &opType);
    AIT_EXPORT static bool IsSaveTensorData();
    AIT_EXPORT static bool IsSaveTensorDesc();
    AIT_EXPORT static bool IsExecuteCountInRange(const uint64_t executeCount);
    AIT_EXPORT static bool IsSaveTensorBefore();
    AIT_EXPORT static bool IsSaveTensorAfter();
    AIT_EXPORT static bool IsSaveTensorInSpecificDir(const std::string &tensorDir);
    AIT_EXPORT static void SaveTensor(const std::string &format, const std::string &dtype,
                                      const std::string &dims, const void *hostData,
                                      uint64_t dataSize, const std::string &filePath);
    AIT_EXPORT static bool IsSaveTiling();
    AIT_EXPORT static void SaveTiling(const uint8_t *buffer, uint64_t size,
                                      const std::string &filePath);
    AIT_EXPORT static bool IsSaveParam();
    AIT_EXPORT static void SaveParam(const std::string &param, const std::string &filePath);
    AIT_EXPORT static bool ReportOperationIOTensorEnable();
    AIT_EXPORT static void ReportOperationIOTensor(const size_t executeCount,
                                                   const std::string &opName,
                                                   const std::string &opParam,
                                                   const std::vector<Tensor> &inTensors,
                                                   const std::vector<Tensor> &outTensors);
    AIT_EXPORT static bool ReportKernelIOTensorEnable();
    AIT_EXPORT static void ReportKernelIOTensor(const size_t executeCount,
                                                const std::string &opName,
                                                const std::string &opParam,
                                                const std::vector<Tensor> &inTensors,
                                                const std::vector<Tensor> &outTensors);
    AIT_EXPORT static bool ReportOperationStatisticEnable();
    AIT_EXPORT static void ReportOperationSetupStatistic(const uint64_t executeCount,
                                                         const std::string &opName,
                                                         const std::string &st);
    AIT_EXPORT static void ReportOperationExecuteStatistic(const uint64_t executeCount,
                                                           const std::string &opName,
                                                           const std::string &st);
    AIT_EXPORT static bool ReportOperationGraphEnable();
    AIT_EXPORT static void ReportOperationGraph(const std::string &opName,
                                                const std::string &graphJson);
    AIT_EXPORT static bool IsOverflowCheck();
    AIT_EXPORT static bool IsOverflowStop();
    AIT_EXPORT static void ReportOverflowKernel(const std::string &kernelPath);
    AIT_EXPORT static void UpdateConfig();
};

} // namespace atb

namespace atb_speed {

class SpeedProbe {
public:
    AIT_EXPORT static bool IsReportModelTopoInfo(const std::string &modelName);
    AIT_EXPORT static void ReportModelTopoInfo(const std::string &modelName,
                                               const std::string &graphJson);
};

} // namespace atb_speed

#endif
