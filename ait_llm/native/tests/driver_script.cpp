// Single calls. Each line of standard input is one call, its fields separated by tabs; each answer
// is one line of standard output.
#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stub_atb.h"

namespace driver {
namespace {

using Fields = std::vector<std::string>;

Fields Split(const std::string &text, char separator)
{
    Fields fields;
    size_t begin = 0;
    for (size_t end = text.find(separator); end != std::string::npos;
         end = text.find(separator, begin)) {
        fields.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    fields.push_back(text.substr(begin));
    return fields;
}

// "\n", "\t" and "\\" in a field stand for themselves in C.
std::string Unescape(const std::string &text)
{
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out += text[i];
            continue;
        }
        ++i;
        out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
    }
    return out;
}

std::vector<char> Bytes(const std::string &spec)
{
    std::vector<char> bytes;
    const size_t colon = spec.find(':');
    const std::string kind = spec.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : spec.substr(colon + 1);
    if (kind == "hex") {
        for (size_t i = 0; i + 1 < value.size(); i += 2) {
            bytes.push_back(static_cast<char>(std::stoi(value.substr(i, 2), nullptr, 16)));
        }
    } else if (kind == "fill") { // fill:SIZE:BYTE
        const Fields parts = Split(value, ':');
        bytes.assign(std::stoull(parts.at(0)), static_cast<char>(std::stoi(parts.at(1))));
    } else if (kind == "ramp") { // ramp:SIZE:START, bytes that count up
        const Fields parts = Split(value, ':');
        bytes.resize(std::stoull(parts.at(0)));
        for (size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = static_cast<char>(i * 131 + i / 256 + std::stoull(parts.at(1)));
        }
    } else {
        throw std::runtime_error("unknown data " + spec);
    }
    return bytes;
}

void SaveTensor(const Fields &f)
{
    const std::string &spec = f.at(5);
    if (spec == "null") {
        atb::Probe::SaveTensor(f.at(1), f.at(2), f.at(3), nullptr, 0, Unescape(f.at(4)));
        return;
    }
    if (spec.compare(0, 7, "sparse:") == 0) { // memory that takes no room: zeros, one byte set
        const size_t size = std::stoull(spec.substr(7));
        void *data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) {
            throw std::runtime_error("cannot map the sparse tensor");
        }
        static_cast<char *>(data)[size - 1] = 1;
        atb::Probe::SaveTensor(f.at(1), f.at(2), f.at(3), data, size, Unescape(f.at(4)));
        munmap(data, size);
        return;
    }
    std::vector<char> bytes = Bytes(spec);
    atb::Probe::SaveTensor(f.at(1), f.at(2), f.at(3), bytes.data(), bytes.size(),
                           Unescape(f.at(4)));
    memset(bytes.data(), 0xaa, bytes.size()); // the host reuses its buffer at once
}

// "dtype,format,shape with x,path" separated by ';'
std::vector<atb::Probe::Tensor> Tensors(const std::string &text)
{
    std::vector<atb::Probe::Tensor> tensors;
    if (text.empty()) {
        return tensors;
    }
    for (const std::string &one : Split(text, ';')) {
        const Fields parts = Split(one, ',');
        std::string shape = parts.at(2);
        for (char &c : shape) {
            c = c == 'x' ? ',' : c;
        }
        tensors.push_back({parts.at(0), parts.at(1), shape, Unescape(parts.at(3))});
    }
    return tensors;
}

int Ask(const Fields &f)
{
    const std::string &name = f.at(0);
    if (name == "need") {
        std::vector<int64_t> ids;
        for (const std::string &id : Split(f.at(1), '_')) {
            ids.push_back(std::stoll(id));
        }
        return atb::Probe::IsTensorNeedSave(ids, f.at(2));
    }
    if (name == "range") return atb::Probe::IsExecuteCountInRange(std::stoull(f.at(1)));
    if (name == "data") return atb::Probe::IsSaveTensorData();
    if (name == "desc") return atb::Probe::IsSaveTensorDesc();
    if (name == "before") return atb::Probe::IsSaveTensorBefore();
    if (name == "after") return atb::Probe::IsSaveTensorAfter();
    if (name == "dir") return atb::Probe::IsSaveTensorInSpecificDir(f.at(1));
    if (name == "istiling") return atb::Probe::IsSaveTiling();
    if (name == "isparam") return atb::Probe::IsSaveParam();
    if (name == "isop") return atb::Probe::ReportOperationIOTensorEnable();
    if (name == "iskernel") return atb::Probe::ReportKernelIOTensorEnable();
    if (name == "isstatistic") return atb::Probe::ReportOperationStatisticEnable();
    if (name == "isgraph") return atb::Probe::ReportOperationGraphEnable();
    if (name == "isoverflow") return atb::Probe::IsOverflowCheck();
    if (name == "isstop") return atb::Probe::IsOverflowStop();
    if (name == "ismodel") return atb_speed::SpeedProbe::IsReportModelTopoInfo(f.at(1));
    return -1;
}

