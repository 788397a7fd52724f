// What a top-level operation keeps between Setup and Execute.
#ifndef AIT_HOSTATB_TOP_LEVEL_H
#define AIT_HOSTATB_TOP_LEVEL_H

#include <memory>

#include "context.h"
#include "execute.h"
#include "memory_plan.h"
#include "runner.h"
#include "statistic.h"

namespace hostatb {

class TopLevel {
public:
    // Takes the next id of the process.
    explicit TopLevel(HostatbOperation &operation);

    // Statuses of ATB; the text of a failure is the last error of the thread.
    int Setup(HostatbContext &context, const Tensors &in, const Tensors &out);
    int Execute(HostatbContext &context, const Tensors &in, const Tensors &out);

private:
    void TrySetup(const HostatbContext &context, const Tensors &in, const Tensors &out,
                  SetupStatistic &statistic);
    void CheckTensors(const Tensors &in, const Tensors &out) const;
    void CheckAccepted(const Tensors &in, const Tensors &out) const;
    void CheckOutputs(const Tensors &out) const;
    void CreateRunnersOnce();
    bool IsReplay(const HostatbContext &context, const Tensors &in, const Tensors &out) const;
    int Walk(Execution &execution);
    int Replay(Execution &execution);

    HostatbOperation &operation_;
    int64_t id_;
    uint64_t setupCount_ = 0; // successful ones
    std::unique_ptr<Runner> root_;
    bool graphReported_ = false;
    bool ready_ = false;
    bool captured_ = false; // graph launch: an Execute has walked the tree for these shapes
    MemoryPlan memory_;
};

} // namespace hostatb

#endif
