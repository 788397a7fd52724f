// Many tensors of one size through the calls of one operation each, and the cost of closed gates.
#include "driver.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "stub_atb.h"

namespace driver {
namespace {

double Now()
{
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string OperationDirectory(uint64_t index)
{
    return "0_" + std::to_string(getpid()) + "/0/" + std::to_string(index) + "_LinearOperation";
}

// The questions that ATB asks around the output of one operation, and the tensor itself.
void SaveOutput(uint64_t index, const std::string &dims, const void *data, uint64_t size)
{
    const std::string directory = OperationDirectory(index);
    if (atb::Probe::IsExecuteCountInRange(0) &&
        atb::Probe::IsSaveTensorInSpecificDir(directory) && atb::Probe::IsSaveTensorAfter()) {
        atb::Probe::IsSaveTensorData();
        atb::Probe::SaveTensor("2", "1", dims, data, size, directory + "/after/outtensor0.bin");
    }
    atb::Probe::ReportOperationIOTensorEnable();
    atb::Probe::UpdateConfig();
}

void MakeDirectories(const std::string &path)
{
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        mkdir(path.substr(0, at).c_str(), 0750);
    }
    if (mkdir(path.c_str(), 0750) != 0 && errno != EEXIST) {
        throw std::runtime_error("cannot make " + path);
    }
}

// The same bytes into the same kind of file, without a probe.
void PlainWrite(const std::string &root, uint64_t index, const std::string &dims, const void *data,
                uint64_t size)
{
    const std::string directory = root + "/" + OperationDirectory(index) + "/after";
    MakeDirectories(directory);
    const std::string header =
        "$Version=1.0\n$Object.Count=1\n$Object.Length=" + std::to_string(size) +
        "\nformat=2\ndtype=1\ndims=" + dims + "\n$Object.data=0," + std::to_string(size) +
        "\n$End=1\n";
    const std::string path = directory + "/outtensor0.bin";
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0640);
    if (fd < 0 || write(fd, header.data(), header.size()) < 0) {
        throw std::runtime_error("cannot write " + path);
    }
    const char *bytes = static_cast<const char *>(data);
    for (uint64_t done = 0; done < size;) {
        const ssize_t written = write(fd, bytes + done, size - done);
        if (written <= 0) {
            throw std::runtime_error("cannot write " + path);
        }
        done += static_cast<uint64_t>(written);
    }
    close(fd);
}

double NanosecondsPerGate(uint64_t rounds)
{
    const std::vector<int64_t> ids = {0, 1, 2};
    const std::string type = "LinearOperation";
    const std::string directory = "0_1/0/0_Layer/1_LinearOperation";
    uint64_t yes = 0;
    const double begin = Now();
    for (uint64_t i = 0; i < rounds; ++i) {
        yes += atb::Probe::IsTensorNeedSave(ids, type) ? 1 : 0;
        yes += atb::Probe::IsExecuteCountInRange(i) ? 1 : 0;
        yes += atb::Probe::IsSaveTensorBefore() ? 1 : 0;
        yes += atb::Probe::IsSaveTensorAfter() ? 1 : 0;
        yes += atb::Probe::IsSaveTensorInSpecificDir(directory) ? 1 : 0;
        yes += atb::Probe::ReportOperationIOTensorEnable() ? 1 : 0;
        yes += atb::Probe::ReportKernelIOTensorEnable() ? 1 : 0;
        yes += atb::Probe::IsOverflowCheck() ? 1 : 0;
        atb::Probe::UpdateConfig();
    }
    const double seconds = Now() - begin;
    fprintf(stderr, yes == 0 ? "" : " "); // the answers are used
    return seconds * 1e9 / (static_cast<double>(rounds) * 9.0);
}

// The highest resident size of this program; rusage would count the program that started it too.
long PeakKibibytes()
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long peak = 0;
    while (status != nullptr && fgets(line, sizeof(line), status) != nullptr) {
        if (sscanf(line, "VmHWM: %ld", &peak) == 1) {
            break;
        }
    }
    if (status != nullptr) {
        fclose(status);
    }
    return peak;
}

} // namespace

int RunBench(const Options &options)
{
    const uint64_t gates = Number(options, "gates", 0);
    if (gates > 0) {
        NanosecondsPerGate(1000);
        printf("{\"gate_ns\": %.3f}\n", NanosecondsPerGate(gates));
        return 0;
    }
    const uint64_t count = Number(options, "ops", 100);
    const uint64_t size = Number(options, "size", 65536);
    const std::string plain = Text(options, "plain", "");
    const std::string dims = std::to_string(size / 2);
    const bool distinct = Number(options, "distinct", 1) != 0;
    std::vector<char> data(size);
    for (size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    std::vector<int64_t> ids = {0};
    if (plain.empty() && !atb::Probe::IsTensorNeedSave(ids, "LinearOperation")) {
        fprintf(stderr, "the probe does not select the operation\n");
    }
    atb::Probe::IsSaveTensorDesc();
    const double begin = Now();
    for (uint64_t i = 0; i < count; ++i) {
        if (distinct && size >= sizeof(i)) {
            memcpy(data.data(), &i, sizeof(i));
        }
        if (plain.empty()) {
            SaveOutput(i, dims, data.data(), size);
        } else {
            PlainWrite(plain, i, dims, data.data(), size);
        }
    }
    const double end = Now();
    printf("{\"pid\": %d, \"begin\": %.9f, \"end\": %.9f, \"peak_kib\": %ld}\n", getpid(), begin,
           end, PeakKibibytes());
    return 0;
}

} // namespace driver
