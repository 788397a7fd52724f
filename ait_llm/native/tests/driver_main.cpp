#include "driver.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <unistd.h>

namespace driver {

void EndAs(const std::string &how)
{
    fflush(stdout);
    if (how == "_exit") {
        _exit(0);
    } else if (how == "quick_exit") {
        quick_exit(0);
    } else if (how == "abort") {
        abort();
    } else if (how == "segv") {
        raise(SIGSEGV);
    } else if (how == "term") {
        raise(SIGTERM);
    } else if (how == "kill") {
        raise(SIGKILL);
    } else if (how == "exec") {
        execl("/bin/sleep", "sleep", "0.3", static_cast<char *>(nullptr));
    } else if (how == "hang") {
        while (true) {
            pause();
        }
    }
}

} // namespace driver

int main(int argc, char **argv)
{
    driver::Options options;
    const std::string mode = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; ++i) {
        const char *equals = strchr(argv[i], '=');
        if (equals == nullptr) {
            fprintf(stderr, "%s is not of the form name=value\n", argv[i]);
            return 2;
        }
        options[std::string(argv[i], static_cast<size_t>(equals - argv[i]))] = equals + 1;
    }
    try {
        if (mode == "trace") {
            return driver::RunTrace(options);
        }
        if (mode == "script") {
            return driver::RunScript(options);
        }
        if (mode == "bench") {
            return driver::RunBench(options);
        }
        if (mode == "soak") {
            return driver::RunSoak(options);
        }
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    fprintf(stderr, "usage: %s trace|script|bench|soak [name=value ...]\n", argv[0]);
    return 2;
}