bool Tell(const Fields &f)
{
    const std::string &name = f.at(0);
    if (name == "tensor") {
        SaveTensor(f);
    } else if (name == "tiling") {
        const std::vector<char> bytes = Bytes(f.at(2));
        atb::Probe::SaveTiling(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(),
                               f.at(1));
    } else if (name == "param") {
        atb::Probe::SaveParam(Unescape(f.at(2)), Unescape(f.at(1)));
    } else if (name == "graph") {
        atb::Probe::ReportOperationGraph(Unescape(f.at(1)), f.at(2));
    } else if (name == "model") {
        atb_speed::SpeedProbe::ReportModelTopoInfo(Unescape(f.at(1)), f.at(2));
    } else if (name == "op") {
        atb::Probe::ReportOperationIOTensor(std::stoull(f.at(1)), f.at(2), Unescape(f.at(3)),
                                            Tensors(f.at(4)), Tensors(f.at(5)));
    } else if (name == "kernel") {
        atb::Probe::ReportKernelIOTensor(std::stoull(f.at(1)), f.at(2), Unescape(f.at(3)),
                                         Tensors(f.at(4)), Tensors(f.at(5)));
    } else if (name == "setup") {
        atb::Probe::ReportOperationSetupStatistic(std::stoull(f.at(1)), f.at(2), f.at(3));
    } else if (name == "execute") {
        atb::Probe::ReportOperationExecuteStatistic(std::stoull(f.at(1)), f.at(2), f.at(3));
    } else if (name == "overflow") {
        atb::Probe::ReportOverflowKernel(f.at(1));
    } else if (name == "update") {
        atb::Probe::UpdateConfig();
    } else {
        return false;
    }
    return true;
}

std::vector<int> g_ends;

void Control(const Fields &f)
{
    const std::string &name = f.at(0);
    if (name == "sleep") {
        usleep(static_cast<useconds_t>(std::stoul(f.at(1)) * 1000));
    } else if (name == "chdir") {
        if (chdir(f.at(1).c_str()) != 0) {
            throw std::runtime_error("cannot change into " + f.at(1));
        }
    } else if (name == "system") {
        if (system(f.at(1).c_str()) != 0) {
            throw std::runtime_error("failed: " + f.at(1));
        }
    } else if (name == "closerange") { // as daemons do with whatever they inherited
        for (int fd = 3; fd < 4096; ++fd) {
            close(fd);
        }
    } else if (name == "sockets") { // takes the lowest free numbers
        for (uint64_t i = 0; i < std::stoull(f.at(1)); ++i) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
                throw std::runtime_error("cannot make sockets");
            }
            g_ends.insert(g_ends.end(), {ends[0], ends[1]});
        }
    } else if (name == "heard") { // how many bytes came to these sockets
        size_t bytes = 0;
        char text[4096];
        for (int fd : g_ends) {
            for (ssize_t got = 1; got > 0; bytes += got > 0 ? static_cast<size_t>(got) : 0) {
                got = recv(fd, text, sizeof(text), MSG_DONTWAIT);
            }
        }
        std::cout << "heard " << bytes << std::endl;
    } else if (name == "files") { // the same with a file of the host, or one of its folders
        for (uint64_t i = 0; i < std::stoull(f.at(1)); ++i) {
            const int flags = f.at(3) == "folder" ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT;
            if (open(f.at(2).c_str(), flags, 0600) < 0) {
                throw std::runtime_error("cannot open " + f.at(2));
            }
        }
    } else if (name == "say") { // lets the test act in between
        std::cout << f.at(1) << std::endl;
    } else if (name == "end") {
        EndAs(f.at(1));
    } else {
        throw std::runtime_error("unknown call " + name);
    }
}

} // namespace

int RunScript(const Options &)
{
    std::cout << "pid " << getpid() << std::endl;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::string pid = std::to_string(getpid());
        for (size_t at = line.find("{pid}"); at != std::string::npos; at = line.find("{pid}")) {
            line.replace(at, 5, pid);
        }
        const Fields fields = Split(line, '\t');
        const int answer = Ask(fields);
        if (answer >= 0) {
            std::cout << fields[0] << " " << answer << std::endl;
        } else if (!Tell(fields)) {
            Control(fields);
        }
    }
    return 0;
}

} // namespace driver
