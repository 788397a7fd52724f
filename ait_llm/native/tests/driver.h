// A program that calls the Probe as ATB does. Options are words of the form name=value.
#ifndef AIT_TESTS_DRIVER_H
#define AIT_TESTS_DRIVER_H

#include <cstdint>
#include <map>
#include <string>

namespace driver {

using Options = std::map<std::string, std::string>;

inline std::string Text(const Options &options, const std::string &name, const std::string &value)
{
    const auto found = options.find(name);
    return found == options.end() ? value : found->second;
}

inline uint64_t Number(const Options &options, const std::string &name, uint64_t value)
{
    const auto found = options.find(name);
    return found == options.end() ? value : std::stoull(found->second);
}

// Each returns the exit status of the program.
int RunTrace(const Options &options);  // Setup and Execute of a two-level graph
int RunScript(const Options &options); // single calls, read from standard input
int RunBench(const Options &options);  // many tensors of one size, and the cost of gates
int RunSoak(const Options &options);   // threads whose tensors follow from their numbers

// Ends the process in the way that end=… names; returns for "exit".
void EndAs(const std::string &how);

} // namespace driver

#endif
