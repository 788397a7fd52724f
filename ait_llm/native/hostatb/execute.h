// Execution of a tree of runners.
#ifndef AIT_HOSTATB_EXECUTE_H
#define AIT_HOSTATB_EXECUTE_H

#include "context.h"
#include "memory_plan.h"
#include "runner.h"
#include "statistic.h"

namespace hostatb {

struct Execution {
    HostatbContext &context;
    const MemoryPlan &memory;
    ExecuteStatistic &statistic;
    bool capture = false; // graph launch: kernels are noted now and run after the walk
};

// Walks one operation and what is below it, with every call to the Probe. Returns the status of the
// first kernel that failed; the text of a failure is the last error of the thread.
int ExecuteRunner(Runner &runner, Execution &execution);

// Runs the kernels of a captured tree without a call to the Probe.
int ReplayKernels(Runner &runner, Execution &execution);

// Counts an Execute of the whole tree that did not walk it.
void CountExecute(Runner &runner);

} // namespace hostatb

#endif
