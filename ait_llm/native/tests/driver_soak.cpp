// Operations on many threads whose bytes follow from their numbers, for scripts/soak.
#include "driver.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include "stub_atb.h"

namespace driver {
namespace {

constexpr uint64_t LONG_EACH = 64; // every how many operations one has a long tensor

// The same numbers in scripts/soaking.py.
uint64_t Words(uint64_t number)
{
    const uint64_t mixed = (number * 0x9E3779B97F4A7C15u) >> 40;
    return number % LONG_EACH == LONG_EACH - 1 ? 8192 + mixed % 8192 : 1 + mixed % 512;
}

void Fill(uint64_t number, std::vector<uint64_t> &words)
{
    words.resize(Words(number));
    for (size_t i = 0; i < words.size(); ++i) {
        words[i] = number * 0x9E3779B97F4A7C15u + i * 0xD1342543DE82EF95u;
    }
}

// What ATB calls around one operation with one output.
void Execute(uint64_t number, std::vector<uint64_t> &words)
{
    const std::string directory =
        "0_" + std::to_string(getpid()) + "/0/" + std::to_string(number) + "_LinearOperation";
    if (!atb::Probe::IsExecuteCountInRange(0) ||
        !atb::Probe::IsSaveTensorInSpecificDir(directory) || !atb::Probe::IsSaveTensorAfter()) {
        return;
    }
    Fill(number, words);
    const std::string size = std::to_string(words.size());
    atb::Probe::IsSaveTensorData();
    atb::Probe::SaveTensor("2", "10", size, words.data(), words.size() * sizeof(uint64_t),
                           directory + "/after/outtensor0.bin");
    memset(words.data(), 0x5a, words.size() * sizeof(uint64_t)); // the host reuses its memory
    atb::Probe::ReportOperationIOTensorEnable();
    atb::Probe::UpdateConfig();
}

} // namespace

int RunSoak(const Options &options)
{
    const uint64_t threads = Number(options, "threads", 8);
    const uint64_t count = Number(options, "ops", 1000); // of each thread
    const uint64_t first = Number(options, "first", 0);
    const std::vector<int64_t> ids = {0};
    atb::Probe::IsTensorNeedSave(ids, "LinearOperation");
    printf("pid %d\n", getpid());
    fflush(stdout);
    std::vector<std::thread> running;
    for (uint64_t thread = 0; thread < threads; ++thread) {
        running.emplace_back([=] {
            std::vector<uint64_t> words;
            for (uint64_t i = 0; i < count; ++i) {
                Execute(first + i * threads + thread, words);
            }
        });
    }
    for (std::thread &each : running) {
        each.join();
    }
    printf("done\n");
    return 0;
}

} // namespace driver
