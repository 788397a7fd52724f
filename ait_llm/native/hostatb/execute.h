// Execution of a tree of runners.
#ifndef AIT_HOSTATB_EXECUTE_H
#define AIT_HOSTATB_EXECUTE_H

#include "context.h"
#include "memory_plan.h"
#include "runner.h"
#include "statistic.h"

namespace hostatb {

// Runs one operation and what is below it, with every call to the Probe. Returns the status of the
// first kernel that failed; the text of a failure is the last error of the thread.
int ExecuteRunner(Runner &runner, HostatbContext &context, const MemoryPlan &memory,
                  ExecuteStatistic &statistic);

} // namespace hostatb

#endif
